//! Functions by address, and how much memory all of them may take.

use std::collections::HashMap;
use std::hash::Hash;

/// Bytes that the tables of one symbolizer may take together, including those needed to make one: the process
/// stays below 32 MiB.
pub const BYTES_MAX: usize = 22 << 20;
/// Bytes that one table may take: a million functions of an ELF file. Further functions have no name.
pub const TABLE_BYTES_MAX: usize = 20 << 20;

/// Symbols looked at that begin before an address: functions may lie within others.
const NESTED_MAX: usize = 16;

/// Where a function is, and where its name is: an offset into something that the owner of the table knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Symbol {
    pub start: u64,
    /// Bytes of code; at most 4 GiB.
    pub size: u32,
    pub name: u32,
}

/// The functions of one file.
#[derive(Debug)]
pub struct Table {
    /// Bytes that it may take.
    most: usize,
    /// A function was left out.
    is_cut: bool,
    symbols: Vec<Symbol>,
    /// Names that are not read from the file when they are asked for.
    pub names: Vec<u8>,
    /// Where the names begin in the file that are read when they are asked for.
    pub names_at: Option<u64>,
}

impl Default for Table {
    fn default() -> Table {
        Table::with_room(TABLE_BYTES_MAX)
    }
}

impl Table {
    /// A table of `most` bytes at most.
    pub fn with_room(most: usize) -> Table {
        Table { most, is_cut: false, symbols: Vec::new(), names: Vec::new(), names_at: None }
    }

    /// Whether functions were left out for want of room.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Leaves out what does not fit.
    pub fn cut(&mut self) {
        self.is_cut = true;
    }

    /// Adds a function; false if it does not fit. Of two with the same start, the one whose name comes later
    /// hides the other.
    pub fn add(&mut self, start: u64, size: u64, name: u32) -> bool {
        if size == 0 {
            return true;
        }
        if self.symbols.len() == self.symbols.capacity() && !self.grow() {
            return false;
        }
        self.symbols.push(Symbol { start, size: u32::try_from(size).unwrap_or(u32::MAX), name });
        true
    }

    /// Adds a function with its name; false if it does not fit.
    pub fn add_named(&mut self, start: u64, size: u64, name: &[u8]) -> bool {
        let at = self.names.len();
        if size == 0 {
            return true;
        }
        if at + name.len() + 1 > self.names.capacity() {
            let more = (at / 4).max(64 << 10).max(name.len() + 1);
            if self.bytes() + more > self.most {
                self.is_cut = true;
                return false;
            }
            self.names.reserve_exact(more);
        }
        if !self.add(start, size, at as u32) {
            return false;
        }
        self.names.extend(name);
        self.names.push(0);
        true
    }

    /// Grows by a quarter instead of doubling: memory with a limit should not be half empty. False if it does
    /// not fit.
    fn grow(&mut self) -> bool {
        let left = self.most.saturating_sub(self.bytes()) / size_of::<Symbol>();
        let more = (self.symbols.len() / 4).max(1024).min(left);
        self.symbols.reserve_exact(more);
        self.is_cut |= more == 0;
        more > 0
    }

    /// To be called when all functions are in.
    pub fn finish(&mut self) {
        self.symbols.sort_unstable_by_key(|symbol| (symbol.start, symbol.name));
        self.symbols.shrink_to_fit();
        self.names.shrink_to_fit();
    }

    /// Lets each function reach to the next one, but no further than `most` bytes.
    pub fn close_gaps(&mut self, most: u32) {
        let mut next = None;
        for symbol in self.symbols.iter_mut().rev() {
            let room = next.map_or(u64::from(most), |next: u64| next - symbol.start);
            // Of several names of one place each reaches as far as the last.
            if room > 0 {
                next = Some(symbol.start);
            }
            symbol.size = room.clamp(1, u64::from(most)) as u32;
        }
    }

    /// The function at this address: the innermost one.
    pub fn find(&self, address: u64) -> Option<Symbol> {
        let behind = self.symbols.partition_point(|symbol| symbol.start <= address);
        let before = self.symbols[..behind].iter().rev().take(NESTED_MAX);
        before.copied().find(|symbol| address - symbol.start < u64::from(symbol.size))
    }

    /// The name at this offset in [`Table::names`].
    pub fn name(&self, at: u32) -> Option<&[u8]> {
        self.names.get(at as usize..)?.split(|byte| *byte == 0).next()
    }

    /// All functions, by address once [`Table::finish`] was called.
    pub fn symbols(&self) -> &[Symbol] {
        &self.symbols
    }

    /// Whether it has no function.
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// Memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.symbols.capacity() * size_of::<Symbol>() + self.names.capacity()
    }
}

/// Tables by their source. When room runs out, the least recently used one is forgotten.
#[derive(Debug)]
pub struct Tables<K> {
    tables: HashMap<K, (Table, u64)>,
    uses: u64,
}

impl<K> Default for Tables<K> {
    fn default() -> Tables<K> {
        Tables { tables: HashMap::new(), uses: 0 }
    }
}

impl<K: Hash + Eq + Clone> Tables<K> {
    /// The table of `key`, made with `make` if it is not there. Making it takes `room` bytes at most, which `make` gets.
    pub fn get(&mut self, key: K, room: impl FnOnce() -> usize, make: impl FnOnce(usize) -> Table) -> &Table {
        self.uses += 1;
        if !self.tables.contains_key(&key) {
            let room = room().min(TABLE_BYTES_MAX);
            self.shrink_to(BYTES_MAX - room);
            let table = make(room);
            self.tables.insert(key.clone(), (table, self.uses));
        }
        let (table, used) = self.tables.get_mut(&key).expect("it was there or was put there");
        *used = self.uses;
        table
    }

    /// Forgets the table of `key`.
    pub fn forget(&mut self, key: &K) {
        self.tables.remove(key);
    }

    fn shrink_to(&mut self, most: usize) {
        // Empty tables take room, too.
        let bytes = |table: &Table| table.bytes() + 256;
        while self.tables.values().map(|(table, _)| bytes(table)).sum::<usize>() > most {
            let oldest = self.tables.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { return };
            self.tables.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(symbols: &[(u64, u64, &str)]) -> Table {
        let mut table = Table::default();
        for (start, size, name) in symbols {
            assert!(table.add_named(*start, *size, name.as_bytes()));
        }
        table.finish();
        table
    }

    fn name(table: &Table, address: u64) -> Option<String> {
        let found = table.find(address)?;
        Some(String::from_utf8(table.name(found.name)?.to_vec()).unwrap())
    }

    #[test]
    fn the_innermost_function_is_found() {
        let table = table(&[(100, 50, "outer"), (110, 10, "inner"), (200, 8, "other"), (300, 0, "label")]);
        let found: Vec<_> = [99, 100, 112, 120, 149, 150, 207, 208, 300].map(|at| name(&table, at)).into();
        let expected =
            [None, Some("outer"), Some("inner"), Some("outer"), Some("outer"), None, Some("other")];
        let expected = expected.into_iter().chain([None, None]).map(|name| name.map(str::to_string));
        assert_eq!(found, expected.collect::<Vec<_>>());
    }

    #[test]
    fn code_that_was_made_again_has_its_new_name() {
        let table = table(&[(100, 50, "old"), (100, 50, "new")]);
        assert_eq!(name(&table, 120).as_deref(), Some("new"));
    }

    #[test]
    fn functions_without_a_size_reach_to_the_next() {
        let mut table = table(&[(100, 1, "a"), (100, 1, "alias"), (200, 1, "b"), (1 << 30, 1, "far")]);
        table.close_gaps(1 << 16);
        assert_eq!(name(&table, 199).as_deref(), Some("alias"));
        assert_eq!(name(&table, 200 + 0xffff).as_deref(), Some("b"));
        assert_eq!(name(&table, 200 + 0x10000), None);
    }

    #[test]
    fn tables_without_end_take_no_more_than_there_is() {
        let mut tables = Tables::default();
        for key in 0..6 {
            // 12 MiB of symbols, which take 8, and the maximum of one.
            let wanted = if key % 2 == 0 { 8 << 20 } else { usize::MAX };
            let table = tables.get(
                key,
                || wanted,
                |room| {
                    let mut table = Table::with_room(room);
                    let mut at = 0;
                    while table.add(at, 1, 0) {
                        at += 1;
                    }
                    table.finish();
                    table
                },
            );
            let room = wanted.min(TABLE_BYTES_MAX);
            assert!(table.bytes() <= room && table.bytes() > room * 9 / 10 && table.is_cut());
            let all: usize = tables.tables.values().map(|(table, _)| table.bytes()).sum();
            assert!(all <= BYTES_MAX, "{all} bytes");
        }
        assert!(tables.tables.contains_key(&5) && !tables.tables.contains_key(&0));
    }

    #[test]
    fn small_tables_stay_while_others_are_made() {
        let mut tables = Tables::default();
        for key in 0..100 {
            tables.get(key, || 64 << 10, |_| table(&[(1, 1, "a")]));
        }
        assert_eq!(tables.tables.len(), 100);
    }
}
