//! Sets of CPUs or nodes as the kernel writes them: a list ("0-7,32-39") or a hexadecimal mask ("0000ff00,000000ff").
//!
//! Both forms are those of `%*pbl` and `%*pb` in the kernel's Documentation/core-api/printk-formats.rst.
//! They appear in sysfs, in `/proc/PID/status` and in cpuset files, so everything that reads or prints such
//! a set comes here.

use std::collections::BTreeSet;

/// The largest id that a list or mask may name. Far above any kernel (x86-64 stops at 8192 CPUs, nodes at
/// 1024); it bounds what a garbled file can make us allocate.
pub const MAX_ID: u32 = 65_535;

/// The fault of a list or mask; the text is the part that was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    /// A part is neither a number nor a range.
    #[error("'{0}' is neither a number nor a range like 0-7")]
    NotANumber(String),
    /// A range ends before it begins.
    #[error("the range '{0}' is in descending order")]
    Backwards(String),
    /// An id is above [`MAX_ID`].
    #[error("'{0}' contains an id above {MAX_ID}")]
    TooLarge(String),
    /// A word of a mask is not hexadecimal, or longer than 32 bits.
    #[error("'{0}' is not a hexadecimal word of at most 32 bits")]
    NotHex(String),
}

/// Reads a list such as `0-7,32-39`: ids ascending, each once. An empty or blank text is the empty set.
///
/// Overlapping parts and any order are accepted, because users write such lists too.
///
/// # Errors
/// The part that is no id or range.
pub fn parse_cpulist(text: &str) -> Result<Vec<u32>, CpuListError> {
    let text = text.trim();
    let mut ids = BTreeSet::new();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    for part in text.split(',').map(str::trim) {
        match part.split_once('-') {
            None => {
                ids.insert(id(part, part)?);
            }
            Some((first, last)) => {
                let (first, last) = (id(first, part)?, id(last, part)?);
                if first > last {
                    return Err(CpuListError::Backwards(part.to_owned()));
                }
                ids.extend(first..=last);
            }
        }
    }
    Ok(ids.into_iter().collect())
}

/// One id of `part`; digits only, because `u32::from_str` would also take "+3".
fn id(digits: &str, part: &str) -> Result<u32, CpuListError> {
    let digits = digits.trim();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CpuListError::NotANumber(part.to_owned()));
    }
    // Only a number too long for u32 can fail here.
    match digits.parse() {
        Ok(id) if id <= MAX_ID => Ok(id),
        _ => Err(CpuListError::TooLarge(part.to_owned())),
    }
}

/// Reads a mask such as `00000000,00000f0f`: 32-bit words, the most significant first. Ids come back
/// ascending.
///
/// Kernels too old for the `*_list` files have only this form.
///
/// # Errors
/// The word that is no hexadecimal number.
pub fn parse_cpumask(text: &str) -> Result<Vec<u32>, CpuListError> {
    let mut ids = Vec::new();
    for (index, word) in text.trim().rsplit(',').enumerate() {
        if word.is_empty() || word.len() > 8 || !word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(CpuListError::NotHex(word.to_owned()));
        }
        let bits = u32::from_str_radix(word, 16).map_err(|_| CpuListError::NotHex(word.to_owned()))?;
        if bits != 0 && index as u64 * 32 + 31 > u64::from(MAX_ID) {
            return Err(CpuListError::TooLarge(word.to_owned()));
        }
        ids.extend((0..32).filter(|bit| bits & (1 << bit) != 0).map(|bit| index as u32 * 32 + bit));
    }
    Ok(ids)
}

/// Writes ids as the kernel does: `0-7,32-39`, and nothing for the empty set. The ids must ascend.
pub fn format_cpulist(ids: impl IntoIterator<Item = u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for id in ids {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(id) => *last = id,
            _ => ranges.push((id, id)),
        }
    }
    let parts: Vec<String> = ranges
        .into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_of_the_kernel() {
        assert_eq!(parse_cpulist("0-3,8-11\n"), Ok(vec![0, 1, 2, 3, 8, 9, 10, 11]));
        assert_eq!(parse_cpulist("7"), Ok(vec![7]));
        assert_eq!(parse_cpulist("\n"), Ok(vec![]));
    }

    #[test]
    fn lists_of_people() {
        assert_eq!(parse_cpulist(" 4, 0-2 ,1-3"), Ok(vec![0, 1, 2, 3, 4]));
    }

    #[test]
    fn bad_lists_say_which_part() {
        assert_eq!(parse_cpulist("0-3,x"), Err(CpuListError::NotANumber("x".into())));
        assert_eq!(parse_cpulist("0,,3"), Err(CpuListError::NotANumber("".into())));
        assert_eq!(parse_cpulist("1-"), Err(CpuListError::NotANumber("1-".into())));
        assert_eq!(parse_cpulist("-1"), Err(CpuListError::NotANumber("-1".into())));
        assert_eq!(parse_cpulist("+1"), Err(CpuListError::NotANumber("+1".into())));
        assert_eq!(parse_cpulist("5-3"), Err(CpuListError::Backwards("5-3".into())));
        assert_eq!(parse_cpulist("0-4294967295"), Err(CpuListError::TooLarge("0-4294967295".into())));
        assert_eq!(parse_cpulist("99999999999999"), Err(CpuListError::TooLarge("99999999999999".into())));
        assert_eq!(parse_cpulist("65535"), Ok(vec![65535]));
        assert_eq!(parse_cpulist("65536"), Err(CpuListError::TooLarge("65536".into())));
    }

    #[test]
    fn masks_count_from_the_right() {
        assert_eq!(parse_cpumask("0f0f\n"), Ok(vec![0, 1, 2, 3, 8, 9, 10, 11]));
        assert_eq!(parse_cpumask("00000001,80000000"), Ok(vec![31, 32]));
        assert_eq!(parse_cpumask("00000000,00000000"), Ok(vec![]));
    }

    #[test]
    fn bad_masks_say_which_word() {
        assert_eq!(parse_cpumask(""), Err(CpuListError::NotHex("".into())));
        assert_eq!(parse_cpumask("0x0f"), Err(CpuListError::NotHex("0x0f".into())));
        assert_eq!(parse_cpumask("1,,1"), Err(CpuListError::NotHex("".into())));
        assert_eq!(parse_cpumask("123456789"), Err(CpuListError::NotHex("123456789".into())));
        let far = format!("1{}", ",00000000".repeat(2048));
        assert_eq!(parse_cpumask(&far), Err(CpuListError::TooLarge("1".into())));
    }

    #[test]
    fn formatting_joins_neighbours() {
        assert_eq!(format_cpulist([0, 1, 2, 7, 9, 10]), "0-2,7,9-10");
        assert_eq!(format_cpulist([]), "");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(ids in prop::collection::btree_set(0..=MAX_ID, 0..200)) {
            let text = format_cpulist(ids.iter().copied());
            prop_assert_eq!(parse_cpulist(&text), Ok(ids.into_iter().collect::<Vec<_>>()));
        }

        /// Dense sets exercise the ranges that sparse random ids rarely form.
        #[test]
        fn dense_sets_read_back(ids in prop::collection::btree_set(0u32..64, 0..64)) {
            let text = format_cpulist(ids.iter().copied());
            prop_assert_eq!(parse_cpulist(&text), Ok(ids.into_iter().collect::<Vec<_>>()));
        }

        #[test]
        fn masks_and_lists_agree(ids in prop::collection::btree_set(0u32..256, 0..64)) {
            let mut words = [0u32; 8];
            for id in &ids {
                words[*id as usize / 32] |= 1 << (id % 32);
            }
            let mask = words.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",");
            prop_assert_eq!(parse_cpumask(&mask), parse_cpulist(&format_cpulist(ids)));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-0-9a-f, +x\n]{0,40}|.{0,40}") {
            if let Ok(ids) = parse_cpulist(&text) {
                prop_assert_eq!(parse_cpulist(&format_cpulist(ids.iter().copied())), Ok(ids));
            }
            let _ = parse_cpumask(&text);
        }
    }
}
