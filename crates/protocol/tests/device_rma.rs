//! One-sided operations over a real adapter or a software adapter of the kernel, two ranks in one process.
//! `tests/vm/cases/rc.toml` names this test; `cargo test` alone skips it.
#![allow(unsafe_code, non_snake_case)]

mod common;

use common::*;
use fastpath_base::random::Random;
use fastpath_protocol::rma::{
    ANSWER_MOST, AccessPath, Ask, BufferState, ExposedMemory, HeldWord, RemoteKey, RmaError,
    TargetRequest,
};
use fastpath_transport::adapter::AdapterTransport;
use fastpath_transport::adapter::upgrade::Rule;
use std::time::{Duration, Instant};

/// Time after which a test counts as hung.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Returns whether to run the long version. The virtual machine's emulated processor is too slow for it.
fn is_long() -> bool {
    std::env::var_os("FASTPATH_TEST_LONG").is_some()
}

const BOTH: [(AdapterTransport, AccessPath); 2] =
    [(AdapterTransport::Rc, AccessPath::Adapter), (AdapterTransport::Ud, AccessPath::Messages)];

fn world(by: AdapterTransport) -> World {
    let device =
        std::env::var("FASTPATH_TEST_DEVICE").expect("FASTPATH_TEST_DEVICE names an adapter");
    World::on_adapter_by(2, by, &device)
}

/// Exposes memory of rank 1 to rank 0.
fn region(world: &mut World, memory: &mut [u8]) -> (RemoteKey, ExposedMemory) {
    // SAFETY: every caller keeps the memory longer than its world.
    let exposed = unsafe { world.rank(1).expose_memory(memory.as_mut_ptr(), memory.len()) };
    (world.rank(0).unpack_key(1, &exposed.key).unwrap(), exposed)
}

/// Returns the counters of both ranks and of the adapters of this host, for a report when a message is lost.
fn count_events(world: &World) -> String {
    let mut found = String::new();
    for worker in &world.workers {
        let counts = worker.interfaces().adapter_counts();
        let numbers: Vec<_> = counts.into_iter().flat_map(|of| of.numbers).collect();
        found += &format!("{:?}, {numbers:?}; ", worker.counters);
    }
    for device in ["rxe0", "rxe1"] {
        let folder = format!("/sys/class/infiniband/{device}/ports/1/hw_counters");
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let count = std::fs::read_to_string(entry.path()).unwrap_or_default();
            if !["", "0"].contains(&count.trim()) {
                let name = entry.file_name();
                found += &format!("{device} {} {}; ", name.display(), count.trim());
            }
        }
    }
    found
}

fn flush(world: &mut World) -> Result<(), RmaError> {
    let start = Instant::now();
    loop {
        match world.rank(0).progress_flush(1) {
            Ok(false) => world.progress(),
            ended => return ended.map(|_| ()),
        };
        assert!(start.elapsed() < WATCHDOG, "a flush never ends; counted: {}", count_events(world));
    }
}

fn put(
    world: &mut World, key: &mut RemoteKey, offset: usize, from: &[u8],
) -> Result<BufferState, RmaError> {
    // SAFETY: every caller keeps the bytes until it has flushed.
    unsafe { world.rank(0).put_nbi(key, offset as u64, from.as_ptr(), from.len()) }
}

fn get(
    world: &mut World, key: &mut RemoteKey, offset: usize, to: &mut [u8],
) -> Result<BufferState, RmaError> {
    // SAFETY: every caller keeps the bytes until it has flushed.
    unsafe { world.rank(0).get_nbi(key, offset as u64, to.as_mut_ptr(), to.len()) }
}

#[test]
fn bytes__of_every_size_go_there_and_come_back() {
    let most = if is_long() { 1_500_000 } else { 150_000 };
    for (by, way) in BOTH {
        let mut world = world(by);
        for len in [0, 1, 8, 219, 220, 221, 1000, 8192, 8193, 100_000, most] {
            let mut memory = pattern(1, len + 16);
            let (mut key, exposed) = region(&mut world, &mut memory);
            assert_eq!(key.way(), way);
            let sent = pattern(2, len);
            let _ = put(&mut world, &mut key, 5, &sent).unwrap();
            assert_eq!(flush(&mut world), Ok(()));
            let mut wanted = pattern(1, len + 16);
            wanted[5..5 + len].copy_from_slice(&sent);
            assert!(memory == wanted, "put of {len} by {by}");
            let mut got = vec![FILL; len + 10];
            let _ = get(&mut world, &mut key, 2, &mut got[..len + 5]).unwrap();
            assert_eq!(flush(&mut world), Ok(()));
            assert!(got[..len + 5] == wanted[2..len + 7], "get of {len} by {by}");
            assert!(got[len + 5..].iter().all(|&byte| byte == FILL));
            assert!(put(&mut world, &mut key, len + 16, &[1]).is_err());
            assert!(world.rank(1).withdraw_memory(exposed.id));
        }
    }
}

/// Maps new memory at `at`, in place of any memory that was there.
fn map_anew(at: usize, len: usize) -> &'static mut [u8] {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let at = std::ptr::with_exposed_provenance_mut::<u8>(at);
    // SAFETY: the kernel makes no mapping of its own at this address, and its previous contents are no longer used.
    unsafe {
        assert_eq!(libc::mmap(at.cast(), len, rights, flags, -1, 0), at.cast());
        std::slice::from_raw_parts_mut(at, len)
    }
}

#[test]
fn registrations__are_kept_and_never_of_other_memory() {
    const LEN: usize = 200_000;
    let counts = |world: &mut World| {
        let all = world.rank(0).interfaces().adapter_counts();
        let numbers: Vec<_> = all.iter().flat_map(|of| of.numbers.clone()).collect();
        let of = |wanted| numbers.iter().find(|(name, _)| *name == wanted).unwrap().1;
        (of("registrations_made"), of("registrations_changed"))
    };
    {
        let mut world = world(AdapterTransport::Rc);
        world.rank(0).interfaces().keep_registrations(1 << 30);
        let mut memory = vec![0; LEN];
        let (mut key, _) = region(&mut world, &mut memory);
        let (before, _) = counts(&mut world);
        for round in 0..48 {
            // Each mapping is used six times, and then replaced by another. The last two uses are so short that,
            // without a kept registration, they would go through buffers.
            let own = match round % 6 {
                0 => map_anew(0x2000_0000_0000, LEN),
                _ => {
                    let at = std::ptr::with_exposed_provenance_mut(0x2000_0000_0000);
                    // SAFETY: an earlier round has mapped the memory, which has no other user.
                    unsafe { std::slice::from_raw_parts_mut(at, LEN) }
                }
            };
            let own = if round % 6 > 3 { &mut own[..20_000] } else { own };
            let wanted = pattern(round, own.len());
            own.copy_from_slice(&wanted);
            if round % 2 == 0 {
                let _ = put(&mut world, &mut key, 0, own).unwrap();
                assert_eq!(flush(&mut world), Ok(()));
                assert!(memory[..own.len()] == wanted, "put of round {round}");
            } else {
                memory[..own.len()].copy_from_slice(&pattern(round + 100, own.len()));
                let _ = get(&mut world, &mut key, 0, own).unwrap();
                assert_eq!(flush(&mut world), Ok(()));
                assert!(own == pattern(round + 100, own.len()), "get of round {round}");
            }
        }
        let (made, changed) = counts(&mut world);
        assert!(changed >= 4, "{changed}");
        assert!(made - before <= 32, "{made} after {before}");
    }
}

#[test]
fn windows__of_256_are_there_after_a_flush() {
    for (by, _) in BOTH {
        let mut world = world(by);
        let mut memory = vec![0; 256 * 700];
        let (mut key, _) = region(&mut world, &mut memory);
        for len in [8, 700] {
            let sent = pattern(3, 256 * len);
            for (at, part) in sent.chunks(len).enumerate() {
                let _ = put(&mut world, &mut key, at * len, part).unwrap();
            }
            assert_eq!(flush(&mut world), Ok(()));
            assert!(memory[..sent.len()] == sent, "{len} by {by}");
            let mut got = vec![0; sent.len()];
            for (at, part) in got.chunks_mut(len).enumerate() {
                let _ = get(&mut world, &mut key, at * len, part).unwrap();
            }
            assert_eq!(flush(&mut world), Ok(()));
            assert!(got == sent, "{len} by {by}");
        }
    }
}

#[test]
fn operations__in_any_order_do_what_they_do_to_an_array() {
    const BYTES: usize = 30_000;
    for (by, _) in BOTH {
        let (mut world, mut random) = (world(by), Random::new(7));
        let mut words = vec![0_u64; BYTES / 8];
        let memory: *mut u8 = words.as_mut_ptr().cast();
        // SAFETY: the memory has no other user while the adapter writes it.
        let memory = unsafe { std::slice::from_raw_parts_mut(memory, BYTES) };
        let (mut key, _) = region(&mut world, memory);
        let mut model = vec![0; BYTES];
        for turn in 0..if is_long() { 150 } else { 50 } {
            let most = if random.chance(0.2) { BYTES / 2 } else { 300 };
            let len = random.below(most as u64) as usize;
            let at = random.below((BYTES - len) as u64) as usize;
            if random.chance(0.2) {
                let (at, add) = (at / 8 * 8 % (BYTES - 8), random.below(u64::MAX));
                let mut found = 0;
                // SAFETY: the result lives until the flush.
                let _ = unsafe {
                    let key = &mut key;
                    world.rank(0).fetch_add_nbi(key, at as u64, add, &raw mut found).unwrap()
                };
                assert_eq!(flush(&mut world), Ok(()));
                let was = u64::from_ne_bytes(model[at..at + 8].try_into().unwrap());
                assert_eq!(found, was, "{turn} by {by}");
                model[at..at + 8].copy_from_slice(&was.wrapping_add(add).to_ne_bytes());
            } else if random.chance(0.5) {
                let sent = pattern(turn, len);
                let _ = put(&mut world, &mut key, at, &sent).unwrap();
                // Write the same bytes again: writes of one rank keep their order.
                let last = pattern(turn + 1000, len / 2);
                let _ = put(&mut world, &mut key, at, &last).unwrap();
                model[at..at + len].copy_from_slice(&sent);
                model[at..at + len / 2].copy_from_slice(&last);
                assert_eq!(flush(&mut world), Ok(()));
            } else {
                let mut got = vec![FILL; len];
                let _ = get(&mut world, &mut key, at, &mut got).unwrap();
                assert_eq!(flush(&mut world), Ok(()));
                assert!(got == model[at..at + len], "{turn} by {by}");
            }
        }
        assert!(memory == model, "by {by}");
    }
}

#[test]
fn region__that_is_withdrawn_is_not_reached_any_more() {
    for (by, error) in
        [(AdapterTransport::Rc, RmaError::PeerGone), (AdapterTransport::Ud, RmaError::Withdrawn)]
    {
        let mut world = world(by);
        let mut memory = vec![0; 64];
        let (mut key, exposed) = region(&mut world, &mut memory);
        let _ = put(&mut world, &mut key, 0, &[1; 64]).unwrap();
        assert_eq!(flush(&mut world), Ok(()));
        assert!(world.rank(1).withdraw_memory(exposed.id));
        let _ = put(&mut world, &mut key, 0, &[2; 64]).unwrap();
        assert_eq!(flush(&mut world), Err(error), "by {by}");
        assert!(memory == [1; 64]);
    }
}

#[test]
fn peer__that_leaves_without_a_word_is_an_error_and_nothing_hangs() {
    for (by, _) in BOTH {
        let mut world = world(by);
        let mut memory = vec![0; 100_000];
        let (mut key, _) = region(&mut world, &mut memory);
        let _ = put(&mut world, &mut key, 0, &[1; 64]).unwrap();
        assert_eq!(flush(&mut world), Ok(()));
        use fastpath_segment::RankPhase;
        world.rank(1).job.set_phase(RankPhase::Initialized);
        world.rank(1).job.set_phase(RankPhase::Finalized);
        drop(world.workers.pop());
        let bytes = vec![2; 100_000];
        let start = Instant::now();
        let ended = put(&mut world, &mut key, 0, &bytes).and_then(|_| {
            loop {
                match world.rank(0).progress_flush(1) {
                    Ok(false) => world.rank(0).progress(),
                    ended => break ended,
                };
                assert!(start.elapsed() < WATCHDOG, "by {by}");
            }
        });
        assert_eq!(ended, Err(RmaError::PeerGone), "by {by}");
    }
}

/// Creates two ranks, one for each end of a wire. They get a connection after `messages` short messages.
fn upgrade_world(messages: u64) -> World {
    let names = std::env::var("MPI_TEST_DEVICES")
        .or_else(|_| std::env::var("FASTPATH_TEST_DEVICE"))
        .expect("FASTPATH_TEST_DEVICE names an adapter");
    let mut devices: Vec<&str> = names.split_whitespace().collect();
    devices.resize(2, devices[0]);
    let rule = Rule { connect_ns: messages * Rule::excess_ns(8), ..Rule::default() };
    World::on_adapters(&devices, AdapterTransport::Upgrading, rule)
}

/// Operations on one region, and their expected results.
struct Traffic {
    memory: Vec<u64>,
    sent: Vec<u64>,
    got: Vec<u64>,
    found: Vec<u64>,
}

/// Number of turns after which the rule gives a pair a connection.
const WORTH: usize = 30;
/// Number of turns that are posted at once, before the connection exists. A wire that loses and reorders messages
/// carries some hundred a second. If thousands of messages waited, a flush would exceed the watchdog.
const BACKLOG: usize = 200;
/// Rounds of progress between two turns after the [`BACKLOG`].
const ROUNDS: usize = 4096;

/// Words of the region: the first is incremented, the second is read, the others are written once each.
const WORDS: usize = 1 << 16;
const READ: u64 = 0x0123_4567_89ab_cdef;

impl Traffic {
    fn new() -> Self {
        let mut memory = vec![0; WORDS];
        memory[1] = READ;
        Traffic {
            memory,
            sent: (0..WORDS as u64).map(|word| !word).collect(),
            got: Vec::with_capacity(WORDS),
            found: Vec::with_capacity(WORDS),
        }
    }

    /// Posts a put, a get and an atomic without a flush.
    fn post(&mut self, world: &mut World, key: &mut RemoteKey) {
        let turn = self.got.len();
        let word = turn + 2;
        assert!(word < WORDS, "the pair never gets its connection");
        // Both vectors stay within their reserved capacity, so the posted addresses stay valid.
        self.got.push(0);
        self.found.push(u64::MAX);
        let put = self.sent[word..].as_ptr().cast();
        let (got, found) = (&raw mut self.got[turn], &raw mut self.found[turn]);
        // SAFETY: the buffers live until the last flush.
        unsafe {
            let worker = world.rank(0);
            let _ = worker.put_nbi(key, 8 * word as u64, put, 8).unwrap();
            let _ = worker.get_nbi(key, 8, got.cast(), 8).unwrap();
            let _ = worker.fetch_add_nbi(key, 0, 1, found).unwrap();
        }
    }

    /// Checks that every operation was performed exactly once.
    fn check(&mut self) {
        let turns = self.got.len();
        // SAFETY: the vector is valid. A new slice is made, because the adapter or the other rank wrote there.
        let memory = unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), WORDS) };
        assert_eq!(memory[0], turns as u64, "atomics");
        assert!(memory[2..turns + 2] == self.sent[2..turns + 2], "puts");
        assert!(memory[turns + 2..].iter().all(|&word| word == 0));
        assert!(self.got.iter().all(|&word| word == READ), "gets");
        let mut found = self.found.clone();
        found.sort_unstable();
        assert!(found.iter().copied().eq(0..turns as u64), "{found:?}");
    }
}

/// Puts, gets and atomics are posted before, during and after the change from datagrams to a connection. Each operation
/// is performed once, and flushes wait for it.
#[test]
fn upgrade__meanwhile_everything_is_done_once_and_flushes_are_true() {
    for flushes in [false, true] {
        let mut world = upgrade_world(60);
        let mut traffic = Traffic::new();
        let memory: *mut u8 = traffic.memory.as_mut_ptr().cast();
        // SAFETY: the memory has no other user while operations are under way.
        let memory = unsafe { std::slice::from_raw_parts_mut(memory, 8 * WORDS) };
        let (mut key, _) = region(&mut world, memory);
        // Complete the wire-up of the datagrams before turns are counted.
        traffic.post(&mut world, &mut key);
        assert_eq!(flush(&mut world), Ok(()));
        assert_eq!((key.way(), world.rank(0).is_connecting()), (AccessPath::Messages, false));
        let (mut before, mut meanwhile, mut rounds) = (0, 0, 0);
        let start = Instant::now();
        while key.way() == AccessPath::Messages {
            let connecting = world.rank(0).is_connecting();
            let most = if connecting { BACKLOG } else { WORTH };
            rounds += 1;
            if flushes || traffic.got.len() < most || rounds % ROUNDS == 0 {
                traffic.post(&mut world, &mut key);
                match connecting {
                    true => meanwhile += 1,
                    false => before += 1,
                }
            }
            world.progress();
            if flushes {
                assert_eq!(flush(&mut world), Ok(()));
                traffic.check();
            }
            assert!(start.elapsed() < WATCHDOG, "no connection");
        }
        for _ in 0..20 {
            traffic.post(&mut world, &mut key);
        }
        assert_eq!(flush(&mut world), Ok(()));
        assert_eq!(key.way(), AccessPath::Adapter);
        traffic.check();
        println!("{before} before, {meanwhile} meanwhile");
        assert!(before > 10 && (meanwhile > 0 || flushes));
    }
}

/// Adds the operand to `len` bytes, and writes their previous values to `data`.
unsafe fn add_bytes(_: u64, data: *mut u8, memory: *mut u8, len: usize) -> bool {
    for at in 0..len {
        // SAFETY: both have `len` bytes.
        unsafe {
            let (before, operand) = (memory.add(at).read(), data.add(at).read());
            memory.add(at).write(before.wrapping_add(operand));
            data.add(at).write(before);
        }
    }
    true
}

#[test]
fn change__is_one_question_over_an_adapter() {
    for (by, way) in BOTH {
        let mut world = world(by);
        let (mut words, mut memory) = ([0_u64; 2], pattern(1, 1000));
        let at = words.as_mut_ptr().cast();
        // SAFETY: the words have no other user while the world lives.
        let lock = unsafe { std::slice::from_raw_parts_mut(at, 16) };
        let (lock, _) = region(&mut world, lock);
        let (mut key, _) = region(&mut world, &mut memory);
        world.rank(1).rma.change = add_bytes;
        assert_eq!(key.way(), way);
        // The first transfer connects, and its bytes arrive before the change.
        let _ = put(&mut world, &mut key, 100, &[7; 8]).unwrap();
        assert_eq!(flush(&mut world), Ok(()));
        let served = world.rank(1).rma.counters.served;
        let (given, mut answer) = (pattern(2, 8), [0; ANSWER_MOST]);
        let (given, taken) = ((given.as_ptr(), 8), (answer[8..].as_mut_ptr(), 8));
        let asking = TargetRequest { ask: Ask::Change(7), offset: 100, len: 8, given, taken };
        let word = HeldWord { key: &lock, offset: 8 };
        // SAFETY: given bytes and answer live until the flush.
        let asked = unsafe {
            world.rank(0).change_nbi(&mut key, &word, &asking, answer.as_mut_ptr()).unwrap()
        };
        assert_eq!((asked, flush(&mut world)), (true, Ok(())));
        assert_eq!(world.rank(1).rma.counters.served - served, 1, "by {by}");
        assert_eq!((&answer[8..16], answer[..8] != [0; 8]), (&[7; 8][..], true));
        let after: Vec<u8> = pattern(2, 8).into_iter().map(|byte| byte.wrapping_add(7)).collect();
        assert_eq!(memory[100..108], after, "by {by}");
    }
}
