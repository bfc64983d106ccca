//! Loads with memory: a lot, in few or many mappings; or only for a short time.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::thread;

use anyhow::{Result, ensure};

const PAGE: usize = 4096;
const FILE: usize = 64 << 20;
const ALL: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// `gib` GiB of resident memory in `mappings` mappings: one file in memory, mapped again and again. Prints
/// "ready".
pub fn hold(gib: usize, mappings: usize) -> Result<()> {
    let file = file_in_memory(FILE)?;
    let len = if mappings > 1 { (gib << 30) / mappings / PAGE * PAGE } else { FILE };
    let count = (gib << 30) / len;
    // SAFETY: unused address space; with many mappings every other one stays a hole.
    let room = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(std::ptr::null_mut(), count * (len + PAGE), libc::PROT_NONE, flags, -1, 0)
    };
    ensure!(room != libc::MAP_FAILED, "reserving address space: {}", io::Error::last_os_error());
    for at in 0..count {
        let gap = if mappings > 1 { PAGE } else { 0 };
        // SAFETY: inside the range reserved above.
        let mapped = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE;
            libc::mmap(room.cast::<u8>().add(at * (len + gap)).cast(), len, ALL, flags, file.as_raw_fd(), 0)
        };
        ensure!(mapped != libc::MAP_FAILED, "mapping {at} of {count}: {}", io::Error::last_os_error());
    }
    println!("ready");
    loop {
        thread::park();
    }
}

/// A new file in memory of this size, without pages. It can be sealed.
fn file_in_memory(bytes: usize) -> Result<File> {
    // SAFETY: a name that ends with NUL, and flags.
    let fd = unsafe { libc::memfd_create(c"bench".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    ensure!(fd >= 0, "making a file in memory: {}", io::Error::last_os_error());
    // SAFETY: the descriptor is new.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(bytes as u64)?;
    Ok(file)
}

/// Writes and maps a new file of `bytes` in memory. Its seal makes the kernel hide the number of mappings, so that it counts as
/// shared. The mapping stays.
///
/// # Errors
/// The kernel refuses.
pub fn shared_file(bytes: usize) -> Result<File> {
    let file = file_in_memory(bytes)?;
    let part = vec![1; 1 << 20];
    for at in (0..bytes).step_by(part.len()) {
        file.write_all_at(&part, at as u64)?;
    }
    // SAFETY: takes numbers only.
    let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) };
    ensure!(sealed == 0, "F_SEAL_WRITE: {}", io::Error::last_os_error());
    // SAFETY: the mapping is new.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    ensure!(at != libc::MAP_FAILED, "mapping a file in memory: {}", io::Error::last_os_error());
    Ok(file)
}

/// Threads that map, touch and unmap without pause: each mapping is one page fault. Prints "ready".
pub fn churn(threads: usize) -> Result<()> {
    for _ in 0..threads {
        thread::spawn(|| {
            loop {
                // SAFETY: a mapping of our own, removed before any other code knows it.
                unsafe {
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                    let at = libc::mmap(std::ptr::null_mut(), 16 * PAGE, ALL, flags, -1, 0);
                    if at != libc::MAP_FAILED {
                        at.cast::<u8>().write_volatile(1);
                        libc::munmap(at, 16 * PAGE);
                    }
                }
            }
        });
    }
    println!("ready");
    loop {
        thread::park();
    }
}
