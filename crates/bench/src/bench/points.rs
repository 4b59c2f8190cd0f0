//! Cost of a trace point (`FASTPATH_TRACE`): on and off, alone and in place.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::io;

use fastpath_base::config::Config;
use fastpath_base::trace::{Point, count_recorded, read_ticks, record, record_call, set_recording};
use fastpath_job::Job;
use fastpath_machine::measure::{calibrate_calls, time_calls};
use fastpath_protocol::buffer::Buffer;
use fastpath_protocol::matching::MatchCriteria;
use fastpath_protocol::tag::Context;
use fastpath_protocol::waiting::Note;
use fastpath_protocol::{RequestState, SendArgs, StartOutcome, Worker};
use fastpath_segment::AwaitedRanks;

use crate::levels::open_worker;

/// Capacity of the trace ring in events, equal to a job's default.
const EVENTS: u32 = 16_384;
const TAG: i32 = 5;
const NOTE: Note = Note {
    call: "fastpath bench floor",
    peer: 0,
    tag: TAG,
    comm: 0,
    bytes: 8,
    awaited: AwaitedRanks::UNKNOWN,
    naps: false,
};

/// Times of a trace point in nanoseconds, one value for each batch.
pub struct PointTimes {
    /// Times in a loop, with recording off.
    pub off: Vec<f64>,
    /// Times of the clock reading of a point alone, in a loop.
    pub clock: Vec<f64>,
    /// Times in a loop, with recording on.
    pub on: Vec<f64>,
    /// Mean times of the three points of an immediate call, which read the clock twice, in a loop.
    pub of_call: Vec<f64>,
    /// Extra time of a message with its points, divided by the number of points.
    pub in_place: Vec<f64>,
    /// Number of points of the message of `in_place`.
    pub of_message: f64,
}

/// Measures the cost of trace points. Afterwards this process records events permanently.
///
/// # Errors
/// No memory for the ring or for a worker, or a variable is invalid.
pub fn measure_points(samples: usize, batch_ns: u64) -> io::Result<PointTimes> {
    let point = || record(Point::PostShort, black_box(1), 5, 8);
    let off = sample(samples, batch_ns, point);
    let clock = sample(samples, batch_ns, || _ = black_box(read_ticks()));
    let job: &'static Job = Box::leak(Box::new(Job::singleton().map_err(io::Error::other)?));
    let echo = Echo::open(job)?;
    job.start_trace(EVENTS, false).map_err(io::Error::other)?;
    let on = sample(samples, batch_ns, point);
    let call = || record_call("MPI_Send", read_ticks(), Point::PostShort, black_box(1), 5, 8);
    let of_call = sample(samples, batch_ns, call).into_iter();
    let (in_place, of_message) = sample_in_place(samples, batch_ns, &echo);
    Ok(PointTimes {
        off,
        clock,
        on,
        of_call: of_call.map(|ns| ns / 3.0).collect(),
        in_place,
        of_message,
    })
}

fn sample(samples: usize, batch_ns: u64, body: impl Fn()) -> Vec<f64> {
    let calls = calibrate_calls(batch_ns, |n| (0..n).for_each(|_| body()));
    (0..samples).map(|_| time_calls(calls, &body)).collect()
}

/// Alternates batches with and without points, so that both run under equal conditions.
fn sample_in_place(samples: usize, batch_ns: u64, echo: &Echo) -> (Vec<f64>, f64) {
    let calls = calibrate_calls(batch_ns, |n| (0..n).for_each(|_| echo.message()));
    let before = count_recorded();
    echo.message();
    let points = (count_recorded() - before) as f64;
    let time = |on| {
        set_recording(on);
        time_calls(calls, || echo.message())
    };
    let differences = (0..samples).map(|_| {
        let off = time(false);
        (time(true) - off) / points
    });
    (differences.collect(), points)
}

/// A rank that sends a message to itself and receives it.
struct Echo(*mut Worker);

impl Echo {
    fn open(job: &'static Job) -> io::Result<Echo> {
        let worker = open_worker(job, &Config::defaults())?;
        Ok(Echo(Box::into_raw(Box::new(worker))))
    }

    fn message(&self) {
        let (mut from, mut into) = (black_box(1u64), 0u64);
        let buffer = |word: &mut u64| Buffer::contiguous(std::ptr::from_mut(word).cast(), 8);
        let send = SendArgs {
            peer: 0,
            key: Context::WORLD.key(0),
            tag: TAG,
            buffer: buffer(&mut from),
            synchronous: false,
        };
        let want = MatchCriteria { peer: 0, tag: TAG, key: Context::WORLD.key(0) };
        // SAFETY: the worker lives as long as the process, in one thread. Both words outlive their requests, and no
        // reference outlives its statement.
        unsafe {
            let sent = (*self.0).start_send(send);
            assert!(matches!(sent, Ok(StartOutcome::Done)));
            let Ok(id) = (*self.0).start_recv(want, buffer(&mut into)) else {
                unreachable!("a rank can receive from itself")
            };
            Worker::wait_until(self.0, Some(0), &NOTE, |w| {
                w.requests.get(id).state == RequestState::Complete
            });
            (*self.0).requests.free(id);
        }
        black_box(into);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn points__are_timed_off_and_on() {
        let times = measure_points(3, 1000).unwrap();
        let all = [times.off, times.clock, times.on, times.of_call, times.in_place];
        assert!(all.iter().all(|times| times.len() == 3));
        // The five points are begin and end of posting, begin and end of handling, and the arrival.
        assert_eq!(times.of_message, 5.0);
        assert!(fastpath_base::trace::is_on());
    }
}
