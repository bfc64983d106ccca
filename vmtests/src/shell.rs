//! An interactive guest: its console is the user's terminal, with the tool and busybox.

use std::process::{Command, Stdio};

use vmtests_protocol::{Plan, Shell};

use crate::boot::{self, Guest};
use crate::debian;
use crate::image::{self, Programs};
use crate::kernels::{Arch, Kernel};
use crate::options::Options;
use crate::plan::Variant;
use crate::qemu::{self, Start};
use crate::topology::Topology;

/// The guest to sit in.
pub struct Choice<'a> {
    kernel: &'a Kernel,
    topology: &'a Topology,
    variant: Variant,
}

/// The kernel that is asked for, or 6.12 on amd64 with two nodes.
///
/// # Errors
/// The kernel or topology does not exist.
pub fn choose<'a>(
    kernels: &'a [Kernel],
    topologies: &'a [Topology],
    options: &Options,
) -> Result<Choice<'a>, String> {
    let wanted = &options.wanted;
    let arch = wanted.archs.first().copied().unwrap_or(Arch::Amd64);
    let name = wanted.kernels.first().map_or("6.12", String::as_str);
    let kernel = kernels
        .iter()
        .find(|kernel| kernel.name == name && kernel.arch == arch)
        .ok_or_else(|| format!("no kernel {name} for {arch} in vmtests/KERNELS"))?;
    let name = wanted.topologies.first().map_or("2", String::as_str);
    let topology = topologies
        .iter()
        .find(|topology| topology.name == name)
        .ok_or_else(|| format!("no topology {name} in vmtests/topologies.toml"))?;
    let variant = wanted.variants.first().copied().unwrap_or(Variant::Plain);
    Ok(Choice { kernel, topology, variant })
}

/// Boots it, with the terminal of the caller as its console.
///
/// # Errors
/// Something that it needs is not there, or QEMU failed.
pub fn open(choice: &Choice, options: &Options) -> Result<(), String> {
    let Choice { kernel, topology, variant } = choice;
    let arch = kernel.arch;
    let busybox = image::read(&debian::busybox(arch)?)?;
    let programs = Programs::read(&options.binaries.join(arch.machine()))?;
    let plan = Plan {
        results: None,
        console: format!("/dev/{}", qemu::console(arch)),
        cases: Vec::new(),
        machine: topology.machine(variant.pmu(arch), variant.lockdown()),
        tool: programs.tool.is_some(),
        shell: Some(terminal()),
    };
    let (image, package) = debian::kernel(kernel, false)?;
    eprintln!(
        "vmtests: {package}, topology {} ({}); 'exit' ends the guest, Ctrl-A X kills it",
        topology.name, topology.about
    );
    let start = Start { arch, machine: &plan.machine, kernel: &image, processor: &kernel.processor };
    boot::shell(&Guest { start, initramfs: &programs.initramfs(&plan, Some(&busybox)) })
}

/// A serial line does not tell the guest how large the terminal is; the plan does.
fn terminal() -> Shell {
    let size = Command::new("stty")
        .arg("size")
        .stdin(Stdio::inherit())
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|output| output.status.success())
        .and_then(|output| parse_size(&String::from_utf8_lossy(&output.stdout)));
    let (rows, cols) = size.unwrap_or((24, 80));
    Shell { term: std::env::var("TERM").unwrap_or_else(|_| "vt100".to_owned()), rows, cols }
}

fn parse_size(text: &str) -> Option<(u16, u16)> {
    let (rows, cols) = text.trim().split_once(' ')?;
    let size = (rows.parse().ok()?, cols.parse().ok()?);
    (size.0 > 0 && size.1 > 0).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_without_a_size_is_24_by_80() {
        assert_eq!(parse_size("50 160\n"), Some((50, 160)));
        assert_eq!(parse_size("0 0\n"), None);
        assert_eq!(parse_size(""), None);
    }
}
