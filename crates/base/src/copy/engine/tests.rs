use super::*;

const GUARD: usize = 64;
const MARK: u8 = 0xee;

/// Memory that begins a page, so that an offset determines the alignment.
struct Area {
    memory: Vec<u8>,
    start: usize,
}

impl Area {
    fn new(bytes: usize) -> Area {
        let memory = vec![MARK; bytes + 4096 + 2 * GUARD];
        let start = (memory.as_ptr() as usize + GUARD).next_multiple_of(4096);
        let start = start - memory.as_ptr() as usize;
        Area { memory, start }
    }

    fn fill(&mut self) {
        let bytes = self.memory[self.start..].iter_mut().enumerate();
        bytes.for_each(|(i, b)| *b = (i % 229) as u8);
    }
}

/// Checks one copy: the bytes arrive, and nothing else changes.
fn check(which: Loop, from: &Area, from_at: usize, to: &mut Area, to_at: usize, len: usize) {
    let (source, target) = (from.start + from_at, to.start + to_at);
    let source = &from.memory[source..source + len];
    let around = &mut to.memory[target - GUARD..target + len + GUARD];
    around.fill(MARK);
    let begin = around[GUARD..].as_mut_ptr();
    // SAFETY: both sides hold `len` bytes, and the loop is one of those available.
    unsafe { which.run(begin, source.as_ptr(), len) };
    let what = || format!("{}: {len} bytes from {from_at} to {to_at}", which.name());
    assert!(around[GUARD..GUARD + len] == *source, "{}", what());
    let mut outside = around[..GUARD].iter().chain(&around[GUARD + len..]);
    assert!(outside.all(|&b| b == MARK), "{} wrote elsewhere", what());
}

fn check_all(lengths: &[usize], offsets: &[(usize, usize)]) {
    let largest = lengths.iter().max().unwrap_or(&0) + 64;
    let (mut from, mut to) = (Area::new(largest), Area::new(largest));
    from.fill();
    for which in Loop::all_available() {
        for &len in lengths {
            for &(from_at, to_at) in offsets {
                check(which, &from, from_at, &mut to, to_at, len);
            }
        }
    }
}

/// Each alignment of one side, combined with three of the other.
fn some_offsets() -> Vec<(usize, usize)> {
    let pairs = (0..64).flat_map(|a| [0, 16, 37].map(|b| [(a, b), (b, a)]));
    pairs.flatten().collect()
}

#[test]
fn run__short_lengths_at_every_alignment_copy_just_that() {
    let lengths: Vec<usize> = (0..=300).collect();
    match cfg!(miri) {
        true => check_all(&[0, 1, 48, 49, 63, 64, 65, 127, 300], &[(0, 0), (1, 63)]),
        false => check_all(&lengths, &some_offsets()),
    }
}

#[test]
fn run__every_pair_of_alignments_copies_just_that() {
    let all: Vec<_> = (0..64).flat_map(|a| (0..64).map(move |b| (a, b))).collect();
    match cfg!(miri) {
        true => check_all(&[321], &[(5, 3)]),
        false => check_all(&[257, 700, 1023], &all),
    }
}

#[test]
fn run__long_lengths_copy_just_that() {
    let near = |n: usize| [n - 1, n, n + 1];
    let lengths = [512, 1024, 2048, 4096, 8192, 16_384, 65_536].map(near);
    let lengths: Vec<usize> = lengths.into_iter().flatten().chain([70_000]).collect();
    let offsets = [(0, 0), (0, 16), (16, 0), (1, 0), (0, 1), (63, 1), (17, 45)];
    match cfg!(miri) {
        true => check_all(&[1025], &offsets[..2]),
        false => check_all(&lengths, &offsets),
    }
}

#[test]
fn loops__have_names_of_their_own_and_the_usual_ones_are_among_them() {
    let all = Loop::all_available();
    let names: std::collections::BTreeSet<_> = all.iter().map(|l| l.name()).collect();
    assert_eq!(names.len(), all.len());
    assert!(all.contains(&Loop::usual()));
    assert_eq!(
        all.contains(&Loop::usual_streaming()),
        cfg!(all(target_arch = "x86_64", not(miri)))
    );
}

#[test]
fn streaming__prefetches_no_target() {
    for width in WIDTHS {
        let prefetch = Prefetch::Target;
        assert!(!Loop::Streaming { width, prefetch }.is_available());
    }
}
