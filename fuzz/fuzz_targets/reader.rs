//! The entry of a fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    numatop_ng_fuzz::reader::read(input);
});
