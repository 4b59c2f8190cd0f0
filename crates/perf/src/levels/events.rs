//! The lines of rank 0: those of the benchmark program (`program/events.c`), with the level.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};

use super::engine::{ClockFacts, Figures};
use crate::record::{Histogram, Level};

/// The line of an event: its name stands first, by which readers know that the line is ours.
pub fn make_line(mut event: Value) -> String {
    let name = event["event"].take();
    let rest = event.as_object_mut().map(|members| {
        members.remove("event");
        serde_json::to_string(members).unwrap_or_default()
    });
    let rest = rest.unwrap_or_default();
    match rest.strip_prefix('{') {
        Some("}") | None => format!("{{\"event\":{name}}}"),
        Some(members) => format!("{{\"event\":{name},{members}"),
    }
}

/// Prints a line, which whoever started the job reads.
pub fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    // Who started this job has gone: there is nobody to measure for.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

fn clock_json(clock: &ClockFacts) -> Value {
    json!({
        "source": "CLOCK_MONOTONIC",
        "frequency_hz": 1e9,
        "frequency_error_ppm": 0.0,
        "resolution_ns": clock.resolution_ns,
        "read_ns": clock.read_ns,
    })
}

/// Who is measured.
pub fn make_start(
    level: Level,
    processors: [i32; 2],
    clock: &ClockFacts,
    overhead_ns: f64,
    adapter: &[String],
) -> Value {
    let layer = match level {
        Level::Protocol => "protocol layer",
        Level::Verbs => "verbs, bare loops",
        level => level.name(),
    };
    let library = format!("Fastpath {}, {layer}", env!("CARGO_PKG_VERSION"));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    json!({
        "event": "start",
        "program": 1,
        "library": library,
        "ranks": 2,
        "processors": processors,
        "host": host.trim(),
        "clock": clock_json(clock),
        "overhead_ns_each": overhead_ns,
        "adapter": adapter,
    })
}

/// All is done.
pub fn make_end(clock: &ClockFacts) -> Value {
    json!({ "event": "end", "clock": clock_json(clock) })
}

/// A case begins.
pub fn make_progress(test: &str, bytes: usize, done: u64) -> Value {
    json!({
        "event": "progress", "test": test, "bytes": bytes, "done": done, "total": done + 1,
    })
}

/// What is not measured.
pub fn make_missing(level: Level, test: &str, why: &str) -> Value {
    json!({ "event": "missing", "test": test, "level": level, "reason": why })
}

/// What a case came to.
pub struct CaseFacts<'a> {
    /// What it is.
    pub figures: &'a Figures<'a>,
    /// Its level.
    pub level: Level,
    /// See `record::Timing`.
    pub operations_per_sample: u64,
    /// See there.
    pub warmup_operations: u64,
    /// See there.
    pub overhead_ns: f64,
    /// Where the two ranks were seen.
    pub processors: [i32; 2],
    /// Every sample.
    pub samples: &'a Histogram,
    /// The floor, and what it is.
    pub floor: Option<(&'static str, &'a Histogram)>,
    /// What carried it.
    pub transport: &'a str,
    /// What was done for each operation.
    pub counts: BTreeMap<String, f64>,
}

/// A case is done.
pub fn make_case(facts: &CaseFacts) -> Value {
    let f = facts.figures;
    let mut line = json!({
        "event": "case",
        "test": f.test,
        "variant": f.variant,
        "operation": f.operation,
        "level": facts.level,
        "of": f.of,
        "unit": "ns",
        "bytes": f.bytes,
        "ranks": 2,
        "window": (f.window > 0).then_some(f.window),
        "operations_per_sample": facts.operations_per_sample,
        "warmup_operations": facts.warmup_operations,
        "overhead_ns": facts.overhead_ns,
        "checked": f.checked,
        "processors": facts.processors,
        "transport": facts.transport,
        "protocol": f.protocol,
        "protocol_sizes": f.protocol_sizes,
        "floor": Value::Null,
        "counts": facts.counts,
    });
    add_samples(&mut line, facts.samples);
    if let Some((of, samples)) = facts.floor {
        let mut floor = json!({ "of": of });
        add_samples(&mut floor, samples);
        line["floor"] = floor;
    }
    line
}

fn add_samples(to: &mut Value, samples: &Histogram) {
    let stored = serde_json::to_value(samples).unwrap_or_default();
    for name in ["min", "max", "buckets"] {
        to[name] = stored[name].clone();
    }
    let mean = samples.summarize().map_or(0.0, |s| s.mean);
    to["sum"] = json!(mean * samples.count() as f64);
}
