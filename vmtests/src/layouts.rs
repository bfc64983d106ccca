//! `bpf/core_compat.bpf.h`, compiled beside the types of a kernel as `bpftool btf dump … format c` gives
//! them. Each field must exist, with the same kind and width. No guest is booted; the types are in the
//! kernel's image.

#[path = "../../tests/common/core_compat.rs"]
mod core_compat;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use crate::apt::run;
use crate::debian;
use crate::kernels::{Arch, Kernel};
use crate::plan::Wanted;
use crate::{report, summary};

const HEADER: &str = "bpf/core_compat.bpf.h";
/// The kernel that is supported in part only.
const DEGRADED: &str = "5.10";
/// Names of the header that a kernel has too, beside its structures.
const RENAMED: [&str; 7] = [
    "kuid_t",
    "nodemask_t",
    "bpf_iter_task_new",
    "bpf_iter_task_next",
    "bpf_iter_task_destroy",
    "bpf_task_from_pid",
    "bpf_task_release",
];
/// Ways to pack a kernel that Debian uses: the first bytes, and the program that unpacks.
const PACKED: [(&[u8], &[&str]); 4] = [
    (b"\x02\x21\x4c\x18", &["lz4", "-dc"]),
    (b"\x28\xb5\x2f\xfd", &["zstd", "-dc"]),
    (b"\xfd7zXZ\x00", &["xz", "-dc", "--single-stream"]),
    (b"\x1f\x8b\x08", &["gzip", "-dc"]),
];
/// The header of type information: magic, version, flags.
const BTF: &[u8] = b"\x9f\xeb\x01\x00";
/// Bytes of types at least: a kernel has millions, and what happens to begin with the magic has not.
const TYPES_MIN: usize = 1 << 20;

/// Compares the header with all wanted kernels, and prints the results. Returns the exit status.
pub fn all(kernels: &[Kernel], wanted: &Wanted) -> u8 {
    let named = |kernel: &&Kernel| {
        (wanted.kernels.is_empty() || wanted.kernels.contains(&kernel.name))
            && (wanted.archs.is_empty() || wanted.archs.contains(&kernel.arch))
    };
    let (mut failed, mut partial) = (false, false);
    for kernel in kernels.iter().filter(named) {
        let said = if kernel.name == DEGRADED {
            "has other structures, and the programs that need them are not loaded".to_owned()
        } else {
            match check(kernel) {
                Ok(compared) => format!("has all {compared} fields"),
                Err(Trouble::NotCovered(why)) => {
                    partial = true;
                    format!("not covered: {why}")
                }
                Err(Trouble::Differs(why)) => {
                    failed = true;
                    format!("FAILED: {why}")
                }
            }
        };
        report::print(format_args!("{} {}: {said}\n", kernel.name, kernel.arch));
    }
    status(failed, partial)
}

/// The exit status of a run: a difference outweighs kernels that could not be fetched.
fn status(failed: bool, partial: bool) -> u8 {
    match (failed, partial) {
        (true, _) => 1,
        (false, true) => summary::PARTIAL,
        (false, false) => 0,
    }
}

/// The reason why a kernel was not compared, or the differences.
enum Trouble {
    NotCovered(String),
    Differs(String),
}

impl From<String> for Trouble {
    fn from(why: String) -> Trouble {
        Trouble::Differs(why)
    }
}

/// Compares the header with a kernel. Gives the number of fields that were compared.
///
/// # Errors
/// The image, its types or a tool is missing, or a field differs from the header.
fn check(kernel: &Kernel) -> Result<usize, Trouble> {
    let (image, package) = debian::kernel(kernel, false).map_err(Trouble::NotCovered)?;
    let bytes = fs::read(&image).map_err(|error| format!("reading {}: {error}", image.display()))?;
    let types = types_of(&bytes).ok_or_else(|| format!("no types (BTF) were found in {package}"))?;
    let folder = PathBuf::from("target/vmtests/layouts").join(format!("{}.{}", kernel.name, kernel.arch));
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&folder))
            .and_then(|()| fs::write(&path, bytes))
            .map_err(|error| format!("writing {}: {error}", path.display()))
    };
    write("types.btf", &types)?;
    let dump = run(Command::new("bpftool")
        .args(["btf", "dump", "file"])
        .arg(folder.join("types.btf"))
        .args(["format", "c"]))?;
    write("types.h", &dump)?;
    // The kernel's types take the place of those.
    for empty in ["linux/types.h", "linux/bpf.h", "stdbool.h"] {
        write(empty, b"")?;
    }
    let header = fs::read_to_string(HEADER).map_err(|error| format!("reading {HEADER}: {error}"))?;
    let (program, compared) = program(&header, &String::from_utf8_lossy(&dump));
    write("check.c", program.as_bytes())?;
    compile(&folder, kernel.arch)?;
    Ok(compared)
}

fn compile(folder: &Path, arch: Arch) -> Result<(), String> {
    let machine = match arch {
        Arch::Amd64 => "-D__TARGET_ARCH_x86",
        Arch::Arm64 => "-D__TARGET_ARCH_arm64",
    };
    let mut clang = Command::new("clang");
    clang
        .args([
            "-target",
            "bpf",
            "-fsyntax-only",
            "-Wno-everything",
            "-fno-caret-diagnostics",
            "-fmacro-backtrace-limit=1",
            machine,
        ])
        .arg("-I")
        .arg(folder)
        .arg("-Ibpf");
    run(clang.arg(folder.join("check.c"))).map(drop)
}

/// A program in C that compiles if each field of the header is in the types too, and how many it compares.
fn program(header: &str, types: &str) -> (String, usize) {
    let structures = core_compat::parse(header);
    let base = |name: &str| !name.contains("___");
    // Fields that a flavour describes for other kernels: which of them the kernel has, the programs ask it.
    let varies = |name: &str, field: &String| {
        let flavour = format!("{name}___");
        structures.iter().any(|(other, fields)| other.starts_with(&flavour) && fields.contains(field))
    };
    let has = |name: &str| types.contains(&format!("\nstruct {name} {{"));
    let names: Vec<&str> =
        structures.iter().map(|(name, _)| name.as_str()).filter(|name| base(name)).collect();
    let renamed = || names.iter().copied().chain(["bpf_iter_task"]).chain(RENAMED);
    let mut program = String::from("#include \"types.h\"\n");
    renamed().for_each(|name| program += &format!("#define {name} nt_{name}\n"));
    program += "#include \"core_compat.bpf.h\"\n";
    renamed().for_each(|name| program += &format!("#undef {name}\n"));
    program += "\
#define KIND(x) __builtin_classify_type(x)
/* 1 is an integer, enums and bools included: then the width counts, too. */
#define SAME(ours, kernel, name)                                                                       \\
	_Static_assert(KIND(ours) == KIND(kernel) && (KIND(ours) != 1 || sizeof(ours) == sizeof(kernel)), \\
		       name \" is another in this kernel\")
";
    let mut compared = 0;
    for (name, fields) in structures.iter().filter(|(name, _)| base(name)) {
        // A structure that only flavours use is of other kernels.
        let of_others = header.split("\nstruct ").any(|part| {
            part.split_once(" {")
                .is_some_and(|(of, body)| of.contains("___") && body.contains(&format!("struct {name} ")))
        });
        if !has(name) && of_others {
            continue;
        }
        for field in fields.iter().filter(|field| !varies(name, field)) {
            // A field that is called as a structure is renamed with it.
            let ours =
                if renamed().any(|name| name == field) { format!("nt_{field}") } else { field.clone() };
            program += &format!(
                "SAME(((struct nt_{name} *)0)->{ours}, ((struct {name} *)0)->{field}, \"{name}.{field}\");\n"
            );
            compared += 1;
        }
    }
    // Members of enumerations whose number is the running kernel's: the kernel's name has no suffix.
    for (member, _) in header.lines().filter_map(|line| line.trim().split_once("___nt = ")) {
        program += &format!("_Static_assert({member} >= 0, \"{member} is another in this kernel\");\n");
        compared += 1;
    }
    (program, compared)
}

/// The type information of a kernel image: plain, or in a packed part.
fn types_of(image: &[u8]) -> Option<Vec<u8>> {
    if let Some(types) = find_types(image) {
        return Some(types.to_vec());
    }
    PACKED.iter().find_map(|(magic, tool)| {
        starts(image, magic).find_map(|at| {
            let unpacked = unpack(tool, &image[at..]).ok()?;
            find_types(&unpacked).map(<[u8]>::to_vec)
        })
    })
}

fn starts<'a>(bytes: &'a [u8], magic: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    bytes.windows(magic.len()).enumerate().filter(move |(_, window)| *window == magic).map(|(at, _)| at)
}

/// Types in bytes: a header whose parts follow each other and end within the bytes (Documentation/bpf/btf.rst).
fn find_types(bytes: &[u8]) -> Option<&[u8]> {
    starts(bytes, BTF).find_map(|at| {
        let word = |nth: usize| {
            let word = bytes.get(at + 4 * nth..at + 4 * nth + 4)?;
            Some(u32::from_le_bytes(word.try_into().ok()?) as usize)
        };
        let (head, types_at, types, text_at, text) = (word(1)?, word(2)?, word(3)?, word(4)?, word(5)?);
        let sound = head == 24 && types_at == 0 && types >= TYPES_MIN && text_at >= types;
        sound.then(|| bytes.get(at..at + head + text_at + text)).flatten()
    })
}

/// The output of a tool for packed bytes and whatever follows them: it may complain about the rest.
fn unpack(tool: &[&str], packed: &[u8]) -> Result<Vec<u8>, String> {
    let tell = |error: std::io::Error| format!("{}: {error}", tool[0]);
    let mut child = Command::new(tool[0])
        .args(&tool[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(tell)?;
    let mut input = child.stdin.take().ok_or("no pipe")?;
    thread::scope(|scope| {
        // It stops reading where the packed part ends.
        scope.spawn(move || drop(input.write_all(packed)));
        child.wait_with_output().map(|output| output.stdout).map_err(tell)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_by_a_header_that_fits() {
        let mut image = vec![0; 100];
        image.extend(BTF);
        image.extend([7; 40]);
        let at = image.len();
        image.extend(BTF);
        for word in [24, 0, TYPES_MIN as u32, TYPES_MIN as u32, 10] {
            image.extend(word.to_le_bytes());
        }
        image.extend(vec![1; TYPES_MIN + 10]);
        image.extend([9; 50]);
        assert_eq!(find_types(&image), Some(&image[at..at + 24 + TYPES_MIN + 10]));
        assert_eq!(find_types(&image[..at]), None);
        assert_eq!(find_types(&image[..image.len() - 51]), None);
    }

    #[test]
    fn a_difference_is_not_hidden_by_a_kernel_that_cannot_be_had() {
        assert_eq!([status(true, true), status(true, false)], [1, 1]);
        assert_eq!([status(false, true), status(false, false)], [summary::PARTIAL, 0]);
    }

    #[test]
    fn fields_that_differ_by_kernel_are_left_to_the_programs() {
        let header = "\nstruct a {\n\tint x;\n\tint y;\n} NT_RELOCATED;\n\
                      \nstruct old {\n\tint w;\n} NT_RELOCATED;\n\
                      \nstruct a___v1 {\n\tstruct old y;\n} NT_RELOCATED;\n";
        let (program, compared) = super::program(header, "\nstruct a {\n");
        assert_eq!(compared, 1);
        assert!(program.contains("a.x") && !program.contains("a.y"), "{program}");
        // With the structure of the old kernel, that is compared too.
        assert_eq!(super::program(header, "\nstruct a {\n\nstruct old {\n").1, 2);
        let (program, compared) = super::program("\nenum b___nt {\n\tC___nt = 7,\n};\n", "");
        assert_eq!(compared, 1);
        assert!(program.contains("(C >= 0"), "{program}");
    }
}
