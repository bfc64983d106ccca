//! Perf maps and kallsyms of any content: their tables are bounded and in order, and names are clean.
//!
//! From a first byte of 0x80 on the rest of an input is repeated: lines then lie across the pieces that are read.

use super::elf::{check_found, check_table, places};
use super::memory;
use numatop_ng::symbolize::child::Symbolizer;
use numatop_ng::symbolize::client::{Answer, PLACES_MAX, Question};
use numatop_ng::symbolize::listing::{KALLSYMS_ROOM, kallsyms, perf_map, perf_map_room};

/// Bytes of a listing that is repeated: more than are read at a time.
const REPEATED_MAX: usize = 80 << 10;

/// Reads the listing described by `input` as both kinds. Returns the number of places with a name.
pub fn read(input: &[u8]) -> usize {
    let Some((first, text)) = input.split_first() else { return 0 };
    let times = if *first < 0x80 { 1 } else { REPEATED_MAX / text.len().max(1) };
    let listing = text.repeat(times.max(1));
    let file = memory::file(&listing);
    let mut named = 0;
    let mut symbolizer = Symbolizer::default();
    let tables = [perf_map(&file, perf_map_room(&file)), kallsyms(&file, KALLSYMS_ROOM)];
    for (table, question) in
        tables.into_iter().zip([Question::PerfMap as fn(_) -> _, Question::Kernel as fn(_) -> _])
    {
        check_table(&table);
        for symbol in table.symbols() {
            let name = table.name(symbol.name).expect("each symbol has a name");
            assert!(name.len() <= 4096 && !name.contains(&b'\n'), "a name is a part of a line: {name:?}");
        }
        let places = places(&table, &[]);
        for places in places.chunks(PLACES_MAX) {
            let Answer::Found(found) = symbolizer.answer(&question(places.to_vec()), &file) else {
                panic!("addresses are answered by names");
            };
            assert_eq!(found.len(), places.len());
            for (place, found) in places.iter().zip(&found) {
                check_found(found);
                assert_eq!(found.address, None);
                assert!(found.name.is_none() || table.find(*place).is_some(), "{place:#x} is no function's");
                named += usize::from(found.name.is_some());
            }
        }
    }
    let Answer::Identity(identity) = symbolizer.answer(&Question::Identify, &file) else {
        panic!("the question for an identity has an identity as its answer");
    };
    assert!(identity.is_none() || text.starts_with(b"\x7fELF"), "a listing is no ELF file");
    named
}
