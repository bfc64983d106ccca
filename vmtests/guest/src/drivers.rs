//! Names of drivers, as this process and its children see them: a device file of a guest takes the place of an accelerator, because
//! drivers of GPUs are modules and guests have none.

use std::fs;
use std::io;

use crate::cases::Stop;

/// Text of /proc/devices with a driver under another name, for this process and its children.
///
/// # Errors
/// The kernel has no such driver, or lets nothing be mounted.
pub fn rename(from: &str, to: &str) -> Result<(), Stop> {
    const SHOWN: &str = "/devices";
    let text =
        fs::read_to_string("/proc/devices").map_err(|error| format!("reading /proc/devices: {error}"))?;
    let renamed = renamed(&text, from, to).ok_or_else(|| format!("no driver {from} in /proc/devices"))?;
    fs::write(SHOWN, renamed).map_err(|error| format!("writing {SHOWN}: {error}"))?;
    mount().map_err(|error| format!("mounting {SHOWN}: {error}").into())
}

fn renamed(text: &str, from: &str, to: &str) -> Option<String> {
    let is_it = |line: &&str| line.trim().split_once(' ').is_some_and(|(_, name)| name == from);
    let line = text.lines().find(is_it)?;
    Some(text.replacen(line, &line.replace(from, to), 1))
}

fn mount() -> io::Result<()> {
    // SAFETY: all strings are constants that end in a zero; no data is passed.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) < 0 {
            return Err(io::Error::last_os_error());
        }
        let (source, target) = (c"/devices".as_ptr(), c"/proc/devices".as_ptr());
        match libc::mount(source, target, std::ptr::null(), libc::MS_BIND, std::ptr::null()) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_driver_has_another_name() {
        let text = "Character devices:\n  1 mem\n  7 vcs\n240 nvme\n241 nvme-generic\n\nBlock devices:\n259 blkext\n";
        let renamed = renamed(text, "nvme", "vfio-dev").unwrap();
        assert!(renamed.contains("240 vfio-dev\n241 nvme-generic\n"), "{renamed}");
        assert_eq!(super::renamed(text, "kfd", "vfio-dev"), None);
    }
}
