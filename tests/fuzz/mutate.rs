//! Random changes of valid inputs, for tests of parsers of untrusted input. The tests `fuzz__*` of the crates include
//! this file; `make fuzz` runs them with other seeds until its time limit. Equal seeds give equal inputs.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Number of inputs of one run without FUZZ_SEED, as in `make test`.
const ROUNDS: u32 = 4000;
/// Number of inputs of one run with FUZZ_SEED, as in `make fuzz`. With seed 1 it begins with those of a run without it.
const ROUNDS_SEEDED: u32 = 20_000;
/// Size from which an input is no longer lengthened, in bytes.
const MOST: usize = 4096;

/// A generator of random numbers (xorshift*, Vigna 2016).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() >> 16) as usize % end.max(1)
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// Value of FUZZ_SEED; None if it is unset or no number.
fn given_seed() -> Option<u64> {
    std::env::var("FUZZ_SEED").ok()?.parse().ok()
}

/// The seed: FUZZ_SEED, or 1.
pub fn seed() -> u64 {
    given_seed().unwrap_or(1)
}

/// Tokens that are often boundary cases of integers, texts and paths.
const TOKENS: &[&[u8]] = &[
    b"0",
    b"1",
    b"-1",
    b"255",
    b"256",
    b"65535",
    b"65536",
    b"2147483647",
    b"2147483648",
    b"4294967295",
    b"4294967296",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"1e999",
    b"nan",
    b"inf",
    b".",
    b"..",
    b"-",
    b"--",
    b":",
    b",",
    b"=",
    b" ",
    b"\n",
    b"\t",
    b"\0",
    b"/",
    b"%s%n",
    b"K",
    b"KiB",
    b"us",
    b"\xff\xfe",
    b"\xc2\xb5",
    b"\xe2\x82",
    b"0x10",
    b"max",
];

/// Changes `input` in a few places, also by parts of the inputs in `corpus`.
pub fn mutate(random: &mut Random, input: &mut Vec<u8>, corpus: &[&[u8]]) {
    for _ in 0..=random.below(5) {
        let at = random.below(input.len() + 1);
        let end = at + random.below(input.len() - at + 1);
        match random.below(9) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.next() as u8,
            2 => {
                input.drain(at..end);
            }
            3 => input.truncate(at),
            4 if input.len() < MOST => {
                let again = input[at..end].to_vec();
                input.splice(at..at, again);
            }
            5 | 6 if input.len() < MOST => {
                input.splice(at..at, random.pick(TOKENS).iter().copied());
            }
            7 => {
                input.splice(at..end, random.pick(TOKENS).iter().copied());
            }
            _ => {
                let other = random.pick(corpus);
                let from = random.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
}

/// Calls `check` with the inputs of `corpus`, and with many random changes of them. If it panics, prints the seed and
/// the input, and passes the panic on.
pub fn run(corpus: &[&[u8]], mut check: impl FnMut(&[u8])) {
    let seed = seed();
    let mut random = Random::new(seed);
    let rounds = if given_seed().is_some() { ROUNDS_SEEDED } else { ROUNDS };
    for round in 0..rounds {
        let mut input = corpus[round as usize % corpus.len()].to_vec();
        if round as usize >= corpus.len() {
            mutate(&mut random, &mut input, corpus);
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(&input))) {
            eprintln!("FUZZ_SEED={seed}, round {round}: \"{}\"", input.escape_ascii());
            resume_unwind(panic);
        }
    }
}
