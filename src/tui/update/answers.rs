//! Answers of the threads behind the screen.

use super::App;
use crate::collect::mappings::Mappings;
use crate::model::process::{Details, ProcessId};
use crate::model::stacks::StackBatch;
use crate::overhead::Statistics;
use crate::text;
use crate::tui::history::Shown;
use crate::tui::input::action::{Effect, ScreenId};
use crate::tui::screens::Screens;

impl App {
    /// Takes an interval.
    pub fn show(&mut self, shown: Shown) -> Option<Effect> {
        if shown.moved {
            self.state.elsewhere();
            Screens::ALL.iter().for_each(|id| self.screens.get_mut(*id).elsewhere());
        }
        let (want, is_new) = (self.want(), shown.taken > 0);
        let is_another = self.state.show(shown, want);
        self.arrange();
        if !(is_another && is_new) {
            return None;
        }
        self.stack().find_map(|id| self.screens.get(id).at_interval())
    }

    /// Takes the facts from /proc about the process in the detail view.
    pub fn inspected(&mut self, pid: u32, found: Result<Details, String>) {
        self.screens.detail.inspected(pid, found);
    }

    /// Takes the mappings of a process.
    pub fn mapped(&mut self, process: ProcessId, found: Result<Mappings, String>) {
        self.screens.detail.mapped(process, found);
    }

    /// Takes the sampled stacks, or the reason why they are missing.
    pub fn hot_news(&mut self, news: Result<StackBatch, String>) {
        let height = self.list_height();
        match news {
            Ok(news) if self.is_open(ScreenId::Hot) => {
                self.screens.hot.add(news, self.state.snapshot(), height);
            }
            // It was closed meanwhile.
            Ok(_) => {}
            Err(why) => self.fail(ScreenId::Hot, &why),
        }
    }

    /// Takes statistics of our own programs, or the reason why they are missing.
    pub fn statistics(&mut self, now: Result<Statistics, String>) {
        match now {
            Ok(now) if self.is_open(ScreenId::Overhead) => self.screens.overhead.take(now),
            // It was closed meanwhile.
            Ok(_) => {}
            Err(why) => self.fail(ScreenId::Overhead, &why),
        }
    }

    /// Shows the place of the report, or the reason why it was not written.
    pub fn page_written(&mut self, written: &Result<String, String>) {
        self.state.message = Some(match written {
            Ok(name) => format!("report saved: {}", text::clean_str(name)),
            Err(why) => format!("report not saved: {}", text::clean_str(why)),
        });
    }

    /// A view cannot be shown, for this reason.
    fn fail(&mut self, id: ScreenId, why: &str) {
        self.on_top.retain(|open| *open != id);
        self.state.message = Some(text::clean_str(why));
    }

    /// The source could not change its scope.
    pub fn not_scoped(&mut self, why: &str) {
        self.state.scope = None;
        self.state.message = Some(text::clean_str(why));
    }

    /// The source could not count another set of events.
    pub fn not_counted(&mut self, why: &str) {
        self.state.message = Some(text::clean_str(why));
    }
}
