//! Forms of numbers, texts, lists, maps and reasons as bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::varint::Malformed;
use super::{Coded, In, MAX_NODES, MAX_TEXT, Out};
use crate::model::sample::Missing;
use crate::model::units::NodeId;
use crate::text::is_clean;

macro_rules! numbers {
    ($($number:ty),*) => {
        $(/// Lists of bare numbers have one for each node. An absent one is 0, others are one more.
        impl Coded for $number {
            const MOST: (usize, &'static str) = (MAX_NODES, "nodes");

            fn put<'v>(&'v self, out: &mut Out<'v>) {
                out.number((*self).into());
            }

            fn get(input: &mut In<'_, '_>) -> Result<$number, Malformed> {
                <$number>::try_from(input.number()?).map_err(|_| Malformed("a number is out of range"))
            }

            fn put_option<'v>(this: Option<&'v $number>, out: &mut Out<'v>) {
                out.number(this.map_or(0, |number| u64::from(*number).wrapping_add(1)));
            }

            fn get_option(input: &mut In<'_, '_>) -> Result<Option<$number>, Malformed> {
                let number = input.number()?.checked_sub(1).map(<$number>::try_from).transpose();
                number.map_err(|_| Malformed("a number is out of range"))
            }
        })*
    };
}

numbers!(u64, u32, u16, u8);

impl Coded for i64 {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        out.number(*self as u64);
    }

    fn get(input: &mut In<'_, '_>) -> Result<i64, Malformed> {
        Ok(input.number()? as i64)
    }
}

impl Coded for bool {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        out.number((*self).into());
    }

    fn get(input: &mut In<'_, '_>) -> Result<bool, Malformed> {
        Ok(input.count(1)? == 1)
    }
}

impl Coded for NodeId {
    const MOST: (usize, &'static str) = (MAX_NODES, "nodes");

    fn put<'v>(&'v self, out: &mut Out<'v>) {
        self.0.put(out);
    }

    fn get(input: &mut In<'_, '_>) -> Result<NodeId, Malformed> {
        u32::get(input).map(NodeId)
    }

    fn put_option<'v>(this: Option<&'v NodeId>, out: &mut Out<'v>) {
        u32::put_option(this.map(|node| &node.0), out);
    }

    fn get_option(input: &mut In<'_, '_>) -> Result<Option<NodeId>, Malformed> {
        Ok(input.count(MAX_NODES)?.checked_sub(1).map(|node| NodeId(node as u32)))
    }
}

/// Text without control characters.
impl Coded for String {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        out.text(self);
    }

    fn get(input: &mut In<'_, '_>) -> Result<String, Malformed> {
        input.clean().map(str::to_string)
    }
}

/// The same, shared.
impl Coded for Arc<str> {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        out.text(self);
    }

    fn get(input: &mut In<'_, '_>) -> Result<Arc<str>, Malformed> {
        input.clean().map(Arc::from)
    }
}

impl<T: Coded> Coded for Option<T> {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        T::put_option(self.as_ref(), out);
    }

    fn get(input: &mut In<'_, '_>) -> Result<Option<T>, Malformed> {
        T::get_option(input)
    }
}

impl<T: Coded> Coded for Arc<T> {
    const MOST: (usize, &'static str) = T::MOST;

    fn put<'v>(&'v self, out: &mut Out<'v>) {
        T::put(self, out);
    }

    fn get(input: &mut In<'_, '_>) -> Result<Arc<T>, Malformed> {
        T::get(input).map(Arc::new)
    }
}

impl<T: Coded> Coded for Vec<T> {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        out.count(self.len(), T::MOST.0, T::MOST.1);
        self.iter().for_each(|entry| entry.put(out));
    }

    fn get(input: &mut In<'_, '_>) -> Result<Vec<T>, Malformed> {
        input.list(T::MOST.0, T::get)
    }
}

impl<K: Coded + Ord, V: Coded> Coded for BTreeMap<K, V> {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        out.map(self, K::MOST, |out, key, value| {
            key.put(out);
            value.put(out);
        });
    }

    fn get(input: &mut In<'_, '_>) -> Result<BTreeMap<K, V>, Malformed> {
        input.map(K::MOST.0, <(K, V)>::get)
    }
}

impl<A: Coded, B: Coded> Coded for (A, B) {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(input: &mut In<'_, '_>) -> Result<(A, B), Malformed> {
        Ok((A::get(input)?, B::get(input)?))
    }
}

impl<T: Coded + Copy + Default, const N: usize> Coded for [T; N] {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        self.iter().for_each(|entry| entry.put(out));
    }

    fn get(input: &mut In<'_, '_>) -> Result<[T; N], Malformed> {
        let mut all = [T::default(); N];
        for entry in &mut all {
            *entry = T::get(input)?;
        }
        Ok(all)
    }
}

/// 1 and the value, or 0 and the reason as JSON.
impl<T: Coded> Coded for Result<T, Missing> {
    fn put<'v>(&'v self, out: &mut Out<'v>) {
        out.number(self.is_ok().into());
        match self {
            Ok(value) => value.put(out),
            Err(missing) => out.text(&json(missing)),
        }
    }

    fn get(input: &mut In<'_, '_>) -> Result<Result<T, Missing>, Malformed> {
        match input.count(1)? {
            1 => T::get(input).map(Ok),
            _ => missing(input.text(MAX_TEXT)?).map(Err),
        }
    }
}

/// A reason as JSON.
pub fn json(missing: &Missing) -> String {
    serde_json::to_string(missing).expect("plain data becomes JSON")
}

/// A reason that was written as JSON.
///
/// # Errors
/// It is something else, or no terminal should see it.
pub fn missing(text: &str) -> Result<Missing, Malformed> {
    let missing: Missing = serde_json::from_str(text)
        .map_err(|_| Malformed("the reason of a missing value cannot be parsed"))?;
    if is_clean(&missing.to_string()) {
        Ok(missing)
    } else {
        Err(Malformed("the reason of a missing value cannot be encoded"))
    }
}
