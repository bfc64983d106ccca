//! The NVMe disk of a guest.

use std::ffi::{CStr, CString};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use vmtests_protocol::Plan;

use crate::cases::Stop;
use crate::sysfs;

/// Its namespace as a block device.
pub const DEVICE: &str = "/dev/nvme0n1";
const DEVICE_C: &CStr = c"/dev/nvme0n1";
/// A switch of its queue: 0 lets the CPU that handles an interrupt finish the requests, too.
pub const RQ_AFFINITY: &str = "/sys/block/nvme0n1/queue/rq_affinity";

pub struct Disk {
    /// The node that it is on.
    pub node: u32,
    /// The address of its PCI function.
    pub address: String,
    /// Its only interrupt.
    pub irq: u32,
}

impl Disk {
    /// The disk from QEMU's options, on its node. Where the firmware cannot describe that node (a device
    /// tree), it is set here.
    ///
    /// # Errors
    /// The disk is missing, is elsewhere, or does not have exactly one interrupt.
    pub fn find(plan: &Plan) -> Result<Disk, Stop> {
        let node = plan.machine.disk_node.ok_or_else(|| Stop::skip("needs a disk"))?;
        let function = fs::canonicalize("/sys/class/nvme/nvme0/device")
            .map_err(|error| format!("looking for the disk: {error}"))?;
        let file = function.join("numa_node");
        if sysfs::read(&file)? == "-1" {
            sysfs::write(&file, &node.to_string())?;
        }
        let found = sysfs::read(&file)?;
        if found != node.to_string() {
            return Err(Stop::fail(format!("the disk is on node {found}, and QEMU was told {node}")));
        }
        let address = function.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let irqs = fs::read_dir(function.join("msi_irqs"))
            .map_err(|error| format!("interrupts of {address}: {error}"))?;
        let irqs: Vec<u32> =
            irqs.flatten().filter_map(|irq| irq.file_name().to_str()?.parse().ok()).collect();
        match irqs[..] {
            [irq] => Ok(Disk { node, address, irq }),
            _ => Err(Stop::fail(format!("the disk has the interrupts {irqs:?}, not one"))),
        }
    }

    /// A file of its interrupt, such as `smp_affinity_list`.
    pub fn irq_file(&self, name: &str) -> String {
        format!("/proc/irq/{}/{name}", self.irq)
    }

    /// Its interrupts since boot by node, as /proc/interrupts has them.
    pub fn interrupts_by_node(&self, plan: &Plan) -> Result<Vec<u64>, String> {
        let text = sysfs::read("/proc/interrupts")?;
        let by_cpu = of_irq(&text, self.irq).ok_or_else(|| format!("no interrupt {} in {text}", self.irq))?;
        let of_node = |cpus: &Vec<u32>| cpus.iter().filter_map(|cpu| by_cpu.get(*cpu as usize)).sum();
        Ok(plan.machine.nodes.iter().map(|node| of_node(&node.cpus)).collect())
    }
}

/// The ext4 file system on the disk, unmounted when this is dropped.
pub struct Filesystem(CString);

impl Filesystem {
    /// Mounts it in a new folder.
    ///
    /// # Errors
    /// The disk is missing, or has no file system.
    pub fn mount(folder: &str) -> Result<Filesystem, String> {
        let failed = |error: io::Error| format!("mounting {DEVICE} on {folder}: {error}");
        fs::create_dir_all(folder).map_err(failed)?;
        let target = CString::new(folder).map_err(|error| failed(error.into()))?;
        let (kind, flags) = (c"ext4".as_ptr(), libc::MS_NOATIME);
        // SAFETY: all strings end with a zero and live through the call; no data is passed.
        match unsafe { libc::mount(DEVICE_C.as_ptr(), target.as_ptr(), kind, flags, std::ptr::null()) } {
            0 => Ok(Filesystem(target)),
            _ => Err(failed(io::Error::last_os_error())),
        }
    }
}

impl Drop for Filesystem {
    fn drop(&mut self) {
        // SAFETY: as above. Files that are still open keep it.
        unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Swap on all of the disk, until this is dropped.
pub struct Swap(());

impl Swap {
    /// Writes the first page as mkswap(8) does (`union swap_header` of linux/swap.h), and lets the kernel swap there.
    ///
    /// # Errors
    /// The disk is missing, or the kernel refuses.
    pub fn on() -> Result<Swap, String> {
        let failed = |error: io::Error| format!("swap on {DEVICE}: {error}");
        let disk = OpenOptions::new().read(true).write(true).open(DEVICE).map_err(failed)?;
        let sectors = sysfs::read("/sys/block/nvme0n1/size")?;
        let bytes = sectors.parse::<u64>().map_err(|_| format!("not a number of sectors: {sectors}"))? * 512;
        // SAFETY: a plain call.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        disk.write_all_at(&swap_header(page, bytes), 0).and_then(|()| disk.sync_all()).map_err(failed)?;
        // SAFETY: the name ends with a zero.
        match unsafe { libc::swapon(DEVICE_C.as_ptr(), 0) } {
            0 => Ok(Swap(())),
            _ => Err(failed(io::Error::last_os_error())),
        }
    }
}

impl Drop for Swap {
    /// Reads back everything in it, so processes with much in it must have ended first.
    fn drop(&mut self) {
        // SAFETY: as above.
        if unsafe { libc::swapoff(DEVICE_C.as_ptr()) } != 0 {
            eprintln!("swapoff {DEVICE}: {}", io::Error::last_os_error());
        }
    }
}

/// The first page of a swap area of `bytes` bytes: version, last page, and the signature at its end.
fn swap_header(page: usize, bytes: u64) -> Vec<u8> {
    const VERSION_AT: usize = 1024;
    const SIGNATURE: &[u8] = b"SWAPSPACE2";
    let mut header = vec![0; page];
    header[VERSION_AT..VERSION_AT + 4].copy_from_slice(&1u32.to_ne_bytes());
    let last = (bytes / page as u64 - 1) as u32;
    header[VERSION_AT + 4..VERSION_AT + 8].copy_from_slice(&last.to_ne_bytes());
    header[page - SIGNATURE.len()..].copy_from_slice(SIGNATURE);
    header
}

/// Counts of an interrupt by CPU, where all CPUs are online.
fn of_irq(text: &str, irq: u32) -> Option<Vec<u64>> {
    let cpus = text.lines().next()?.split_whitespace().count();
    let label = format!("{irq}:");
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(&label))?;
    line.split_whitespace().take(cpus).map(|count| count.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_area_says_its_size_and_what_it_is() {
        let header = swap_header(4096, 1 << 30);
        assert_eq!(header.len(), 4096);
        assert_eq!(header[1024..1032], [1, 0, 0, 0, 0xff, 0xff, 3, 0]);
        assert_eq!(&header[4086..], b"SWAPSPACE2");
    }

    #[test]
    fn counts_are_those_of_the_line_with_the_number() {
        let text = "      CPU0  CPU1\n  2:  7  8  IO-APIC  2-edge  timer\n 25:  19999  12  PCI-MSIX-0000:81:00.0  0-edge  nvme0q0\n";
        assert_eq!(of_irq(text, 25), Some(vec![19999, 12]));
        assert_eq!(of_irq(text, 5), None);
    }
}
