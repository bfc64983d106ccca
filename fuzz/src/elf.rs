//! ELF files of any content: their functions are in order and bounded, and names are clean. An input that is no ELF file
//! is a name as a linker knows it.

use super::memory;
use numatop_ng::symbolize::NAME_MAX;
use numatop_ng::symbolize::child::{Symbolizer, shown};
use numatop_ng::symbolize::client::{Answer, Found, PLACES_MAX, Question};
use numatop_ng::symbolize::elf::Elf;
use numatop_ng::symbolize::sections::{self, Symbols};
use numatop_ng::symbolize::table::{TABLE_BYTES_MAX, Table};
use numatop_ng::text;

/// Symbols of a table whose addresses are asked for.
const ASKED_MAX: usize = 100;

/// Asks the symbolizer about a file with this content, or for the readable form of a name. Returns how many places have
/// a name.
pub fn read(input: &[u8]) -> usize {
    if !input.starts_with(b"\x7fELF") {
        check_name(&shown(input));
        return 0;
    }
    let file = memory::file(input);
    let mut symbolizer = Symbolizer::default();
    let mut ask = |question: &Question, count: usize| match symbolizer.answer(question, &file) {
        Answer::Found(found) => {
            assert_eq!(found.len(), count, "one answer for each place");
            found.iter().for_each(check_found);
            found
        }
        Answer::Identity(_) => panic!("places are answered by names"),
    };
    let tables = [Symbols::All, Symbols::Dynamic]
        .map(|which| sections::functions(&file, which, sections::room(&file, which)));
    tables.iter().for_each(check_table);
    let elf = Elf::read(&file);
    let addresses: Vec<u64> = tables.iter().flat_map(|table| places(table, input)).collect();
    let mut named = 0;
    for places in addresses.chunks(PLACES_MAX) {
        let question = Question::Addresses(places.to_vec());
        let found = ask(&question, places.len());
        assert_eq!(ask(&question, places.len()), found, "the same question has the same answer");
        for (place, found) in places.iter().zip(&found) {
            let covered = tables.iter().any(|table| table.find(*place).is_some());
            assert!(found.name.is_none() || covered && elf.is_some(), "{place:#x} is no function's");
            named += usize::from(found.name.is_some());
        }
        // The same numbers as offsets: places in code are near the beginning, as addresses are.
        for (place, found) in places.iter().zip(ask(&Question::Offsets(places.to_vec()), places.len())) {
            assert_eq!(found.address, elf.as_ref().and_then(|elf| elf.address_of(*place)));
            assert!(found.name.is_none() || found.address.is_some());
        }
    }
    let Answer::Identity(identity) = symbolizer.answer(&Question::Identify, &file) else {
        panic!("the question for an identity has an identity as its answer");
    };
    assert_eq!(identity.is_some(), elf.is_some_and(|elf| elf.build_id.is_some()));
    if let Some(link) = identity.and_then(|identity| identity.link) {
        assert!(sections::is_file_name(&link) && link.len() <= 1024, "{link:?} is a path");
    }
    named
}

/// A table has its functions by address, finds only functions that cover a place, and stays within its share
/// of memory.
pub fn check_table(table: &Table) {
    assert!(table.bytes() <= TABLE_BYTES_MAX, "{} bytes", table.bytes());
    assert!(table.symbols().is_sorted_by_key(|symbol| symbol.start));
    for place in places(table, &[]) {
        if let Some(symbol) = table.find(place) {
            assert!(symbol.start <= place && place - symbol.start < u64::from(symbol.size), "{place:#x}");
        }
    }
}

/// Places worth asking for: at the ends of functions, beside them, and those from `words`.
pub fn places(table: &Table, words: &[u8]) -> Vec<u64> {
    let at_symbol = |(start, size): (u64, u32)| {
        [start, start.saturating_add(u64::from(size) - 1), start.saturating_add(size.into())]
    };
    let symbols = table.symbols().iter().take(ASKED_MAX).map(|symbol| (symbol.start, symbol.size));
    let words = words.chunks_exact(8).rev().take(16);
    let words = words.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    [0, 1, u64::MAX].into_iter().chain(words).chain(symbols.flat_map(at_symbol)).collect()
}

/// Texts of an answer can be shown as they are.
pub fn check_found(found: &Found) {
    found.name.iter().for_each(|name| check_name(name));
    found.module.iter().for_each(|module| assert!(text::is_clean(module), "{module:?}"));
}

fn check_name(name: &str) {
    assert!(text::is_clean(name), "{name:?}");
    assert!(name.len() <= NAME_MAX, "{} bytes", name.len());
}
