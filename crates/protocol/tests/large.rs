//! Long messages over shared memory between two ranks of one process: every protocol, and copies that fail midway.
#![allow(unsafe_code, non_snake_case)]

use fastpath_base::config::{Config, WaitMode};
use fastpath_job::Job;
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::layout::Layout;
use fastpath_protocol::matching::MatchCriteria;
use fastpath_protocol::tag::Context;
use fastpath_protocol::waiting::WaitPolicy;
use fastpath_protocol::worker::Counters;
use fastpath_protocol::{RequestId, RequestState, SendArgs, StartOutcome, Worker};
use std::sync::{Arc, OnceLock};

const TAG: i32 = 5;
const SIZES: [usize; 8] = [9_000, 32_767, 32_768, 32_769, 70_001, 300_000, 1 << 20, 1_200_011];

/// Two ranks, each with its own kinds of memory.
struct WorkerPair {
    workers: Vec<Worker>,
}

/// Kind of memory of a buffer.
#[derive(Clone, Copy, PartialEq, Debug)]
enum BufferPlace {
    Private,
    Shared,
}
use BufferPlace::{Private, Shared};

fn policy() -> WaitPolicy {
    WaitPolicy { mode: WaitMode::Spin, ..WaitPolicy::of(&Config::defaults(), 2, None) }
}

impl WorkerPair {
    fn new(settings: &[(&str, &str)]) -> WorkerPair {
        let pairs = settings.iter().map(|(name, value)| (name.into(), value.into()));
        let config = Config::from_pairs(pairs).unwrap();
        let jobs: &'static [Job] = Job::in_process(2).unwrap().leak();
        let make = |job| {
            let mut worker = Worker::new(job, policy()).unwrap();
            worker.configure(&config).unwrap();
            worker
        };
        WorkerPair { workers: jobs.iter().map(make).collect() }
    }

    fn memory(&mut self, rank: usize, place: BufferPlace, bytes: usize) -> *mut u8 {
        match place {
            Private => vec![0u8; bytes].leak().as_mut_ptr(),
            Shared => self.workers[rank].allocate_memory(bytes, 64).unwrap().as_ptr(),
        }
    }

    fn start_send(&mut self, buffer: Buffer) -> Option<RequestId> {
        let args =
            SendArgs { peer: 1, key: Context::WORLD.key(0), tag: TAG, buffer, synchronous: false };
        let worker = &mut self.workers[0];
        // SAFETY: buffers live as long as the test.
        let started = unsafe { worker.start_send(args) };
        match started.unwrap() {
            StartOutcome::Done => None,
            StartOutcome::Request(id) => Some(id),
        }
    }

    fn start_recv(&mut self, buffer: Buffer) -> RequestId {
        let want = MatchCriteria { peer: 0, key: Context::WORLD.key(0), tag: TAG };
        // SAFETY: buffers live as long as the test.
        unsafe { self.workers[1].start_recv(want, buffer) }.unwrap()
    }

    fn is_complete(&self, rank: usize, id: RequestId) -> bool {
        self.workers[rank].requests.get(id).state == RequestState::Complete
    }

    /// Sends one message. Returns the received bytes.
    fn exchange(
        &mut self, len: usize, from: BufferPlace, to: BufferPlace, room: usize, posted: bool,
    ) -> Vec<u8> {
        let (source, target) = (self.memory(0, from, len), self.memory(1, to, room));
        // SAFETY: `source` has `len` bytes.
        unsafe { source.copy_from_nonoverlapping(pattern(len).as_ptr(), len) };
        let early = posted.then(|| self.start_recv(Buffer::contiguous(target, room as u64)));
        let send = self.start_send(Buffer::contiguous(source, len as u64));
        if !posted {
            self.workers[1].progress();
        }
        let recv =
            early.unwrap_or_else(|| self.start_recv(Buffer::contiguous(target, room as u64)));
        self.finish(send, recv);
        // SAFETY: `target` has `room` bytes.
        unsafe { std::slice::from_raw_parts(target, len.min(room)) }.to_vec()
    }

    fn finish(&mut self, send: Option<RequestId>, recv: RequestId) {
        for round in 0.. {
            assert!(round < 1_000_000, "the message does not arrive");
            self.workers.iter_mut().for_each(|worker| _ = worker.progress());
            let sent = send.is_none_or(|id| self.is_complete(0, id));
            if sent && self.is_complete(1, recv) {
                break;
            }
        }
        if let Some(id) = send {
            self.workers[0].requests.free(id);
        }
        self.workers[1].requests.free(recv);
        assert_eq!(self.counters(0).violations + self.counters(1).violations, 0);
    }

    fn counters(&self, rank: usize) -> Counters {
        self.workers[rank].counters
    }
}

/// Returns the first `len` bytes of a fixed pattern.
fn pattern(len: usize) -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let byte = |i: usize| (i.wrapping_mul(2_654_435_761) >> 11) as u8;
    &BYTES.get_or_init(|| (0..1_200_011).map(byte).collect())[..len]
}

#[test]
fn message__arrives_whole_from_and_into_every_kind_of_memory() {
    for disabled in ["", "cma", "direct", "cma,direct", "pipeline", "cma,direct,pipeline"] {
        let mut pair = WorkerPair::new(&[("FASTPATH_DISABLE", disabled)]);
        for (from, to) in
            [(Private, Private), (Private, Shared), (Shared, Private), (Shared, Shared)]
        {
            for len in SIZES {
                for posted in [true, false] {
                    let got = pair.exchange(len, from, to, len, posted);
                    assert!(got == pattern(len), "{disabled:?} {from:?} {to:?} {len}");
                }
            }
        }
    }
}

#[test]
fn message__that_is_too_long_is_cut_in_every_way() {
    for disabled in ["", "cma", "cma,direct"] {
        let mut pair = WorkerPair::new(&[("FASTPATH_DISABLE", disabled)]);
        for (from, to) in
            [(Private, Private), (Private, Shared), (Shared, Private), (Shared, Shared)]
        {
            for (len, room) in [(300_000, 299_999), (300_000, 33_000), (300_000, 100), (70_000, 1)]
            {
                let got = pair.exchange(len, from, to, room, true);
                assert!(got == pattern(len)[..room], "{disabled:?} {from:?} {to:?} {len} {room}");
            }
        }
    }
}

#[test]
fn shared_memory_of_the_sender__is_read_directly() {
    let mut pair = WorkerPair::new(&[("FASTPATH_DISABLE", "cma")]);
    pair.exchange(1 << 20, Shared, Private, 1 << 20, true);
    pair.exchange(1 << 20, Shared, Shared, 1 << 20, true);
    assert_eq!((pair.counters(1).direct_reads, pair.counters(0).direct_writes), (2, 0));
    pair.exchange(1 << 20, Private, Private, 1 << 20, true);
    assert_eq!(pair.counters(1).direct_reads, 2);
}

#[test]
fn shared_memory_of_the_receiver__is_written_directly() {
    let mut pair = WorkerPair::new(&[("FASTPATH_DISABLE", "cma")]);
    pair.exchange(1 << 20, Private, Shared, 1 << 20, true);
    assert_eq!((pair.counters(1).direct_reads, pair.counters(0).direct_writes), (0, 1));
}

#[test]
fn direct__can_be_switched_off() {
    let mut pair = WorkerPair::new(&[("FASTPATH_DISABLE", "direct,cma")]);
    pair.exchange(1 << 20, Shared, Shared, 1 << 20, true);
    let both = [pair.counters(0), pair.counters(1)];
    assert!(
        both.iter().all(|c| c.direct_reads + c.direct_writes + c.single_copies == 0),
        "{both:?}"
    );
}

#[test]
fn direct__switched_off_at_one_end_alone_is_no_obstacle() {
    for off in [0, 1] {
        let mut pair = WorkerPair::new(&[("FASTPATH_DISABLE", "cma")]);
        pair.workers[off].planner.thresholds.direct = u64::MAX;
        for (from, to) in [(Private, Shared), (Shared, Private), (Shared, Shared)] {
            assert!(pair.exchange(300_000, from, to, 300_000, true) == pattern(300_000));
        }
    }
}

/// Layout of every other block of 512 bytes.
fn strided(blocks: usize) -> (Arc<Layout>, u64) {
    let block = Layout::contiguous(512).unwrap();
    let layout = block.vector(blocks as u64, 1, 1024).unwrap();
    (Arc::new(layout), blocks as u64 * 512)
}

#[test]
fn shared_memory__serves_layouts_too() {
    let mut pair = WorkerPair::new(&[("FASTPATH_DISABLE", "cma")]);
    let (layout, bytes) = strided(500);
    let span = 500 * 1024;
    let (shared, spread) = (pair.memory(0, Shared, bytes as usize), pair.memory(1, Private, span));
    let sent = pattern(bytes as usize);
    // SAFETY: `shared` has the length of `sent`.
    unsafe { shared.copy_from_nonoverlapping(sent.as_ptr(), sent.len()) };
    let buffer = Buffer { ptr: spread, bytes, layout: Some(layout), count: 1 };
    let recv = pair.start_recv(buffer);
    let send = pair.start_send(Buffer::contiguous(shared, bytes));
    pair.finish(send, recv);
    // SAFETY: `spread` has `span` bytes.
    let got = unsafe { std::slice::from_raw_parts(spread, span) };
    assert!(sent.chunks(512).zip(got.chunks(1024)).all(|(sent, got)| sent == &got[..512]));
    assert!(got.chunks(1024).all(|got| got[512..].iter().all(|&byte| byte == 0)));
    assert_eq!(pair.counters(1).direct_reads, 1);
}

#[test]
fn transports__that_leave_no_way_are_refused() {
    let jobs: &'static [Job] = Job::in_process(2).unwrap().leak();
    let mut worker = Worker::new(&jobs[0], policy()).unwrap();
    let mut set = |value: &str| {
        let pair = ("FASTPATH_TRANSPORTS".into(), value.into());
        worker.configure(&Config::from_pairs([pair]).unwrap())
    };
    assert!(set("loopback").unwrap_err().why.contains("add shm"));
    assert!(set("cma").unwrap_err().why.contains("add shm"));
    assert_eq!(
        (set("shm"), set("shm,loopback"), set("all"), set("")),
        (Ok(()), Ok(()), Ok(()), Ok(()))
    );
}

#[test]
fn transports__of_two_ranks_that_cannot_meet_are_refused() {
    let jobs: &'static [Job] = Job::in_process(3).unwrap().leak();
    let set = |rank: usize, value: &str| {
        let pair = ("FASTPATH_TRANSPORTS".into(), value.into());
        let mut worker = Worker::new(&jobs[rank], policy()).unwrap();
        worker.configure(&Config::from_pairs([pair]).unwrap())
    };
    assert_eq!(set(1, "shm"), Ok(()));
    // Settings that do not affect reachability may differ.
    assert_eq!(set(2, "all"), Ok(()));
    let why = set(0, "rc").unwrap_err().why;
    for part in ["rank 0 has FASTPATH_TRANSPORTS=rc ", "rank 1 FASTPATH_TRANSPORTS=shm:"] {
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn rank_without_loopback__reaches_itself_through_the_ring() {
    let mut pair = WorkerPair::new(&[("FASTPATH_TRANSPORTS", "shm")]);
    for len in [0, 8, 5000, 20_000, 100_000, 1 << 20] {
        let (source, target) =
            (pattern(len).as_ptr().cast_mut(), vec![0u8; len].leak().as_mut_ptr());
        let want = MatchCriteria { peer: 1, key: Context::WORLD.key(1), tag: TAG };
        let buffer = Buffer::contiguous(source, len as u64);
        let args =
            SendArgs { peer: 1, key: Context::WORLD.key(1), tag: TAG, buffer, synchronous: true };
        // SAFETY: the buffers are leaked.
        let (recv, send) = unsafe {
            let recv =
                pair.workers[1].start_recv(want, Buffer::contiguous(target, len as u64)).unwrap();
            (recv, pair.workers[1].start_send(args).unwrap())
        };
        let StartOutcome::Request(send) = send else {
            panic!("a synchronous send waits for its receive")
        };
        while !(pair.is_complete(1, send) && pair.is_complete(1, recv)) {
            pair.workers[1].progress();
        }
        // SAFETY: `target` has `len` bytes.
        assert!(unsafe { std::slice::from_raw_parts(target, len) } == pattern(len));
    }
}
