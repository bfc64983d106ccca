//! The content of the initramfs of a guest.

use std::fs;
use std::path::Path;

use vmtests_protocol::{PLAN_PATH, Plan, TOOL_PATH};

use crate::cpio::Archive;

/// The programs that a guest is given.
pub struct Programs {
    pub guest: Vec<u8>,
    pub tool: Option<Vec<u8>>,
}

impl Programs {
    /// Reads `DIRECTORY/{guest,numatop-ng}`; without the tool its cases are skipped.
    pub fn read(directory: &Path) -> Result<Self, String> {
        let guest = read(&directory.join("guest"))
            .map_err(|why| format!("{why}; vmtests/build-static makes it, and vmtests/run calls that"))?;
        let tool = directory.join("numatop-ng");
        Ok(Programs { guest, tool: tool.exists().then(|| read(&tool)).transpose()? })
    }

    /// With busybox the guest has a shell.
    pub fn initramfs(&self, plan: &Plan, busybox: Option<&[u8]>) -> Vec<u8> {
        let mut archive = Archive::new();
        for directory in ["proc", "sys", "dev", "tmp", "run", "etc", "root"] {
            archive.directory(directory);
        }
        // The kernel opens this for PID 1 before devtmpfs is mounted.
        archive.character_device("dev/console", 5, 1);
        archive.program("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n");
        archive.program(PLAN_PATH, &serde_json::to_vec(plan).expect("a plan is JSON"));
        archive.program("init", &self.guest);
        if let Some(tool) = &self.tool {
            archive.program(TOOL_PATH, tool);
        }
        if let Some(busybox) = busybox {
            archive.program("bin/busybox", busybox);
            archive.symlink("bin/sh", "busybox");
        }
        archive.finish()
    }
}

pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("reading {}: {error}", path.display()))
}
