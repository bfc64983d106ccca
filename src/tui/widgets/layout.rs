//! Places of the parts of the screen: the same answer for drawing and for the mouse.

use ratatui::layout::Rect;

use crate::model::topology::Topology;

/// Form in which the header shows the nodes, by their number and the width of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStyle {
    /// A line with bars for each node.
    Lines,
    /// A column of numbers for each node, this wide.
    Cells(u16),
    /// One character for each node.
    Strip,
}

/// Cells before the nodes in [`NodeStyle::Cells`] and [`NodeStyle::Strip`].
pub const LABEL: u16 = 6;

/// Rows of the screen from which on the time bar has curves above it.
const CURVES_FROM: u16 = 30;

/// The parts from top to bottom; any of them may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    pub title: Rect,
    /// The time bar.
    pub time: Rect,
    pub nodes: Rect,
    pub status: Rect,
    pub notice: Rect,
    pub body: Rect,
    pub footer: Rect,
}

/// The form for `nodes` nodes in `width` columns of a screen with `height` rows.
pub fn node_style(nodes: usize, width: u16, height: u16) -> NodeStyle {
    let wide = usize::from(width.saturating_sub(LABEL)) / nodes.max(1);
    if nodes <= 2 || (nodes <= 4 && height >= 40) {
        NodeStyle::Lines
    } else if wide >= 4 {
        NodeStyle::Cells(wide.min(20) as u16)
    } else {
        NodeStyle::Strip
    }
}

/// Parts of the screen besides the body.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Without the nodes.
    pub compact: bool,
    /// A line for a warning, and one for the time bar.
    pub notice: bool,
    pub time: bool,
}

/// Divides the screen.
pub fn parts(screen: Rect, topology: Option<&Topology>, wanted: Wanted) -> Parts {
    let Wanted { compact, notice, time } = wanted;
    let height = screen.height;
    let count = topology.map_or(1, |topology| topology.nodes.len());
    let nodes = match node_style(count, screen.width, height) {
        _ if compact || height < 15 => 0,
        NodeStyle::Lines => count as u16,
        NodeStyle::Cells(_) => 3,
        NodeStyle::Strip => 2,
    };
    let mut left = screen;
    let mut take = |wanted: u16| {
        let rows = wanted.min(left.height);
        let part = Rect { height: rows, ..left };
        left.y += rows;
        left.height -= rows;
        part
    };
    let title = take(u16::from(height >= 5));
    let time = take(match height {
        _ if !time => 0,
        0..7 => 0,
        7..CURVES_FROM => 1,
        CURVES_FROM.. => 3,
    });
    let nodes = take(nodes);
    let status = take(u16::from(height >= 9));
    let notice = take(u16::from(notice && height >= 12));
    let footer = u16::from(height >= 4);
    let above = [title, time, nodes, status, notice];
    let body_rows = height.saturating_sub(above.iter().map(|part| part.height).sum::<u16>() + footer);
    let body = take(body_rows);
    let footer = take(footer);
    Parts { title, time, nodes, status, notice, body, footer }
}

/// The part of `area` below its first `rows` rows.
pub fn below(area: Rect, rows: u16) -> Rect {
    let rows = rows.min(area.height);
    Rect { y: area.y + rows, height: area.height - rows, ..area }
}

/// The box of a pop-up over `body`: of the wanted width and height if they fit. Strips beside it that are too
/// narrow to read are covered too.
pub fn popup(body: Rect, width: u16, height: u16) -> Rect {
    const STRIP: u16 = 4;
    let width = if body.width < width + 2 * STRIP { body.width } else { width };
    let height = height.min(body.height);
    Rect { x: body.x + (body.width - width) / 2, y: body.y + (body.height - height) / 2, width, height }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_fill_the_screen_without_overlap() {
        for (width, height) in [(1, 1), (80, 3), (80, 8), (80, 24), (160, 50), (300, 100)] {
            let screen = Rect::new(0, 0, width, height);
            let wanted = Wanted { notice: true, time: true, compact: false };
            let Parts { title, time, nodes, status, notice, body, footer } = parts(screen, None, wanted);
            let all = [title, time, nodes, status, notice, body, footer];
            assert_eq!(all.iter().map(|part| part.height).sum::<u16>(), height);
            assert!(all.windows(2).all(|pair| pair[0].bottom() == pair[1].y));
            assert!(body.height > 0);
        }
    }

    #[test]
    fn many_nodes_take_less_room_each() {
        assert_eq!(node_style(2, 80, 24), NodeStyle::Lines);
        assert_eq!(node_style(4, 80, 24), NodeStyle::Cells(18));
        assert_eq!(node_style(16, 80, 24), NodeStyle::Cells(4));
        assert_eq!(node_style(64, 80, 24), NodeStyle::Strip);
    }
}
