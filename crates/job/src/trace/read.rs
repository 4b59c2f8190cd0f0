//! Reading of the ranks' parts of a trace, as untrusted bytes.

use fastpath_base::clock;
use fastpath_base::trace::{
    AREA_BYTES, EVENT_BYTES, HEADER_BYTES, MAX_EVENTS, MAX_NAMES, MAX_RINGS, NAME_BYTES, Point,
    RING_HEADER_BYTES, TRACE_MAGIC, read_ticks, ring_bytes,
};
use fastpath_segment::Segment;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const NAMES_OFFSET: usize = HEADER_BYTES - MAX_NAMES * NAME_BYTES;

pub(super) struct RankTrace {
    pub rank: usize,
    pub pid: u32,
    names: Vec<u8>,
    pub threads: Vec<ThreadTrace>,
    pub threads_lost: u64,
}

impl RankTrace {
    /// Returns the name of a call, cleaned for JSON.
    pub fn name(&self, number: u64) -> String {
        let mut names = self.names.chunks_exact(NAME_BYTES);
        let name = usize::try_from(number).ok().and_then(|n| names.nth(n));
        let name = name.map_or(String::new(), clean);
        match name.is_empty() {
            true => "?".to_owned(),
            false => name,
        }
    }
}

/// Points of one thread, the oldest first.
pub(super) struct ThreadTrace {
    pub tid: u32,
    pub points: Vec<TimedPoint>,
    pub overwritten: u64,
}

/// A point with its time, in nanoseconds of the monotonic clock.
pub(super) struct TimedPoint {
    pub ns: u64,
    pub point: Point,
    /// Number of the subject's name.
    pub subject: Option<u64>,
    pub peer: u32,
    pub tag: i32,
    pub bytes: u64,
}

/// Conversion of the clock of points to nanoseconds.
struct Scale {
    ticks: u64,
    ns: u64,
    ns_per_tick: f64,
}

impl Scale {
    /// Measures the scale from the start of the rank until now.
    fn since(ticks: u64, ns: u64) -> Scale {
        let (ticks_now, ns_now) = (read_ticks(), clock::now_ns());
        let passed = ticks_now.saturating_sub(ticks).max(1);
        Scale { ticks, ns, ns_per_tick: ns_now.saturating_sub(ns) as f64 / passed as f64 }
    }

    fn ns_of(&self, ticks: u64) -> u64 {
        let passed = ticks.saturating_sub(self.ticks) as f64 * self.ns_per_tick;
        self.ns.saturating_add(passed as u64)
    }
}

pub(super) fn read_ranks(segment: &Segment) -> io::Result<Vec<RankTrace>> {
    let file = File::from(segment.file()?.try_clone_to_owned()?);
    let mut ranks = Vec::new();
    for rank in segment.node_ranks() {
        let Some(start) = segment.trace_offset(rank) else {
            continue;
        };
        let read = |offset: usize, bytes: usize| {
            let mut data = vec![0; bytes];
            file.read_exact_at(&mut data, start + offset as u64)?;
            Ok(data)
        };
        ranks.extend(read_rank(rank, read)?);
    }
    Ok(ranks)
}

/// Reads one part; `read` returns bytes by offset and length.
pub(super) fn read_rank(
    rank: usize, read: impl Fn(usize, usize) -> io::Result<Vec<u8>>,
) -> io::Result<Option<RankTrace>> {
    let header = read(0, 40)?;
    let events = word32(&header, 24);
    let sound = events.is_power_of_two() && events <= MAX_EVENTS;
    if word64(&header, 0) != TRACE_MAGIC || !sound {
        return Ok(None);
    }
    let scale = Scale::since(word64(&header, 8), word64(&header, 16));
    let names = read(NAMES_OFFSET, MAX_NAMES * NAME_BYTES)?;
    let room = (AREA_BYTES as usize - HEADER_BYTES) / ring_bytes(events);
    let rings = word32(&header, 28).min(MAX_RINGS) as usize;
    let mut threads = Vec::new();
    for index in 0..rings.min(room) {
        let offset = HEADER_BYTES + index * ring_bytes(events);
        // A ring without memory holds zeros.
        if word32(&read(offset, RING_HEADER_BYTES)?, 8) == events {
            let ring = read(offset, ring_bytes(events))?;
            threads.push(read_ring(&ring, events, &scale));
        }
    }
    Ok(Some(RankTrace {
        rank,
        pid: word32(&header, 36),
        names,
        threads,
        threads_lost: u64::from(word32(&header, 32)),
    }))
}

fn read_ring(ring: &[u8], events: u32, scale: &Scale) -> ThreadTrace {
    let written = word64(ring, 0);
    let kept = written.min(u64::from(events));
    let mut points = Vec::with_capacity(kept as usize);
    for number in written - kept..written {
        let place = (number & u64::from(events - 1)) as usize;
        let event = &ring[RING_HEADER_BYTES + place * EVENT_BYTES..][..EVENT_BYTES];
        let Some(point) = Point::from_number(event[8]) else {
            continue;
        };
        points.push(TimedPoint {
            ns: scale.ns_of(word64(event, 0)),
            point,
            subject: u64::from(word32(event, 8) >> 8).checked_sub(1),
            peer: word32(event, 12),
            tag: word32(event, 16) as i32,
            bytes: word64(event, 24),
        });
    }
    ThreadTrace { tid: word32(ring, 12), points, overwritten: written - kept }
}

fn clean(bytes: &[u8]) -> String {
    let text = bytes.split(|&b| b == 0).next().unwrap_or_default();
    let plain = |&b: &u8| match b {
        b'_' | b':' | b' ' | b'.' | b'-' => char::from(b),
        b if b.is_ascii_alphanumeric() => char::from(b),
        _ => '?',
    };
    text.iter().map(plain).collect()
}

fn word32(bytes: &[u8], offset: usize) -> u32 {
    let word = bytes.get(offset..offset + 4);
    word.and_then(|w| w.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn word64(bytes: &[u8], offset: usize) -> u64 {
    u64::from(word32(bytes, offset)) | u64::from(word32(bytes, offset + 4)) << 32
}
