//! Cost of numatop-ng itself: statistics of two moments, while the view is open.

use super::App;
use crate::program::overhead::{Cost, Statistics, costs};
use crate::text;
use crate::tui::action::Effect;

#[derive(Default)]
pub struct Overhead {
    pub now: Option<Statistics>,
    /// Over the last interval.
    pub costs: Vec<Cost>,
}

impl App {
    /// Shows what we cost, and has statistics kept.
    pub(super) fn open_overhead(&mut self) -> Option<Effect> {
        if self.replay.is_some() {
            self.message = Some("a recording costs nothing: only what is measured now does".into());
            return None;
        }
        self.overhead = Some(Overhead::default());
        Some(Effect::SetStatistics(true))
    }

    /// Back to what was there before; no statistics are kept any more.
    pub(super) fn close_overhead(&mut self) -> Option<Effect> {
        self.overhead = None;
        self.arrange();
        Some(Effect::SetStatistics(false))
    }

    /// Takes statistics, or why there are none.
    pub fn statistics(&mut self, now: Result<Statistics, String>) {
        match (now, &mut self.overhead) {
            (Ok(now), Some(overhead)) => {
                if let Some(before) = &overhead.now {
                    overhead.costs = costs(before, &now);
                }
                overhead.now = Some(now);
            }
            (Err(why), _) => {
                self.overhead = None;
                self.message = Some(text::clean_str(&why));
            }
            // It was closed meanwhile.
            (Ok(_), None) => {}
        }
    }
}
