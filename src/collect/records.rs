//! The task-storage map whose values are as long as the machine has nodes.
//!
//! Task storage must be created with BTF that describes a value of exactly its size, and libbpf
//! takes that from the object file, where the size is fixed. So the map is made here, with a BTF of
//! two types, and the objects reuse it.

use std::ffi::c_void;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use anyhow::{Context, Result, ensure};
use libbpf_rs::libbpf_sys as sys;

use super::wire::{NodeCounts, Rec, SIBLINGS};
use crate::pmu::event::{Event, Role};

/// What a record holds besides its fixed head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Possible nodes, 1..=1024.
    pub nodes: u32,
    /// Slots of cycles and instructions, when there are both.
    pub counted: Option<(u32, u32)>,
    /// Cores have several hardware threads.
    pub smt: bool,
    /// Pages are counted by node.
    pub pages: bool,
    /// Hinting faults are told from the task structure, because no function can be hooked.
    pub hints_from_task: bool,
}

impl Layout {
    /// The layout for a machine and its counters; pages are counted where there are several nodes.
    pub fn new(nodes: u32, smt: bool, events: &[Event]) -> Layout {
        let slot = |role: Role| events.iter().position(|event| event.role == role).map(|slot| slot as u32);
        Layout {
            nodes,
            counted: slot(Role::Cycles).zip(slot(Role::Instructions)),
            smt,
            pages: nodes > 1,
            hints_from_task: false,
        }
    }

    /// Cycles and instructions are kept by node: only where there are several.
    pub fn by_node(&self) -> bool {
        self.counted.is_some() && self.nodes > 1
    }

    /// They are kept by what the SMT siblings did: only where there are any.
    pub fn by_sibling(&self) -> bool {
        self.counted.is_some() && self.smt
    }

    /// Bytes of a record.
    pub fn size(&self) -> u32 {
        let pages = if self.pages { self.nodes } else { 0 };
        size_of::<Rec>() as u32 + (self.pages_at() + pages) * size_of::<u64>() as u32
    }

    /// Words behind the head after which pages by node begin.
    pub fn pages_at(&self) -> u32 {
        let by_node = if self.by_node() { self.nodes } else { 0 };
        let by_sibling = if self.by_sibling() { SIBLINGS as u32 } else { 0 };
        self.nodes + (by_node + by_sibling) * (size_of::<NodeCounts>() / size_of::<u64>()) as u32
    }
}

/// Makes the map of per-task records.
///
/// # Errors
/// The errno of `BPF_BTF_LOAD` or `BPF_MAP_CREATE`: EPERM without CAP_BPF, EINVAL before 5.11.
pub fn create(layout: Layout) -> Result<OwnedFd> {
    let nodes = layout.nodes;
    ensure!((1..=1024).contains(&nodes), "{nodes} NUMA nodes: the kernel allows 1 to 1024");
    let btf = ValueTypes::load(layout.size())?;
    let opts = sys::bpf_map_create_opts {
        sz: size_of::<sys::bpf_map_create_opts>() as sys::size_t,
        map_flags: sys::BPF_F_NO_PREALLOC,
        btf_fd: btf.fd as u32,
        btf_key_type_id: btf.key as u32,
        btf_value_type_id: btf.value as u32,
        ..Default::default()
    };
    // SAFETY: the name is a NUL-terminated literal and opts outlives the call.
    let fd = unsafe {
        sys::bpf_map_create(
            sys::BPF_MAP_TYPE_TASK_STORAGE,
            c"task_recs".as_ptr(),
            size_of::<u32>() as u32,
            layout.size(),
            0,
            &opts,
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd)).context("creating the task storage map");
    }
    // SAFETY: the kernel has just given us this descriptor and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A loaded BTF with an `int` for the key and an array of bytes for the value.
struct ValueTypes {
    btf: NonNull<sys::btf>,
    fd: i32,
    key: i32,
    value: i32,
}

impl ValueTypes {
    fn load(size: u32) -> Result<ValueTypes> {
        // SAFETY: returns a fresh object or null with errno set.
        let btf = NonNull::new(unsafe { sys::btf__new_empty() })
            .ok_or_else(io::Error::last_os_error)
            .context("making a BTF for the task storage map")?;
        let mut types = ValueTypes { btf, fd: -1, key: 0, value: 0 };
        let raw = btf.as_ptr();
        // SAFETY: raw stays valid until `types` is dropped; names are NUL-terminated literals.
        unsafe {
            types.key = check(sys::btf__add_int(raw, c"int".as_ptr(), 4, sys::BTF_INT_SIGNED as i32))?;
            let byte = check(sys::btf__add_int(raw, c"unsigned char".as_ptr(), 1, 0))?;
            let bytes = check(sys::btf__add_array(raw, types.key, byte, size))?;
            types.value = check(sys::btf__add_struct(raw, c"task_rec".as_ptr(), size))?;
            check(sys::btf__add_field(raw, c"bytes".as_ptr(), bytes, 0, 0))?;
            check(sys::btf__load_into_kernel(raw)).context("loading the BTF of the task storage map")?;
            types.fd = sys::btf__fd(raw);
        }
        Ok(types)
    }
}

impl Drop for ValueTypes {
    fn drop(&mut self) {
        // SAFETY: made by btf__new_empty and freed once; the map keeps its own reference in the kernel.
        unsafe { sys::btf__free(self.btf.as_ptr()) }
    }
}

/// libbpf's convention: a negative number is an errno.
fn check(ret: i32) -> io::Result<i32> {
    if ret < 0 { Err(io::Error::from_raw_os_error(-ret)) } else { Ok(ret) }
}

/// A read-only shared mapping of an mmapable array map.
pub struct MappedArray {
    at: NonNull<c_void>,
    len: usize,
}

// SAFETY: the mapping is read-only for us, and lives as long as the value.
unsafe impl Send for MappedArray {}

impl MappedArray {
    /// Maps `entries` values of `value_size` bytes (a multiple of eight) of the map behind `fd`.
    pub fn new(fd: &impl AsRawFd, value_size: usize, entries: usize) -> Result<MappedArray> {
        // SAFETY: sysconf has no preconditions.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let len = (value_size * entries).next_multiple_of(page);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("mapping the per-CPU state");
        }
        Ok(MappedArray { at: NonNull::new(at).context("mmap returned address 0")?, len })
    }

    /// The mapped bytes. The kernel changes them while we look: copy a value out, then use it.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is len bytes long; each u64 in it is written with one store, and readers
        // copy (`Wire::from_bytes`) before they use anything.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().cast(), self.len) }
    }
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length, unmapped once.
        unsafe { libc::munmap(self.at.as_ptr(), self.len) };
    }
}
