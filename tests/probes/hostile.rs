//! Programs of an ordinary user that attack the tool of root: their mappings, files and links are made to
//! harm a tool that looks up functions in them.
//!
//! Each burns CPU all the while, so that it is sampled.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Where a program of this kind finds what it needs.
pub const DIR: &str = "NUMATOP_NG_TEST_DIR";

const PAGE: usize = 4096;
/// Bytes of an ELF file header, a program header, a section header and a symbol.
const HEADERS: [usize; 4] = [64, 56, 64, 24];

/// An instruction that jumps to itself.
pub fn endless() -> &'static [u8] {
    if cfg!(target_arch = "x86_64") { &[0xeb, 0xfe] } else { &[0x00, 0x00, 0x00, 0x14] }
}

/// A function that counts down from a million and returns: a millisecond or less.
fn countdown() -> Vec<u8> {
    if cfg!(target_arch = "x86_64") {
        // mov ecx, 1 << 20; dec ecx; jnz back; ret
        vec![0xb9, 0, 0, 0x10, 0, 0xff, 0xc9, 0x75, 0xfc, 0xc3]
    } else {
        // movz w0, 16, lsl 16; subs w0, w0, 1; b.ne back; ret
        [0x52a0_0200_u32, 0x7100_0400, 0x54ff_ffe1, 0xd65f_03c0]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect()
    }
}

/// Pages of code that [`burn_here_and_there`] makes.
const PLACES: usize = 2048;

/// Runs code in a new place every few milliseconds, so that the tool has to look for names again and again. Returns where
/// the first place is.
fn burn_here_and_there() -> usize {
    let first = map_code(None, PLACES);
    for place in 0..PLACES {
        let code = countdown();
        // SAFETY: the pages are ours and may be written.
        unsafe {
            std::ptr::copy_nonoverlapping(code.as_ptr(), (first + place * PAGE) as *mut u8, code.len());
        };
    }
    thread::spawn(move || {
        let began = Instant::now();
        loop {
            let place = began.elapsed().as_millis() as usize / 10 % PLACES;
            // SAFETY: a function that takes and returns nothing is at this address.
            let run: extern "C" fn() = unsafe { std::mem::transmute(first + place * PAGE) };
            run();
        }
    });
    first
}

/// A perf map that names all of these places.
fn map_of(first: usize) -> String {
    (0..PLACES)
        .map(|place| format!("{:x} 40 place_{place}_of_many_that_have_a_name\n", first + place * PAGE))
        .collect()
}

/// Functions that [`burn_in_random_stacks`] names, and the bytes of code that each has: their names fill a perf map.
const NAMES: usize = 40_000;
const NAMED: usize = 1024;

/// Runs in one place with a chain of frames that is another each time: each of 64 callers is anywhere in 40 MB of code.
fn burn_in_random_stacks() {
    const FRAMES: usize = 1 << 16;
    let code = map_code(None, NAMES * NAMED / PAGE);
    let name = |at: usize| format!("{:x} {NAMED:x} {at:0390}\n", code + at * NAMED);
    let map: String = (0..NAMES).map(name).collect();
    fs::write(own_map(), &map[..map.len().min((16 << 20) - PAGE)]).unwrap();
    thread::spawn(move || {
        // A frame: the place of the next one, and its return address.
        let mut frames = vec![[0_usize; 2]; FRAMES];
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |most: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % most as u64) as usize
        };
        loop {
            for at in 0..FRAMES - 1 {
                frames[at] = [(&raw const frames[at + 1]) as usize, code + random(NAMES * NAMED)];
            }
            for _ in 0..2000 {
                let first = &raw const frames[random(FRAMES - 100)];
                // SAFETY: the frame pointer is put back, and nothing between uses it.
                #[cfg(target_arch = "x86_64")]
                unsafe {
                    std::arch::asm!(
                        "push rbp", "mov rbp, {first}", "2:", "dec {left}", "jnz 2b", "pop rbp",
                        first = in(reg) first, left = inout(reg) 1_u64 << 20 => _,
                    );
                }
                // SAFETY: as above.
                #[cfg(target_arch = "aarch64")]
                unsafe {
                    std::arch::asm!(
                        "mov {kept}, x29", "mov x29, {first}", "2:", "subs {left}, {left}, 1", "b.ne 2b", "mov x29, {kept}",
                        first = in(reg) first, left = inout(reg) 1_u64 << 20 => _, kept = out(reg) _,
                    );
                }
            }
        }
    });
}

/// Where the symbols of [`library`] begin.
const SYMBOLS_AT: u64 = 2 * PAGE as u64;

/// Writes a library whose code is one endless loop, with a build id, and with a symbol table at its end that
/// claims `symbols` bytes. One symbol is written, "victim", which is the loop; the rest is a hole.
pub fn library(path: &Path, symbols: u64) {
    let put =
        |bytes: &mut Vec<u8>, at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let [ehdr, phdr, shdr, sym] = HEADERS;
    let mut bytes = vec![0; 2 * PAGE + sym];
    put(&mut bytes, 0, b"\x7fELF\x02\x01\x01");
    put(&mut bytes, 16, &3_u16.to_ne_bytes());
    put(&mut bytes, 18, &(if cfg!(target_arch = "x86_64") { 62_u16 } else { 183 }).to_ne_bytes());
    put(&mut bytes, 20, &1_u32.to_ne_bytes());
    let sections_at = ehdr + 2 * phdr;
    for (at, value) in [(32, ehdr as u64), (40, sections_at as u64)] {
        put(&mut bytes, at, &value.to_ne_bytes());
    }
    for (at, value) in [(52, ehdr), (54, phdr), (56, 2), (58, shdr), (60, 4), (62, 1)] {
        put(&mut bytes, at, &(value as u16).to_ne_bytes());
    }
    let notes_at = 1024;
    let names_at = 1200;
    // Kind, rights, offset, address, size.
    for (at, [kind, rights, offset, address, size]) in
        [(ehdr, [1, 5, PAGE as u64, PAGE as u64, PAGE as u64]), (ehdr + phdr, [4, 4, notes_at, notes_at, 36])]
    {
        put(&mut bytes, at, &(kind as u32).to_ne_bytes());
        put(&mut bytes, at + 4, &(rights as u32).to_ne_bytes());
        for (word, value) in [(8, offset), (16, address), (32, size), (40, size), (48, 4)] {
            put(&mut bytes, at + word, &value.to_ne_bytes());
        }
    }
    let id: [u8; 20] = std::array::from_fn(|at| (symbols >> (8 * (at % 8))) as u8 ^ at as u8 ^ 0x5a);
    for (at, word) in [(0, 4_u32), (4, 20), (8, 3)] {
        put(&mut bytes, notes_at as usize + at, &word.to_ne_bytes());
    }
    put(&mut bytes, notes_at as usize + 12, b"GNU\0");
    put(&mut bytes, notes_at as usize + 16, &id);
    let names = b"\0.shstrtab\0.symtab\0victim\0";
    put(&mut bytes, names_at as usize, names);
    // Name, kind, offset, size, section with the names.
    for (number, [name, kind, offset, size, link]) in [
        (1, [1, 3, names_at, names.len() as u64, 0]),
        (2, [11, 2, SYMBOLS_AT, symbols, 3]),
        (3, [1, 3, names_at, names.len() as u64, 0]),
    ] {
        let at = sections_at + number * shdr;
        put(&mut bytes, at, &(name as u32).to_ne_bytes());
        put(&mut bytes, at + 4, &(kind as u32).to_ne_bytes());
        for (word, value) in [(24, offset), (32, size), (56, sym as u64)] {
            put(&mut bytes, at + word, &value.to_ne_bytes());
        }
        put(&mut bytes, at + 40, &(link as u32).to_ne_bytes());
    }
    put(&mut bytes, PAGE, endless());
    let symbol = SYMBOLS_AT as usize;
    put(&mut bytes, symbol, &19_u32.to_ne_bytes());
    put(&mut bytes, symbol + 4, &[0x12, 0, 1, 0]);
    put(&mut bytes, symbol + 8, &(PAGE as u64).to_ne_bytes());
    put(&mut bytes, symbol + 16, &64_u64.to_ne_bytes());
    let file = File::create(path).unwrap();
    file.write_all_at(&bytes, 0).unwrap();
    file.set_len(SYMBOLS_AT + symbols).unwrap();
}

fn dir() -> PathBuf {
    PathBuf::from(std::env::var_os(DIR).expect("the test names a directory"))
}

/// Maps code from `file`, or of memory that is no file, and returns where it is.
fn map_code(file: Option<&File>, pages: usize) -> usize {
    // SAFETY: a new mapping of one page, which nothing else uses.
    let at = unsafe {
        match file {
            Some(file) => {
                let rights = libc::PROT_READ | libc::PROT_EXEC;
                libc::mmap(
                    std::ptr::null_mut(),
                    PAGE,
                    rights,
                    libc::MAP_PRIVATE,
                    file.as_raw_fd(),
                    PAGE as libc::off_t,
                )
            }
            None => {
                let rights = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
                let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                libc::mmap(std::ptr::null_mut(), pages * PAGE, rights, kind, -1, 0)
            }
        }
    };
    assert!(at != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
    if file.is_none() {
        // SAFETY: the page is ours and may be written.
        unsafe { std::ptr::copy_nonoverlapping(endless().as_ptr(), at.cast(), endless().len()) };
    }
    at as usize
}

/// Runs the endless loop at `code` on a separate thread.
fn burn_at(code: usize) {
    thread::spawn(move || {
        // SAFETY: an instruction that jumps to itself is at this address.
        let run: extern "C" fn() = unsafe { std::mem::transmute(code) };
        run();
    });
}

fn own_map() -> PathBuf {
    PathBuf::from(format!("/tmp/perf-{}.map", std::process::id()))
}

/// Removes the perf map when the test has ended.
fn until_told() {
    println!("ready");
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
    let _ = fs::remove_file(own_map());
    std::process::exit(0);
}

/// Runs as the hostile program called `name`; false if it is unknown.
pub fn run(name: &str) -> bool {
    match name {
        // Runs code of a library whose symbols it takes away and puts back.
        "hostile-truncating" => {
            let path = dir().join("bus.so");
            let size = 24 << 20;
            library(&path, size);
            burn_at(map_code(Some(&File::open(&path).unwrap()), 1));
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            thread::spawn(move || {
                loop {
                    file.set_len(SYMBOLS_AT).unwrap();
                    file.set_len(SYMBOLS_AT + size).unwrap();
                }
            });
        }
        // Runs code of a library that claims 40 thousand million symbols.
        "hostile-giant" => {
            let path = dir().join("giant.so");
            library(&path, 960_000_000_000);
            burn_at(map_code(Some(&File::open(&path).unwrap()), 1));
        }
        // Runs code that it made, and truncates the map that names it.
        "hostile-map-truncating" => {
            let text = map_of(burn_here_and_there()).repeat(20);
            thread::spawn(move || {
                let file = File::create(own_map()).unwrap();
                loop {
                    file.write_all_at(text.as_bytes(), 0).unwrap();
                    thread::sleep(Duration::from_millis(1));
                    file.set_len(0).unwrap();
                }
            });
        }
        // As many names as a map can have, and all of them in use.
        "hostile-map-names" => burn_in_random_stacks(),
        // A map of 250 MiB.
        "hostile-map-huge" => {
            burn_at(map_code(None, 1));
            let mut file = File::create(own_map()).unwrap();
            let text = b"0 1 x\n".repeat(1 << 20);
            for _ in 0..42 {
                file.write_all(&text).unwrap();
            }
        }
        // A map that is a file in one moment and a pipe without a writer in the next.
        "hostile-map-flapping" => {
            let (map, other) = (own_map(), dir().join("pipe"));
            fs::write(&map, map_of(burn_here_and_there())).unwrap();
            let pipe = std::ffi::CString::new(other.as_os_str().as_encoded_bytes()).unwrap();
            // SAFETY: a NUL-terminated path.
            assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
            let map = std::ffi::CString::new(map.as_os_str().as_encoded_bytes()).unwrap();
            thread::spawn(move || {
                loop {
                    // SAFETY: two NUL-terminated paths.
                    unsafe {
                        libc::renameat2(
                            libc::AT_FDCWD,
                            map.as_ptr(),
                            libc::AT_FDCWD,
                            pipe.as_ptr(),
                            libc::RENAME_EXCHANGE,
                        )
                    };
                }
            });
        }
        // A map that is a link to what the test names.
        "hostile-map-link" => {
            burn_at(map_code(None, 1));
            symlink(dir().join("target"), own_map()).unwrap();
        }
        _ => return false,
    }
    until_told();
    true
}
