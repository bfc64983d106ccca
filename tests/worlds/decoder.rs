//! Addresses of memory operands, compared with the output of objdump for the libraries of this machine.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use numatop_ng::access::code_x86::{self, Previous, previous};
use numatop_ng::access::sample::{Code, Moment, Outcome};
use numatop_ng::access::{decode_a64, decode_x86};

/// Instructions after which no further library is read.
const ENOUGH: usize = 1_200_000;

/// Differences that are printed.
const SHOWN: usize = 20;

/// One line of a disassembly.
struct Line {
    address: u64,
    bytes: Vec<u8>,
    text: String,
}

/// Passes each instruction of `library` to `each`, until that has enough.
fn disassemble(objdump: &str, library: &Path, mut each: impl FnMut(Line) -> bool) {
    let mut child = Command::new(objdump)
        .args(["-d", "-w", "-z", "--section=.text"])
        .arg(library)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let mut columns = line.splitn(3, '\t');
        let (Some(address), Some(hex), Some(text)) = (columns.next(), columns.next(), columns.next()) else {
            continue;
        };
        let Ok(address) = u64::from_str_radix(address.trim().trim_end_matches(':'), 16) else { continue };
        let bytes = match hex.trim() {
            word if word.len() == 8 && !word.contains(' ') => {
                u32::from_str_radix(word, 16).unwrap().to_le_bytes().to_vec()
            }
            bytes => bytes.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect(),
        };
        // Symbols and the address that objdump has computed itself.
        let comment = if objdump == "objdump" && cfg!(target_arch = "x86_64") { "#" } else { "//" };
        let text = text.split(comment).next().unwrap().split('<').next().unwrap();
        if !each(Line { address, bytes, text: text.replace('\t', " ").trim().to_owned() }) {
            let _ = child.kill();
            break;
        }
    }
    let _ = child.wait();
}

/// Tallies of a comparison.
#[derive(Default)]
struct Tally {
    instructions: usize,
    operands: usize,
    different: Vec<String>,
}

impl Tally {
    fn compare(&mut self, line: &Line, expected: Expected, outcome: Outcome) {
        self.instructions += 1;
        let same = match expected {
            Expected::Skip => true,
            Expected::Plain => outcome == Outcome::Plain,
            Expected::Gone => matches!(outcome, Outcome::Gone | Outcome::Unknown),
            Expected::Address(address) => {
                self.operands += 1;
                outcome == Outcome::Address(address)
            }
        };
        if !same {
            self.different
                .push(format!("{:x}: {}: {outcome:x?}, not {expected:x?}", line.address, line.text));
        }
    }

    fn print(&self, what: &str) {
        let (instructions, operands) = (self.instructions, self.operands);
        println!(
            "{what}: {operands} operands of {instructions} instructions, {} different",
            self.different.len()
        );
        self.different.iter().take(SHOWN).for_each(|line| println!("  {line}"));
    }
}

#[derive(Clone, Copy, Debug)]
enum Expected {
    Address(u64),
    Plain,
    Gone,
    Skip,
}

/// Reports why a comparison is left out: a test that proves nothing must not look as if it did.
fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
}

fn has(tool: &str) -> bool {
    Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Shared libraries below a folder, largest first.
fn libraries(folder: &str) -> Vec<PathBuf> {
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut sized: Vec<(u64, PathBuf)> = found
        .filter(|entry| entry.file_name().to_string_lossy().contains(".so"))
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter(|entry| std::fs::read(entry.path()).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF")))
        .filter_map(|entry| Some((entry.metadata().ok()?.len(), entry.path())))
        .collect();
    sized.sort_by(|one, other| other.cmp(one));
    sized.into_iter().map(|(_, path)| path).collect()
}

const NAMES_64: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];
const NAMES_32: [&str; 16] = [
    "eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "r8d", "r9d", "r10d", "r11d", "r12d", "r13d",
    "r14d", "r15d",
];

fn made_up_x86() -> decode_x86::Registers {
    let general = std::array::from_fn(|number| 0x0123_4567_89ab_cdef_u64.wrapping_mul(2 * number as u64 + 3));
    decode_x86::Registers { general, fs_base: 0x7f12_3456_7000, ..decode_x86::Registers::default() }
}

/// A number of AT&T syntax; nothing is 0.
fn number(text: &str) -> Option<u64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None if digits.is_empty() => 0,
        None => digits.parse().ok()?,
    };
    Some(if negative { value.wrapping_neg() } else { value })
}

/// The address of an operand in AT&T syntax.
fn expected_x86(line: &Line, registers: &decode_x86::Registers) -> Expected {
    let mut words = line.text.split(' ').filter(|word| !word.is_empty());
    let prefixes = [
        "lock", "rep", "repz", "repnz", "notrack", "bnd", "data16", "cs", "ds", "addr32", "xacquire",
        "xrelease",
    ];
    let Some(name) = words.find(|word| !prefixes.contains(word) && !word.starts_with("rex")) else {
        return Expected::Skip;
    };
    let operands: String = words.collect();
    // Strings, and instructions that objdump cannot decode.
    if line.text.contains("(bad)") || operands.contains("%es:(") || operands.contains("%ds:(") {
        return Expected::Skip;
    }
    let stack = ["push", "pop", "call", "ret", "lret", "leave", "enter", "iret", "maskmov", "int", "sys"];
    let on_stack = stack.iter().any(|stack| name.starts_with(stack)) && name != "popcnt";
    let segment = ["%fs:", "%gs:"].iter().find_map(|segment| Some((*segment, operands.find(segment)?)));
    let open = operands.find('(');
    let absolute = segment.is_some() && open.is_none();
    let Some(at) = open.or(segment.map(|(_, at)| at + 4)) else {
        // An address without a register, found in data that is decoded as code: `cmpb $0x1d,0x10`.
        let bare = operands.split(',').find(|operand| operand.starts_with("0x"));
        let goes = ["j", "call", "loop", "xbegin"].iter().any(|jump| name.starts_with(jump));
        return match bare.and_then(number).filter(|_| !goes) {
            _ if on_stack || name.starts_with("movabs") || name.starts_with("xlat") => Expected::Skip,
            Some(address) => Expected::Address(address),
            None => Expected::Plain,
        };
    };
    if ["lea", "nop", "prefetch"].iter().any(|plain| name.starts_with(plain)) && name != "leave" {
        return Expected::Plain;
    }
    let from = operands[..at].rfind([',', ':', '*']).map_or(0, |comma| comma + 1);
    let end = operands[at..].find(')').map_or(operands.len(), |end| at + end);
    let fs = match segment {
        Some(("%fs:", _)) => registers.fs_base,
        Some(_) => return Expected::Gone,
        None => 0,
    };
    if absolute {
        let digits = operands[at..].split(',').next().unwrap();
        return number(digits).map_or(Expected::Skip, |value| Expected::Address(fs.wrapping_add(value)));
    }
    let Some(mut address) = number(&operands[from..at]) else { return Expected::Skip };
    let mut narrow = false;
    let mut parts = operands[at + 1..end].split(',');
    let (base, index) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let scale: u64 = parts.next().map_or(1, |scale| scale.parse().unwrap());
    for (register, scale) in [(base, 1), (index, scale)] {
        let register = register.trim_start_matches('%');
        let value = match register {
            "" | "riz" | "eiz" => 0,
            "rip" => line.address + line.bytes.len() as u64,
            "eip" => return Expected::Skip,
            vector if vector.contains("mm") => return Expected::Gone,
            name => {
                let wide = NAMES_64.iter().position(|other| *other == name);
                let short = NAMES_32.iter().position(|other| *other == name);
                narrow |= short.is_some();
                let Some(at) = wide.or(short) else { return Expected::Skip };
                let value = registers.general[at];
                if wide.is_some() { value } else { value & 0xffff_ffff }
            }
        };
        address = address.wrapping_add(value.wrapping_mul(scale));
    }
    let takes_bits = ["bt", "bts", "btr", "btc", "btl", "btq"].contains(&name) && !operands.starts_with('$');
    if takes_bits || name.starts_with("pop") && base == "%rsp" {
        return Expected::Skip;
    }
    let address = if narrow { address & 0xffff_ffff } else { address };
    Expected::Address(address.wrapping_add(fs))
}

#[test]
fn x86_operands_are_those_of_objdump() {
    if !cfg!(target_arch = "x86_64") || !has("objdump") {
        return skip("needs objdump on x86-64");
    }
    let mut decoder = decode_x86::Decoder::default();
    let mut tally = Tally::default();
    let registers = made_up_x86();
    let (mut window, mut asked, mut found) = (Vec::new(), 0usize, 0usize);
    let (mut last, mut next) = (0, 0);
    let mut libraries = libraries("/usr/lib/x86_64-linux-gnu").into_iter();
    while tally.instructions < ENOUGH
        && let Some(library) = libraries.next()
    {
        disassemble("objdump", &library, |line| {
            // The instruction in front, found in bytes alone.
            if line.address != next {
                window.clear();
            } else if tally.instructions.is_multiple_of(8) && window.len() > code_x86::BEFORE {
                let code = Code { before: &window, from: &[] };
                if let Previous::Instruction(instruction) = previous(64, code, line.address)
                    && instruction.mnemonic() != iced_x86::Mnemonic::Nop
                {
                    asked += 1;
                    // A comparison that is fused with a branch behind it.
                    let fused = instruction.next_ip() == last;
                    found += usize::from(instruction.ip() == last || fused);
                }
            }
            (last, next) = (line.address, line.address + line.bytes.len() as u64);
            window.extend_from_slice(&line.bytes);
            window.drain(..window.len().saturating_sub(64));
            if let Some(instruction) = code_x86::decode(64, &line.bytes, line.address)
                && instruction.len() == line.bytes.len()
            {
                let expected = expected_x86(&line, &registers);
                tally.compare(&line, expected, decoder.address(&instruction, &registers, Moment::Before));
            }
            tally.instructions < ENOUGH
        });
    }
    tally.print("x86-64");
    println!("the instruction in front: {found} of {asked}");
    assert!(tally.instructions >= 1_000_000 || cfg!(not(target_os = "linux")), "too few libraries here");
    assert!(tally.different.is_empty(), "{} differences", tally.different.len());
    assert!(found as f64 >= asked as f64 * 0.99, "{found} of {asked} instructions in front were found");
}

fn made_up_a64() -> decode_a64::Registers {
    let general = std::array::from_fn(|number| 0x0123_4567_89ab_cdef_u64.wrapping_mul(2 * number as u64 + 3));
    decode_a64::Registers { general, sp: 0xffff_1234_5670, pc: 0 }
}

/// The value of a register by its name, or of the number after `#`.
fn value_a64(text: &str, registers: &decode_a64::Registers) -> Option<u64> {
    if let Some(digits) = text.strip_prefix('#') {
        return number(digits);
    }
    match text {
        "sp" => return Some(registers.sp),
        "xzr" | "wzr" => return Some(0),
        _ => {}
    }
    let at: usize = text.get(1..)?.parse().ok()?;
    let value = *registers.general.get(at)?;
    match text.as_bytes()[0] {
        b'x' => Some(value),
        b'w' => Some(value & 0xffff_ffff),
        _ => None,
    }
}

fn expected_a64(line: &Line, registers: &decode_a64::Registers) -> Expected {
    let (name, operands) = line.text.split_once(' ').unwrap_or((&line.text, ""));
    if name.starts_with('.') || line.text.contains("undefined") {
        return Expected::Skip;
    }
    if name == "dc" && ["zva", "gva", "gzva"].iter().any(|zero| operands.starts_with(zero)) {
        let register = operands.rsplit(' ').next().unwrap();
        return value_a64(register, registers).map_or(Expected::Skip, Expected::Address);
    }
    // Lanes of vector registers have a number there.
    let Some(open) = operands.find("[x").or(operands.find("[s")) else {
        let literal = name.starts_with("ldr") && !operands.contains('[');
        return if literal {
            let target = operands.rsplit(' ').next().unwrap();
            u64::from_str_radix(target.trim_start_matches("0x"), 16).map_or(Expected::Skip, Expected::Address)
        } else {
            Expected::Plain
        };
    };
    if name.starts_with("prf") {
        return Expected::Plain;
    }
    if operands.contains('z') && operands.contains("p") && operands.contains("mul vl")
        || operands.starts_with("{z")
    {
        return Expected::Gone;
    }
    let close = open + operands[open..].find(']').unwrap();
    let mut parts = operands[open + 1..close].split(',').map(str::trim);
    let Some(mut address) = value_a64(parts.next().unwrap(), registers) else { return Expected::Skip };
    if let Some(offset) = parts.next() {
        let Some(mut value) = value_a64(offset, registers) else { return Expected::Skip };
        if let Some(extension) = parts.next() {
            let (kind, shift) = extension.split_once(' ').unwrap_or((extension, "#0"));
            if kind.starts_with("sxtw") {
                value = i64::from(value as i32) as u64;
            }
            value <<= number(shift.trim_start_matches('#')).unwrap();
        }
        address = address.wrapping_add(value);
    }
    Expected::Address(address)
}

#[test]
fn arm64_operands_are_those_of_objdump() {
    let objdump = if cfg!(target_arch = "aarch64") { "objdump" } else { "aarch64-linux-gnu-objdump" };
    let folders = ["/usr/aarch64-linux-gnu/lib", "/usr/lib/aarch64-linux-gnu"];
    let found: Vec<PathBuf> = folders.iter().flat_map(|folder| libraries(folder)).collect();
    if !has(objdump) || found.is_empty() {
        return skip("needs binutils-aarch64-linux-gnu and libc6-arm64-cross");
    }
    let mut tally = Tally::default();
    let registers = made_up_a64();
    for library in found {
        disassemble(objdump, &library, |line| {
            if let Ok(word) = line.bytes[..].try_into().map(u32::from_le_bytes) {
                let outcome = decode_a64::address(word, &registers, line.address, Moment::Before);
                tally.compare(&line, expected_a64(&line, &registers), outcome);
            }
            true
        });
    }
    tally.print("arm64");
    assert!(tally.instructions > 100_000, "too few libraries here");
    assert!(tally.different.is_empty(), "{} differences", tally.different.len());
}
