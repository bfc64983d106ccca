//! The type information of a kernel, and how many arguments its tracepoints and functions have. Where an argument came
//! or went between kernels, the one after it is found by counting from the end.

use std::path::Path;

use anyhow::{Context, Result};
use libbpf_rs::btf::types::{Enum, Func, FuncProto, Ptr, Struct, Typedef};
use libbpf_rs::btf::{Btf, BtfType, ReferencesType};

/// The type information of one kernel.
pub struct Types(pub(super) Btf<'static>);

impl Types {
    /// Reads the type information below `root`. Takes some ten milliseconds: once is enough.
    ///
    /// # Errors
    /// It is not there, or cannot be understood.
    pub fn read(root: &Path) -> Result<Types> {
        let path = root.join("sys/kernel/btf/vmlinux");
        let btf = Btf::from_path(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(Types(btf))
    }

    /// Arguments of a tracepoint, as a `tp_btf` program gets them.
    ///
    /// # Errors
    /// The kernel does not have it.
    pub fn of_tracepoint(&self, name: &str) -> Result<usize> {
        let typedef = self.0.type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}"));
        let pointer = typedef.and_then(|typedef| Ptr::try_from(typedef.referenced_type()).ok());
        let count = pointer.and_then(|pointer| count(pointer.referenced_type()));
        // The first is the private data of the listener, which programs do not see.
        let count = count.and_then(|count| count.checked_sub(1));
        count.with_context(|| format!("the kernel has no tracepoint {name}"))
    }

    /// The index of a v1 controller in `css_set.subsys[]`: it differs between kernels.
    ///
    /// # Errors
    /// The kernel is without that controller.
    pub fn cgroup_subsys(&self, controller: &str) -> Result<u32> {
        let ids = self.0.type_by_name::<Enum<'_>>("cgroup_subsys_id");
        let wanted = format!("{controller}_cgrp_id");
        ids.context("the kernel has no cgroup controllers")?
            .iter()
            .find(|member| member.name.is_some_and(|name| name.to_string_lossy() == wanted))
            .map(|member| member.value as u32)
            .with_context(|| format!("the kernel has no cgroup controller '{controller}'"))
    }

    /// Whether a structure has a member of this name.
    pub fn has_member(&self, structure: &str, member: &str) -> bool {
        let structure = self.0.type_by_name::<Struct<'_>>(structure);
        structure.is_some_and(|structure| {
            structure.iter().any(|field| field.name.is_some_and(|name| name == member))
        })
    }

    /// Whether a function has a parameter of this name; `None` when the kernel does not have the function.
    pub fn has_parameter(&self, function: &str, parameter: &str) -> Option<bool> {
        let proto = FuncProto::try_from(self.0.type_by_name::<Func<'_>>(function)?.referenced_type()).ok()?;
        Some(proto.iter().any(|own| own.name.is_some_and(|name| name == parameter)))
    }

    /// Arguments of a function; `None` when the kernel does not have it.
    pub fn of_function(&self, name: &str) -> Option<usize> {
        count(self.0.type_by_name::<Func<'_>>(name)?.referenced_type())
    }
}

/// Parameters of a prototype.
fn count(ty: BtfType<'_>) -> Option<usize> {
    FuncProto::try_from(ty).ok().map(|proto| proto.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_counted_as_programs_see_them() {
        let root = Path::new("/");
        if !root.join("sys/kernel/btf/vmlinux").exists() {
            eprintln!("skipped: this kernel shows no type information");
            return;
        }
        let types = Types::read(root).unwrap();
        // TP_PROTO(bool preempt, prev, next, unsigned int prev_state), the last since 5.18.
        assert!([3, 4].contains(&types.of_tracepoint("sched_switch").unwrap()));
        assert_eq!(types.of_function("wake_up_process"), Some(1));
        assert_eq!(types.of_function("no_such_function"), None);
        let of = |parameter: &str| types.has_parameter("wake_up_process", parameter);
        assert_eq!((of("p"), of("q"), types.has_parameter("none", "p")), (Some(true), Some(false), None));
        let error = types.of_tracepoint("no_such_tracepoint").unwrap_err();
        assert_eq!(error.to_string(), "the kernel has no tracepoint no_such_tracepoint");
    }
}
