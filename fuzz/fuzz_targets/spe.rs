//! The function that the fuzzer calls.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    numatop_ng_fuzz::spe::read(input);
});
