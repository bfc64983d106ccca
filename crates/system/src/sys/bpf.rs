//! Calls of libbpf and bpf(2) that libbpf-rs has no safe form of.

use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{AsRawLibbpf, Link};

use super::{checked_by_libbpf, owned};

/// The descriptor that becomes readable when a ring has something.
pub fn ring_fd<'a>(ring: &'a libbpf_rs::RingBuffer<'_>) -> BorrowedFd<'a> {
    // SAFETY: the ring owns the descriptor, and closes it when it is dropped, which is after 'a.
    unsafe { BorrowedFd::borrow_raw(ring.epoll_fd()) }
}

/// A variable of a BPF program, which the kernel may change at any time.
pub fn read_variable<T: Copy>(variable: &T) -> T {
    // SAFETY: a reference is valid and aligned for a read.
    unsafe { ptr::read_volatile(variable) }
}

/// Switches on the kernel's statistics of BPF programs until the returned descriptor is closed.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN.
pub fn enable_bpf_stats() -> io::Result<OwnedFd> {
    // SAFETY: takes a number only.
    let fd = checked_by_libbpf(unsafe { sys::bpf_enable_stats(sys::BPF_STATS_RUN_TIME) })?;
    // SAFETY: bpf(2) made it.
    Ok(unsafe { owned(fd) })
}

/// The kernel's information on a BPF program, without its arrays.
///
/// # Errors
/// The errno of BPF_OBJ_GET_INFO_BY_FD.
pub fn bpf_program_info(program: BorrowedFd<'_>) -> io::Result<sys::bpf_prog_info> {
    let mut info = sys::bpf_prog_info::default();
    let mut size = size_of::<sys::bpf_prog_info>() as u32;
    // SAFETY: info has the size that is stated, outlives the call, and has no arrays that could be written to.
    let result = unsafe { sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size) };
    checked_by_libbpf(result)?;
    Ok(info)
}

/// Attaches an `iter/task` or `iter/task_vma` program to one thread. An iterator of the link calls the
/// program for it, or for each mapping of its process, and a last time without one. `tid` is an id of our pid
/// namespace, looked up when an iterator is made.
///
/// # Errors
/// EINVAL before Linux 6.1, which iterates over all tasks only.
pub fn attach_to_thread(
    program: &impl AsRawLibbpf<LibbpfType = sys::bpf_program>,
    tid: u32,
) -> io::Result<Link> {
    let mut info = sys::bpf_iter_link_info::default();
    info.task = sys::bpf_iter_link_info__bindgen_ty_3 { tid, pid: 0, pid_fd: 0 };
    let options = sys::bpf_iter_attach_opts {
        sz: size_of::<sys::bpf_iter_attach_opts>() as sys::size_t,
        link_info: &raw mut info,
        link_info_len: size_of::<sys::bpf_iter_link_info>() as u32,
        ..Default::default()
    };
    // SAFETY: the program is alive, and what the options point to outlives the call.
    let link =
        unsafe { sys::bpf_program__attach_iter(program.as_libbpf_object().as_ptr(), &raw const options) };
    let link = NonNull::new(link).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: libbpf has just made it.
    Ok(unsafe { Link::from_ptr(link) })
}

/// An iterator of a link. It keeps the link alive.
///
/// # Errors
/// The errno of BPF_ITER_CREATE.
pub fn iterator(link: &Link) -> io::Result<OwnedFd> {
    // SAFETY: takes a number only.
    let fd = checked_by_libbpf(unsafe { sys::bpf_iter_create(link.as_fd().as_raw_fd()) })?;
    // SAFETY: bpf(2) made it.
    Ok(unsafe { owned(fd) })
}

/// The ids of types for keys and values in a [`Btf`] that was loaded.
#[derive(Clone, Copy, Debug)]
pub struct KeyAndValue {
    pub key: u32,
    pub value: u32,
}

/// A BTF that is being made.
pub struct Btf(NonNull<sys::btf>);

impl Btf {
    /// One without types.
    ///
    /// # Errors
    /// No memory.
    pub fn new() -> io::Result<Btf> {
        // SAFETY: returns a new object, or null with errno set.
        NonNull::new(unsafe { sys::btf__new_empty() }).map(Btf).ok_or_else(io::Error::last_os_error)
    }

    /// Adds an integer. Returns its id.
    ///
    /// # Errors
    /// libbpf refuses it.
    pub fn add_int(&mut self, name: &CStr, bytes: usize, encoding: u32) -> io::Result<u32> {
        // SAFETY: the object is valid until `self` is dropped, and the name is copied.
        let id = unsafe { sys::btf__add_int(self.0.as_ptr(), name.as_ptr(), bytes as _, encoding as c_int) };
        Ok(checked_by_libbpf(id)? as u32)
    }

    /// Adds an array of `len` elements with an index. Returns its id.
    ///
    /// # Errors
    /// libbpf refuses it.
    pub fn add_array(&mut self, index: u32, element: u32, len: u32) -> io::Result<u32> {
        // SAFETY: the object is valid until `self` is dropped.
        let id = unsafe { sys::btf__add_array(self.0.as_ptr(), index as c_int, element as c_int, len) };
        Ok(checked_by_libbpf(id)? as u32)
    }

    /// Adds a structure with one field, as large as that. Returns its id.
    ///
    /// # Errors
    /// libbpf refuses it.
    pub fn add_struct(&mut self, name: &CStr, bytes: u32, field: (&CStr, u32)) -> io::Result<u32> {
        let (field, kind) = field;
        // SAFETY: the object is valid until `self` is dropped, and names are copied.
        unsafe {
            let id = checked_by_libbpf(sys::btf__add_struct(self.0.as_ptr(), name.as_ptr(), bytes))?;
            let added = sys::btf__add_field(self.0.as_ptr(), field.as_ptr(), kind as c_int, 0, 0);
            checked_by_libbpf(added)?;
            Ok(id as u32)
        }
    }

    /// Hands it to the kernel.
    ///
    /// # Errors
    /// The errno of BPF_BTF_LOAD.
    pub fn load(&mut self) -> io::Result<()> {
        // SAFETY: the object is valid until `self` is dropped.
        checked_by_libbpf(unsafe { sys::btf__load_into_kernel(self.0.as_ptr()) }).map(drop)
    }

    /// Makes a map of task storage with the types of this BTF, which was loaded. The map keeps its own reference to it.
    ///
    /// # Errors
    /// The errno of BPF_MAP_CREATE: EPERM without CAP_BPF, EINVAL before 5.11.
    pub fn task_storage(&self, name: &CStr, value_size: u32, types: KeyAndValue) -> io::Result<OwnedFd> {
        let opts = sys::bpf_map_create_opts {
            sz: size_of::<sys::bpf_map_create_opts>() as sys::size_t,
            map_flags: sys::BPF_F_NO_PREALLOC,
            // SAFETY: the object is valid until `self` is dropped.
            btf_fd: unsafe { sys::btf__fd(self.0.as_ptr()) } as u32,
            btf_key_type_id: types.key,
            btf_value_type_id: types.value,
            ..Default::default()
        };
        // SAFETY: the name ends with NUL, opts has the size that it states, and both outlive the call.
        let fd = checked_by_libbpf(unsafe {
            let kind = sys::BPF_MAP_TYPE_TASK_STORAGE;
            sys::bpf_map_create(kind, name.as_ptr(), size_of::<u32>() as u32, value_size, 0, &raw const opts)
        })?;
        // SAFETY: bpf(2) made it.
        Ok(unsafe { owned(fd) })
    }
}

impl Drop for Btf {
    fn drop(&mut self) {
        // SAFETY: made by btf__new_empty, and freed once.
        unsafe { sys::btf__free(self.0.as_ptr()) }
    }
}
