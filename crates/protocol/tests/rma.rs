//! One-sided operations by every access path: results, errors, resolution of keys, and progress.
#![allow(unsafe_code, non_snake_case)]

mod common;
#[path = "common/rma.rs"]
mod remote;

use common::*;
use fastpath_protocol::Worker;
use fastpath_protocol::rma::{
    ANSWER_MOST, AccessPath, Ask, BufferState, HeldWord, RemoteBlock, RemoteKey, RmaError,
    TargetRequest,
};
use fastpath_segment::RankPhase;
use fastpath_transport::sim::Conditions;
use remote::{bad_network, flush, get, put, region, with_fragments};

/// Returns a world for each access path, with memory that uses this path.
fn worlds() -> Vec<(World, bool, AccessPath)> {
    let direct = Conditions { get: true, ..Conditions::default() };
    vec![
        (World::shared(2), true, AccessPath::LoadStore),
        (World::shared_with(2, false, true), false, AccessPath::Messages),
        (World::new(2, direct), false, AccessPath::Kernel),
        (World::new(2, Conditions::default()), false, AccessPath::Messages),
        (with_fragments(World::new(2, bad_network(3)), 500), false, AccessPath::Messages),
    ]
}

#[test]
fn bytes__of_every_size_go_there_and_come_back_in_every_way() {
    for (mut world, arena, way) in worlds() {
        for len in [0, 1, 7, 8, 31, 32, 33, 48, 49, 1000, 8192, 100_000] {
            let mut region = region(&mut world, len + 16, 3, arena);
            assert_eq!(region.key.way(), way);
            region.fill(&pattern(1, len + 16));
            let sent = pattern(2, len);
            let _ = put(&mut world, &mut region.key, 5, &sent).unwrap();
            assert_eq!(flush(&mut world), Ok(()));
            let mut wanted = pattern(1, len + 16);
            wanted[5..5 + len].copy_from_slice(&sent);
            assert!(region.bytes() == wanted, "put of {len}, {way:?}");
            let mut got = vec![FILL; len + 10];
            let _ = get(&mut world, &mut region.key, 2, &mut got[..len + 5]).unwrap();
            assert_eq!(flush(&mut world), Ok(()));
            assert!(got[..len + 5] == wanted[2..len + 7], "get of {len}, {way:?}");
            assert!(got[len + 5..].iter().all(|&byte| byte == FILL));
        }
    }
}

#[test]
fn report__says_the_way_that_a_key_is_resolved_to() {
    let mut world = World::shared(2);
    for (memory, arena) in [("memory from MPI_Alloc_mem", true), ("private memory", false)] {
        let way = region(&mut world, 100, 8, arena).key.way();
        let report = world.rank(0).report(0);
        let mut classes = report.classes.iter();
        let class = classes.find(|c| (c.peer, c.memory) == ("ranks on this node", memory));
        let said = &class.unwrap().one_sided[0];
        assert_eq!((said.way, memory), (way.name(), memory));
    }
}

#[test]
fn bytes__outside_of_the_region_are_refused_and_nothing_is_written() {
    for (mut world, arena, way) in worlds() {
        let mut region = region(&mut world, 100, 8, arena);
        let before = pattern(4, 100);
        region.fill(&before);
        let mut buffer = [FILL; 101];
        for (offset, len) in
            [(0, 101), (1, 100), (100, 1), (101, 0), (u64::MAX, 1), (u64::MAX - 50, 100)]
        {
            let outside = Err(RmaError::OutOfBounds { offset, len: len as u64, size: 100 });
            assert_eq!(
                put(&mut world, &mut region.key, offset, &buffer[..len]),
                outside,
                "{way:?}"
            );
            assert_eq!(get(&mut world, &mut region.key, offset, &mut buffer[..len]), outside);
        }
        let huge = usize::MAX;
        // SAFETY: the put is refused before it uses the pointer.
        let refused = unsafe { world.rank(0).put_nbi(&mut region.key, 50, buffer.as_ptr(), huge) };
        assert!(matches!(refused, Err(RmaError::OutOfBounds { .. })));
        for (offset, why) in [(93, false), (100, false), (u64::MAX - 3, false), (4, true)] {
            let mut found = 7;
            // SAFETY: the operation is refused before it writes to `found`.
            let refused =
                unsafe { world.rank(0).fetch_add_nbi(&mut region.key, offset, 1, &raw mut found) };
            assert_eq!(refused == Err(RmaError::Misaligned), why, "{offset} {way:?}");
            assert!(refused.is_err() && found == 7);
        }
        assert_eq!(flush(&mut world), Ok(()));
        assert!(region.bytes() == before && buffer == [FILL; 101]);
    }
}

/// Maps slightly more than 2 GiB of address space over a few pages of memory, which repeat.
fn repeated(len: usize) -> *mut u8 {
    const PIECE: usize = 8 << 20;
    // SAFETY: the calls map a new file without a name inside an address range that this function owns.
    unsafe {
        let file = libc::memfd_create(c"repeated".as_ptr(), libc::MFD_CLOEXEC);
        assert!(file >= 0 && libc::ftruncate(file, PIECE as i64) == 0);
        let whole = len.next_multiple_of(PIECE);
        let start = fastpath_base::memory::reserve(whole).unwrap();
        let (access, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
        for at in (0..whole).step_by(PIECE) {
            let piece = libc::mmap(start.add(at).cast(), PIECE, access, flags, file, 0);
            assert!(piece != libc::MAP_FAILED);
        }
        libc::close(file);
        start
    }
}

/// The length exceeds a system call's limit, 2^31, and 32 bits.
#[test]
fn bytes__more_than_two_to_the_31_go_at_once() {
    const LEN: usize = (1 << 31) + 100_000;
    let direct = Conditions { get: true, ..Conditions::default() };
    for mut world in [World::new(2, direct), World::shared(2)] {
        let [theirs, own] = [repeated(LEN), repeated(LEN)];
        // SAFETY: both ranges are mapped, and the last writes of each piece are the same.
        unsafe {
            own.copy_from(pattern(1, 50_000).as_ptr(), 50_000);
            let exposed = world.rank(1).expose_memory(theirs, LEN);
            let mut key = world.rank(0).unpack_key(1, &exposed.key).unwrap();
            let posted = world.rank(0).put_nbi(&mut key, 0, own, LEN).unwrap();
            if key.way() == AccessPath::Messages {
                eprintln!("the kernel refuses to copy: {posted:?} by messages");
            }
            assert_eq!(flush(&mut world), Ok(()));
            let there = std::slice::from_raw_parts(theirs.add(LEN - 100_000), 100_000);
            assert!(there == std::slice::from_raw_parts(own, 100_000));
            let mut got = [0; 100];
            let from = LEN as u64 - 100_000;
            let _ = get(&mut world, &mut key, from, &mut got).unwrap();
            assert_eq!((flush(&mut world), &got[..]), (Ok(()), &pattern(1, 100)[..]));
        }
    }
}

#[test]
fn atomics__from_any_rank__count_and_swap() {
    for (mut world, arena, way) in worlds() {
        let mut theirs = region(&mut world, 24, 0, arena);
        theirs.fill(&[0; 24]);
        let mut own = world.rank(1).unpack_key(1, &theirs.exposed.key).unwrap();
        let mut found = [u64::MAX; 40];
        for (i, found) in found.iter_mut().enumerate() {
            let rank = i as u32 % 2;
            let key = if rank == 0 { &mut theirs.key } else { &mut own };
            // SAFETY: the results live until the flush.
            let _ = unsafe { world.rank(rank).fetch_add_nbi(key, 8, 3, found).unwrap() };
        }
        assert_eq!(flush(&mut world), Ok(()));
        found.sort();
        let wanted: Vec<u64> = (0..40).map(|i| 3 * i).collect();
        assert_eq!(found.to_vec(), wanted, "{way:?}");
        for (compare, swap, was) in [(120, 7, 120), (120, 8, 7), (7, u64::MAX, 7)] {
            let mut found = 0;
            // SAFETY: the results live until the flush.
            let _ = unsafe {
                let key = &mut theirs.key;
                world.rank(0).compare_swap_nbi(key, 8, compare, swap, &raw mut found).unwrap()
            };
            assert_eq!((flush(&mut world), found), (Ok(()), was));
        }
        let mut wanted = [0; 24];
        wanted[8..16].fill(0xff);
        assert_eq!(theirs.bytes(), wanted);
    }
}

/// Adds the operand to `len` bytes, and writes their previous values to `data`. It knows only change 7.
unsafe fn add_bytes(change: u64, data: *mut u8, memory: *mut u8, len: usize) -> bool {
    for at in 0..if change == 7 { len } else { 0 } {
        // SAFETY: both have `len` bytes.
        unsafe {
            let (before, operand) = (memory.add(at).read(), data.add(at).read());
            memory.add(at).write(before.wrapping_add(operand));
            data.add(at).write(before);
        }
    }
    change == 7
}

#[test]
fn change__is_one_question_to_its_owner_who_makes_it_if_its_word_is_free() {
    for (mut world, arena, way) in worlds() {
        let mut memory = region(&mut world, 4000, 0, arena);
        let lock = region(&mut world, 16, 0, arena);
        world.rank(1).rma.change = add_bytes;
        // The first transfer connects.
        let _ = put(&mut world, &mut memory.key, 0, &[0; 4000]).unwrap();
        assert_eq!(flush(&mut world), Ok(()));
        let given = pattern(5, 4000);
        for (change, held, len, taken, wanted) in [
            (7, 0_u64, 8, 8, Ok(Some(true))),
            (7, 0, 3, 0, Ok(Some(true))),
            (7, 0, 3500, 0, Ok(Some(true))),
            (7, 1, 8, 8, Ok(Some(false))),
            (8, 0, 8, 0, Err(RmaError::Withdrawn)),
            (7, 0, 8, 8, Ok(Some(true))),
            (7, 0, 4000, 25, Ok(None)),
        ] {
            memory.fill(&pattern(6, 4000));
            lock.fill(&[[0; 8], held.to_ne_bytes()].concat());
            let mut answer = [0; ANSWER_MOST];
            let (given, to) = ((given.as_ptr(), len), answer[8..].as_mut_ptr());
            let asking = TargetRequest {
                ask: Ask::Change(change),
                offset: 100,
                len: len.min(3900),
                given,
                taken: (to, taken),
            };
            let served = world.rank(1).rma.counters.served;
            let word = HeldWord { key: &lock.key, offset: 8 };
            let (rank, key) = (world.rank(0), &mut memory.key);
            // SAFETY: given bytes and answer live until the flush.
            let asked = unsafe { rank.change_nbi(key, &word, &asking, answer.as_mut_ptr()) };
            let asked = asked.unwrap();
            let flushed = flush(&mut world);
            let outcome = flushed.map(|()| asked.then_some(answer[0] != 0));
            let wanted = if way == AccessPath::Messages { wanted } else { Ok(None) };
            assert_eq!(outcome, wanted, "{len} {way:?}");
            let questions = world.rank(1).rma.counters.served - served;
            assert_eq!(questions, u64::from(wanted != Ok(None)), "{len} {way:?}");
            let mut bytes = pattern(6, 4000);
            if outcome == Ok(Some(true)) {
                assert_eq!(answer[8..8 + taken], bytes[100..100 + taken]);
                let changed = bytes[100..].iter_mut().zip(pattern(5, 4000)).take(len);
                changed.for_each(|(byte, more)| *byte = byte.wrapping_add(more));
            }
            assert!(memory.bytes() == bytes, "{len} {way:?}");
            assert_eq!(lock.bytes()[8..], held.to_ne_bytes());
        }
    }
}

#[test]
fn key__is_resolved_once_and_again_when_a_lane_has_changed() {
    let mut world = World::new(3, Conditions::default());
    let mut region = region(&mut world, 64, 0, false);
    let resolved = |world: &mut World| world.rank(0).rma.counters.resolved;
    assert_eq!(resolved(&mut world), 1);
    for i in 0..10 {
        let _ = put(&mut world, &mut region.key, i, &[i as u8]).unwrap();
    }
    assert_eq!((flush(&mut world), resolved(&mut world)), (Ok(()), 1));
    // A send to another rank makes a new lane.
    let sending = world.send(0, 2, 1, b"x");
    for i in 0..10 {
        let _ = put(&mut world, &mut region.key, 10 + i, &[10 + i as u8]).unwrap();
    }
    assert_eq!((flush(&mut world), resolved(&mut world)), (Ok(()), 2));
    let wanted: Vec<u8> = (0..20).collect();
    assert_eq!(region.bytes()[..20], wanted);
    let receiving = world.recv(2, 0, 1, 1);
    world.finish_recv(receiving);
    world.finish_send(sending);
}

#[test]
fn reductions__cost_when_they_are_switched_off_what_they_save() {
    let conditions = Conditions { wireup: true, ..Conditions::default() };
    let mut world = World::new(2, conditions);
    let mut theirs = region(&mut world, 64, 0, false);
    let exchange = |world: &mut World, key: &mut RemoteKey| {
        for i in 0..10 {
            let _ = put(world, key, i, &[i as u8; 8]).unwrap();
            assert_eq!(flush(world), Ok(()));
        }
        world.settle();
        let resolved = world.rank(0).rma.counters.resolved;
        (resolved, world.network.wireup_polls(0))
    };
    exchange(&mut world, &mut theirs.key);
    let (resolved, polls) = exchange(&mut world, &mut theirs.key);
    assert_eq!(exchange(&mut world, &mut theirs.key), (resolved, polls));
    world.rank(0).rma.resolves_once = false;
    let mut key = world.rank(0).unpack_key(1, &theirs.exposed.key).unwrap();
    assert_eq!(exchange(&mut world, &mut key), (resolved + 11, polls));
    world.rank(0).rma.gates_wireup = false;
    let (_, more) = exchange(&mut world, &mut theirs.key);
    assert!(more >= polls + 10, "{polls} {more}");
    assert!(world.rank(0).rma.counters.idle_wireup_polls >= 10);
}

#[test]
fn operations__are_queued_only_where_there_is_no_room_or_no_connection() {
    let queued = |world: &mut World| world.rank(0).rma.counters.queued;
    let mut world = World::new(2, Conditions::default());
    let mut near = region(&mut world, 4096, 0, false);
    let bytes = pattern(1, 4096);
    for i in 0..64 {
        let part = &bytes[64 * i..64 * (i + 1)];
        assert_eq!(put(&mut world, &mut near.key, 64 * i as u64, part), Ok(BufferState::Done));
    }
    assert_eq!((flush(&mut world), queued(&mut world)), (Ok(()), 0));
    assert!(near.bytes() == bytes);
    // A larger put is not complete at once: its rest is queued, and so are later operations.
    let mut far = region(&mut world, 1 << 20, 0, false);
    world.workers[0].planner.thresholds.fragment = 1000;
    let many = pattern(2, 1 << 20);
    assert_eq!(put(&mut world, &mut far.key, 0, &many), Ok(BufferState::Pending));
    assert_eq!(put(&mut world, &mut far.key, 3, &[9]), Ok(BufferState::Pending));
    assert_eq!((flush(&mut world), queued(&mut world)), (Ok(()), 2));
    let mut wanted = many.clone();
    wanted[3] = 9;
    assert!(far.bytes() == wanted);
    // Without a connection all operations are queued in order.
    let conditions = Conditions { wireup: true, ..Conditions::default() };
    let mut world = World::new(2, conditions);
    let mut region = region(&mut world, 8, 0, false);
    for i in 0..5 {
        assert_eq!(put(&mut world, &mut region.key, 0, &[i; 8]), Ok(BufferState::Pending));
    }
    assert_eq!((flush(&mut world), queued(&mut world)), (Ok(()), 5));
    assert_eq!(region.bytes(), [4; 8]);
}

#[test]
fn region__that_is_withdrawn_is_an_error_of_the_flush_alone() {
    let mut world = World::new(2, Conditions::default());
    let mut gone = region(&mut world, 64, 0, false);
    let mut there = region(&mut world, 64, 0, false);
    assert!(world.rank(1).withdraw_memory(gone.exposed.id));
    let mut got = [FILL; 64];
    for kind in 0..3 {
        let posted = match kind {
            0 => put(&mut world, &mut gone.key, 0, &[1; 64]),
            1 => get(&mut world, &mut gone.key, 0, &mut got),
            // SAFETY: the buffer lives until the flush.
            _ => unsafe {
                let to = got.as_mut_ptr().cast();
                world.rank(0).fetch_add_nbi(&mut gone.key, 0, 1, to)
            },
        };
        assert!(posted.is_ok());
        assert_eq!(flush(&mut world), Err(RmaError::Withdrawn), "{kind}");
        assert_eq!(flush(&mut world), Ok(()));
    }
    assert!(gone.bytes() == [0; 64] && got == [FILL; 64]);
    let _ = put(&mut world, &mut there.key, 0, &[2; 64]).unwrap();
    assert_eq!((flush(&mut world), there.bytes()), (Ok(()), vec![2; 64]));
    let own = world.rank(1).unpack_key(1, &gone.exposed.key);
    assert!(matches!(own, Err(RmaError::Withdrawn)));
    assert_eq!(world.rank(0).counters.violations, 0);
}

#[test]
fn peer__that_leaves_ends_what_is_under_way_to_it() {
    for wireup in [false, true] {
        let conditions = Conditions { wireup, slots: 4, ..Conditions::default() };
        let mut world = with_fragments(World::new(2, conditions), 100);
        let mut region = region(&mut world, 10_000, 0, false);
        let bytes = pattern(1, 10_000);
        let mut got = vec![0; 10_000];
        let _ = put(&mut world, &mut region.key, 0, &bytes).unwrap();
        let _ = get(&mut world, &mut region.key, 0, &mut got).unwrap();
        world.network.leave(1);
        assert_eq!(flush(&mut world), Err(RmaError::PeerGone), "{wireup}");
        assert!(world.rank(0).is_idle());
    }
    // In shared memory, the owner's phase shows that it has finalized.
    let mut world = World::shared_with(2, false, true);
    let mut region = region(&mut world, 64, 0, false);
    let _ = put(&mut world, &mut region.key, 0, &[1; 64]).unwrap();
    world.rank(1).job.set_phase(RankPhase::Initialized);
    world.rank(1).job.set_phase(RankPhase::Finalized);
    let mut outcome = Ok(false);
    for _ in 0..1000 {
        outcome = world.rank(0).progress_flush(1);
        if outcome != Ok(false) {
            break;
        }
        world.rank(0).progress();
    }
    assert_eq!(outcome, Err(RmaError::PeerGone));
}

#[test]
fn blocking__operations_are_done_when_they_return() {
    let mut world = World::shared(2);
    let mut region = region(&mut world, 64, 0, true);
    let worker: *mut Worker = world.rank(0);
    let mut got = [0_u8; 8];
    // SAFETY: the worker and the buffers live until the call returns.
    unsafe {
        Worker::put(worker, &mut region.key, 8, [7; 8].as_ptr(), 8).unwrap();
        Worker::get(worker, &mut region.key, 8, got.as_mut_ptr(), 8).unwrap();
        let was = Worker::fetch_add(worker, &mut region.key, 8, 1);
        assert_eq!((was, got), (Ok(u64::from_ne_bytes([7; 8])), [7; 8]));
        let (was, next) = (was.unwrap() + 1, 5);
        assert_eq!(Worker::compare_swap(worker, &mut region.key, 8, was, next), Ok(was));
        assert_eq!(Worker::compare_swap(worker, &mut region.key, 8, was, next), Ok(next));
        assert_eq!(Worker::flush(worker, 1), Ok(()));
        assert_eq!(Worker::fence(worker), Ok(()));
        assert_eq!(Worker::flush_all(worker), Ok(()));
        let outside = Worker::put(worker, &mut region.key, 60, [7; 8].as_ptr(), 8);
        assert!(matches!(outside, Err(RmaError::OutOfBounds { .. })));
    }
    let mut wanted = [0; 64];
    wanted[8] = 5;
    assert_eq!(region.bytes(), wanted);
}

/// The owner of the memory runs in another thread, and only makes progress.
#[test]
fn blocking__operations_wait_for_an_owner_that_carries_them_out() {
    let mut world = World::shared_with(2, false, true);
    let mut theirs = region(&mut world, 1 << 20, 0, false);
    assert_eq!(theirs.key.way(), AccessPath::Messages);
    struct Owner(*mut Worker);
    // SAFETY: only that thread uses the worker while it runs.
    unsafe impl Send for Owner {}
    let workers = world.workers.as_mut_ptr();
    let (worker, owner) = (workers, Owner(workers.wrapping_add(1)));
    let done = fastpath_base::sync::AtomicU32::new(0);
    let bytes = pattern(5, 1 << 20);
    let mut got = vec![0; 1 << 20];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let owner = owner;
            while done.load(fastpath_base::sync::Ordering::Relaxed) == 0 {
                // SAFETY: the pointer is valid until the scope ends.
                unsafe { (*owner.0).progress() };
                fastpath_base::wait::yield_now();
            }
        });
        // SAFETY: only this thread uses the worker, and the buffers live until the call returns.
        unsafe {
            let key = &mut theirs.key;
            Worker::put(worker, key, 0, bytes.as_ptr(), bytes.len()).unwrap();
            Worker::flush(worker, 1).unwrap();
            Worker::get(worker, key, 0, got.as_mut_ptr(), got.len()).unwrap();
            for i in 0..100 {
                let was = Worker::fetch_add(worker, key, 0, 1).unwrap();
                let first = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
                assert_eq!(was, first.wrapping_add(i));
            }
            Worker::fence(worker).unwrap();
        }
        done.store(1, fastpath_base::sync::Ordering::Relaxed);
    });
    assert!(got == bytes);
    assert!(theirs.bytes()[8..] == bytes[8..]);
}

/// Returns blocks in 3,000 bytes: in ascending order with gaps, then before these, in one place and long.
fn blocks() -> Vec<RemoteBlock> {
    let ascending =
        (0..40).map(|index| RemoteBlock { offset: 200 + 24 * index, len: index % 7 + 1 });
    let others = [(0, 4), (100, 1), (2000, 900), (1990, 10)];
    ascending.chain(others.map(|(offset, len)| RemoteBlock { offset, len })).collect()
}

#[test]
fn blocks__of_a_region_are_written_and_read_by_every_path() {
    for (mut world, arena, way) in worlds() {
        let mut region = region(&mut world, 3000, 3, arena);
        let blocks = blocks();
        let (before, sent) = (pattern(1, 3000), pattern(2, RemoteBlock::total(&blocks) as usize));
        region.fill(&before);
        let mut wanted = before.clone();
        let mut done = 0;
        for block in &blocks {
            let (at, len) = (block.offset as usize, block.len as usize);
            wanted[at..at + len].copy_from_slice(&sent[done..done + len]);
            done += len;
        }
        let key = &mut region.key;
        // SAFETY: `sent` lives until the flush.
        let put = unsafe { world.rank(0).put_blocks_nbi(key, None, sent.as_ptr(), &blocks) };
        assert!(put.is_ok(), "{put:?}");
        assert_eq!(flush(&mut world), Ok(()));
        assert!(region.bytes() == wanted, "put, {way:?}");
        let mut got = vec![FILL; sent.len() + 8];
        // SAFETY: `got` lives until the flush.
        let read =
            unsafe { world.rank(0).get_blocks_nbi(&mut region.key, got.as_mut_ptr(), &blocks) };
        assert!(read.is_ok(), "{read:?}");
        assert_eq!(flush(&mut world), Ok(()));
        assert!(got[..sent.len()] == sent[..], "get, {way:?}");
        assert!(got[sent.len()..].iter().all(|&byte| byte == FILL));
    }
}

#[test]
fn blocks__outside_of_the_region__are_refused_and_nothing_is_written() {
    for (mut world, arena, way) in worlds() {
        let mut region = region(&mut world, 100, 8, arena);
        let before = pattern(4, 100);
        region.fill(&before);
        let blocks = [RemoteBlock { offset: 0, len: 4 }, RemoteBlock { offset: 97, len: 4 }];
        let sent = [FILL; 8];
        // SAFETY: nothing is posted.
        let put =
            unsafe { world.rank(0).put_blocks_nbi(&mut region.key, None, sent.as_ptr(), &blocks) };
        assert_eq!(put, Err(RmaError::OutOfBounds { offset: 97, len: 4, size: 100 }), "{way:?}");
        assert_eq!(flush(&mut world), Ok(()));
        assert!(region.bytes() == before);
    }
}

/// One message has room, the others wait. None of them writes to the buffer after the error.
#[test]
fn blocks__of_a_peer_that_leaves__end_in_an_error() {
    let mut world = World::new(2, Conditions { slots: 1, ..Conditions::default() });
    let mut region = region(&mut world, 64 << 10, 8, false);
    region.fill(&pattern(1, 64 << 10));
    let block = |index: u64| RemoteBlock { offset: 4096 * index, len: 4000 };
    let blocks: Vec<RemoteBlock> = (0..16).map(block).collect();
    let mut buffer = vec![FILL; 64_000];
    let key = &mut region.key;
    // SAFETY: `buffer` lives until the end.
    let got = unsafe { world.rank(0).get_blocks_nbi(key, buffer.as_mut_ptr(), &blocks) };
    assert_eq!(got, Ok(BufferState::Pending));
    world.network.leave(1);
    assert_eq!(flush(&mut world), Err(RmaError::PeerGone));
    world.rank(1).progress();
    world.rank(0).progress();
    assert!(buffer.iter().all(|&byte| byte == FILL));
    assert!(world.rank(0).is_idle());
}

/// A thousand blocks of 4 bytes take few messages.
#[test]
fn blocks__by_messages__share_messages() {
    let mut world = World::new(2, Conditions::default());
    let mut region = region(&mut world, 16 << 10, 8, false);
    assert_eq!(region.key.way(), AccessPath::Messages);
    let blocks: Vec<RemoteBlock> =
        (0..1000).map(|index| RemoteBlock { offset: 16 * index, len: 4 }).collect();
    let mut buffer = pattern(5, 4000);
    // SAFETY: `buffer` lives until the flush.
    let put =
        unsafe { world.rank(0).put_blocks_nbi(&mut region.key, None, buffer.as_ptr(), &blocks) };
    assert!(put.is_ok());
    assert_eq!(flush(&mut world), Ok(()));
    // SAFETY: `buffer` lives until the flush.
    let got =
        unsafe { world.rank(0).get_blocks_nbi(&mut region.key, buffer.as_mut_ptr(), &blocks) };
    assert!(got.is_ok());
    assert_eq!(flush(&mut world), Ok(()));
    assert!(buffer == pattern(5, 4000));
    let served = world.rank(1).rma.counters.served;
    assert!(served <= 8, "{served} messages");
}
