//! Pages of processes: their nodes, their content, and their entries in the page table.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use super::checked;

/// The nodes of the pages at `addresses` of a process, or a negative errno for each that is not there. Moves nothing.
///
/// # Errors
/// The errno of move_pages(2).
pub fn nodes_of_pages(pid: u32, addresses: &[u64]) -> io::Result<Vec<i32>> {
    // An entry that the kernel does not fill counts as absent.
    let mut status = vec![-libc::ENOENT; addresses.len()];
    // SAFETY: both arrays have the length that is passed, and outlive the call; without nodes nothing is moved.
    checked(unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid as libc::pid_t,
            addresses.len() as libc::c_ulong,
            addresses.as_ptr(),
            ptr::null::<i32>(),
            status.as_mut_ptr(),
            0,
        )
    })?;
    Ok(status)
}

/// Fills `bytes` with memory of a process from `address` on. Returns how many were read: fewer where a page is not there.
/// Memory of devices is not read.
///
/// # Errors
/// The errno of process_vm_readv(2): EFAULT where the first page is not there, EPERM without CAP_SYS_PTRACE.
pub fn read_memory(pid: u32, address: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as usize as *mut c_void, iov_len: bytes.len() };
    // SAFETY: both vectors outlive the call, and the local one names bytes that this process may write. The
    // kernel checks the other one in the address space of that process.
    let got = checked(unsafe {
        libc::process_vm_readv(pid as libc::pid_t, &raw const local, 1, &raw const remote, 1, 0)
            as libc::c_long
    })?;
    Ok(got as usize)
}

/// `struct page_region` of include/uapi/linux/fs.h.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct PageRegion {
    pub start: u64,
    pub end: u64,
    pub categories: u64,
}

/// `struct pm_scan_arg` without what [`pagemap_scan`] fills in.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageScan {
    pub start: u64,
    pub end: u64,
    pub max_pages: u64,
    pub category_inverted: u64,
    pub category_mask: u64,
    pub return_mask: u64,
}

/// The ioctl PAGEMAP_SCAN (Linux 6.7): how many of `regions` it filled, and the address at which it stopped.
///
/// # Errors
/// Its errno: ENOTTY or EINVAL before 6.7.
pub fn pagemap_scan(
    pagemap: impl AsFd,
    scan: &PageScan,
    regions: &mut [PageRegion],
) -> io::Result<(usize, u64)> {
    /// `struct pm_scan_arg`.
    #[repr(C)]
    struct Arg {
        size: u64,
        flags: u64,
        start: u64,
        end: u64,
        walk_end: u64,
        vec: u64,
        vec_len: u64,
        max_pages: u64,
        category_inverted: u64,
        category_mask: u64,
        category_anyof_mask: u64,
        return_mask: u64,
    }
    /// `_IOWR('f', 16, struct pm_scan_arg)`, the same on all architectures we run on.
    const PAGEMAP_SCAN: u64 = 0xc060_6610;
    let mut arg = Arg {
        size: size_of::<Arg>() as u64,
        flags: 0,
        start: scan.start,
        end: scan.end,
        walk_end: 0,
        vec: regions.as_mut_ptr() as u64,
        vec_len: regions.len() as u64,
        max_pages: scan.max_pages,
        category_inverted: scan.category_inverted,
        category_mask: scan.category_mask,
        category_anyof_mask: 0,
        return_mask: scan.return_mask,
    };
    // SAFETY: arg and regions outlive the call and have the sizes that arg states.
    let count = checked(libc::c_long::from(unsafe {
        libc::ioctl(pagemap.as_fd().as_raw_fd(), PAGEMAP_SCAN as _, &raw mut arg)
    }))?;
    Ok(((count as usize).min(regions.len()), arg.walk_end))
}

/// Moves pages of this process to `nodes`, one for each address. Returns the node of each afterwards, or a negative errno.
///
/// # Errors
/// The errno of move_pages(2): EACCES for a node outside of the cpuset, ENODEV for one that is not online.
pub fn move_pages(addresses: &[u64], nodes: &[i32]) -> io::Result<Vec<i32>> {
    const MPOL_MF_MOVE: c_int = 2;
    let count = addresses.len().min(nodes.len());
    let mut status = vec![-libc::ENOENT; count];
    // SAFETY: all arrays have the length that is passed, and outlive the call; contents of pages stay.
    checked(unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            count as libc::c_ulong,
            addresses.as_ptr(),
            nodes.as_ptr(),
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    })?;
    Ok(status)
}
