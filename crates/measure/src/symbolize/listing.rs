//! Functions that are listed as text: `/proc/kallsyms`, and the perf maps of programs that compile as they run.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::table::Table;

/// Bytes read of a perf map; functions beyond it have no name. A JVM with fifty thousand compiled methods writes 4 MiB.
pub const PERF_MAP_MAX: u64 = 16 << 20;
/// Bytes read of `/proc/kallsyms`: some 200,000 functions make 13 MB.
const KALLSYMS_MAX: u64 = 128 << 20;
/// Bytes that those functions take.
pub const KALLSYMS_ROOM: usize = 16 << 20;
/// Maximum bytes of a line; longer lines are cut.
const LINE_MAX: usize = 4096;
/// Bytes that a function of the kernel is taken to have at most, where the next one is farther away.
const KERNEL_FUNCTION_MAX: u32 = 64 << 10;

/// Calls `line` with each line of `file`, until it returns false or `most` bytes were read.
fn lines(file: &File, most: u64, mut line: impl FnMut(&[u8]) -> bool) {
    let mut buffer = vec![0; 64 << 10];
    let mut begun: Vec<u8> = Vec::new();
    let mut at = 0;
    while at < most {
        let room = buffer.len().min((most - at) as usize);
        let read = match file.read_at(&mut buffer[..room], at) {
            Ok(0) | Err(_) => break,
            Ok(read) => read,
        };
        at += read as u64;
        for piece in buffer[..read].split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_MAX.saturating_sub(begun.len());
            begun.extend(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                if !line(begun.trim_ascii_end()) {
                    return;
                }
                begun.clear();
            }
        }
    }
    // A line that was cut, here or by its writer, could have a wrong name.
}

/// The first words of a line; the last one is the rest of the line.
fn words<const N: usize>(line: &[u8]) -> Option<[&[u8]; N]> {
    let mut words = line.splitn(N, |byte| matches!(byte, b' ' | b'\t'));
    let mut found = [&b""[..]; N];
    for word in &mut found {
        *word = words.next()?.trim_ascii_start();
    }
    Some(found)
}

fn hex(word: &[u8]) -> Option<u64> {
    let word = word.strip_prefix(b"0x").unwrap_or(word);
    u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()
}

/// Bytes that the functions of a perf map take: an address and a size are as long in text.
pub fn perf_map_room(file: &File) -> usize {
    file.metadata().map_or(0, |meta| meta.len().min(PERF_MAP_MAX) as usize) + (256 << 10)
}

/// The functions of a perf map, in `room` bytes: lines of start, size and name (Documentation/jit-interface.txt of perf).
pub fn perf_map(file: &File, room: usize) -> Table {
    let mut table = Table::with_room(room);
    lines(file, PERF_MAP_MAX, |line| {
        let Some([start, size, name]) = words::<3>(line) else { return true };
        let (Some(start), Some(size)) = (hex(start), hex(size)) else { return true };
        name.is_empty() || table.add_named(start, size, name)
    });
    table.finish();
    table
}

/// The functions of the kernel and its modules: lines of address, kind, name and module in brackets (proc(5)). Names
/// have their module behind a tab. Empty where the kernel hides its addresses, which are all 0 then.
pub fn kallsyms(file: &File, room: usize) -> Table {
    let mut table = Table::with_room(room);
    lines(file, KALLSYMS_MAX, |line| {
        let Some([address, kind, name]) = words::<3>(line) else { return true };
        let address = hex(address).filter(|address| *address != 0);
        match (address, kind) {
            (Some(address), b"t" | b"T" | b"w" | b"W") => table.add_named(address, 1, name),
            _ => true,
        }
    });
    table.finish();
    table.close_gaps(KERNEL_FUNCTION_MAX);
    table
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(text: &[u8]) -> File {
        let dir = std::env::temp_dir();
        let path = dir.join(format!("numatop-ng-listing-{:?}", std::thread::current().id()));
        let mut file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(text).unwrap();
        file
    }

    fn map(file: &File) -> Table {
        perf_map(file, perf_map_room(file))
    }

    fn kernel(file: &File) -> Table {
        kallsyms(file, KALLSYMS_ROOM)
    }

    fn name(table: &Table, address: u64) -> Option<&str> {
        std::str::from_utf8(table.name(table.find(address)?.name)?).ok()
    }

    #[test]
    fn a_perf_map_has_spaces_in_names_and_lines_that_are_none() {
        let table =
            map(&file(b"7f00 20 void A.b(int, long)\n\nzz 1 x\n0x8000 0x10 stub\n9000 10\n9100 8 cut"));
        assert_eq!(name(&table, 0x7f1f), Some("void A.b(int, long)"));
        assert_eq!(name(&table, 0x8001), Some("stub"));
        assert_eq!((name(&table, 0x9001), name(&table, 0x9101), table.symbols().len()), (None, None, 2));
    }

    #[test]
    fn of_a_perf_map_so_much_is_read_and_no_more() {
        let line = b"0000000000001000 10 a_function_of_some_length\n";
        let mut text = line.repeat(PERF_MAP_MAX as usize / line.len() + 1);
        text.extend(b"ffff0000 10 beyond\n");
        let table = map(&file(&text));
        assert_eq!(
            (name(&table, 0x1001), name(&table, 0xffff_0001)),
            (Some("a_function_of_some_length"), None)
        );
        let short = map(&file(&b"1 1 x\n".repeat(3 << 20)));
        assert!(short.bytes() <= super::super::table::TABLE_BYTES_MAX);
    }

    #[test]
    fn a_line_without_an_end_takes_no_memory() {
        let table = map(&file(&[&b"1000 10 "[..], &vec![b'x'; 1 << 20], b"\n2000 10 y\n"].concat()));
        assert_eq!(name(&table, 0x1001).map(str::len), Some(LINE_MAX - 8));
        assert_eq!(name(&table, 0x2001), Some("y"));
    }

    #[test]
    fn kernel_functions_have_their_module() {
        let text = b"ffff1000 T first\nffff1800 d data\nffff2000 t second\t[nf_tables]\nffff2100 T third\n";
        let table = kernel(&file(text));
        assert_eq!(name(&table, 0xffff_1fff), Some("first"));
        assert_eq!(name(&table, 0xffff_2010), Some("second\t[nf_tables]"));
        assert!(kernel(&file(b"0000000000000000 T hidden\n")).is_empty());
    }
}
