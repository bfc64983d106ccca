//! The mappings and nodes of pages that a process accessed. Runs in the reader of other address spaces: both wait for
//! the lock of one.

use std::path::Path;

use crate::collect::mm_reader::wire::PagesPlaced;
use crate::collect::placement::target::{Lines, Target, parse_line, reason};
use crate::model::process::ProcessId;
use crate::model::sample::Reading;
use crate::text;

/// Pages of one process that are asked about at once.
pub const PAGES_MAX: usize = 1500;
/// Maximum mappings in one answer; pages of further ones have none.
const MAPPINGS_MAX: usize = 200;
/// Characters of a name that are kept.
const NAME_MAX: usize = 160;

/// Looks up `pages`, which are ascending numbers of pages of `page_size` bytes, below `root` (`/`).
///
/// # Errors
/// Its mappings cannot be read, or it has ended.
pub fn places(root: &Path, process: ProcessId, pages: &[u64], page_size: u64) -> Reading<PagesPlaced> {
    let target = Target::open(root, process.0, process.1)
        .map_err(|error| reason("opening files of the process", &error))?;
    let failed = |error: std::io::Error| reason("reading maps of the process", &error);
    let mut lines = Lines::new(target.file(c"maps").map_err(failed)?);
    let mut placed = PagesPlaced { pages: vec![(-1, -1); pages.len()], ..PagesPlaced::default() };
    while let Some(line) = lines.next_line().map_err(failed)? {
        let Some(mapping) = parse_line(line) else { continue };
        let from = pages.partition_point(|page| page.saturating_mul(page_size) < mapping.start);
        let to = pages.partition_point(|page| page.saturating_mul(page_size) < mapping.end);
        if from == to || placed.mappings.len() == MAPPINGS_MAX {
            continue;
        }
        let at = placed.mappings.len() as i32;
        placed.pages[from..to].iter_mut().for_each(|(mapping, _)| *mapping = at);
        let name: String = text::clean(mapping.name).chars().take(NAME_MAX).collect();
        placed.mappings.push((mapping.start, mapping.end - mapping.start, name));
    }
    let asked: Vec<usize> = (0..pages.len()).filter(|at| placed.pages[*at].0 >= 0).collect();
    let numbers: Vec<u64> = asked.iter().map(|at| pages[*at]).collect();
    if !numbers.is_empty() {
        match target.nodes(&numbers, page_size) {
            Ok(nodes) => asked.iter().zip(nodes).for_each(|(at, node)| placed.pages[*at].1 = node),
            Err(error) => placed.no_nodes = Some(reason("locating pages of the process", &error)),
        }
    }
    target.check().map_err(|error| reason("locating pages of the process", &error))?;
    Ok(placed)
}

/// Maximum bytes of an answer on the wire: a character may be written as two.
pub fn bytes(placed: &PagesPlaced) -> usize {
    let names: usize = placed.mappings.iter().map(|(_, _, name)| name.len() * 2 + 50).sum();
    names + placed.pages.len() * 12 + 300
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::proc_details;

    #[test]
    fn our_own_pages_are_found() {
        let pid = std::process::id();
        let process = (pid, proc_details::start_ns(pid).unwrap());
        let memory = vec![1u8; 64 * 4096];
        let page = memory.as_ptr() as u64 / 4096 + 3;
        let placed = places(Path::new("/"), process, &[1, page, page + 1], 4096).unwrap();
        assert_eq!(placed.pages[0], (-1, -1));
        assert_eq!(placed.pages[1].0, placed.pages[2].0);
        let (start, bytes, _) = &placed.mappings[placed.pages[1].0 as usize];
        assert!((*start..start + bytes).contains(&(page * 4096)));
        assert!(placed.no_nodes.is_some() || placed.pages[1].1 >= 0, "{placed:?}");
    }

    #[test]
    fn a_process_that_has_ended_has_a_reason() {
        assert!(places(Path::new("/"), (u32::MAX - 1, 1), &[1], 4096).is_err());
    }
}
