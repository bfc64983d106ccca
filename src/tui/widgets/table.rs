//! Rows of metrics under their titles.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use unicode_width::UnicodeWidthStr;

use super::list::ListRow;
use super::pen::Pen;
use crate::finding::Severity;
use crate::metric::events::{self, Held};
use crate::metric::format::{node_word, short};
use crate::metric::{Metric, Order, Stands, Unit, Value, Witness};
use crate::model::sample::Reading;
use crate::model::units::NodeId;
use crate::snapshot::Snapshot;
use crate::tui::theme::{Limits, Role, Theme};
use crate::tui::widgets::columns::{Columns, Placed};

/// The order of a table.
pub struct Sort<R: 'static> {
    pub metric: &'static Metric<R>,
    /// Against the natural order of the metric.
    pub reversed: bool,
}

// Derived, these would ask the same of R.
impl<R> Clone for Sort<R> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<R> Copy for Sort<R> {}

impl<R> Sort<R> {
    pub fn descending(&self) -> bool {
        (self.metric.order == Order::Descending) != self.reversed
    }
}

/// The look of a row apart from its values.
#[derive(Clone, Default)]
pub struct Look {
    pub selected: bool,
    pub ended: bool,
    /// Where its memory is was found out some time ago.
    pub aged: bool,
    pub followed: bool,
    pub tagged: bool,
    /// The gravest finding about it.
    pub severity: Option<Severity>,
    /// Matches the search.
    pub found: bool,
    /// Text before the name: branches of the tree.
    pub prefix: String,
}

/// Properties that all rows of a table share.
pub struct Table<'a, R: ListRow> {
    pub columns: &'a Columns<R>,
    pub sort: Option<Sort<R>>,
    pub snapshot: &'a Snapshot,
    pub theme: &'a Theme,
    /// The metric that names a row: branches of the tree stand before it.
    pub name: &'static str,
    /// The metric shown there for a row without a value of the column.
    pub instead: Option<&'static Metric<R>>,
    /// Values of events that are not open in this interval.
    pub held: Option<&'a Held<R::Key>>,
}

impl<R: ListRow> Table<'_, R> {
    /// Titles, with an arrow at the sort column.
    pub fn titles(&self, area: Rect, row: u16, buf: &mut Buffer) {
        let glyphs = self.theme.glyphs;
        let mut pen = Pen::new(buf, area, row, glyphs.ellipsis);
        pen.repeat(' ', area.width, self.theme.style(Role::Header));
        for column in &self.columns.placed {
            let sort = self.sort.filter(|sort| sort.metric.id == column.metric.id);
            let style = self.theme.style(if sort.is_some() { Role::Sorted } else { Role::Header });
            let arrow = sort.map(|sort| if sort.descending() { glyphs.descending } else { glyphs.ascending });
            let (title, width) = (column.metric.title, column.width);
            // The arrow is in the gap beside the title, where values never are.
            if at_right(column.metric) {
                pen.column(area.x, column.x).write_right(title, width, style);
                let used = title.width() as u16;
                pen.column(area.x, (column.x + width).saturating_sub(used + 1));
            } else {
                pen.column(area.x, column.x).write_within(title, width, style);
            }
            if let Some(arrow) = arrow {
                pen.repeat(arrow, 1, style);
            }
        }
        if self.columns.hidden > 0 {
            let text = format!("+{}", self.columns.hidden);
            pen.column(area.x, area.width.saturating_sub(text.len() as u16));
            pen.write(&text, self.theme.style(Role::Warn));
        }
    }

    /// The values of one row.
    pub fn row(&self, value_of: &R, look: &Look, area: Rect, row: u16, buf: &mut Buffer) {
        let theme = self.theme;
        let base = match (look.selected, look.ended) {
            (true, _) => Some(theme.style(Role::Selected)),
            (false, true) => Some(theme.style(Role::Dim)),
            (false, false) => None,
        };
        let mut pen = Pen::new(buf, area, row, theme.glyphs.ellipsis);
        if look.selected {
            pen.repeat(' ', area.width, theme.style(Role::Selected)).column(area.x, 0);
        }
        let mark = match (look.followed, look.tagged, look.severity, look.ended) {
            (true, ..) => Some((theme.glyphs.followed, Role::Warn)),
            (_, true, ..) => Some((theme.glyphs.tagged, Role::Title)),
            (.., Some(severity), _) => Some((severity.mark(), Role::of(severity))),
            (.., true) => Some((theme.glyphs.ended, Role::Warn)),
            _ => None,
        };
        if let Some((mark, role)) = mark {
            pen.repeat(mark, 1, base.unwrap_or(theme.style(role)));
        }
        for column in &self.columns.placed {
            pen.column(area.x, column.x);
            self.cell(&mut pen, column, value_of, look, base);
        }
    }

    /// The value of a row, and its age where it is that of an event which waits for its turn.
    fn read(&self, metric: &Metric<R>, row: &R) -> Reading<(Value, Duration)> {
        match self.held {
            Some(held) => held.read(row.key(), metric, row, self.snapshot),
            None => metric.read(row, self.snapshot).map(|value| (value, Duration::ZERO)),
        }
    }

    fn cell(&self, pen: &mut Pen<'_>, column: &Placed<R>, row: &R, look: &Look, base: Option<Style>) {
        let (theme, metric) = (self.theme, column.metric);
        let faded = look.aged && metric.traits.ages;
        let style = |role| base.unwrap_or(theme.style(if faded { Role::Dim } else { role }));
        let is_none = |value: &Reading<(Value, Duration)>| {
            value.as_ref().map_or(true, |(value, _)| matches!(value, Value::Text(text) if text.is_empty()))
        };
        let mut read = self.read(metric, row);
        if metric.id == self.name && is_none(&read) {
            read = self.instead.map_or(read, |metric| self.read(metric, row));
        }
        let (value, age) = match read {
            Ok(read) => read,
            Err(_) if at_right(metric) => {
                pen.write_right(metric.traits.absent, column.width, style(Role::Dim));
                return;
            }
            Err(_) => {
                pen.write_within(metric.traits.absent, column.width, style(Role::Dim));
                return;
            }
        };
        match &value {
            // Dim digits say that they are older where their age has no room.
            value if !age.is_zero() => {
                let (text, mark) = (short(value, metric.unit), events::mark(age));
                let fits = text.width() + mark.width() <= usize::from(column.width);
                let mark = if fits { &mark } else { "" };
                pen.write_right(&format!("{text}{mark}"), column.width, style(Role::Dim));
            }
            Value::ByNode(shares) => by_node(pen, shares, metric.unit, column.width, style),
            Value::Text(text) if metric.id == self.name => {
                let prefix = look.prefix.width().min(usize::from(column.width)) as u16;
                pen.write_within(&look.prefix, column.width, style(Role::Dim));
                let role = match (look.found, look.tagged) {
                    (true, _) => Role::Match,
                    (false, true) => Role::Title,
                    (false, false) => Role::Plain,
                };
                pen.write_within(text, column.width - prefix, style(role));
            }
            Value::Text(text) => {
                pen.write_within(text, column.width, style(Role::Plain));
            }
            value => {
                let role = role_of(metric.traits.stands, value, theme.limits);
                pen.write_right(&short(value, metric.unit), column.width, style(role));
            }
        }
    }
}

/// Numbers stand at the right of their column, text at the left.
fn at_right<R>(metric: &Metric<R>) -> bool {
    metric.unit != Unit::Text && !metric.id.ends_with("_by_node")
}

/// `node:share` words, largest first, as many as fit; `+N` counts the nodes without a word.
fn by_node(
    pen: &mut Pen<'_>,
    shares: &[(NodeId, f64)],
    unit: Unit,
    width: u16,
    style: impl Fn(Role) -> Style,
) {
    let mut sorted = shares.to_vec();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut left = width;
    for (i, (node, share)) in sorted.iter().enumerate() {
        let word = node_word(*node, *share, unit);
        let rest = sorted.len() - i - 1;
        let tail = if rest > 0 { format!(" +{rest}").len() as u16 } else { 0 };
        let gap = u16::from(i > 0);
        if word.len() as u16 + gap + tail > left && i > 0 {
            pen.gap(gap).write_within(&format!("+{}", rest + 1), left - gap, style(Role::Dim));
            return;
        }
        let role = if i == 0 { Role::Local } else { Role::Remote };
        pen.gap(gap).write_within(&word, left - gap, style(role));
        left = left.saturating_sub(word.len() as u16 + gap);
    }
}

/// The role of a number for the reader: zeros are dimmed, possible harm is emphasised.
fn role_of(stands: Stands, value: &Value, limits: Limits) -> Role {
    let Some(number) = value.number() else { return Role::Plain };
    if matches!(value, Value::Share { resident: Some(bytes), .. } if *bytes < limits.dim_below_bytes) {
        return Role::Dim;
    }
    // An estimate that is not a share of accesses is emphasised only if its lower end would be.
    let sure = match value {
        Value::Share { at_least, witness: Witness::Time | Witness::Memory | Witness::Hints, .. } => *at_least,
        _ => number,
    };
    match stands {
        Stands::Plain => Role::Plain,
        Stands::Home => Role::Local,
        Stands::Harm(when) if when(number) => Role::Warn,
        Stands::Remote(when) if when(sure) => Role::Remote,
        Stands::RemoteShare if sure >= limits.remote_from_pct => Role::Remote,
        _ if number == 0.0 => Role::Dim,
        _ => Role::Plain,
    }
}
