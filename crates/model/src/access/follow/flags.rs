//! The flags that conditions read: each is known or not.

use iced_x86::{ConditionCode, RflagsBits};

/// Carry, parity, zero, sign and overflow, and the direction of string instructions. The auxiliary carry decides no
/// branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) cf: Option<bool>,
    pub(super) pf: Option<bool>,
    pub(super) zf: Option<bool>,
    pub(super) sf: Option<bool>,
    pub(super) of: Option<bool>,
    /// String instructions go down.
    pub(super) df: Option<bool>,
}

impl Flags {
    /// From rflags.
    pub(super) fn from_bits(bits: u64) -> Flags {
        let bit = |at: u32| Some(bits >> at & 1 == 1);
        Flags { cf: bit(0), pf: bit(2), zf: bit(6), sf: bit(7), of: bit(11), df: bit(10) }
    }

    /// Makes all but the direction unknown.
    pub(super) fn clear(&mut self) {
        *self = Flags { df: self.df, ..Flags::default() };
    }

    /// Zero, sign and parity of a result of `bits` bits.
    pub(super) fn set_result(&mut self, result: u64, bits: u32) {
        self.zf = Some(result == 0);
        self.sf = Some(result >> (bits - 1) & 1 == 1);
        self.pf = Some((result as u8).count_ones().is_multiple_of(2));
    }

    /// Makes those in a set of [`RflagsBits`] unknown.
    pub(super) fn forget(&mut self, modified: u32) {
        for (flag, bit) in [
            (&mut self.cf, RflagsBits::CF),
            (&mut self.pf, RflagsBits::PF),
            (&mut self.zf, RflagsBits::ZF),
            (&mut self.sf, RflagsBits::SF),
            (&mut self.of, RflagsBits::OF),
            (&mut self.df, RflagsBits::DF),
        ] {
            if modified & bit != 0 {
                *flag = None;
            }
        }
    }

    /// Whether a condition holds, where that is known.
    pub(super) fn holds(&self, condition: ConditionCode) -> Option<bool> {
        let either = |one: Option<bool>, other: Option<bool>| match (one, other) {
            (Some(true), _) | (_, Some(true)) => Some(true),
            (Some(false), Some(false)) => Some(false),
            _ => None,
        };
        let less = || Some(self.sf? != self.of?);
        let not = |value: Option<bool>| value.map(|value| !value);
        match condition {
            ConditionCode::None => None,
            ConditionCode::o => self.of,
            ConditionCode::no => not(self.of),
            ConditionCode::b => self.cf,
            ConditionCode::ae => not(self.cf),
            ConditionCode::e => self.zf,
            ConditionCode::ne => not(self.zf),
            ConditionCode::be => either(self.cf, self.zf),
            ConditionCode::a => not(either(self.cf, self.zf)),
            ConditionCode::s => self.sf,
            ConditionCode::ns => not(self.sf),
            ConditionCode::p => self.pf,
            ConditionCode::np => not(self.pf),
            ConditionCode::l => less(),
            ConditionCode::ge => not(less()),
            ConditionCode::le => either(self.zf, less()),
            ConditionCode::g => not(either(self.zf, less())),
        }
    }
}
