//! Columns as data: a name, a type, and the way to the value of a row.

use std::borrow::Cow;
use std::sync::Arc;

use crate::metric::amounts::Number;
use crate::model::sample::Reading;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// A signed number of 64 bits: query engines do not all have unsigned ones.
    Int,
    /// A moment in UTC, in µs since 1970.
    Time,
    /// A number with a fraction, of 64 bits.
    Float,
    /// True or false.
    Flag,
    /// Clean text.
    Text,
    /// A list of clean texts.
    List,
}

/// The value of a row: `None` where it could not be measured.
pub enum Get<R> {
    /// [`ColumnKind::Int`]
    Int(fn(&R) -> Option<i64>),
    /// [`ColumnKind::Int`] at this place of a list.
    Listed(fn(&R, usize) -> Option<i64>, usize),
    /// [`ColumnKind::Time`]
    Time(fn(&R) -> Option<i64>),
    /// [`ColumnKind::Float`]
    Float(fn(&R) -> Option<f64>),
    /// [`ColumnKind::Flag`]
    Flag(fn(&R) -> Option<bool>),
    /// [`ColumnKind::Text`]
    Text(fn(&R) -> Option<Cow<'_, str>>),
    /// [`ColumnKind::List`]
    List(fn(&R) -> &[Arc<str>]),
}

impl<R> Clone for Get<R> {
    fn clone(&self) -> Get<R> {
        *self
    }
}

impl<R> Copy for Get<R> {}

impl<R> Get<R> {
    /// The type of its values.
    pub fn kind(&self) -> ColumnKind {
        match self {
            Get::Int(_) | Get::Listed(..) => ColumnKind::Int,
            Get::Time(_) => ColumnKind::Time,
            Get::Float(_) => ColumnKind::Float,
            Get::Flag(_) => ColumnKind::Flag,
            Get::Text(_) => ColumnKind::Text,
            Get::List(_) => ColumnKind::List,
        }
    }
}

/// A column of rows of type `R`.
pub struct Column<R> {
    /// Its name in the schema.
    pub name: &'static str,
    /// Its values.
    pub get: Get<R>,
}

impl<R> Clone for Column<R> {
    fn clone(&self) -> Column<R> {
        *self
    }
}

impl<R> Copy for Column<R> {}

/// A table of columns of one type of row: a line is name, kind and value, which [`Cell`] turns into the type of the column.
macro_rules! columns {
    ($visibility:vis $table:ident of $type:ty: $row:ident => { $($name:literal $kind:ident $value:expr;)* }) => {
        $visibility static $table: &[$crate::tables::column::Column<$type>] = &[$(
            $crate::tables::column::Column {
                name: $name,
                get: $crate::tables::column::Get::$kind(|$row: &$type| $crate::tables::column::Cell::cell($value)),
            },
        )*];
    };
}
pub(super) use columns;

/// A value on its way into a column of type `T`. Unsigned numbers that are too large become the largest.
pub(super) trait Cell<T> {
    fn cell(self) -> T;
}

impl Cell<Option<i64>> for i64 {
    fn cell(self) -> Option<i64> {
        Some(self)
    }
}

impl Cell<Option<i64>> for u64 {
    fn cell(self) -> Option<i64> {
        Some(i64::try_from(self).unwrap_or(i64::MAX))
    }
}

impl Cell<Option<i64>> for u32 {
    fn cell(self) -> Option<i64> {
        Some(self.into())
    }
}

impl Cell<Option<i64>> for usize {
    fn cell(self) -> Option<i64> {
        Some(i64::try_from(self).unwrap_or(i64::MAX))
    }
}

impl Cell<Option<i64>> for f64 {
    /// The next whole number, as counts that were scaled and shares of time have fractions.
    fn cell(self) -> Option<i64> {
        Some(self.round() as i64)
    }
}

impl Cell<Option<f64>> for f64 {
    fn cell(self) -> Option<f64> {
        Some(self)
    }
}

impl Cell<Option<i64>> for Number {
    fn cell(self) -> Option<i64> {
        match self {
            Number::Whole(whole) => whole.cell(),
            Number::Scaled(scaled) => scaled.cell(),
        }
    }
}

impl Cell<Option<bool>> for bool {
    fn cell(self) -> Option<bool> {
        Some(self)
    }
}

impl<'a> Cell<Option<Cow<'a, str>>> for &'a str {
    fn cell(self) -> Option<Cow<'a, str>> {
        Some(Cow::Borrowed(self))
    }
}

impl<'a> Cell<Option<Cow<'a, str>>> for String {
    fn cell(self) -> Option<Cow<'a, str>> {
        Some(Cow::Owned(self))
    }
}

impl<'a> Cell<Option<Cow<'a, str>>> for Cow<'a, str> {
    fn cell(self) -> Option<Cow<'a, str>> {
        Some(self)
    }
}

impl<'a> Cell<&'a [Arc<str>]> for &'a [Arc<str>] {
    fn cell(self) -> &'a [Arc<str>] {
        self
    }
}

impl<T, U: Cell<Option<T>>> Cell<Option<T>> for Option<U> {
    fn cell(self) -> Option<T> {
        self.and_then(Cell::cell)
    }
}

impl<T, U: Cell<Option<T>>> Cell<Option<T>> for Reading<U> {
    fn cell(self) -> Option<T> {
        self.ok().and_then(Cell::cell)
    }
}

/// The columns that every table begins with.
#[derive(Clone, Debug)]
pub struct Stamp {
    /// End of the interval, µs since 1970.
    pub time_us: i64,
    /// Its length, ns; `None` of a moment without one.
    pub interval_ns: Option<u64>,
    /// Name of the machine. Clean.
    pub hostname: Arc<str>,
    /// Changes with each boot. Clean.
    pub boot_id: Arc<str>,
}

columns! {
    pub(super) STAMP of Stamp: row => {
        "time" Time row.time_us;
        "interval_ns" Int row.interval_ns;
        "hostname" Text &*row.hostname;
        "boot_id" Text &*row.boot_id;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::Missing;

    #[test]
    fn what_is_too_large_is_the_largest_and_what_is_missing_is_nothing() {
        let int = |value: Option<u64>| -> Option<i64> { value.cell() };
        assert_eq!((int(Some(u64::MAX)), int(Some(0)), int(None)), (Some(i64::MAX), Some(0), None));
        let read: Option<i64> = Err::<u64, Missing>(Missing::FirstInterval).cell();
        assert_eq!(read, None);
        let rounded: Option<i64> = 1.5_f64.cell();
        assert_eq!(rounded, Some(2));
        let most: Option<i64> = f64::INFINITY.cell();
        assert_eq!(most, Some(i64::MAX));
    }
}
