//! Accesses that a PMU sampled as bytes and back: by the place that answered, and how long memory took.

use super::memory_use::{count, map, put_count};
use super::room::Room;
use super::varint::{Bytes, Malformed, put};
use crate::model::access::answers::Answers;
use crate::model::access::class::AccessClass;

/// Writes classes, then accesses and latencies of the own node and of others.
pub(super) fn encode(out: &mut Vec<u8>, answers: &Answers) {
    put(out, answers.classes.len() as u64);
    for (class, accesses) in &answers.classes {
        put(out, AccessClass::ALL.iter().position(|one| one == class).unwrap_or(0) as u64);
        put_count(out, *accesses);
    }
    for found in [&answers.local, &answers.remote] {
        put_count(out, found.accesses);
        put(out, found.latencies.steps().count() as u64);
        for (step, loads) in found.latencies.steps() {
            put(out, step.into());
            put_count(out, loads);
        }
    }
}

/// The answers that [`encode`] wrote.
///
/// # Errors
/// The bytes are something else, or there is no room.
pub(super) fn decode(input: &mut Bytes<'_>, room: &mut Room) -> Result<Answers, Malformed> {
    let mut answers = Answers::default();
    for _ in 0..map(input, room)? {
        let class = AccessClass::ALL.get(input.count(u32::MAX as usize)?);
        // A later version may know more of them.
        let class = class.copied().unwrap_or(AccessClass::Unknown);
        answers.classes.insert(class, count(input)?);
    }
    for found in [&mut answers.local, &mut answers.remote] {
        found.accesses = count(input)?;
        for _ in 0..map(input, room)? {
            let step = u16::try_from(input.number()?).map_err(|_| Malformed("a latency cannot be"))?;
            if !found.latencies.set(step, count(input)?) {
                return Err(Malformed("a latency cannot be"));
            }
        }
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_that_cannot_be_is_refused() {
        let mut answers = Answers::default();
        answers.add(AccessClass::Dram { remote: false }, None, Some(200));
        let mut bytes = Vec::new();
        encode(&mut bytes, &answers);
        assert_eq!(decode(&mut Bytes(&bytes), &mut Room::endless()).unwrap(), answers);
        (0..bytes.len())
            .for_each(|cut| assert!(decode(&mut Bytes(&bytes[..cut]), &mut Room::endless()).is_err()));
        // No class, and a step beyond the last that there is.
        let beyond = [0, 5, 1, 0xff, 0x7f, 5, 0, 0];
        assert!(decode(&mut Bytes(&beyond), &mut Room::endless()).is_err());
    }

    #[test]
    fn a_class_of_a_later_version_is_unknown() {
        let later = [1, 99, 7, 0, 0, 0, 0];
        let found = decode(&mut Bytes(&later), &mut Room::endless()).unwrap();
        assert_eq!(found.classes, [(AccessClass::Unknown, 7)].into());
    }
}
