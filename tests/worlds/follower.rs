//! Programs that are followed, compared with the processor: each is stopped at random, followed in advance,
//! and then executed step by step. Every value reported as known must be right.

mod vectors;

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use numatop_ng::access::decode_x86::{RSP, Registers};
use numatop_ng::access::follow::{Follower, GaveUp};
use numatop_ng::access::sample::Stack;
use numatop_ng::model::wire::samples::{ACCESS_RED_ZONE, ACCESS_STACK};

/// Addresses that are compared, of all programs together.
const ENOUGH: usize = 126_000;
/// Steps that a program is followed from one stop.
const STEPS: usize = 300;

/// Stops of one program at most.
const STOPS_MAX: usize = 6000;

/// Type of the note with all registers (include/uapi/linux/elf.h).
const NT_X86_XSTATE: usize = 0x202;
/// Room for it.
const XSTATE_BYTES: usize = 16 * 1024;

/// A child that is traced. Killed when dropped.
struct Traced {
    child: Child,
    /// Its thread that is traced: the last one, which the test harness runs a test in.
    tid: i32,
    /// It was stopped in a system call, which may be restarted: samples are of user mode only.
    in_kernel: Cell<bool>,
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // A thread that is traced is not gone before its tracer has seen its end.
        while self.wait() {}
        let _ = self.child.wait();
    }
}

fn ptrace(request: libc::c_uint, pid: i32, data: *mut c_void) -> bool {
    // SAFETY: the child is ours; what data points to outlives the call and is as large as the request needs.
    unsafe { libc::ptrace(request, pid, std::ptr::null_mut::<c_void>(), data) != -1 }
}

impl Traced {
    fn start(program: &str, words: &[&str]) -> Option<Traced> {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Its own process group: nothing else gets its signals.
        let child = command.process_group(0).spawn().ok()?;
        std::thread::sleep(Duration::from_millis(100));
        let threads = std::fs::read_dir(format!("/proc/{}/task", child.id())).ok()?.flatten();
        let tids = threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let traced = Traced { tid: tids.max()?, child, in_kernel: Cell::new(false) };
        ptrace(libc::PTRACE_SEIZE, traced.pid(), std::ptr::null_mut()).then_some(traced)
    }

    fn pid(&self) -> i32 {
        self.tid
    }

    /// Waits for it to stop; false when it has ended.
    fn wait(&self) -> bool {
        let mut status = 0;
        // SAFETY: the status is a local that outlives the call.
        let pid = unsafe { libc::waitpid(self.pid(), &mut status, libc::__WALL) };
        pid == self.pid() && libc::WIFSTOPPED(status)
    }

    fn stop_after(&self, time: Duration) -> bool {
        std::thread::sleep(time);
        ptrace(libc::PTRACE_INTERRUPT, self.pid(), std::ptr::null_mut()) && self.wait()
    }

    fn go_on(&self) -> bool {
        ptrace(libc::PTRACE_CONT, self.pid(), std::ptr::null_mut())
    }

    fn step(&self) -> bool {
        ptrace(libc::PTRACE_SINGLESTEP, self.pid(), std::ptr::null_mut()) && self.wait()
    }

    fn registers(&self) -> Option<Registers> {
        // SAFETY: all bytes of the structure may be zero.
        let mut user: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        if !ptrace(libc::PTRACE_GETREGS, self.pid(), (&raw mut user).cast()) {
            return None;
        }
        self.in_kernel.set(user.orig_rax as i64 >= 0);
        Some(Registers {
            general: [
                user.rax, user.rcx, user.rdx, user.rbx, user.rsp, user.rbp, user.rsi, user.rdi, user.r8,
                user.r9, user.r10, user.r11, user.r12, user.r13, user.r14, user.r15,
            ],
            ip: user.rip,
            flags: user.eflags,
            fs_base: user.fs_base,
            compat: user.cs == 0x23,
        })
    }

    /// Vector and mask registers as the kernel has them in memory: the layout of XSAVE.
    fn vectors(&self) -> Option<Vectors> {
        let mut bytes = vec![0u8; XSTATE_BYTES];
        let mut all = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        // SAFETY: the vector names a buffer of that length, and both outlive the call.
        let got = unsafe {
            libc::ptrace(libc::PTRACE_GETREGSET, self.pid(), NT_X86_XSTATE as *mut c_void, &raw mut all)
        };
        (got != -1).then_some(Vectors { bytes })
    }

    /// The part of the stack that samples have.
    fn stack(&self, registers: &Registers) -> Stack {
        let start = registers.general[RSP].wrapping_sub(ACCESS_RED_ZONE as u64);
        let mut bytes = vec![0u8; ACCESS_STACK];
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: start as *mut c_void, iov_len: bytes.len() };
        // SAFETY: both vectors are locals, and the local one names a buffer of that length.
        let got = unsafe { libc::process_vm_readv(self.pid(), &local, 1, &remote, 1, 0) };
        if got == ACCESS_STACK as isize { Stack { start, bytes: bytes.into() } } else { Stack::default() }
    }

    fn read_page(&self, page: u64) -> Option<Box<[u8; 4096]>> {
        let mut bytes = Box::new([0u8; 4096]);
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: 4096 };
        let remote = libc::iovec { iov_base: (page << 12) as *mut c_void, iov_len: 4096 };
        // SAFETY: both vectors are locals, and the local one names a buffer of that length.
        let got = unsafe { libc::process_vm_readv(self.pid(), &local, 1, &remote, 1, 0) };
        (got == 4096).then_some(bytes)
    }
}

/// Registers in the layout of XSAVE (Intel SDM, volume 1, 13.4).
struct Vectors {
    bytes: Vec<u8>,
}

impl Vectors {
    /// Offset of a component, which processors choose. Each question is an exit from a virtual machine.
    fn offset(component: usize) -> usize {
        static OFFSETS: OnceLock<[usize; 8]> = OnceLock::new();
        let all = OFFSETS.get_or_init(|| {
            std::array::from_fn(|at| std::arch::x86_64::__cpuid_count(0xd, at as u32).ebx as usize)
        });
        all[component]
    }

    /// The byte of a vector register: 16 are in the old part, then come components 2, 6, and 7 for the upper registers.
    fn byte(&self, number: usize, byte: usize) -> Option<u8> {
        let at = match (number, byte) {
            (0..16, 0..16) => 160 + number * 16 + byte,
            (0..16, 16..32) => Vectors::offset(2) + number * 16 + byte - 16,
            (0..16, _) => Vectors::offset(6) + number * 32 + byte - 32,
            _ => Vectors::offset(7) + (number - 16) * 64 + byte,
        };
        self.bytes.get(at).copied()
    }

    /// A mask register: component 5.
    fn mask(&self, number: usize) -> Option<u64> {
        let at = Vectors::offset(5) + number * 8;
        Some(u64::from_ne_bytes(self.bytes.get(at..at + 8)?.try_into().ok()?))
    }

    fn has_avx512() -> bool {
        std::arch::is_x86_feature_detected!("avx512bw")
    }
}

/// The prediction for one instruction.
struct Said {
    ip: u64,
    general: [Option<u64>; 16],
    /// Numbers of vector registers with known bytes.
    vectors: Vec<(usize, [Option<u8>; 64])>,
    masks: Vec<(usize, u64)>,
    address: Option<u64>,
    text: String,
    /// A string instruction that the processor repeats step by step.
    repeats: bool,
}

#[derive(Default)]
struct Tally {
    stops: usize,
    steps: usize,
    values: usize,
    /// Bytes of vector registers, and mask registers.
    vector_bytes: usize,
    masks: usize,
    addresses: usize,
    wrong: Vec<String>,
    gave_up: HashMap<String, usize>,
}

fn follow(traced: &Traced, registers: &Registers, tally: &mut Tally) -> Vec<Said> {
    let Some(mut follower) = Follower::new(registers, traced.stack(registers)) else { return Vec::new() };
    let mut pages: HashMap<u64, Option<Box<[u8; 4096]>>> = HashMap::new();
    let mut read = |address: u64, bytes: &mut [u8]| {
        let (mut at, mut address) = (0, address);
        while at < bytes.len() {
            let page = pages.entry(address >> 12).or_insert_with(|| traced.read_page(address >> 12));
            let (Some(page), from) = (page, (address & 4095) as usize) else { return false };
            let length = (bytes.len() - at).min(4096 - from);
            bytes[at..at + length].copy_from_slice(&page[from..from + length]);
            (at, address) = (at + length, address.wrapping_add(length as u64));
        }
        true
    };
    let mut said = Vec::new();
    for _ in 0..STEPS {
        let Ok(instruction) = follower.fetch(&mut read) else { break };
        said.push(Said {
            ip: follower.ip(),
            general: std::array::from_fn(|number| follower.register(number)),
            vectors: (0..32).filter_map(|number| Some((number, follower.vector(number)?))).collect(),
            masks: (0..8).filter_map(|number| Some((number, follower.mask(number)?))).collect(),
            address: follower.address(&instruction),
            text: format!("{:?}", instruction.code()),
            repeats: instruction.has_rep_prefix() && instruction.is_string_instruction(),
        });
        if let Err(why) = follower.step(&mut read) {
            *tally.gave_up.entry(format!("{why:?}")).or_default() += 1;
            break;
        }
    }
    said
}

/// Makes the processor execute the predicted steps, and compares. False if the program has ended.
fn compare(traced: &Traced, said: &[Said], tally: &mut Tally) -> bool {
    let mut before = String::new();
    for (at, one) in said.iter().enumerate() {
        let Some(now) = traced.registers() else { return false };
        if now.ip != one.ip {
            tally.wrong.push(format!("after {before}: at {:x}, not {:x}", now.ip, one.ip));
            return true;
        }
        tally.steps += 1;
        for (number, (value, truth)) in one.general.iter().zip(now.general).enumerate() {
            let Some(value) = value else { continue };
            tally.values += 1;
            if *value != truth {
                tally.wrong.push(format!("after {before}: register {number} is {truth:x}, not {value:x}"));
                return true;
            }
        }
        if !one.vectors.is_empty() || !one.masks.is_empty() {
            let Some(now) = traced.vectors() else { return false };
            if let Some(wrong) = wrong_vector(one, &now, tally) {
                tally.wrong.push(format!("after {before}: {wrong}"));
                return true;
            }
        }
        tally.addresses += usize::from(one.address.is_some());
        before.clone_from(&one.text);
        // Beyond the last one is nothing to compare: it may be a long string instruction.
        if at + 1 == said.len() {
            break;
        }
        // A step is one repetition.
        let mut again = true;
        while again {
            if !traced.step() {
                return false;
            }
            again = one.repeats && traced.registers().is_some_and(|now| now.ip == one.ip);
        }
    }
    true
}

/// The first byte or mask that was reported as known and is wrong.
fn wrong_vector(said: &Said, now: &Vectors, tally: &mut Tally) -> Option<String> {
    let all = Vectors::has_avx512();
    for (number, bytes) in &said.vectors {
        // Without AVX-512 there is nothing beyond 32 bytes.
        for (at, byte) in bytes.iter().enumerate().take(if all { 64 } else { 32 }) {
            let Some(byte) = byte else { continue };
            tally.vector_bytes += 1;
            let truth = now.byte(*number, at);
            if truth != Some(*byte) {
                return Some(format!("byte {at} of vector {number} is {truth:x?}, not {byte:x}"));
            }
        }
    }
    for (number, mask) in &said.masks {
        tally.masks += 1;
        let truth = now.mask(*number);
        if truth != Some(*mask) {
            return Some(format!("mask {number} is {truth:x?}, not {mask:x}"));
        }
    }
    None
}

/// Programs that are run where they are installed: each runs for longer than the test follows it.
const PROGRAMS: &[(&str, &[&str])] = &[
    (
        "perl",
        &[
            "-e",
            "my %h; my $i = 0; while (1) { $h{$i % 9973} .= 'x' x ($i % 7); delete $h{$i % 131}; $i += 7 }",
        ],
    ),
    (
        "gawk",
        &[
            "BEGIN { while (1) { n = (n * 31 + 7) % 65521; a[n % 9973] += n; s = s substr(\"abc\", n % 3, 1); s = substr(s, 1, 99) } }",
        ],
    ),
    ("mawk", &["BEGIN { while (1) { n = (n * 31 + 7) % 65521; a[n % 9973] += n } }"]),
    (
        "/usr/bin/python3",
        &["-c", "d = {}\ni = 0\nwhile True:\n  i = (i * 31 + 7) % 65521\n  d[i % 9973] = d.get(i, 0) + i"],
    ),
    ("bash", &["-c", "while :; do n=$(( (n * 31 + 7) % 65521 )); a[n % 997]=$n; done"]),
    ("sort", &["-R", "/proc/self/maps", "/usr/bin/bash", "/usr/bin/bash", "--parallel=1"]),
];

#[test]
fn every_value_that_is_known_is_right() {
    let mut all = Tally::default();
    // Loops of this very program, built without optimisation.
    let own = std::env::current_exe().unwrap();
    let own = own.to_str().unwrap();
    let mut programs: Vec<(&str, &[&str])> = vec![
        (own, &["--ignored", "--exact", "loops"]),
        (own, &["--ignored", "--exact", "strings"]),
        (own, &["--ignored", "--exact", "vector_instructions"]),
    ];
    programs.extend(PROGRAMS);
    let mut followed = 0;
    let mut random: u64 = 88_172_645_463_325_252;
    for (at, (program, words)) in programs.iter().enumerate() {
        let Some(traced) = Traced::start(program, words) else {
            assert!(followed == 0 || at > 2, "{} does not run", words[2]);
            eprintln!("SKIPPED: {program} is not installed, or may not be traced");
            continue;
        };
        let mut tally = Tally::default();
        let share = ENOUGH / 6;
        while tally.addresses < share && tally.wrong.is_empty() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if !traced.stop_after(Duration::from_micros(200 + random % 2000)) {
                break;
            }
            let Some(registers) = traced.registers() else { break };
            tally.stops += 1;
            if traced.in_kernel.get() {
                if tally.stops > STOPS_MAX || !traced.go_on() {
                    break;
                }
                continue;
            }
            let said = follow(&traced, &registers, &mut tally);
            if !compare(&traced, &said, &mut tally) || !traced.go_on() {
                break;
            }
            if tally.stops > STOPS_MAX {
                break;
            }
        }
        let name = if at < 3 { words[2] } else { program };
        println!(
            "{name}: {} stops, {} steps, {} addresses, {} values of registers, {} bytes of vectors, {} masks, {} wrong; \
             gave up: {:?}",
            tally.stops,
            tally.steps,
            tally.addresses,
            tally.values,
            tally.vector_bytes,
            tally.masks,
            tally.wrong.len(),
            tally.gave_up
        );
        followed += 1;
        all.addresses += tally.addresses;
        all.vector_bytes += tally.vector_bytes;
        all.wrong.extend(tally.wrong.into_iter().map(|wrong| format!("{program}: {wrong}")));
    }
    println!("{} addresses, {} wrong", all.addresses, all.wrong.len());
    assert!(all.wrong.is_empty(), "{:#?}", all.wrong);
    if followed < 6 {
        eprintln!("SKIPPED: the number of addresses, which six programs have; {followed} are here");
        return;
    }
    assert!(all.addresses >= 100_000, "{} addresses", all.addresses);
    assert!(all.vector_bytes >= 10_000, "{} bytes of vectors", all.vector_bytes);
}

/// Not a test: what the test above traces.
#[test]
#[ignore = "runs for ever: another test traces it"]
fn loops() {
    let mut table = vec![0u32; 1 << 16];
    let mut map = std::collections::BTreeMap::new();
    let mut state: u64 = 1;
    loop {
        for _ in 0..1000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % table.len();
            table[at] = table[at].rotate_left(5) ^ state as u32;
            let narrow = (state >> 40) as u8;
            table[usize::from(narrow)] += narrow.leading_zeros() / (1 + state as u32 % 7);
        }
        *map.entry(state % 997).or_insert(0i64) += (state as i64) / 77 % 1000;
        let mut words: Vec<u16> = table[..200].iter().map(|word| *word as u16).collect();
        words.sort_unstable();
        std::hint::black_box((&table, &words, &map));
    }
}

/// Not a test: the functions of libc that compare, search and copy, at all lengths and places, known and not at the stop.
#[test]
#[ignore = "runs for ever: another test traces it"]
fn strings() {
    let mut one = vec![b'a'; 4096 + 512];
    let mut other = one.clone();
    let mut state: u64 = 1;
    let mut sum = 0_u64;
    loop {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let length = (state >> 40) as usize % if state >> 63 == 0 { 48 } else { 300 };
        let (from, to) = ((state >> 20) as usize % 4096, (state >> 30) as usize % 4096);
        let end = from + length;
        let kept = (one[end], other[to + length / 2]);
        one[end] = 0;
        other[to + length / 2] = b'a' + (state >> 60) as u8 % 3;
        let (first, second) = (one[from..].as_ptr().cast::<c_void>(), other[to..].as_ptr().cast::<c_void>());
        // SAFETY: both have room for the length behind their place, and the first has a zero there.
        unsafe {
            sum = sum.wrapping_add(libc::strlen(first.cast()) as u64);
            sum = sum.wrapping_add(libc::memcmp(first, second, length) as u64);
            sum = sum.wrapping_add(libc::strnlen(second.cast(), length) as u64);
            sum = sum.wrapping_add(libc::memchr(second, i32::from(b'c'), length) as u64);
            sum = sum.wrapping_add(libc::strchr(first.cast(), i32::from(b'b')) as u64);
            sum = sum.wrapping_add(libc::strcmp(first.cast(), first.cast()) as u64);
            sum = sum.wrapping_add(libc::memrchr(second, i32::from(b'b'), length) as u64);
        }
        (one[end], other[to + length / 2]) = kept;
        other.copy_within(to..to + length, 4096 - from % 4096);
        other[from..from + length / 3].fill(b'a');
        let at = sum as usize % 256;
        std::hint::black_box((&one, &other, at));
    }
}

/// Not a test: every vector instruction that is followed.
#[test]
#[ignore = "runs for ever: another test traces it"]
fn vector_instructions() {
    const VALUES: [u8; 8] = [0, 0, 1, 0x61, 0x7f, 0x80, 0xff, 0xff];
    let (mut one, mut other, mut out) = ([0; 256], [0; 256], vectors::Out([0; 256]));
    let mut state: u64 = 88_172_645_463_325_252;
    loop {
        for _ in 0..8 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            one[(state >> 8) as usize % 256] = VALUES[(state >> 40) as usize % 8];
            other[(state >> 16) as usize % 256] = VALUES[(state >> 48) as usize % 8];
        }
        vectors::run(&one, &other, &mut out, state);
    }
}

/// A loop through memory that the closure makes up, without a process.
#[test]
fn the_next_run_of_an_instruction_is_predicted() {
    // 1000: mov rax,[rbx+rcx*8]; inc rcx; cmp rcx,16; jne 1000; ret
    let code = [0x48, 0x8b, 0x04, 0xcb, 0x48, 0xff, 0xc1, 0x48, 0x83, 0xf9, 0x10, 0x75, 0xf3, 0xc3];
    let mut read = |address: u64, bytes: &mut [u8]| {
        let at = address.wrapping_sub(0x1000) as usize;
        bytes.fill(0);
        let Some(from) = code.get(at..) else { return false };
        let length = from.len().min(bytes.len());
        bytes[..length].copy_from_slice(&from[..length]);
        true
    };
    let mut registers = Registers { ip: 0x1004, ..Registers::default() };
    registers.general[3] = 0x7000_0000;
    registers.general[1] = 3;
    let mut follower = Follower::new(&registers, Stack::default()).unwrap();
    assert_eq!(follower.next_address(0x1000, &mut read), Ok(0x7000_0000 + 4 * 8));
    assert_eq!(follower.next_address(0x1000, &mut read), Ok(0x7000_0000 + 5 * 8));
    registers.general[1] = 15;
    let mut follower = Follower::new(&registers, Stack::default()).unwrap();
    assert_eq!(follower.next_address(0x1000, &mut read), Err(GaveUp::Return), "its stack was not taken");
    registers.compat = true;
    assert!(Follower::new(&registers, Stack::default()).is_none());
}
