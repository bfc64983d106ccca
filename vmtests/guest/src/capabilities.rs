//! Capabilities of the calling thread, see capabilities(7).

use std::io;

/// Numbers of linux/capability.h.
pub const SYS_PTRACE: u32 = 19;
pub const SYS_NICE: u32 = 23;
pub const PERFMON: u32 = 38;
pub const BPF: u32 = 39;

/// As capset(2) takes them.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`: two words of each set. Process 0 is the calling thread.
static HEADER: Header = Header { version: 0x2008_0522, pid: 0 };

/// Has these capabilities only.
///
/// # Errors
/// The errno of capset(2).
pub fn keep(numbers: &[u32]) -> io::Result<()> {
    let mut sets = [Sets::default(); 2];
    for &number in numbers {
        let (set, bit) = (&mut sets[number as usize / 32], 1 << (number % 32));
        set.effective |= bit;
        set.permitted |= bit;
        set.inheritable |= bit;
    }
    set(&sets)
}

/// Gives up this capability.
///
/// # Errors
/// The errno of capget(2) or capset(2).
pub fn give_up(number: u32) -> io::Result<()> {
    let mut sets = [Sets::default(); 2];
    // SAFETY: both places have the layout of the kernel's structures and live through the call.
    checked(unsafe { libc::syscall(libc::SYS_capget, &raw const HEADER, &raw mut sets) })?;
    sets[number as usize / 32].effective &= !(1 << (number % 32));
    set(&sets)
}

fn set(sets: &[Sets; 2]) -> io::Result<()> {
    // SAFETY: as in `give_up`.
    checked(unsafe { libc::syscall(libc::SYS_capset, &raw const HEADER, std::ptr::from_ref(sets)) })
}

fn checked(result: libc::c_long) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
