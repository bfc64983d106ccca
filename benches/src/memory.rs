//! Loads that have memory: much of it, in few or many mappings; or none for long.

use std::io;
use std::thread;

use anyhow::{Result, ensure};

const PAGE: usize = 4096;
const FILE: usize = 64 << 20;
const ALL: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// So much resident memory in so many mappings: one file in memory, mapped over and over. Prints "ready".
pub fn hold(gib: usize, mappings: usize) -> Result<()> {
    // SAFETY: a name that ends with NUL, and no flags.
    let fd = unsafe { libc::memfd_create(c"bench".as_ptr(), 0) };
    ensure!(fd >= 0, "making a file in memory: {}", io::Error::last_os_error());
    // SAFETY: the file was made above.
    ensure!(unsafe { libc::ftruncate(fd, FILE as libc::off_t) } == 0, "{}", io::Error::last_os_error());
    let len = if mappings > 1 { (gib << 30) / mappings / PAGE * PAGE } else { FILE };
    let count = (gib << 30) / len;
    // SAFETY: address space that nobody else has; every other mapping stays a hole when there are many.
    let room = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(std::ptr::null_mut(), count * (len + PAGE), libc::PROT_NONE, flags, -1, 0)
    };
    ensure!(room != libc::MAP_FAILED, "reserving address space: {}", io::Error::last_os_error());
    for at in 0..count {
        let gap = if mappings > 1 { PAGE } else { 0 };
        // SAFETY: inside of what was reserved above.
        let mapped = unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE;
            libc::mmap(room.cast::<u8>().add(at * (len + gap)).cast(), len, ALL, flags, fd, 0)
        };
        ensure!(mapped != libc::MAP_FAILED, "mapping {at} of {count}: {}", io::Error::last_os_error());
    }
    println!("ready");
    loop {
        thread::park();
    }
}

/// Threads that map, touch and unmap without pause: each mapping is one page fault. Prints "ready".
pub fn churn(threads: usize) -> Result<()> {
    for _ in 0..threads {
        thread::spawn(|| {
            loop {
                // SAFETY: a mapping of our own, gone before anybody else hears of it.
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
