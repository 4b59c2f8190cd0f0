//! Calls through shared lines of two threads, measured on this machine, beside the simulated times.
#![allow(unsafe_code)]

use super::super::fabric::drive;
use super::super::lines::member::{LineCall, LineWait};
use super::super::lines::{self, Lines};
use super::super::simulator::LineMemory;
use super::super::simulator::lines::{Host, Rank};
use super::super::simulator::machine::{Machine, SharedLineCosts};
use super::super::vector::Vector;
use crate::coll_choice::line_plan::{CachePlace, LineCosts, LinePlan};
use crate::common::error::Result;
use crate::objects::shared_lines::{BYTES, SharedLines};
use fastpath_base::clock::now_ns;
use fastpath_base::sync::{AtomicU64, Ordering};
use fastpath_base::topology::{CpuSet, set_affinity};
use std::cell::Cell;
use std::ptr::with_exposed_provenance_mut;
use std::sync::Mutex;

struct Spin;

impl LineWait for Spin {
    fn wait(
        &self, _: &[u32], _: &Cell<u64>, poll: &mut dyn FnMut() -> bool, _: &dyn Fn(u32) -> bool,
    ) -> Result {
        while !poll() {
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn wake(&self, _: u32) {}

    fn defer_length(&self, from: u32, expected: usize, found: usize) {
        panic!("{found} bytes from rank {from}, {expected} asked for");
    }
}

/// Makes calls, by turns from both roots, of no bytes (a barrier) or a broadcast.
async fn make_calls<L: Lines>(
    rank: u32, calls: u32, bytes: usize, begin: impl Fn() -> L,
) -> Result {
    let mut buffer = vec![rank as u8; bytes];
    for call in 0..calls {
        let data = Vector::raw(buffer.as_mut_ptr(), bytes as u64);
        match bytes {
            0 => lines::barrier(&begin()).await?,
            // SAFETY: the buffer lives until the calls have ended.
            _ => unsafe { lines::bcast(&begin(), data, call % 2).await? },
        }
    }
    Ok(())
}

/// Runs `body` on two threads, each on a processor, and returns the least time of rank 0 in several repetitions, in ns.
fn measure(body: impl Fn(u32) + Sync) -> f64 {
    let start = &AtomicU64::new(0);
    let body = &body;
    std::thread::scope(|scope| {
        let run = move |rank: u32| {
            // Where the processor is not allowed, the thread stays where it is.
            _ = set_affinity(&CpuSet::from_iter([rank as usize]));
            let repetition = |number: u64| {
                start.fetch_add(1, Ordering::SeqCst);
                while start.load(Ordering::SeqCst) < 2 * number {
                    std::hint::spin_loop();
                }
                let begin = now_ns();
                body(rank);
                now_ns() - begin
            };
            (1..=10).map(repetition).min().unwrap() as f64
        };
        let other = scope.spawn(move || run(1));
        let time = scope.spawn(move || run(0)).join().unwrap();
        other.join().unwrap();
        time
    })
}

/// Returns half a round trip of a line, in ns.
fn measure_line() -> f64 {
    const TRIPS: u64 = 5000;
    let lines = [LineMemory([0; BYTES]), LineMemory([0; BYTES])];
    let [first, second] = &lines.each_ref().map(|line| line.0.as_ptr().expose_provenance());
    let time = measure(|rank| {
        // SAFETY: the memory outlives the threads, and they use this word of it atomically.
        let [own, other] = [first, second]
            .map(|&at| unsafe { AtomicU64::from_ptr(with_exposed_provenance_mut(at)) });
        let (own, other) = if rank == 0 { (own, other) } else { (other, own) };
        for _ in 0..TRIPS {
            let next = own.load(Ordering::Relaxed) + 1;
            if rank == 0 {
                own.store(next, Ordering::Release);
            }
            while other.load(Ordering::Acquire) < next {
                std::hint::spin_loop();
            }
            if rank == 1 {
                own.store(next, Ordering::Release);
            }
        }
    });
    time / (2 * TRIPS) as f64
}

/// Prints times of calls of two ranks on processors 0 and 1, measured and simulated. Load on the machine distorts them.
/// Runs only if `FASTPATH_TEST_LINES` is set, and asserts no time.
#[test]
fn two_processors__are_measured_beside_the_simulation() {
    if std::env::var_os("FASTPATH_TEST_LINES").is_none() {
        return;
    }
    const CALLS: u32 = 1000;
    let line = measure_line();
    println!("A cache line takes {line:.0} ns one way.");
    println!("| call | measured, ns | simulated, ns | difference |");
    println!("|---|---|---|---|");
    let ns = line.round() as u32;
    let mut machine = Machine::two_sockets("two processors", 2, ns, ns, SharedLineCosts::XEON);
    for bytes in [0, 8, 512, 4096, 16_000] {
        let mut memory = vec![LineMemory([0; BYTES]); 2];
        let firsts: Vec<usize> =
            memory.iter_mut().map(|m| m.0.as_mut_ptr().expose_provenance()).collect();
        let states: Vec<Mutex<SendLines>> = (0..2)
            .map(|rank| {
                let plan = LinePlan::new(rank, &[CachePlace::default(); 2], &LineCosts::USUAL);
                let firsts = firsts.iter().map(|&at| with_exposed_provenance_mut(at)).collect();
                Mutex::new(SendLines(SharedLines::new(firsts, plan.unwrap().into())))
            })
            .collect();
        let measured = measure(|rank| {
            let lines = states[rank as usize].lock().unwrap();
            let lines = &lines.0;
            drive(make_calls(rank, CALLS, bytes, || {
                LineCall::new(lines, Spin, lines.begin_next())
            }))
            .unwrap();
        }) / f64::from(CALLS);
        if bytes == 0 {
            // The time of a barrier gives that of the instructions of its two stores and one load.
            machine.costs.instructions = (measured - line).max(0.0) / 3.0;
        }
        let host = Host::new(&machine, 2, &machine.line_costs(2)).unwrap();
        let ends = host.run(|f: Rank<'_>| async move {
            make_calls(f.rank, CALLS, bytes, || f.begin_call()).await
        });
        let simulated = ends[0] / f64::from(CALLS);
        let name = if bytes == 0 { "barrier".to_owned() } else { format!("bcast, {bytes} bytes") };
        println!(
            "| {name} | {measured:.0} | {simulated:.0} | {:+.0} % |",
            100.0 * (simulated / measured - 1.0)
        );
    }
}

/// Lines of a rank, used by one thread at a time.
struct SendLines(SharedLines);

// SAFETY: each thread uses the lines of its own rank, and the memory of all outlives the threads.
unsafe impl Send for SendLines {}
