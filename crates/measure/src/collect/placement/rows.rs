//! Policies of the mappings of a process, from the rows of the iterator of `policies.bpf.c`.

use std::io::{self, Read};
use std::thread;
use std::time::Duration;

use super::draw::count;
use crate::model::sample::{MemPolicy, PagesByPolicy, SharedObject};
use crate::model::wire::{
    POLICY_CUT, POLICY_END, POLICY_ENTRY, POLICY_FAR, POLICY_HUGETLB, POLICY_MAPPING, POLICY_OBJECT,
    POLICY_SHARED, POLICY_SHMEM, PolicyRow, Wire,
};

/// The most rows read of one process; `vm.max_map_count` is 65,530 by default.
const ROWS_MAX: usize = 1 << 18;
/// The kernel hands out 32 KiB at a time, with the address space locked. After so much it rests, for those who wait.
const FULL: usize = 24 << 10;
const REST: Duration = Duration::from_millis(1);

/// The highest that is known: weighted interleave. Entries of a tree above it were freed while they were read.
const MODE_MAX: u16 = 6;

/// The most objects listed for one process, and the least resident size of a listed object, bytes.
const OBJECTS_MAX: usize = 16;
const OBJECT_LEAST: u64 = 16 << 20;

/// The policy that holds for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// The kernel's own.
    Default,
    /// One that names these nodes.
    Names(u64),
    /// Unknown policy: its pages count as intended.
    Unknown,
}

impl Policy {
    fn of(row: &PolicyRow) -> Policy {
        let policy = MemPolicy { mode: row.mode, flags: row.flags, nodes: row.nodes };
        match policy.mode {
            _ if policy.is_default() => Policy::Default,
            // Without nodes it prefers the local one.
            MemPolicy::PREFERRED if row.nodes == 0 && row.marks & POLICY_FAR == 0 => Policy::Default,
            _ if row.marks & POLICY_FAR != 0 => Policy::Unknown,
            _ => Policy::Names(row.nodes),
        }
    }
}

/// A part of an address space in which the same holds for all pages.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Span {
    /// First page, and the one behind the last.
    from: u64,
    to: u64,
    policy: Policy,
    huge: bool,
    /// For shared memory: its place in [`Mappings::objects`], and whether others see writes to it.
    object: Option<(u16, bool)>,
}

/// All mappings of a process.
#[derive(Debug, Default)]
pub struct Mappings {
    spans: Vec<Span>,
    objects: Vec<SharedObject>,
    count: u32,
}

/// The mapping whose rows are being read.
struct Open {
    row: PolicyRow,
    object: Option<u16>,
    entries: Vec<PolicyRow>,
    /// The rows that follow are not its own.
    is_whole: bool,
}

impl Open {
    fn new(row: PolicyRow) -> Open {
        Open { row, object: None, entries: Vec::new(), is_whole: false }
    }
}

impl Mappings {
    /// Reads the rows of an iterator up to the last.
    ///
    /// # Errors
    /// The errno of read(2); ESRCH: the process has ended; or there are more rows than are read.
    pub fn read(mut rows: impl Read, page_size: u64) -> io::Result<Mappings> {
        let (mut found, mut open) = (Mappings::default(), None);
        let mut bytes = vec![0; 64 << 10];
        let mut told = 0;
        loop {
            let count = match rows.read(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let mut ended = count == 0;
            for bytes in bytes[..count].chunks_exact(size_of::<PolicyRow>()) {
                let Some(row) = PolicyRow::from_bytes(bytes) else { break };
                if row.kind == POLICY_END {
                    ended = true;
                    break;
                }
                found.take(&mut open, row, page_size);
                told += 1;
            }
            if ended {
                found.close(open.take(), page_size);
                // Every process that lives has some.
                return if found.count > 0 {
                    Ok(found)
                } else {
                    Err(io::Error::from_raw_os_error(libc::ESRCH))
                };
            }
            if told > ROWS_MAX {
                return Err(io::Error::other("the process has too many mappings to read"));
            }
            if count >= FULL {
                thread::sleep(REST);
            }
        }
    }

    fn take(&mut self, open: &mut Option<Open>, row: PolicyRow, page_size: u64) {
        match (row.kind, open.as_mut()) {
            (POLICY_MAPPING, _) => {
                // A read past the end repeats earlier mappings. They are skipped.
                let last = open.as_ref().map_or(0, |open| open.row.start);
                let is_new = row.start > last || self.count == 0;
                if is_new {
                    self.close(open.replace(Open::new(row)), page_size);
                    self.count += 1;
                } else if let Some(open) = open {
                    open.is_whole = true;
                }
            }
            (_, Some(open)) if open.is_whole => {}
            (POLICY_OBJECT, Some(open)) => open.object = self.object(&row, &open.row, page_size),
            (POLICY_ENTRY, Some(open)) if row.mode <= MODE_MAX && row.start < row.end => {
                open.entries.push(row);
            }
            _ => {}
        }
    }

    /// The place of an object, which has one more mapping.
    fn object(&mut self, row: &PolicyRow, mapping: &PolicyRow, page_size: u64) -> Option<u16> {
        let key = ((row.start >> 32) as u32, row.end, row.start as u32);
        let known = |object: &SharedObject| (object.device, object.inode, object.generation) == key;
        let at = self.objects.iter().position(known).unwrap_or_else(|| {
            self.objects.push(SharedObject {
                device: key.0,
                inode: key.1,
                generation: key.2,
                bytes: row.pgoff,
                resident_bytes: row.pages.saturating_mul(page_size),
                mappings: u32::try_from(row.nodes.cast_signed()).ok(),
                ..SharedObject::default()
            });
            self.objects.len() - 1
        });
        if mapping.marks & POLICY_SHARED != 0 {
            self.objects[at].own_mappings += 1;
        }
        u16::try_from(at).ok()
    }

    /// Adds a mapping whose rows have all come.
    fn close(&mut self, open: Option<Open>, page_size: u64) {
        let Some(Open { row, object, entries, .. }) = open else { return };
        let (from, to) = (row.start / page_size, row.end / page_size);
        let shared = row.marks & POLICY_SHARED != 0;
        let object = object.filter(|_| row.marks & POLICY_SHMEM != 0).map(|object| (object, shared));
        let span = |from, to, policy| {
            let huge = row.marks & POLICY_HUGETLB != 0;
            Span { from, to, policy, huge, object }
        };
        let page_of = |index: u64| from + index.saturating_sub(row.pgoff).min(to - from);
        let mut at = from;
        for entry in &entries {
            let (begin, end) = (page_of(entry.start).max(at), page_of(entry.end));
            if begin < end {
                self.push(span(at, begin, Policy::of(&row)));
                self.push(span(begin, end, Policy::of(entry)));
                at = end;
            }
        }
        let rest = if row.marks & POLICY_CUT != 0 { Policy::Unknown } else { Policy::of(&row) };
        self.push(span(at, to, rest));
    }

    fn push(&mut self, span: Span) {
        if span.from >= span.to {
            return;
        }
        match self.spans.last_mut() {
            Some(last)
                if Span { from: last.from, to: span.to, ..span } == Span { to: span.to, ..*last }
                    && last.to == span.from =>
            {
                last.to = span.to;
            }
            _ => self.spans.push(span),
        }
    }

    /// The part that has this page.
    fn span(&self, page: u64) -> Option<&Span> {
        let at = self.spans.partition_point(|span| span.to <= page);
        self.spans.get(at).filter(|span| span.from <= page)
    }

    /// Whether others map the object, too, or may.
    fn is_shared(&self, object: u16) -> bool {
        let object = &self.objects[usize::from(object)];
        object.mappings.is_none_or(|all| all > object.own_mappings)
    }
}

/// Pages that are found, counted by the policy that holds for them.
#[derive(Debug)]
pub struct Counted<'a> {
    mappings: &'a Mappings,
    found: PagesByPolicy,
    /// Pages of each object by node, and the part on nodes that its policy names.
    of_objects: Vec<[Vec<u32>; 2]>,
}

impl<'a> Counted<'a> {
    pub fn new(mappings: &'a Mappings) -> Counted<'a> {
        let found = PagesByPolicy { mappings: mappings.count, ..PagesByPolicy::default() };
        Counted { mappings, found, of_objects: vec![Default::default(); mappings.objects.len()] }
    }

    /// Counts a page that was found on a node.
    pub fn add(&mut self, page: u64, node: u32) {
        let Some(span) = self.mappings.span(page) else {
            self.found.unmatched += 1;
            return;
        };
        count(&mut self.found.by_node, node);
        self.found.huge += u32::from(span.huge);
        if span.policy != Policy::Default {
            count(&mut self.found.explicit, node);
        }
        let is_meant = match span.policy {
            Policy::Default => false,
            Policy::Names(nodes) => nodes.checked_shr(node).is_some_and(|nodes| nodes & 1 == 1),
            Policy::Unknown => true,
        };
        if is_meant {
            count(&mut self.found.meant, node);
        }
        if let Some((object, written)) = span.object {
            let [all, meant] = &mut self.of_objects[usize::from(object)];
            count(all, node);
            if is_meant {
                count(meant, node);
            }
            if written && self.mappings.is_shared(object) {
                count(&mut self.found.shared, node);
            }
        }
    }

    /// The sums, and large objects that others map, too.
    pub fn finish(mut self, read_ns: u64) -> PagesByPolicy {
        let large = |at: &usize| {
            let object = &self.mappings.objects[*at];
            object.resident_bytes >= OBJECT_LEAST && self.mappings.is_shared(*at as u16)
        };
        let mut objects: Vec<SharedObject> = (0..self.mappings.objects.len())
            .filter(large)
            .map(|at| {
                let [by_node, meant] = std::mem::take(&mut self.of_objects[at]);
                SharedObject { by_node, meant, ..self.mappings.objects[at].clone() }
            })
            .collect();
        objects.sort_by_key(|object| (std::cmp::Reverse(object.resident_bytes), object.device, object.inode));
        objects.truncate(OBJECTS_MAX);
        PagesByPolicy { read_ns, objects, ..self.found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn row(kind: u16, start: u64, end: u64) -> PolicyRow {
        PolicyRow { kind, start, end, ..PolicyRow::default() }
    }

    fn mapping(start: u64, end: u64) -> PolicyRow {
        row(POLICY_MAPPING, start * PAGE, end * PAGE)
    }

    fn bound(row: PolicyRow, nodes: u64) -> PolicyRow {
        PolicyRow { mode: 2, nodes, ..row }
    }

    fn read(rows: &[PolicyRow]) -> Mappings {
        let bytes: Vec<u8> = rows.iter().flat_map(|row| row.as_bytes().to_vec()).collect();
        Mappings::read(&bytes[..], PAGE).unwrap()
    }

    fn counted(mappings: &Mappings, pages: &[(u64, u32)]) -> PagesByPolicy {
        let mut counted = Counted::new(mappings);
        pages.iter().for_each(|(page, node)| counted.add(*page, *node));
        counted.finish(7)
    }

    #[test]
    fn a_page_counts_for_the_policy_of_its_mapping() {
        let mappings = read(&[
            mapping(10, 20),
            bound(mapping(20, 30), 0b10),
            PolicyRow { mode: 1, ..mapping(40, 50) },
            PolicyRow { mode: 3, marks: POLICY_FAR, ..mapping(50, 60) },
            row(POLICY_END, 0, 0),
            mapping(1, 9),
        ]);
        assert_eq!((mappings.count, mappings.spans.len()), (4, 4));
        let found =
            counted(&mappings, &[(10, 0), (19, 1), (20, 1), (29, 0), (35, 0), (45, 0), (55, 3), (99, 0)]);
        assert_eq!(found.by_node, [3, 2, 0, 1]);
        assert_eq!(found.explicit, [1, 1, 0, 1]);
        assert_eq!(found.meant, [0, 1, 0, 1], "a node above 63 is meant");
        assert_eq!((found.unmatched, found.read_ns, found.mappings), (2, 7, 4));
    }

    /// An object that all processes together have mapped this many times.
    fn object(mappings: i64) -> PolicyRow {
        PolicyRow {
            nodes: mappings.cast_unsigned(),
            pgoff: 100 << 20,
            pages: 25_600,
            ..row(POLICY_OBJECT, 7 << 32 | 9, 1234)
        }
    }

    fn shared(start: u64, end: u64, pgoff: u64) -> PolicyRow {
        PolicyRow { marks: POLICY_SHMEM | POLICY_SHARED, pgoff, ..mapping(start, end) }
    }

    #[test]
    fn shared_memory_has_the_policies_of_its_object() {
        let entry = |start, end, nodes| bound(row(POLICY_ENTRY, start, end), nodes);
        let mappings = read(&[
            shared(100, 200, 50),
            object(2),
            entry(0, 60, 1),
            entry(70, 80, 2),
            entry(90, 90, 2),
            PolicyRow { mode: 99, ..entry(100, 110, 2) },
            entry(140, 999, 1),
        ]);
        let policy = |page| mappings.span(page).unwrap().policy;
        let names = [100, 109, 110, 119, 120, 129, 130, 150, 189, 190, 199].map(policy);
        use Policy::{Default as No, Names};
        assert_eq!(names, [Names(1), Names(1), No, No, Names(2), Names(2), No, No, No, Names(1), Names(1)]);
        assert_eq!((mappings.span(99), mappings.span(200)), (None, None));
    }

    #[test]
    fn an_object_that_one_process_maps_three_times_is_its_own() {
        let rows =
            |all| [shared(1, 2, 0), object(all), shared(5, 6, 0), object(all), shared(7, 8, 4), object(all)];
        let own = counted(&read(&rows(3)), &[(1, 0)]);
        assert_eq!((own.shared, own.objects.len()), (vec![], 0));
        for all in [4, -1] {
            let others = counted(&read(&rows(all)), &[(1, 0), (5, 1), (7, 1)]);
            assert_eq!(others.shared, [1, 2]);
            assert_eq!(others.objects[0].by_node, [1, 2]);
            assert_eq!(others.objects[0].own_mappings, 3);
            assert_eq!(others.objects[0].mappings, u32::try_from(all).ok());
            assert_eq!((others.objects[0].device, others.objects[0].generation), (7, 9));
        }
    }

    #[test]
    fn a_private_mapping_of_an_object_is_own_memory() {
        let private = PolicyRow { marks: POLICY_SHMEM, ..mapping(1, 9) };
        let found = counted(&read(&[private, object(5)]), &[(1, 0), (2, 0)]);
        assert!(found.shared.is_empty());
        assert_eq!(found.by_node, [2]);
    }

    #[test]
    fn what_is_told_again_behind_the_end_is_left_out() {
        let mappings = read(&[mapping(10, 20), mapping(30, 40), mapping(10, 20), mapping(30, 40)]);
        assert_eq!((mappings.count, mappings.spans.len()), (2, 2));
    }

    #[test]
    fn policies_that_are_cut_off_count_as_meant() {
        let cut = PolicyRow { marks: POLICY_SHMEM | POLICY_SHARED | POLICY_CUT, ..mapping(0, 100) };
        let found = counted(
            &read(&[cut, object(2), bound(row(POLICY_ENTRY, 10, 20), 1)]),
            &[(5, 1), (15, 1), (50, 1)],
        );
        assert_eq!((found.explicit, found.meant), (vec![0, 2], vec![0, 1]));
    }

    #[test]
    fn half_a_row_and_rows_without_a_mapping_are_nothing() {
        let mut bytes = object(1).as_bytes().to_vec();
        bytes.extend_from_slice(bound(row(POLICY_ENTRY, 1, 2), 1).as_bytes());
        bytes.extend_from_slice(&mapping(1, 2).as_bytes()[..20]);
        let error = Mappings::read(&bytes[..], PAGE).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }
}
