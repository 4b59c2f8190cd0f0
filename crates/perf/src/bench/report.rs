//! How results are written: a table for people, or one JSON object a line.
//!
//! The statistic and the unit always stand with the number. A ratio is formed of two medians of
//! the same run, never of different statistics.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::plan::{Case, Plan, Test};
use crate::measure::statistics::Summary;
use crate::measure::transfer::Way;

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A table.
    Text,
    /// One JSON object a line.
    Json,
}

/// Prints a line on the standard output. A reader that closed it wants no more: the program ends.
fn print_line(line: &str) {
    let mut out = io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

fn print_json(value: &Value) {
    print_line(&value.to_string());
}

/// What a table is about, and its columns.
pub fn print_head(
    plan: &Plan,
    library: &str,
    ranks: usize,
    processors: [Option<usize>; 2],
    form: Form,
) {
    if form == Form::Json {
        print_json(&json!({
            "record": "run", "test": plan.test, "library": library,
            "library_path": plan.library, "ranks": ranks, "processors": processors,
            "batch_ns": plan.batch_ns, "samples_wanted": plan.samples,
            "sample": "mean over one batch", "warm_up": "not counted",
        }));
        return;
    }
    let what = match plan.test {
        Test::Pingpong => format!("ping-pong of ranks 0 and {}", ranks - 1),
        Test::Rate => format!("messages in windows of {}, each acknowledged", plan.window),
        Test::Bandwidth => format!("bandwidth in windows of {}, each acknowledged", plan.window),
        Test::Barrier => "MPI_Barrier".to_owned(),
        Test::Allreduce => "MPI_Allreduce, sum of doubles".to_owned(),
    };
    let onlookers = if plan.test.is_pairwise() && ranks > 2 {
        format!(", the other {} in MPI_Barrier", ranks - 2)
    } else {
        String::new()
    };
    print_line(&format!("{what}; {ranks} ranks{onlookers}; {library}"));
    print_line(&format!(
        "{}; a sample is the mean over a batch of at least {} us; minimum, median and 99th percentile over samples",
        plan.test.describe_unit(),
        plan.batch_ns as f64 / 1000.0
    ));
    if let [Some(first), Some(last)] = processors {
        print_line(&format!("processors: {first} and {last}"));
    }
    if ranks == 2 {
        print_line(
            "floor, measured in turn: a cache line one way, or one copy of the message, the larger",
        );
    }
    let mut columns = format!(
        "{:>9} {:>11} {:>11} {:>11} {:>8}",
        "bytes", "min", "median", "p99", "samples"
    );
    match plan.test {
        Test::Rate => columns += &format!(" {:>11}", "M/s, median"),
        Test::Bandwidth | Test::Pingpong => columns += &format!(" {:>12}", "MB/s, median"),
        Test::Barrier | Test::Allreduce => {}
    }
    if ranks == 2 {
        columns += &format!(
            " {:>16} {:>16} {:>13}",
            "line ns, median", "copy ns, median", "median/floor"
        );
    }
    print_line(&columns);
}

/// One case: a line of the table.
pub fn print_case(case: &Case, form: Form) {
    if form == Form::Json {
        let mut value = json!(case);
        value["record"] = json!("case");
        value["MB_per_s_at_median"] = json!(case.megabytes_per_s());
        value["million_messages_per_s_at_median"] = json!(case.million_messages_per_s());
        print_json(&value);
        return;
    }
    let t = &case.time;
    let mut line = format!(
        "{:>9} {:>11.1} {:>11.1} {:>11.1} {:>8}",
        case.bytes, t.min, t.median, t.p99, t.samples
    );
    match case.test {
        Test::Rate => {
            let rate = case.million_messages_per_s();
            line += &format!(" {:>11}", format_optional(rate, 2));
        }
        Test::Bandwidth | Test::Pingpong => {
            line += &format!(" {:>12}", format_optional(case.megabytes_per_s(), 0));
        }
        Test::Barrier | Test::Allreduce => {}
    }
    if let Some(floor) = &case.floor {
        let one_way = floor.line_one_way_ns.median;
        let copy = floor.copy_ns.map(|c| c.median);
        let ratio = t.median / one_way.max(copy.unwrap_or(0.0));
        let ratio = (!floor.shared_processor).then_some(ratio);
        line += &format!(
            " {:>16.1} {:>16} {:>13}",
            one_way,
            format_optional(copy, 1),
            format_optional(ratio, 2)
        );
        if floor.shared_processor {
            line += "  (the two ranks shared a processor)";
        }
    }
    print_line(&line);
}

fn format_optional(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |v| format!("{v:.digits$}"))
}

/// The cache line between two processors.
pub fn print_floor_line(
    processors: [usize; 2],
    line: &Summary,
    batch_ns: u64,
    clock_step_ns: u64,
    form: Form,
) {
    if form == Form::Json {
        print_json(&json!({
            "record": "floor_line", "unit": "ns one way", "processors": processors,
            "time": line, "batch_ns": batch_ns, "clock_step_ns": clock_step_ns,
        }));
        return;
    }
    print_line(&format!(
        "cache line between processors {} and {}, one way, two lines in turn: min {:.1}, median {:.1}, p99 {:.1} ns",
        processors[0], processors[1], line.min, line.median, line.p99
    ));
    print_line(&format!(
        "({} samples, each the mean over a batch of at least {} us; step of the clock {} ns)",
        line.samples,
        batch_ns as f64 / 1000.0,
        clock_step_ns
    ));
}

/// Lines that stream through a ring, and the head of the table of copies.
pub fn print_floor_stream(stream: &Summary, form: Form) {
    if form == Form::Json {
        print_json(&json!({
            "record": "floor_stream", "unit": "ns per message of one line", "time": stream,
            "million_messages_per_s_at_median": 1e3 / stream.median,
        }));
        return;
    }
    print_line(&format!(
        "messages of one line streaming through a ring: min {:.1}, median {:.1}, p99 {:.1} ns each; {:.1} million per second at the median",
        stream.min,
        stream.median,
        stream.p99,
        1e3 / stream.median
    ));
    print_line("copy of memory, one processor, ns per copy:");
    print_line(&format!(
        "{:>9} {:>11} {:>11} {:>11} {:>13}",
        "bytes", "min", "median", "p99", "GB/s, median"
    ));
}

/// The copy of memory at one size.
pub fn print_floor_copy(bytes: usize, copy: &Summary, form: Form) {
    let rate = bytes as f64 / copy.median;
    if form == Form::Json {
        print_json(&json!({
            "record": "floor_copy", "unit": "ns per copy", "bytes": bytes, "time": copy,
            "GB_per_s_at_median": rate,
        }));
        return;
    }
    print_line(&format!(
        "{:>9} {:>11.1} {:>11.1} {:>11.1} {:>13.1}",
        bytes, copy.min, copy.median, copy.p99, rate
    ));
}

/// Above the ways to carry large messages.
pub fn print_transfer_head(processors: [usize; 2], form: Form) {
    if form == Form::Json {
        return;
    }
    print_line(&format!(
        "carrying a message between processors {} and {}, ns per half round trip:",
        processors[0], processors[1]
    ));
    print_line(&format!(
        "{:>9} {:<26} {:>11} {:>11} {:>11} {:>13}",
        "bytes", "way", "min", "median", "p99", "GB/s, median"
    ));
}

/// One way to carry a message of one size, or why it is not open.
pub fn print_transfer(bytes: usize, way: Way, time: &io::Result<Option<Summary>>, form: Form) {
    let way = way.to_string();
    if form == Form::Json {
        print_json(&json!({
            "record": "floor_transfer", "unit": "ns per half round trip", "bytes": bytes,
            "way": way, "time": time.as_ref().ok(),
            "refused": time.as_ref().err().map(|e| e.to_string()),
        }));
        return;
    }
    print_line(&match time {
        Ok(Some(t)) => format!(
            "{bytes:>9} {way:<26} {:>11.1} {:>11.1} {:>11.1} {:>13.1}",
            t.min,
            t.median,
            t.p99,
            bytes as f64 / t.median
        ),
        Ok(None) => format!("{bytes:>9} {way:<26} no samples"),
        Err(e) => format!("{bytes:>9} {way:<26} not open: {e}"),
    });
}
