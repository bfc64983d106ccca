//! Integer instructions, executed on values that may be unknown.

use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

use super::Read;
use super::values::{Flags, Values, clipped};

/// An instruction, and what it reads and changes.
struct Run<'a, 'r> {
    instruction: &'a Instruction,
    values: &'a mut Values,
    flags: &'a mut Flags,
    read: &'a mut Read<'r>,
}

/// Executes an instruction; for any other kind, returns false and changes nothing.
pub(super) fn execute(
    instruction: &Instruction,
    values: &mut Values,
    flags: &mut Flags,
    read: &mut Read<'_>,
) -> bool {
    let vector = (0..instruction.op_count())
        .any(|at| instruction.op_kind(at) == OpKind::Register && !instruction.op_register(at).is_gpr());
    if vector || instruction.has_lock_prefix() {
        return false;
    }
    let mut run = Run { instruction, values, flags, read };
    match instruction.mnemonic() {
        Mnemonic::Mov | Mnemonic::Movzx => {
            let value = run.get(1);
            run.put(value);
        }
        Mnemonic::Movsx | Mnemonic::Movsxd => {
            let value = run.get(1).map(|value| extended(value, run.size(1)));
            run.put(value);
        }
        Mnemonic::Lea => {
            let value = run.values.sum_of_operand(instruction);
            run.put(value);
        }
        Mnemonic::Add | Mnemonic::Adc | Mnemonic::Sub | Mnemonic::Sbb | Mnemonic::Cmp => run.sum(),
        Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Test => run.logic(),
        Mnemonic::Inc | Mnemonic::Dec => run.by_one(),
        Mnemonic::Neg => run.negate(),
        Mnemonic::Not => {
            let value = run.get(0).map(|value| !value);
            run.put(value);
        }
        Mnemonic::Imul | Mnemonic::Mul => run.multiply(),
        Mnemonic::Mulx => run.multiply_without_flags(),
        Mnemonic::Div | Mnemonic::Idiv => run.divide(),
        Mnemonic::Shl | Mnemonic::Sal | Mnemonic::Shr | Mnemonic::Sar | Mnemonic::Rol | Mnemonic::Ror => {
            run.shift();
        }
        Mnemonic::Shlx | Mnemonic::Shrx | Mnemonic::Sarx | Mnemonic::Rorx => run.shift_without_flags(),
        Mnemonic::Bswap => {
            let size = run.size(0);
            let value = run.get(0).map(|value| value.swap_bytes() >> (64 - 8 * size));
            run.put(value.filter(|_| size >= 4));
        }
        Mnemonic::Popcnt | Mnemonic::Tzcnt | Mnemonic::Lzcnt | Mnemonic::Bsf | Mnemonic::Bsr => {
            run.count_bits();
        }
        Mnemonic::Bt if instruction.op0_kind() == OpKind::Register => {
            let bits = run.bits(0);
            let bit = run.get(1);
            run.flags.cf = run.get(0).zip(bit).map(|(value, bit)| value >> (bit & (bits - 1)) & 1 == 1);
            (run.flags.of, run.flags.sf, run.flags.pf) = (None, None, None);
        }
        Mnemonic::Cbw | Mnemonic::Cwde | Mnemonic::Cdqe => run.extend_rax(),
        Mnemonic::Cwd | Mnemonic::Cdq | Mnemonic::Cqo => run.extend_into_rdx(),
        Mnemonic::Xchg => {
            // Addresses are of the values before: memory is the first operand.
            let (one, other) = (run.get(0), run.get(1));
            run.values.write(instruction, 0, other);
            run.values.write(instruction, 1, one);
        }
        Mnemonic::Push => {
            let size = instruction.stack_pointer_increment().unsigned_abs() as usize;
            let from = run.size(0);
            let value = run.get(0).map(|value| if from == 0 { value } else { clipped(value, from) });
            run.values.push(value, size);
        }
        Mnemonic::Pop => {
            let size = instruction.stack_pointer_increment().unsigned_abs() as usize;
            let value = run.values.pop(size, run.read);
            run.put(value);
        }
        Mnemonic::Leave => {
            run.values.general[4] = run.values.general[5];
            run.values.general[5] = run.values.pop(8, run.read);
        }
        Mnemonic::Movbe => {
            let size = run.size(0);
            let value = run.get(1).filter(|_| size >= 2).map(|value| value.swap_bytes() >> (64 - 8 * size));
            run.put(value);
        }
        Mnemonic::Andn | Mnemonic::Bzhi => run.mask(),
        Mnemonic::Blsr | Mnemonic::Blsi | Mnemonic::Blsmsk => run.lowest_bit(),
        Mnemonic::Clc => run.flags.cf = Some(false),
        Mnemonic::Stc => run.flags.cf = Some(true),
        Mnemonic::Cld => run.flags.df = Some(false),
        Mnemonic::Std => run.flags.df = Some(true),
        Mnemonic::Nop | Mnemonic::Endbr64 | Mnemonic::Pause => {}
        // set…, with one operand; a conditional move has two.
        _ if has_condition(instruction) && instruction.op_count() == 1 => {
            let value = run.flags.holds(instruction.condition_code()).map(u64::from);
            run.put(value);
        }
        _ if has_condition(instruction) && instruction.op_count() == 2 => run.conditional_move(),
        _ => return false,
    }
    true
}

fn has_condition(instruction: &Instruction) -> bool {
    instruction.condition_code() != ConditionCode::None
}

/// A value of `bytes` bytes, sign-extended.
pub(super) fn extended(value: u64, bytes: usize) -> u64 {
    match bytes {
        1 => value as i8 as u64,
        2 => value as i16 as u64,
        4 => value as i32 as u64,
        _ => value,
    }
}

impl Run<'_, '_> {
    fn size(&self, at: u32) -> usize {
        self.values.size(self.instruction, at)
    }

    fn bits(&self, at: u32) -> u64 {
        8 * self.size(at).max(1) as u64
    }

    fn get(&mut self, at: u32) -> Option<u64> {
        self.values.read(self.instruction, at, self.read)
    }

    fn put(&mut self, value: Option<u64>) {
        self.values.write(self.instruction, 0, value);
    }

    /// Whether both operands are one register: its value does not matter then.
    fn with_itself(&self) -> bool {
        self.instruction.op0_kind() == OpKind::Register
            && self.instruction.op1_kind() == OpKind::Register
            && self.instruction.op0_register() == self.instruction.op1_register()
    }

    fn no_flags(&mut self) {
        self.flags.clear();
    }

    fn sum(&mut self) {
        let mnemonic = self.instruction.mnemonic();
        let (size, bits) = (self.size(0), self.bits(0) as u32);
        let subtracts = !matches!(mnemonic, Mnemonic::Add | Mnemonic::Adc);
        let carry = match mnemonic {
            Mnemonic::Adc | Mnemonic::Sbb => self.flags.cf.map(u64::from),
            _ => Some(0),
        };
        let itself = subtracts && self.with_itself();
        let operands = if itself { Some((0, 0)) } else { self.get(0).zip(self.get(1)) };
        let result = operands.zip(carry).map(|((one, other), carry)| {
            let (one, other) = (clipped(one, size), clipped(other, size));
            let wide = if subtracts {
                u128::from(one).wrapping_sub(u128::from(other)).wrapping_sub(u128::from(carry))
            } else {
                u128::from(one) + u128::from(other) + u128::from(carry)
            };
            let result = clipped(wide as u64, size);
            let differs = if subtracts { one ^ other } else { !(one ^ other) };
            self.flags.set_result(result, bits);
            self.flags.cf = Some(wide >> bits & 1 == 1);
            self.flags.of = Some(differs & (one ^ result) & (1 << (bits - 1)) != 0);
            result
        });
        if result.is_none() {
            self.no_flags();
        }
        if mnemonic != Mnemonic::Cmp {
            self.put(result);
        }
    }

    fn logic(&mut self) {
        let mnemonic = self.instruction.mnemonic();
        let (size, bits) = (self.size(0), self.bits(0) as u32);
        let result = if mnemonic == Mnemonic::Xor && self.with_itself() {
            Some(0)
        } else {
            self.get(0).zip(self.get(1)).map(|(one, other)| match mnemonic {
                Mnemonic::Or => one | other,
                Mnemonic::Xor => one ^ other,
                _ => one & other,
            })
        };
        let result = result.map(|result| clipped(result, size));
        self.no_flags();
        if let Some(result) = result {
            self.flags.set_result(result, bits);
        }
        (self.flags.cf, self.flags.of) = (Some(false), Some(false));
        if mnemonic != Mnemonic::Test {
            self.put(result);
        }
    }

    fn by_one(&mut self) {
        let (size, bits) = (self.size(0), self.bits(0) as u32);
        let up = self.instruction.mnemonic() == Mnemonic::Inc;
        let (cf, sign) = (self.flags.cf, 1 << (bits - 1));
        let value = self.get(0);
        let result =
            value.map(|value| clipped(if up { value.wrapping_add(1) } else { value.wrapping_sub(1) }, size));
        self.no_flags();
        if let Some(result) = result {
            self.flags.set_result(result, bits);
            self.flags.of = Some(if up { result == sign } else { result == sign - 1 });
        }
        self.flags.cf = cf;
        self.put(result);
    }

    fn negate(&mut self) {
        let (size, bits) = (self.size(0), self.bits(0) as u32);
        let result = self.get(0).map(|value| clipped(value.wrapping_neg(), size));
        self.no_flags();
        if let Some(result) = result {
            self.flags.set_result(result, bits);
            (self.flags.cf, self.flags.of) = (Some(result != 0), Some(result == 1 << (bits - 1)));
        }
        self.put(result);
    }

    fn multiply(&mut self) {
        let signed = self.instruction.mnemonic() == Mnemonic::Imul;
        let (size, bits) = (self.size(0), self.bits(0) as u32);
        self.no_flags();
        let wide = |value: u64| {
            if signed { i128::from(extended(value, size) as i64) } else { i128::from(clipped(value, size)) }
        };
        let (one, other) = match self.instruction.op_count() {
            1 => (self.values.register(accumulator(size)), self.get(0)),
            2 => (self.get(0), self.get(1)),
            _ => (self.get(1), self.get(2)),
        };
        let product = one.zip(other).map(|(one, other)| wide(one).wrapping_mul(wide(other)) as u128);
        let low = product.map(|product| clipped(product as u64, size));
        if let (Some(product), Some(low)) = (product, low) {
            let fits = if signed { i128::from(extended(low, size) as i64) as u128 } else { u128::from(low) };
            (self.flags.cf, self.flags.of) = (Some(fits != product), Some(fits != product));
        }
        if self.instruction.op_count() > 1 {
            return self.put(low);
        }
        let high = product.map(|product| clipped((product >> bits) as u64, size));
        if size == 1 {
            let both = product.map(|product| clipped(product as u64, 2));
            return self.values.set_register(Register::AX, both);
        }
        self.values.set_register(accumulator(size), low);
        self.values.set_register(upper(size), high);
    }

    fn multiply_without_flags(&mut self) {
        let size = self.size(0);
        let product = self.values.register(upper(size)).zip(self.get(2));
        let product = product.map(|(one, other)| u128::from(one) * u128::from(clipped(other, size)));
        let low = product.map(|product| clipped(product as u64, size));
        let high = product.map(|product| clipped((product >> (8 * size)) as u64, size));
        self.values.write(self.instruction, 1, low);
        // Where both are one register it has the upper half.
        self.values.write(self.instruction, 0, high);
    }

    fn divide(&mut self) {
        let signed = self.instruction.mnemonic() == Mnemonic::Idiv;
        let (size, bits) = (self.size(0), self.bits(0) as u32);
        self.no_flags();
        if size == 1 {
            return self.values.set_register(Register::AX, None);
        }
        let operands = self.values.register(upper(size)).zip(self.values.register(accumulator(size)));
        let result = operands.zip(self.get(0)).and_then(|((high, low), divisor)| {
            let dividend = u128::from(high) << bits | u128::from(low);
            if signed {
                let shift = 128 - 2 * bits;
                let (dividend, divisor) =
                    ((dividend << shift) as i128 >> shift, extended(divisor, size) as i64);
                let quotient = dividend.checked_div(i128::from(divisor))?;
                Some((quotient as u64, dividend.checked_rem(i128::from(divisor))? as u64))
            } else {
                let divisor = u128::from(clipped(divisor, size));
                Some((dividend.checked_div(divisor)? as u64, dividend.checked_rem(divisor)? as u64))
            }
        });
        self.values.set_register(accumulator(size), result.map(|(quotient, _)| clipped(quotient, size)));
        self.values.set_register(upper(size), result.map(|(_, rest)| clipped(rest, size)));
    }

    fn shift(&mut self) {
        let mnemonic = self.instruction.mnemonic();
        let (size, bits) = (self.size(0), self.bits(0));
        let value = self.get(0).map(|value| clipped(value, size));
        let count = self.get(1).map(|count| count & if bits == 64 { 63 } else { 31 });
        if count == Some(0) {
            // Nothing changes, but that 32 bits clear the upper half.
            return self.put(value);
        }
        let rotates = matches!(mnemonic, Mnemonic::Rol | Mnemonic::Ror);
        let Some((value, count)) = value.zip(count) else {
            self.no_flags();
            return self.put(None);
        };
        let (result, cf) = shifted(mnemonic, value, count, size);
        if rotates {
            (self.flags.cf, self.flags.of) = (None, None);
        } else {
            self.flags.set_result(result, bits as u32);
            (self.flags.cf, self.flags.of) = (cf, None);
        }
        self.put(Some(result));
    }

    fn shift_without_flags(&mut self) {
        let size = self.size(0);
        let most = if size == 8 { 63 } else { 31 };
        let mnemonic = match self.instruction.mnemonic() {
            Mnemonic::Shlx => Mnemonic::Shl,
            Mnemonic::Shrx => Mnemonic::Shr,
            Mnemonic::Sarx => Mnemonic::Sar,
            _ => Mnemonic::Ror,
        };
        let operands = self.get(1).zip(self.get(2));
        let result =
            operands.map(|(value, count)| shifted(mnemonic, clipped(value, size), count & most, size).0);
        self.put(result);
    }

    /// The second source without the bits of the first one, or the first one below a bit number.
    fn mask(&mut self) {
        let (size, bits) = (self.size(0), self.bits(0));
        let takes_number = self.instruction.mnemonic() == Mnemonic::Bzhi;
        let operands = self.get(1).zip(self.get(2));
        self.no_flags();
        let result = operands.map(|(one, other)| {
            let (one, number) = (clipped(one, size), other & 0xff);
            match takes_number {
                true if number >= bits => one,
                true => one & ((1 << number) - 1),
                false => !one & clipped(other, size),
            }
        });
        if let Some(result) = result {
            self.flags.set_result(result, bits as u32);
            self.flags.cf = operands.map(|(_, other)| takes_number && other & 0xff >= bits);
            // Parity is undefined.
            (self.flags.of, self.flags.pf) = (Some(false), None);
        }
        self.put(result);
    }

    /// The lowest bit that is set: cleared (blsr), alone (blsi), or with all below it (blsmsk).
    fn lowest_bit(&mut self) {
        let (size, bits) = (self.size(0), self.bits(0) as u32);
        let mnemonic = self.instruction.mnemonic();
        let value = self.get(1).map(|value| clipped(value, size));
        self.no_flags();
        let result = value.map(|value| {
            let below = value.wrapping_sub(1);
            let result = match mnemonic {
                Mnemonic::Blsr => value & below,
                Mnemonic::Blsi => value & value.wrapping_neg(),
                _ => value ^ below,
            };
            clipped(result, size)
        });
        if let Some(result) = result {
            self.flags.set_result(result, bits);
            let is_zero = value == Some(0);
            self.flags.cf = Some(is_zero == (mnemonic != Mnemonic::Blsi));
            (self.flags.of, self.flags.pf) = (Some(false), None);
        }
        self.put(result);
    }

    fn count_bits(&mut self) {
        let mnemonic = self.instruction.mnemonic();
        let (size, bits) = (self.size(1), self.bits(1));
        let value = self.get(1).map(|value| clipped(value, size));
        self.no_flags();
        let leading = |value: u64| u64::from(value.leading_zeros()) - (64 - bits);
        let trailing = |value: u64| u64::from(value.trailing_zeros()).min(bits);
        let scans = matches!(mnemonic, Mnemonic::Bsf | Mnemonic::Bsr);
        let result = value.and_then(|value| match mnemonic {
            Mnemonic::Popcnt => Some(u64::from(value.count_ones())),
            Mnemonic::Tzcnt => Some(trailing(value)),
            Mnemonic::Lzcnt => Some(leading(value)),
            _ if value == 0 => None,
            Mnemonic::Bsf => Some(trailing(value)),
            _ => Some(bits - 1 - leading(value)),
        });
        if scans || mnemonic == Mnemonic::Popcnt {
            self.flags.zf = value.map(|value| value == 0);
        } else {
            self.flags.cf = value.map(|value| value == 0);
            self.flags.zf = result.map(|result| result == 0);
        }
        // A register is left as it was or undefined when nothing is found: processors differ.
        self.put(result);
    }

    fn extend_rax(&mut self) {
        let (from, to) = match self.instruction.mnemonic() {
            Mnemonic::Cbw => (Register::AL, Register::AX),
            Mnemonic::Cwde => (Register::AX, Register::EAX),
            _ => (Register::EAX, Register::RAX),
        };
        let value = self.values.register(from).map(|value| clipped(extended(value, from.size()), to.size()));
        self.values.set_register(to, value);
    }

    fn extend_into_rdx(&mut self) {
        let size = match self.instruction.mnemonic() {
            Mnemonic::Cwd => 2,
            Mnemonic::Cdq => 4,
            _ => 8,
        };
        let value = self.values.register(accumulator(size));
        let sign =
            value.map(|value| clipped(if extended(value, size) >> 63 == 1 { u64::MAX } else { 0 }, size));
        self.values.set_register(upper(size), sign);
    }

    fn conditional_move(&mut self) {
        let value = match self.flags.holds(self.instruction.condition_code()) {
            Some(true) => self.get(1),
            // 32 bits clear the upper half all the same.
            Some(false) => self.get(0),
            None => None,
        };
        self.put(value);
    }
}

/// A value shifted or rotated by `count`, which is not above 63, and the last bit that fell out.
fn shifted(mnemonic: Mnemonic, value: u64, count: u64, size: usize) -> (u64, Option<bool>) {
    let bits = 8 * size as u64;
    let bit = |value: u64, at: u64| Some(value.checked_shr(at as u32).unwrap_or(0) & 1 == 1);
    let (result, out) = match mnemonic {
        Mnemonic::Shr => {
            (value.checked_shr(count as u32).unwrap_or(0), count.checked_sub(1).and_then(|at| bit(value, at)))
        }
        Mnemonic::Sar => {
            let wide = extended(value, size) as i64;
            (
                wide.checked_shr(count as u32).unwrap_or(0) as u64,
                count.checked_sub(1).map(|at| wide >> at & 1 == 1),
            )
        }
        Mnemonic::Rol | Mnemonic::Ror => {
            let by = count % bits;
            let by = if mnemonic == Mnemonic::Rol { by } else { (bits - by) % bits };
            (if by == 0 { value } else { value << by | value >> (bits - by) }, None)
        }
        _ => (
            value.checked_shl(count as u32).unwrap_or(0),
            // With more than its bits nothing is left to fall out.
            bits.checked_sub(count).and_then(|at| bit(value, at)),
        ),
    };
    // Of 8 and 16 bits more may be shifted than there are: what falls out then differs between processors.
    (clipped(result, size), out.filter(|_| count < bits))
}

/// al, ax, eax or rax.
fn accumulator(size: usize) -> Register {
    match size {
        1 => Register::AL,
        2 => Register::AX,
        4 => Register::EAX,
        _ => Register::RAX,
    }
}

/// dx, edx or rdx.
fn upper(size: usize) -> Register {
    match size {
        2 => Register::DX,
        4 => Register::EDX,
        _ => Register::RDX,
    }
}
