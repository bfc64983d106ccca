//! Hot spots: the picture of stacks, callers above callees, and the functions with the most samples.

use maud::{Markup, html};

use crate::report::hot_spots::{Frame, Hot};
use crate::report::words;
use crate::text::plural;

/// Height of a frame in the picture, pixels.
const ROW: usize = 18;

pub(super) fn content(hot: &Hot) -> Markup {
    let depth = hot.frames.iter().map(|frame| frame.depth + 1).max().unwrap_or(0);
    html! {
        p.muted {
            (words::thousands(hot.samples as usize)) " stacks, " (hot.event) " at " (hot.hz)
            " Hz on each CPU. Callers on top, callees below; the width is the share of the samples. Blue is the kernel."
            @if !hot.stem.is_empty() { " All are under " (hot.stem.join(" › ")) "." }
            @if hot.lost > 0 { " " (words::thousands(hot.lost as usize)) " samples were lost." }
        }
        div.flame style=(format!("height:{}px", depth * ROW)) {
            @for frame in &hot.frames { (one(frame)) }
        }
        @if hot.frames_left_out > 0 {
            p.muted { (plural(hot.frames_left_out, "frame")) " with few samples (less than 0.05 %, and 1 % deep down), or beyond 5,000, are not drawn, nor are their callees." }
        }
        h3 { "Functions by their own share" }
        table.spots {
            thead {
                tr {
                    th scope="col" { "Function" }
                    th scope="col" { "File" }
                    th.n scope="col" { "own %" }
                    th.n scope="col" { "± 95 %" }
                    th.n scope="col" { "with callees %" }
                }
            }
            tbody {
                @for spot in &hot.spots {
                    tr {
                        th scope="row" { code { (spot.function) } }
                        td.whose { (spot.module) }
                        td.n data-l="own %" { (words::short(spot.own_pct)) }
                        td.n data-l="±" { (words::short(spot.error_pct)) }
                        td.n data-l="with callees %" { (words::short(spot.total_pct)) }
                    }
                }
            }
        }
        @if hot.spots_left_out > 0 { p.muted { (words::thousands(hot.spots_left_out)) " more functions." } }
    }
}

fn one(frame: &Frame) -> Markup {
    let style = format!("left:{:.3}%;width:{:.3}%;top:{}px", frame.left, frame.width, frame.depth * ROW);
    let label = format!("{}: {} %", frame.function, words::short(frame.pct));
    html! {
        button type="button" class=(if frame.kernel { "frame kernel" } else { "frame" }) style=(style) title=(label) {
            (frame.function)
        }
    }
}
