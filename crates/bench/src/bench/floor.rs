//! `fastpath bench floor`: time that the hardware needs, without MPI.

use std::io;

use anyhow::{Context, Result, bail};
use clap::Args;
use fastpath_base::config::parse_duration_ns;
use fastpath_base::topology::CpuSet;
use fastpath_machine::measure::floor::{CopyFloor, measure_lines};
use fastpath_machine::measure::pipeline::search::find_best;
use fastpath_machine::measure::stream::measure_stream;
use fastpath_machine::measure::transfer::{CopyMethod, measure_transfer};
use fastpath_machine::measure::{observe_clock_step_ns, placement, steps_of_four};
use fastpath_report::document::Table;
use fastpath_report::document::terminal::wrap_lines;
use fastpath_report::output::table::describe_pair;
use fastpath_report::output::{make_bar, print_line};
use fastpath_report::refuse_usage;
use fastpath_report::screen::find_columns;
use fastpath_report::statistics::{Summary, summarize};
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::points::measure_points;
use crate::options::parse_bytes;

/// Options of `fastpath bench floor`.
#[derive(Args, Debug)]
pub struct FloorOptions {
    /// Sizes in bytes, separated by commas; K and M are powers of 1024
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes)]
    sizes: Vec<u64>,
    /// Number of samples of each case; at most 100 for copies and transfer methods
    #[arg(long, default_value_t = 1000, value_parser = parse_samples)]
    samples: usize,
    /// Minimum duration of a batch; a sample is the mean over a batch
    #[arg(long, default_value = "20us", value_parser = parse_batch)]
    batch: u64,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Two processors to use, such as 0,1 [default: the first two this process may use]
    #[arg(long, value_delimiter = ',', num_args = 1)]
    processors: Vec<usize>,
}

pub(super) fn parse_batch(text: &str) -> Result<u64, String> {
    match parse_duration_ns(text)? {
        0 => Err("must be above zero".to_owned()),
        ns => Ok(ns),
    }
}

pub(super) fn parse_samples(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=1 << 20).contains(&n) => Ok(n),
        _ => Err("expected a whole number from 1 to 1048576".to_owned()),
    }
}

pub(super) const FAILED: &str = "cannot measure the floor";
pub(super) const EMPTY: &str = "nothing was measured";

/// Prints results as a table or as one JSON object a line, with a progress bar.
pub(super) struct Output {
    json: bool,
    pub bar: ProgressBar,
}

impl Output {
    pub fn new(json: bool, shows_progress: bool) -> Output {
        let bar = make_bar(1, shows_progress, "");
        Output { json, bar }
    }

    /// Prints a line of the table, or a record.
    pub fn say(&self, text: &str, record: impl FnOnce() -> Value) {
        self.bar.suspend(|| match self.json {
            true => print_line(&record().to_string()),
            false => wrap_lines(text, find_columns()).lines().for_each(print_line),
        });
    }

    /// Prints a row of a table without the columns that do not fit, or a record. See [`Table::narrow`] for `order`.
    pub fn print_row(
        &self, table: &Table, cells: Vec<String>, order: &[&[usize]],
        record: impl FnOnce() -> Value,
    ) {
        let mut row = table.clone();
        row.row(cells);
        self.bar.suspend(|| match self.json {
            true => print_line(&record().to_string()),
            false => narrow(row, order).lines().iter().for_each(|line| print_line(line)),
        });
    }

    /// Prints prose and the headings of a table without the columns that do not fit. See [`Table::narrow`] for `order`.
    pub fn head(&self, prose: &[&str], table: &Table, order: &[&[usize]]) {
        if !self.json {
            let prose = wrap_lines(&prose.join("\n"), find_columns());
            let head = narrow(table.clone(), order).head();
            self.bar.suspend(|| prose.lines().chain([&*head]).for_each(print_line));
        }
    }
}

/// Removes columns from a table until it fits the terminal, or `COLUMNS`. In a pipe, all columns stay.
fn narrow(mut table: Table, order: &[&[usize]]) -> Table {
    if let Some(columns) = find_columns() {
        table.narrow(columns, order);
    }
    table
}

/// Smallest message, in bytes, for which transfer methods are compared.
const TRANSFER_MIN: usize = 4096;

/// Transfer methods that are compared with the bare pipeline.
const TRANSFER_WAYS: [CopyMethod; 4] = [
    CopyMethod::Kernel,
    CopyMethod::KernelBoth { piece: 16 << 10 },
    CopyMethod::KernelBoth { piece: 64 << 10 },
    CopyMethod::Direct,
];

/// Time limit of the search for the best pipelines, over all sizes, in nanoseconds.
const SEARCH_NS: u64 = 1_000_000_000;

/// Chooses the two processors to measure between.
pub(crate) fn choose_processors(asked: &[usize]) -> Result<[usize; 2]> {
    choose_from(&placement::allowed_processors(), asked)
}

/// Chooses two of the processors that this process may use, in ascending order.
pub(crate) fn choose_from(allowed: &[usize], asked: &[usize]) -> Result<[usize; 2]> {
    if let Some(other) = asked.iter().find(|processor| !allowed.contains(processor)) {
        let allowed = CpuSet::from_iter(allowed.iter().copied());
        refuse_usage!(
            "--processors: this process may not use processor {other}; use two of {allowed}"
        );
    }
    match (asked, allowed) {
        (&[a, b], _) if a != b => Ok([a, b]),
        ([], [first, second, ..]) => Ok([*first, *second]),
        ([], _) => {
            bail!(
                "this process may use only one processor, and the floor needs two; widen the \
                 affinity mask of this process"
            )
        }
        _ => refuse_usage!("--processors needs two different numbers, such as 0,1"),
    }
}

/// Returns the requested sizes, or `otherwise` if none are requested.
pub(super) fn choose_sizes(asked: &[u64], otherwise: &[u64]) -> Vec<usize> {
    let sizes = match asked {
        [] => otherwise,
        asked => asked,
    };
    sizes.iter().map(|&b| b as usize).collect()
}

/// Measures a cache line between two processors, a stream of lines, memory copies by size, and transfer methods of
/// large messages.
///
/// # Errors
/// A processor cannot be used.
pub fn run(options: &FloorOptions) -> Result<()> {
    let pair = choose_processors(&options.processors)?;
    let output = &Output::new(options.json, false);
    let (samples, batch_ns) = (options.samples, options.batch);
    let sizes = choose_sizes(&options.sizes, &steps_of_four::<9>(64));
    say_line(pair, measure_lines(pair, samples, batch_ns), batch_ns, output)?;
    say_stream(measure_stream(pair, samples, batch_ns), output)?;
    let samples = samples.min(100);
    let table = make_table("");
    let head = "copy of memory on one processor, ns per copy:";
    output.head(&[head], &table, &[]);
    let mut copier = CopyFloor::new(sizes.iter().copied().max().unwrap_or(0));
    for &bytes in &sizes {
        let copy = copier.sample(bytes, samples, batch_ns);
        say_copy(bytes, Ok(copy), &table, output)?;
    }
    let large: Vec<usize> = sizes.into_iter().filter(|&b| b >= TRANSFER_MIN).collect();
    let table = make_table("|way");
    if !large.is_empty() {
        let [one, two] = pair;
        let head = format!(
            "transfer of a message between processors {one} and {two}, ns per half round trip:"
        );
        output.head(&[&head], &table, &[]);
    }
    let pipelines = find_best(pair, &large, SEARCH_NS).context(FAILED)?;
    for (mut pipeline, found) in pipelines {
        let (bytes, plan) = (pipeline.bytes(), found.plan);
        let taken = pipeline.sample(plan, samples, batch_ns);
        let way = format!("bare pipeline: {plan}");
        say_transfer(bytes, &way, taken.map(|taken| taken.times), &table, output);
        for way in TRANSFER_WAYS {
            let taken = measure_transfer(pair, way, bytes, samples, batch_ns);
            say_transfer(bytes, &way.to_string(), taken, &table, output);
        }
    }
    // Measure trace points last, because this process records events from then on.
    let points = measure_points(samples, batch_ns).context(FAILED)?;
    let in_place = format!(
        "recorded, mean of the {} points that the library records for a message of a rank to \
         itself",
        points.of_message
    );
    let of_call = "recorded, mean of the 3 points of an immediate call, in a loop";
    for (times, what) in [
        (points.off, "not recorded"),
        (points.clock, "not recorded; only the clock is read"),
        (points.on, "recorded, in a loop"),
        (points.of_call, of_call),
        (points.in_place, &in_place),
    ] {
        let time = summarize(&times).context(EMPTY)?;
        let said = say_time(&time);
        let text = format!("time of one trace point (FASTPATH_TRACE), {what}: {said} ns");
        output.say(
            &text,
            || json!({"record": "floor_point", "unit": "ns per point", "what": what, "time": time}),
        );
    }
    Ok(())
}

fn summarize_all(taken: io::Result<Vec<f64>>) -> Result<Summary> {
    summarize(&taken.context(FAILED)?).context(EMPTY)
}

/// Prints the one-way time of a cache line between two processors.
fn say_line(
    processors: [usize; 2], taken: io::Result<Vec<f64>>, batch_ns: u64, output: &Output,
) -> Result<()> {
    let line = summarize_all(taken)?;
    let clock_step_ns = observe_clock_step_ns();
    let text = format!(
        "cache line between {}, one way, two lines in turn: {} ns\n\
         ({} samples, each the mean over a batch of at least {} us; step of the clock \
         {clock_step_ns} ns)",
        describe_pair(processors[0] as i32, processors[1] as i32),
        say_time(&line),
        line.samples,
        batch_ns as f64 / 1000.0,
    );
    output.say(&text, || {
        json!({
            "record": "floor_line", "unit": "ns one way", "processors": processors,
            "time": line, "batch_ns": batch_ns, "clock_step_ns": clock_step_ns,
        })
    });
    Ok(())
}

fn say_time(time: &Summary) -> String {
    format!("min {:.1}, median {:.1}, p99 {:.1}", time.min, time.median, time.p99)
}

/// Prints the time of a message of one cache line, in a stream through a ring.
fn say_stream(taken: io::Result<Vec<f64>>, output: &Output) -> Result<()> {
    let stream = summarize_all(taken)?;
    let rate = 1e3 / stream.median;
    let text = format!(
        "messages of one cache line in a stream through a ring: {} ns each; {rate:.1} million per \
         second at the median",
        say_time(&stream)
    );
    output.say(&text, || {
        json!({
            "record": "floor_stream", "unit": "ns per message of one line", "time": stream,
            "million_messages_per_s_at_median": rate,
        })
    });
    Ok(())
}

/// Table with rows of a size, a time, the bandwidth at the median, and `what`.
fn make_table(what: &str) -> Table {
    Table::of(&format!("bytes>9|min>10|median>10|p99>10|GB/s>6{what}"))
}

fn list_times(bytes: usize, time: &Summary) -> [String; 4] {
    let rate = bytes as f64 / time.median;
    [time.min, time.median, time.p99, rate].map(|value| format!("{value:.1}"))
}

/// Prints the time of a memory copy of `bytes` bytes.
fn say_copy(
    bytes: usize, taken: io::Result<Vec<f64>>, table: &Table, output: &Output,
) -> Result<()> {
    let copy = summarize_all(taken)?;
    let cells = [bytes.to_string()].into_iter();
    let cells = cells.chain(list_times(bytes, &copy));
    output.say(&table.format_row(cells), || {
        json!({
            "record": "floor_copy", "unit": "ns per copy", "bytes": bytes, "time": copy,
            "GB_per_s_at_median": bytes as f64 / copy.median,
        })
    });
    Ok(())
}

/// Prints one transfer method for one size, or why it is unavailable.
fn say_transfer(
    bytes: usize, way: &str, taken: io::Result<Vec<f64>>, table: &Table, output: &Output,
) {
    let time = taken.map(|taken| summarize(&taken));
    let none = ["-"; 4].map(str::to_owned);
    let (times, way_said) = match &time {
        Ok(Some(time)) => (list_times(bytes, time), way.to_owned()),
        Ok(None) => (none, format!("{way}: no samples")),
        Err(e) => (none, format!("{way}: not available: {e}")),
    };
    let cells = [bytes.to_string()].into_iter().chain(times).chain([way_said]);
    output.say(&table.format_row_within(cells, find_columns()), || {
        json!({
            "record": "floor_transfer", "unit": "ns per half round trip", "bytes": bytes,
            "way": way, "time": time.as_ref().ok(),
            "refused": time.as_ref().err().map(|e| e.to_string()),
        })
    });
}
