use crate::access::decode_x86::{RSP, Registers};
use crate::access::follow::{Follower, GaveUp};
use crate::access::sample::Stack;

const CODE: u64 = 0x1000;
const DATA: u64 = 0x2000;
const RAX: usize = 0;
const RCX: usize = 1;
const RDX: usize = 2;
const RBX: usize = 3;
const RSI: usize = 6;
const RDI: usize = 7;

/// A program that consists of its code and one page of letters.
struct World {
    registers: Registers,
    data: Vec<u8>,
}

impl World {
    /// The first pointer is at the start of the page, the other one at the same letters 26 bytes on.
    fn new() -> World {
        let mut registers = Registers { ip: CODE, ..Registers::default() };
        (registers.general[RSI], registers.general[RDI]) = (DATA, DATA + 26);
        registers.general[RSP] = 0x7ffd_0000_0000;
        World { registers, data: (0..4096).map(|at| b'a' + (at % 26) as u8).collect() }
    }

    fn set(&mut self, at: u64, bytes: &[u8]) {
        self.data[(at - DATA) as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.data[(at - DATA) as usize..][..8].try_into().unwrap())
    }

    fn run(&self, code: &str) -> Result<Follower, GaveUp> {
        let bytes = |word| u8::from_str_radix(word, 16).unwrap();
        let mut code: Vec<u8> = code.split_whitespace().map(bytes).collect();
        let end = CODE + code.len() as u64;
        code.resize(4096, 0x90);
        let mut read = |address: u64, bytes: &mut [u8]| {
            let from = if address < DATA { &code } else { &self.data };
            let Some(from) = from.get((address & 0xfff) as usize..).filter(|_| address < DATA + 0x1000)
            else {
                return false;
            };
            let is_there = from.len() >= bytes.len() && address >= CODE;
            if is_there {
                bytes.copy_from_slice(&from[..bytes.len()]);
            }
            is_there
        };
        let mut follower = Follower::new(&self.registers, Stack::default()).unwrap();
        while follower.ip() != end {
            follower.step(&mut read)?;
        }
        Ok(follower)
    }
}

/// movdqu (%rsi),%xmm0; pcmpeqb (%rdi),%xmm0; pmovmskb %xmm0,%eax; sub $0xffff,%eax
#[test]
fn bytes_are_compared() {
    let code = "f3 0f 6f 06 66 0f 74 07 66 0f d7 c0 2d ff ff 00 00";
    let mut world = World::new();
    assert_eq!(world.run(code).unwrap().register(RAX), Some(0));
    world.set(DATA + 26 + 3, b"!");
    assert_eq!(world.run(code).unwrap().register(RAX), Some(0xffff_fff8));
}

/// vmovdqu64 (%rsi),%ymm16; vpcmpub $4,(%rdi),%ymm16,%k1; kmovd %k1,%eax; tzcnt %eax,%ecx
#[test]
fn bytes_are_compared_into_a_mask() {
    let code = "62 e1 fe 28 6f 06 62 f3 7d 20 3e 0f 04 c5 fb 93 c1 f3 0f bc c8";
    let mut world = World::new();
    assert_eq!(world.run(code).unwrap().mask(1), Some(0));
    world.set(DATA + 26 + 20, b"!");
    let follower = world.run(code).unwrap();
    assert_eq!([follower.register(RAX), follower.register(RCX)], [Some(1 << 20), Some(20)]);
}

/// pmovmskb %xmm1,%eax; pxor %xmm1,%xmm1; pmovmskb %xmm1,%edx
#[test]
fn vectors_of_the_sample_are_not_known_and_zero_is() {
    let follower = World::new().run("66 0f d7 c1 66 0f ef c9 66 0f d7 d1").unwrap();
    assert_eq!([follower.register(RAX), follower.register(RDX)], [None, Some(0)]);
    assert!(follower.vector(0).is_none());
}

/// mov $-1,%eax; bzhi %edx,%eax,%eax; kmovd %eax,%k2; vmovdqu8 (%rsi),%ymm16{%k2}{z};
/// vptestnmb %ymm16,%ymm16,%k0{%k2}; kmovd %k0,%ecx
#[test]
fn bytes_that_a_mask_leaves_out_are_not_read() {
    let mut world = World::new();
    // Six bytes are left on the last present page.
    (world.registers.general[RSI], world.registers.general[RDX]) = (DATA + 0x1000 - 6, 6);
    world.set(DATA + 0x1000 - 4, &[0]);
    let follower = world
        .run("b8 ff ff ff ff c4 e2 68 f5 c0 c5 fb 92 d0 62 e1 7f aa 6f 06 62 b2 7e 22 26 c0 c5 fb 93 c8")
        .unwrap();
    assert_eq!(follower.register(RCX), Some(1 << 2));
    let vector = follower.vector(16).unwrap();
    assert_eq!(vector[..6], world.data[0x1000 - 6..].iter().map(|byte| Some(*byte)).collect::<Vec<_>>());
    assert!(vector[6..].iter().all(|byte| *byte == Some(0)));
}

/// movdqu (%rsi),%xmm0; movups %xmm0,(%rdi); movups %xmm2,8(%rdi); mov (%rdi),%rax; mov 8(%rdi),%rdx
#[test]
fn stored_vectors_are_known_by_byte() {
    let world = World::new();
    let follower = world.run("f3 0f 6f 06 0f 11 07 0f 11 57 08 48 8b 07 48 8b 57 08").unwrap();
    assert_eq!([follower.register(RAX), follower.register(RDX)], [Some(world.word(DATA)), None]);
}

/// vpcmpeqd %ymm3,%ymm3,%ymm3; pxor %xmm3,%xmm3; then vzeroupper; vpternlogd $0xff,%zmm5,%zmm5,%zmm5
#[test]
fn upper_halves_stay_or_become_zero() {
    let code = "c5 e5 76 db 66 0f ef db";
    let of = |follower: &Follower, number| follower.vector(number).unwrap().map(Option::unwrap);
    let vector = of(&World::new().run(code).unwrap(), 3);
    assert_eq!(
        (&vector[..16], &vector[16..32], &vector[32..]),
        (&[0; 16][..], &[0xff; 16][..], &[0; 32][..])
    );
    let follower = World::new().run(&format!("{code} c5 f8 77 62 f3 55 48 25 ed ff")).unwrap();
    assert_eq!(of(&follower, 3), [0; 64]);
    assert_eq!(of(&follower, 5), [0xff; 64]);
}

/// movzbl (%rsi),%eax; vpbroadcastb %eax,%ymm17; vpxorq (%rdi),%ymm17,%ymm18; vpminub %ymm17,%ymm18,%ymm18;
/// vptestmb %ymm18,%ymm18,%k3; kortestd %k3,%k3; setb %dl; movzbl %dl,%edx
#[test]
fn a_byte_is_searched_as_libc_does() {
    let code = "0f b6 06 62 e2 7d 28 7a c8 62 e1 f5 20 ef 17 62 a1 6d 20 da d1 62 b2 6d 20 26 da c4 e1 f9 98 db \
                0f 92 c2 0f b6 d2";
    let mut world = World::new();
    assert_eq!(world.run(code).unwrap().register(RDX), Some(0), "it is there");
    world.set(DATA, b"!");
    assert_eq!(world.run(code).unwrap().register(RDX), Some(1), "it is not there");
}

/// movq (%rsi),%xmm0; movq (%rdi),%xmm1; punpcklqdq %xmm1,%xmm0; pshufd $0x4e,%xmm0,%xmm2; movq %xmm2,%rax;
/// psrldq $8,%xmm2; palignr $4,%xmm1,%xmm0; movq %xmm2,%rdx; movq %xmm0,%rcx
#[test]
fn words_of_vectors_are_rearranged() {
    let mut world = World::new();
    world.registers.general[RDI] = DATA + 100;
    let follower = world
        .run(
            "f3 0f 7e 06 f3 0f 7e 0f 66 0f 6c c1 66 0f 70 d0 4e 66 48 0f 7e d0 66 0f 73 da 08 66 0f 3a 0f c1 04 \
             66 48 0f 7e d2 66 48 0f 7e c1",
        )
        .unwrap();
    let (one, other) = (world.word(DATA), world.word(DATA + 100));
    assert_eq!([RAX, RDX, RCX].map(|at| follower.register(at)), [other, one, other >> 32].map(Some));
}

/// movbe (%rsi),%eax; andn %rbx,%rax,%rcx; blsmsk %ebx,%edx
#[test]
fn bits_are_changed_as_libc_does() {
    let mut world = World::new();
    world.registers.general[RBX] = 0x1234_5678;
    let follower = world.run("0f 38 f0 06 c4 e2 f8 f2 cb c4 e2 68 f3 d3").unwrap();
    let swapped = u64::from((world.word(DATA) as u32).swap_bytes());
    let expected = [swapped, !swapped & 0x1234_5678, 0xf];
    assert_eq!([RAX, RCX, RDX].map(|at| follower.register(at)), expected.map(Some));
}

/// comisd (%rsi),%xmm0; seta %al; movsd (%rsi),%xmm0; comisd (%rdi),%xmm0; seta %dl
#[test]
fn numbers_that_were_read_are_compared_and_no_others() {
    let code = "66 0f 2f 06 0f 97 c0 f2 0f 10 06 66 0f 2f 07 0f 97 c2";
    let greater = |one: f64, other: f64| {
        let mut world = World::new();
        world.set(DATA, &one.to_le_bytes());
        world.set(DATA + 26, &other.to_le_bytes());
        let follower = world.run(code).unwrap();
        assert_eq!(follower.register(RAX), None, "of the sample");
        follower.register(RDX)
    };
    assert_eq!([greater(1.5, -2.0), greater(-2.0, 1.5), greater(1.5, 1.5)], [Some(1), Some(0), Some(0)]);
    assert_eq!(greater(1.5, f64::NAN), Some(0));
    // A mode that samples do not have may take it for zero.
    assert_eq!(greater(f64::MIN_POSITIVE / 2.0, 0.0), None);
}

/// mov $20,%ecx; rep movsb; mov -20(%rdi),%rax
#[test]
fn short_copies_are_known() {
    let code = "b9 14 00 00 00 f3 a4 48 8b 47 ec";
    let mut world = World::new();
    world.registers.general[RDI] = DATA + 200;
    let follower = world.run(code).unwrap();
    assert_eq!([RAX, RCX, RSI].map(|at| follower.register(at)), [world.word(DATA), 0, DATA + 20].map(Some));
    // Each byte is a copy of the one before.
    world.registers.general[RDI] = DATA + 1;
    assert_eq!(world.run(code).unwrap().register(RAX), Some(u64::from_le_bytes([b'a'; 8])));
}

/// rep stosq
#[test]
fn long_fills_and_those_downwards_are_not_followed() {
    let mut world = World::new();
    let mut run = |words: u64, flags: u64| {
        (world.registers.general[RCX], world.registers.flags) = (words, flags);
        world.run("f3 48 ab").err()
    };
    assert_eq!([run(512, 0), run(513, 0)], [None, Some(GaveUp::Instruction)]);
    assert_eq!([run(0, 0), run(1, 1 << 10)], [None, Some(GaveUp::Instruction)]);
}

/// xrstor (%rdi)
#[test]
fn all_registers_at_once_are_not_followed() {
    assert_eq!(World::new().run("0f ae 2f").err(), Some(GaveUp::Instruction));
}
