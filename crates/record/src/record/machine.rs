//! Switches, swap and pressure of the machine as bytes and back: numbers that differ from those of a keyframe.

use super::varint::{Bytes, Malformed, difference, put, undo_difference};
use crate::model::sample::{MachineRaw, Pressure};

/// Its numbers. Zero is none where a number may be absent.
fn numbers(machine: &MachineRaw) -> [u64; 7] {
    let MachineRaw {
        numa_balancing,
        swappiness,
        swap_total_bytes,
        swap_free_bytes,
        pressure,
        load_hundredths: _,
    } = *machine;
    let or_none = |number: Option<u64>| number.map_or(0, |number| number.wrapping_add(1));
    let Pressure { memory_some_us, memory_full_us, .. } = pressure.unwrap_or_default();
    [
        or_none(numa_balancing.map(u64::from)),
        or_none(swappiness.map(u64::from)),
        or_none(swap_total_bytes),
        or_none(swap_free_bytes),
        or_none(pressure.map(|pressure| pressure.cpu_some_us)),
        memory_some_us,
        memory_full_us,
    ]
}

/// Writes nothing of a sample that does not have it.
pub(super) fn encode(out: &mut Vec<u8>, base: Option<&MachineRaw>, machine: Option<&MachineRaw>) {
    let Some(machine) = machine else { return };
    let before = numbers(base.unwrap_or(&MachineRaw::default()));
    for (number, before) in numbers(machine).into_iter().zip(before) {
        put(out, difference(number, before));
    }
}

/// The machine that [`encode`] wrote with the same base.
///
/// # Errors
/// The bytes are something else.
pub(super) fn decode(
    mut input: Bytes<'_>,
    base: Option<&MachineRaw>,
) -> Result<Option<MachineRaw>, Malformed> {
    if input.0.is_empty() {
        return Ok(None);
    }
    let mut found = numbers(base.unwrap_or(&MachineRaw::default()));
    for number in &mut found {
        *number = undo_difference(input.number()?, *number);
    }
    input.finish()?;
    let [numa_balancing, swappiness, swap_total, swap_free, cpu_some, memory_some_us, memory_full_us] = found;
    let pressure = |cpu_some_us| Pressure { cpu_some_us, memory_some_us, memory_full_us };
    Ok(Some(MachineRaw {
        numa_balancing: switch(numa_balancing)?,
        swappiness: switch(swappiness)?,
        swap_total_bytes: swap_total.checked_sub(1),
        swap_free_bytes: swap_free.checked_sub(1),
        pressure: cpu_some.checked_sub(1).map(pressure),
        load_hundredths: None,
    }))
}

fn switch(number: u64) -> Result<Option<u32>, Malformed> {
    number
        .checked_sub(1)
        .map(u32::try_from)
        .transpose()
        .map_err(|_| Malformed("the value of a setting is out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The machine that is read again, which is the same whatever the base is.
    fn again(machine: Option<&MachineRaw>) -> Option<MachineRaw> {
        let swapped =
            MachineRaw { swap_free_bytes: Some(7), numa_balancing: Some(2), ..MachineRaw::default() };
        let read = [None, Some(&swapped), machine].map(|base| {
            let mut bytes = Vec::new();
            encode(&mut bytes, base, machine);
            decode(Bytes(&bytes), base).unwrap()
        });
        assert!(read.iter().all(|one| *one == read[0]), "{read:?}");
        read[0]
    }

    #[test]
    fn what_is_not_known_stays_so() {
        assert_eq!(again(None), None);
        let nothing = MachineRaw::default();
        assert_eq!(again(Some(&nothing)), Some(nothing));
        let off = MachineRaw { numa_balancing: Some(0), swap_total_bytes: Some(0), ..nothing };
        assert_eq!(again(Some(&off)), Some(off));
        let pressure = Some(Pressure { cpu_some_us: 1, memory_some_us: 0, memory_full_us: u64::MAX });
        let pressed = MachineRaw { swappiness: Some(200), pressure, ..off };
        assert_eq!(again(Some(&pressed)), Some(pressed));
    }

    #[test]
    fn a_cut_machine_is_malformed() {
        let mut bytes = Vec::new();
        encode(&mut bytes, None, Some(&MachineRaw::default()));
        for len in 1..bytes.len() {
            assert!(decode(Bytes(&bytes[..len]), None).is_err(), "{len}");
        }
        bytes.push(0);
        assert!(decode(Bytes(&bytes), None).is_err());
    }
}
