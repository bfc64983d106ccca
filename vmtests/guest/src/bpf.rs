//! BPF programs in the kernel, by bpf(2): names, sizes, and the work of the verifier.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const BPF_PROG_GET_NEXT_ID: libc::c_int = 11;
const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;

/// Bytes of `struct bpf_prog_info` up to and with `verified_insns` (since Linux 5.16).
const INFO_SIZE: usize = 224;

#[derive(Debug)]
pub struct Program {
    pub id: u32,
    pub name: String,
    /// `enum bpf_prog_type`.
    pub kind: u32,
    /// Instructions after the verifier's rewriting.
    pub instructions: u32,
    /// Instructions that the verifier walked through; 0 where the kernel does not say.
    pub verified: u32,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}: {} instructions, {} verified", self.name, self.instructions, self.verified)
    }
}

/// Ids of all programs that are loaded.
pub fn program_ids() -> Result<Vec<u32>, String> {
    let mut ids = Vec::new();
    let mut at = 0u32;
    loop {
        // struct { __u32 start_id; __u32 next_id; __u32 open_flags; }
        let mut attribute = [at, 0, 0];
        match call(BPF_PROG_GET_NEXT_ID, &mut attribute) {
            Ok(_) => {
                at = attribute[1];
                ids.push(at);
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(ids),
            Err(error) => return Err(format!("listing BPF programs: {error}")),
        }
    }
}

/// All programs that are loaded.
pub fn programs() -> Result<Vec<Program>, String> {
    let mut programs = Vec::new();
    for id in program_ids()? {
        let mut attribute = [id, 0, 0];
        match call(BPF_PROG_GET_FD_BY_ID, &mut attribute) {
            // SAFETY: the kernel has just given us this descriptor.
            Ok(fd) => programs.push(info(id, &unsafe { OwnedFd::from_raw_fd(fd) })?),
            // It was unloaded since.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => return Err(format!("opening BPF program {id}: {error}")),
        }
    }
    Ok(programs)
}

fn info(id: u32, fd: &OwnedFd) -> Result<Program, String> {
    let mut info = [0u8; INFO_SIZE];
    let address = info.as_mut_ptr() as u64;
    // struct { __u32 bpf_fd; __u32 info_len; __aligned_u64 info; }
    let mut attribute = [fd.as_raw_fd() as u32, INFO_SIZE as u32, address as u32, (address >> 32) as u32];
    call(BPF_OBJ_GET_INFO_BY_FD, &mut attribute)
        .map_err(|error| format!("asking for BPF program {id}: {error}"))?;
    let word = |at: usize| u32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let name = info[64..80].split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(Program {
        id,
        name: String::from_utf8_lossy(name).into_owned(),
        kind: word(0),
        instructions: word(20) / 8,
        verified: word(216),
    })
}

fn call(command: libc::c_int, attribute: &mut [u32]) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes at most the given size, which is that of the slice. The one pointer
    // inside (GET_INFO) leads to a buffer of the length beside it, which outlives the call.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, attribute.as_mut_ptr(), size_of_val(attribute)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}
