//! From randomly drawn addresses to shares by node with an error. Pure: the caller does the system calls.
//!
//! The address space that may hold present pages is a list of ranges. Addresses are drawn from it with equal
//! probability, and those without a page are discarded. In the remaining sample every present page (every 4
//! KiB of a huge page) had the same chance, whatever the layout and the number of holes. So the share of a
//! node in the sample estimates its share of resident memory. No window is placed around an address, so there
//! are no clusters, and a huge page weighs as much as its content.
//!
//! Draws are stratified: the concatenated ranges are cut into equal pieces, and two addresses are drawn in
//! each. Mappings get draws in proportion to their size. Memory placed in long runs (as by first touch) has a
//! smaller error than with independent draws. Two draws in a piece give the variance. With equal distances
//! instead of random ones inside the pieces, interleaved pages would all be found on one node.
//!
//! Bias: the number of pages found is random too, so the share is a quotient of two estimates. Its bias is of the
//! order of 1/n (below 0.1 points at 1,000 pages, and none where there are no holes).

use std::io;

use crate::model::sample::PagesFound;

/// Pages that are wanted, and addresses that are asked at most when many of them have none.
pub const PAGES: usize = 1024;
const ASKED_MAX: usize = 4 * PAGES;
/// So few pages are all read: a census, not a sample.
const CENSUS: u64 = 2 * PAGES as u64;
/// Standard deviations that contain the shares of `nodes` nodes together in 97 of 100 cases (Bonferroni). The
/// promise is 95, because the variance is an estimate too. Two shares are one number.
fn deviations(nodes: usize) -> f64 {
    match nodes {
        0..=2 => 2.17,
        3..=4 => 2.67,
        5..=8 => 2.90,
        9..=16 => 3.11,
        _ => 3.65,
    }
}

/// Random numbers that need not be secret: splitmix64, by Steele, Lea and Flood.
pub struct Random(pub u64);

impl Random {
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// At least 0 and below `end`, which is not 0. Not even by 2⁻⁶⁴ times `end`: nothing for address spaces.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(end)) >> 64) as u64
    }
}

/// Parts of an address space, in pages, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// First page of each, and how many pages lie in those up to it.
    parts: Vec<(u64, u64)>,
}

impl Ranges {
    /// Adds pages from `start` up to `end`; all earlier ones must be below them.
    pub fn push(&mut self, start: u64, end: u64) {
        let pages = self.pages();
        if start >= end {
            return;
        }
        let before = self.parts.len().checked_sub(2).map_or(0, |at| self.parts[at].1);
        if let Some((first, sum)) = self.parts.last_mut()
            && *first + (*sum - before) == start
        {
            *sum += end - start;
            return;
        }
        self.parts.push((start, pages + (end - start)));
    }

    pub fn pages(&self) -> u64 {
        self.parts.last().map_or(0, |(_, sum)| *sum)
    }

    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Number of the page that is the `at`-th of all, counted from 0.
    fn page(&self, at: u64) -> u64 {
        let part = self.parts.partition_point(|(_, sum)| *sum <= at);
        let before = part.checked_sub(1).map_or(0, |before| self.parts[before].1);
        self.parts[part].0 + (at - before)
    }
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Pages that addresses were drawn from: resident ones, and holes.
    pub space: u64,
    pub asked: u32,
    /// Pages found by node id; the rest of those asked were holes.
    pub by_node: Vec<u32>,
    /// All shares together are within this many percentage points of the truth in 95 of 100 samples.
    pub error_points: f64,
}

/// Two draws from one piece: the node of each, and the part of its pages that was not drawn.
struct Pair(Option<u32>, Option<u32>, f64);

/// Pages to ask for at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    space: u64,
    /// Their numbers, ascending.
    pub pages: Vec<u64>,
    /// The part of each piece that is not asked for; empty where all pages are.
    left: Vec<f64>,
}

impl Round {
    /// Draws [`PAGES`] from `ranges`. Smaller ranges are taken whole.
    pub fn new(ranges: &Ranges, random: &mut Random) -> Round {
        if ranges.pages() <= PAGES as u64 {
            Round::of_all(ranges)
        } else {
            Round::drawn(ranges, random, PAGES)
        }
    }

    fn of_all(ranges: &Ranges) -> Round {
        let space = ranges.pages();
        Round { space, pages: (0..space).map(|at| ranges.page(at)).collect(), left: Vec::new() }
    }

    /// Two pages of each piece, `want` in all.
    fn drawn(ranges: &Ranges, random: &mut Random, want: usize) -> Round {
        let space = ranges.pages();
        let pieces = (want / 2) as u64;
        let edge = |piece: u64| (u128::from(space) * u128::from(piece) / u128::from(pieces)) as u64;
        let mut pages = Vec::with_capacity(want);
        let mut left = Vec::with_capacity(want / 2);
        for piece in 0..pieces {
            let (from, to) = (edge(piece), edge(piece + 1));
            // Two different ones; if the piece is a single page, it is known completely.
            let first = from + random.below(to - from);
            let second = from + random.below((to - from - 1).max(1));
            let second = if second >= first && to - from > 1 { second + 1 } else { second };
            pages.push(ranges.page(first.min(second)));
            pages.push(ranges.page(first.max(second)));
            left.push((1.0 - 2.0 / (to - from) as f64).max(0.0));
        }
        Round { space, pages, left }
    }

    /// The result, from a node id or a negative number for each page.
    pub fn found(&self, nodes: &[i32]) -> Found {
        let (mut found, mut pairs) = (Found { space: self.space, ..Found::default() }, Vec::new());
        found.take(self, nodes, &mut pairs);
        if !self.left.is_empty() {
            found.error_points = error(&found, &pairs);
        }
        found
    }
}

/// Draws from `ranges` until [`PAGES`] are found. `ask` gets ascending page numbers, and returns a node id or a
/// negative number for each.
///
/// # Errors
/// The error of `ask`.
pub fn draw(
    ranges: &Ranges,
    random: &mut Random,
    mut ask: impl FnMut(&[u64]) -> io::Result<Vec<i32>>,
) -> io::Result<Found> {
    let space = ranges.pages();
    if space <= CENSUS {
        let round = Round::of_all(ranges);
        return Ok(round.found(&ask(&round.pages)?));
    }
    let mut found = Found { space, ..Found::default() };
    let mut pairs = Vec::new();
    let mut want = PAGES;
    while want > 0 {
        let round = Round::drawn(ranges, random, want);
        found.take(&round, &ask(&round.pages)?, &mut pairs);
        want = more(found.pages(), found.asked as usize);
    }
    found.error_points = error(&found, &pairs);
    Ok(found)
}

/// The number of addresses to draw next, even; 0 when enough are found or the limit is reached.
fn more(found: u64, asked: usize) -> usize {
    let missing = PAGES.saturating_sub(found as usize);
    if missing <= PAGES / 4 {
        return 0;
    }
    let likely = missing * asked / (found as usize).max(1);
    (likely.clamp(2, PAGES).min(ASKED_MAX.saturating_sub(asked))) & !1
}

/// Node ids are below this on every kernel that can be built (NODES_SHIFT is at most 10).
pub const NODES_MAX: i32 = 1 << 10;

/// The answer of move_pages(2) about a page: a node, or an error for a hole, the zero page and device memory.
pub(super) fn node(status: i32) -> Option<u32> {
    (0..NODES_MAX).contains(&status).then_some(status as u32)
}

/// Counts a page on a node.
pub(super) fn count(by_node: &mut Vec<u32>, node: u32) {
    let node = node as usize;
    if by_node.len() <= node {
        by_node.resize(node + 1, 0);
    }
    by_node[node] += 1;
}

impl Found {
    /// Adds the addresses of a round.
    fn take(&mut self, round: &Round, nodes: &[i32], pairs: &mut Vec<Pair>) {
        self.asked += nodes.len() as u32;
        nodes.iter().for_each(|status| self.count(node(*status)));
        let drawn = nodes.chunks_exact(2).zip(&round.left);
        pairs.extend(drawn.map(|(pair, left)| Pair(node(pair[0]), node(pair[1]), *left)));
    }

    fn count(&mut self, node: Option<u32>) {
        if let Some(node) = node {
            count(&mut self.by_node, node);
        }
    }

    /// As samples keep it.
    pub fn to_raw(&self, page_size: u64) -> PagesFound {
        PagesFound {
            space_bytes: self.space * page_size,
            asked: self.asked,
            by_node: self.by_node.clone(),
            error_hundredths: (self.error_points * 100.0).ceil() as u32,
        }
    }

    /// Pages found on all nodes.
    pub fn pages(&self) -> u64 {
        self.by_node.iter().map(|pages| u64::from(*pages)).sum()
    }
}

/// Half of the widest interval of a share, in points.
///
/// The variance of a share R = Σy/Σx is that of Σ(y − Rx) over (Σx)², to which each pair contributes (z₁ −
/// z₂)². Wilson's terms are added, because finding all pages on one node does not prove that other nodes have
/// none.
fn error(found: &Found, pairs: &[Pair]) -> f64 {
    let n = found.pages() as f64;
    if n == 0.0 {
        return 100.0;
    }
    let resident = n * found.space as f64 / f64::from(found.asked);
    let unseen = (1.0 - n / resident).clamp(0.0, 1.0);
    let z95 = deviations(found.by_node.iter().filter(|pages| **pages > 0).count());
    let half = |(node, pages): (usize, &u32)| {
        let share = f64::from(*pages) / n;
        let z = |drawn: Option<u32>| drawn.map_or(0.0, |at| f64::from(at as usize == node) - share);
        let squares: f64 = pairs.iter().map(|Pair(a, b, left)| (z(*a) - z(*b)).powi(2) * left).sum();
        let shift = unseen * z95 * z95 * (1.0 - 2.0 * share).abs() / (2.0 * (n + z95 * z95));
        z95 * (squares / (n * n) + unseen * z95 * z95 / (4.0 * n * n)).sqrt() + shift
    };
    100.0 * found.by_node.iter().enumerate().map(half).fold(0.0, f64::max).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws from a space in which `node_of` gives the node of each page. Returns in how many of 200 draws
    /// every share was within its own error, and the mean error.
    fn within(pages: u64, node_of: impl Fn(u64) -> i32) -> (u32, f64) {
        let mut ranges = Ranges::default();
        ranges.push(0, pages);
        let mut truth = [0u64; 4];
        (0..pages).filter_map(|page| node(node_of(page))).for_each(|node| truth[node as usize] += 1);
        let resident: u64 = truth.iter().sum();
        let (mut good, mut errors) = (0, 0.0);
        for seed in 0..200 {
            let ask = |asked: &[u64]| Ok(asked.iter().map(|page| node_of(*page)).collect());
            let found = draw(&ranges, &mut Random(seed), ask).unwrap();
            let got =
                |node: usize| f64::from(found.by_node.get(node).copied().unwrap_or(0)) / found.pages() as f64;
            let off =
                |(node, pages): (usize, &u64)| (got(node) - *pages as f64 / resident as f64).abs() * 100.0;
            let worst = truth.iter().enumerate().map(off).fold(0.0, f64::max);
            good += u32::from(worst <= found.error_points + 1e-9);
            errors += found.error_points / 200.0;
        }
        (good, errors)
    }

    /// A number that looks random and is always the same for a page.
    fn hash(page: u64) -> u64 {
        Random(page).number() % 100
    }

    #[test]
    fn the_error_says_how_far_off_a_share_may_be() {
        const HOLE: i32 = -2;
        type Layout = (&'static str, u64, fn(u64) -> i32, f64);
        let layouts: [Layout; 9] = [
            ("all on one node", 1 << 18, |_| 1, 0.5),
            ("half and half, in two runs", 1 << 18, |page| i32::from(page < 1 << 17), 1.1),
            ("30 of 100, anywhere", 1 << 18, |page| i32::from(hash(page) < 30), 3.5),
            ("interleaved over four nodes", 1 << 18, |page| (page % 4) as i32, 4.0),
            ("interleaved over two nodes, few pages", 6700, |page| i32::from(page * 37 % 100 < 50), 3.5),
            ("huge pages, interleaved", 1 << 18, |page| (page / 512 % 2) as i32, 3.5),
            ("one page in three hundred elsewhere", 1 << 18, |page| i32::from(page % 300 == 7), 1.0),
            (
                "three quarters are holes",
                1 << 18,
                |page| if page % 4 > 0 { HOLE } else { i32::from(hash(page) < 50) },
                3.8,
            ),
            (
                "one page in twenty is there",
                1 << 18,
                |page| if page % 20 > 0 { HOLE } else { i32::from(hash(page) < 50) },
                9.0,
            ),
        ];
        for (name, pages, node_of, most) in layouts {
            let (good, error) = within(pages, node_of);
            assert!(good >= 188, "{name}: {good} of 200 within their error of {error:.2} points");
            assert!(error <= most, "{name}: an error of {error:.2} points");
        }
    }

    #[test]
    fn a_small_process_is_counted_and_not_sampled() {
        let (good, error) = within(2000, |page| if page % 3 == 0 { -2 } else { (page % 2) as i32 });
        assert_eq!((good, error), (200, 0.0));
    }

    #[test]
    fn what_is_found_tells_how_much_is_resident() {
        let mut ranges = Ranges::default();
        ranges.push(0, 1 << 20);
        let ask =
            |asked: &[u64]| Ok(asked.iter().map(|page| if hash(*page) < 60 { 0 } else { -2 }).collect());
        let found = draw(&ranges, &mut Random(3), ask).unwrap();
        let resident = found.pages() as f64 / f64::from(found.asked);
        assert!((resident - 0.6).abs() < 0.05, "{resident}");
    }

    #[test]
    fn nothing_but_holes_ends_and_says_nothing() {
        let mut ranges = Ranges::default();
        ranges.push(0, 1 << 30);
        let found = draw(&ranges, &mut Random(3), |asked| Ok(vec![-2; asked.len()])).unwrap();
        assert_eq!((found.pages(), found.asked as usize, found.error_points), (0, ASKED_MAX, 100.0));
    }

    #[test]
    fn ranges_that_touch_are_one_and_pages_are_counted_through() {
        let mut ranges = Ranges::default();
        for (start, end) in [(10, 12), (12, 13), (20, 20), (30, 32), (32, 33)] {
            ranges.push(start, end);
        }
        assert_eq!((ranges.parts(), ranges.pages()), (2, 6));
        let pages: Vec<u64> = (0..6).map(|at| ranges.page(at)).collect();
        assert_eq!(pages, [10, 11, 12, 30, 31, 32]);
    }
}
