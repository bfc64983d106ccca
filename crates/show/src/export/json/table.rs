//! A list of rows, in full, or as what each row adds to the lines before.

use super::columns::{Cell, Column, Context, Lasts, Said};
use super::facts::Reasons;
use super::kept::Kept;
use super::text::{self, Style};
use crate::snapshot::Snapshot;

/// The values that say least. A column leaves out the first of them that a row has. `null` is last: it holds until the row has a
/// value, and costs nothing then.
const QUIET: [&str; 4] = ["0", "{}", "false", "null"];

/// Rows of one kind.
pub(super) struct Table<R: 'static> {
    pub name: &'static str,
    /// Keys come first in the short form; in full, columns are in the order of their names.
    columns: Vec<Written<R>>,
    style: Style,
    kept: Kept,
    value: Vec<u8>,
}

/// A column and what is known of it.
struct Written<R: 'static> {
    column: Column<R>,
    label: Vec<u8>,
    /// The value that is not written.
    usual: &'static [u8],
    /// The host has no such values.
    is_missing: bool,
    /// Its reason in this interval is noted.
    is_noted: bool,
}

impl<R> Table<R> {
    pub(super) fn new(name: &'static str, mut columns: Vec<Column<R>>, style: Style) -> Table<R> {
        match style {
            Style::Full => columns.sort_by_key(|column| column.id),
            Style::Short => columns.sort_by_key(|column| column.lasts != Lasts::Key),
        }
        let texts = columns.iter().filter(|column| column.lasts == Lasts::Held).count();
        let kept = Kept::new(texts, columns.len());
        let written = |column: Column<R>| Written {
            label: format!("\"{}\":", column.id).into_bytes(),
            usual: column.usual.as_bytes(),
            is_missing: false,
            is_noted: false,
            column,
        };
        let columns = columns.into_iter().map(written).collect();
        Table { name, columns, style, kept, value: Vec::new() }
    }

    /// Begins with other facts of the host. A reader forgets all rows.
    pub(super) fn settle<'a>(&mut self, snapshot: &Snapshot, rows: impl Iterator<Item = &'a R> + Clone) {
        self.kept.clear();
        for written in &mut self.columns {
            let missing_as = match written.column.cell {
                Cell::Metric(metric) => metric.missing_as(),
                Cell::Made(_) => written.column.id,
            };
            written.is_missing = snapshot.host.missing.contains_key(missing_as);
            if self.style == Style::Full || written.column.lasts == Lasts::Key {
                continue;
            }
            if written.is_missing {
                written.usual = b"null";
                continue;
            }
            let mut first = None;
            for row in rows.clone() {
                let mut context = Context {
                    out: &mut self.value,
                    snapshot,
                    reasons: &mut Reasons::of_host(snapshot),
                    style: self.style,
                };
                let text = written.text(row, &mut context);
                let quiet = QUIET.iter().position(|quiet| quiet.as_bytes() == text);
                first = [first, quiet].into_iter().flatten().min();
            }
            written.usual = first.map_or(written.column.usual, |at| QUIET[at]).as_bytes();
        }
    }

    /// Writes the defaults and the kinds of columns.
    pub(super) fn head(&self, out: &mut Vec<u8>) {
        let of = |lasts| self.columns.iter().filter(move |written| written.column.lasts == lasts);
        let usual = |out: &mut Vec<u8>, lasts| {
            out.push(b'{');
            for (i, written) in of(lasts).enumerate() {
                text::label(out, i == 0, written.column.id);
                out.extend(written.usual);
            }
            out.push(b'}');
        };
        out.extend(b"{\"key\":");
        text::list(out, of(Lasts::Key), |out, written| text::plain(out, written.column.id));
        out.extend(b",\"interval\":");
        usual(out, Lasts::Interval);
        out.extend(b",\"held\":");
        usual(out, Lasts::Held);
        out.push(b'}');
    }

    /// Begins an interval.
    pub(super) fn begin(&mut self) {
        self.kept.turn();
        self.columns.iter_mut().for_each(|written| written.is_noted = false);
    }

    /// Writes a row; rows with another `key` are others.
    pub(super) fn row(
        &mut self,
        out: &mut Vec<u8>,
        (row, key): (&R, u64),
        snapshot: &Snapshot,
        reasons: &mut Reasons<'_>,
    ) {
        match self.style {
            Style::Full => self.full(out, row, snapshot, reasons),
            Style::Short => self.short(out, (row, key), snapshot, reasons),
        }
    }

    fn full(&mut self, out: &mut Vec<u8>, row: &R, snapshot: &Snapshot, reasons: &mut Reasons<'_>) {
        let begin = out.len();
        for written in &mut self.columns {
            let end = out.len();
            out.push(if end == begin { b'{' } else { b',' });
            out.extend(&written.label);
            let mut context = Context { out, snapshot, reasons, style: self.style };
            match written.said(row, &mut context) {
                Said::Value => {}
                Said::Null => out.extend(b"null"),
                Said::Nothing => out.truncate(end),
            }
        }
        if out.len() == begin {
            out.push(b'{');
        }
        out.push(b'}');
    }

    fn short(
        &mut self,
        out: &mut Vec<u8>,
        (row, key): (&R, u64),
        snapshot: &Snapshot,
        reasons: &mut Reasons<'_>,
    ) {
        let (mut before, mut now) = self.kept.row(key);
        let mut separator = b'{';
        for (at, written) in self.columns.iter_mut().enumerate() {
            let mut context = Context { out: &mut self.value, snapshot, reasons, style: self.style };
            let text = written.text(row, &mut context);
            let known = match written.column.lasts {
                Lasts::Key => &b"null"[..],
                Lasts::Interval if before.is_null(at) => b"null",
                Lasts::Interval => written.usual,
                Lasts::Held => {
                    let held = before.text();
                    let is_held = held.is_some() || text != written.usual;
                    now.text(if is_held { text } else { b"" });
                    held.unwrap_or(written.usual)
                }
            };
            let is_new = text != known;
            if written.column.lasts == Lasts::Interval && text == b"null" && (is_new || before.is_null(at)) {
                now.null(at);
            }
            if is_new {
                out.push(std::mem::replace(&mut separator, b','));
                out.extend(&written.label);
                out.extend(text);
            }
        }
        if separator == b'{' {
            out.push(b'{');
        }
        out.push(b'}');
    }
}

impl<R> Written<R> {
    /// The text of a value, alone in the place for it. A key that the row does not have is `null`.
    fn text<'a>(&mut self, row: &R, context: &'a mut Context<'_, '_>) -> &'a [u8] {
        context.out.clear();
        match self.said(row, context) {
            Said::Value => context.out,
            Said::Null | Said::Nothing => b"null",
        }
    }

    fn said(&mut self, row: &R, context: &mut Context<'_, '_>) -> Said {
        match self.column.cell {
            Cell::Made(made) => made(row, context),
            Cell::Metric(_) if self.is_missing => Said::Null,
            Cell::Metric(metric) => match (metric.value)(row, context.snapshot) {
                Ok(value) => {
                    text::value(context.out, &value, context.style);
                    Said::Value
                }
                Err(why) => {
                    if !std::mem::replace(&mut self.is_noted, true) {
                        context.reasons.note(self.column.id, &why);
                    }
                    Said::Null
                }
            },
        }
    }
}
