//! Rows as a forest: children below their parent, with the branches before their names.

use std::collections::{HashMap, HashSet};

use crate::tui::theme::Glyphs;

/// One line of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Index among all rows of its kind.
    pub at: usize,
    /// Depth in the tree; 0 for a root, and everywhere without a tree.
    depth: u16,
    /// Bit d is set if the line of depth d continues below this row.
    lines: u64,
    /// Descendants that are folded away.
    pub folded: usize,
}

/// The rows of `order` with children below their parent, siblings in the given order; rows below a folded row
/// are counted. Rows without a parent in `parents` are roots.
pub fn forest(
    order: &[usize],
    parents: &HashMap<usize, usize>,
    is_folded: &dyn Fn(usize) -> bool,
) -> Vec<Branch> {
    let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut roots = Vec::new();
    for at in order {
        match parents.get(at) {
            Some(parent) => children.entry(*parent).or_default().push(*at),
            None => roots.push(*at),
        }
    }
    let mut rows = Vec::with_capacity(order.len());
    let mut seen = HashSet::with_capacity(order.len());
    grow(&roots, &children, is_folded, &mut rows, &mut seen);
    if seen.len() < order.len() {
        // Ids that were used again can make a circle, which no root leads to.
        for at in order {
            if !seen.contains(at) {
                grow(&[*at], &children, is_folded, &mut rows, &mut seen);
            }
        }
    }
    rows
}

/// Adds `roots` and everything below them, without recursion: the depth may be arbitrary.
fn grow(
    roots: &[usize],
    children: &HashMap<usize, Vec<usize>>,
    is_folded: &dyn Fn(usize) -> bool,
    rows: &mut Vec<Branch>,
    seen: &mut HashSet<usize>,
) {
    // Row, depth, lines to draw, and the row that it is folded into.
    let mut stack: Vec<(usize, u16, u64, Option<usize>)> =
        roots.iter().rev().map(|at| (*at, 0, 0, None)).collect();
    while let Some((at, depth, lines, mut hidden_in)) = stack.pop() {
        if !seen.insert(at) {
            continue;
        }
        if let Some(row) = hidden_in {
            rows[row].folded += 1;
        } else {
            rows.push(Branch { at, depth, lines, folded: 0 });
            if is_folded(at) {
                hidden_in = Some(rows.len() - 1);
            }
        }
        let below = children.get(&at).map_or(&[][..], Vec::as_slice);
        for (i, child) in below.iter().enumerate().rev() {
            let depth = depth.saturating_add(1);
            let goes_on = u64::from(i + 1 < below.len()) << u32::from(depth).min(63);
            stack.push((*child, depth, lines | goes_on, hidden_in));
        }
    }
}

impl Branch {
    /// A row outside of any tree.
    pub fn flat(at: usize) -> Branch {
        Branch { at, depth: 0, lines: 0, folded: 0 }
    }

    /// Depth in the tree.
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// The branches before the name, of at most `levels` levels.
    pub fn prefix(&self, glyphs: &Glyphs, levels: u16) -> String {
        let [child, last, line, none] = glyphs.branch;
        let goes_on = |depth: u16| self.lines >> u32::from(depth).min(63) & 1 == 1;
        let mut text = String::new();
        let from = self.depth.saturating_sub(levels);
        for depth in (from..self.depth).map(|above| above + 1) {
            text.push_str(match (depth == self.depth, goes_on(depth)) {
                (true, true) => child,
                (true, false) => last,
                (false, true) => line,
                (false, false) => none,
            });
        }
        if self.folded > 0 {
            text.push_str(&format!("[+{}] ", self.folded));
        }
        text
    }
}
