//! The content of the initramfs of a guest.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use vmtests_protocol::{PLAN_PATH, Plan, TOOL_PATH};

use crate::cpio::Archive;

/// The programs that a guest is given, and the shared libraries that they are linked to, by path.
pub struct Programs {
    pub guest: Vec<u8>,
    pub tool: Option<Vec<u8>>,
    libraries: BTreeMap<PathBuf, Vec<u8>>,
}

impl Programs {
    /// Reads `DIRECTORY/{guest,numatop-ng}`; without the tool its cases are skipped.
    pub fn read(directory: &Path) -> Result<Self, String> {
        let path = directory.join("guest");
        let guest = read(&path).map_err(|why| format!("{why}; vmtests/run builds it"))?;
        let tool = Some(directory.join("numatop-ng")).filter(|tool| tool.exists());
        let mut libraries = BTreeMap::new();
        for program in [Some(&path), tool.as_ref()].into_iter().flatten() {
            for library in libraries_of(program)? {
                let bytes = read(&library)?;
                libraries.insert(library, bytes);
            }
        }
        Ok(Programs { guest, tool: tool.as_deref().map(read).transpose()?, libraries })
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
        for (path, library) in &self.libraries {
            archive.program(&path.to_string_lossy(), library);
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

/// Paths of the shared libraries and of the loader of a program; none of a static one, or one of another architecture.
fn libraries_of(program: &Path) -> Result<Vec<PathBuf>, String> {
    let output =
        Command::new("ldd").arg(program).output().map_err(|error| format!("running ldd: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(missing) = text.lines().find(|line| line.contains("not found")) {
        return Err(format!("{}: {}", program.display(), missing.trim()));
    }
    Ok(text
        .split_whitespace()
        .filter(|word| word.starts_with('/') && !word.ends_with(':'))
        .map(PathBuf::from)
        .collect())
}
