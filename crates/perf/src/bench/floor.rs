//! `fastpath bench floor`: what the hardware takes, without MPI.

use std::io;

use anyhow::{Context, Result, bail};
use clap::Args;
use fastpath_base::clock;
use fastpath_base::config::parse_duration_ns;
use serde_json::{Value, json};

use super::options::parse_bytes;
use super::table::describe_pair;
use crate::document::Table;
use crate::measure::floor::{self, CopyFloor};
use crate::measure::pipeline::search::find_best;
use crate::measure::points::measure_points;
use crate::measure::statistics::{Summary, summarize};
use crate::measure::stream::measure_stream;
use crate::measure::transfer::{Way, measure_transfer};
use crate::measure::{observe_clock_step_ns, placement, steps_of_four};
use crate::output::print_line;

/// Options of the floor.
#[derive(Args, Debug)]
pub struct FloorOptions {
    /// Sizes in bytes, separated by commas; K and M are powers of 1024
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes)]
    sizes: Vec<u64>,
    /// Samples of each case; of a copy and of a way to carry a message at most 100
    #[arg(long, default_value_t = 1000, value_parser = parse_samples, conflicts_with = "duration")]
    samples: usize,
    /// Time for the samples of each case, in place of a number
    #[arg(long, value_parser = parse_batch)]
    duration: Option<u64>,
    /// A sample is the mean over a batch that lasts at least this long
    #[arg(long, default_value = "20us", value_parser = parse_batch)]
    batch: u64,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// The two processors, as 0,1 [default: the first two this process may use]
    #[arg(long, value_delimiter = ',', num_args = 1)]
    processors: Vec<usize>,
}

pub(super) fn parse_batch(text: &str) -> Result<u64, String> {
    match parse_duration_ns(text)? {
        0 => Err("must be above zero".to_owned()),
        ns => Ok(ns),
    }
}

/// The most samples of a case.
const SAMPLES_MAX: usize = 1 << 20;

pub(super) fn parse_samples(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=SAMPLES_MAX).contains(&n) => Ok(n),
        _ => Err("expected a whole number from 1 to 1048576".to_owned()),
    }
}

pub(super) const FAILED: &str = "cannot measure the floor";
pub(super) const EMPTY: &str = "nothing was measured";

/// How many samples a case gets.
#[derive(Clone, Copy, Debug)]
enum Amount {
    /// So many.
    Samples(usize),
    /// As many as are taken in so many nanoseconds.
    DurationNs(u64),
}

/// Samples from which it is told how many fit a duration.
const TRIAL: usize = 20;

impl Amount {
    /// At most so many, where a number was asked for.
    fn at_most(self, most: usize) -> Amount {
        match self {
            Amount::Samples(n) => Amount::Samples(n.min(most)),
            duration => duration,
        }
    }

    /// The samples that `measure`, called with a number of them, takes.
    fn take(self, mut measure: impl FnMut(usize) -> io::Result<Vec<f64>>) -> io::Result<Vec<f64>> {
        let wanted = match self {
            Amount::Samples(n) => return measure(n),
            Amount::DurationNs(ns) => ns as f64,
        };
        let begin = clock::now_ns();
        let mut all = measure(TRIAL)?;
        let spent = (clock::now_ns() - begin).max(1) as f64;
        // The trial counts too: no sample is dropped.
        let left = (wanted - spent) / spent * TRIAL as f64;
        if left >= 1.0 {
            all.extend(measure(left.min(SAMPLES_MAX as f64) as usize)?);
        }
        Ok(all)
    }
}

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A table.
    Text,
    /// One JSON object a line.
    Json,
}

pub(super) fn print_json(value: &Value) {
    print_line(&value.to_string());
}

/// Smallest message for which the ways to carry many bytes are compared.
const TRANSFER_MIN: usize = 4096;

/// The ways that are compared with the bare pipeline.
const TRANSFER_WAYS: [Way; 4] = [
    Way::Kernel,
    Way::KernelBoth { piece: 16 << 10 },
    Way::KernelBoth { piece: 64 << 10 },
    Way::Direct,
];

/// Time for the search of the best pipelines, of all sizes together.
const SEARCH_NS: u64 = 1_000_000_000;

/// The two processors to measure between.
pub(crate) fn choose_processors(asked: &[usize]) -> Result<[usize; 2]> {
    let allowed = placement::allowed_processors();
    match (asked, allowed.as_slice()) {
        (&[a, b], _) if a != b => Ok([a, b]),
        ([], [first, second, ..]) => Ok([*first, *second]),
        ([], _) => {
            bail!("this process may use one processor alone: there is nothing to measure between")
        }
        _ => bail!("--processors takes two different numbers, as 0,1"),
    }
}

/// Sizes that were asked for, or these.
pub(super) fn choose_sizes(asked: &[u64], otherwise: &[u64]) -> Vec<usize> {
    let sizes = match asked {
        [] => otherwise,
        asked => asked,
    };
    sizes.iter().map(|&b| b as usize).collect()
}

/// The cache line between two processors, the stream of lines, the copy of memory by size, and
/// ways to carry large messages.
///
/// # Errors
/// A processor that cannot be used.
pub fn run(options: &FloorOptions) -> Result<()> {
    let pair = choose_processors(&options.processors)?;
    let form = if options.json { Form::Json } else { Form::Text };
    let batch_ns = options.batch;
    let amount = options
        .duration
        .map_or(Amount::Samples(options.samples), Amount::DurationNs);
    let sizes = choose_sizes(&options.sizes, &steps_of_four::<9>(64));
    let line = measure(amount, |n| floor::measure_lines(pair, n, batch_ns))?;
    say_line(pair, &line, batch_ns, form);
    let stream = measure(amount, |n| measure_stream(pair, n, batch_ns))?;
    say_stream(&stream, form);
    let table = make_table("");
    if form == Form::Text {
        print_line("copy of memory, one processor, ns per copy:");
        print_line(&table.head());
    }
    let mut copier = CopyFloor::new(sizes.iter().copied().max().unwrap_or(0));
    let amount = amount.at_most(100);
    for &bytes in &sizes {
        let copy = measure(amount, |n| Ok(copier.sample(bytes, n, batch_ns)))?;
        say_copy(bytes, &copy, &table, form);
    }
    let large: Vec<usize> = sizes.into_iter().filter(|&b| b >= TRANSFER_MIN).collect();
    let table = make_table("way<60|");
    if !large.is_empty() && form == Form::Text {
        let [one, two] = pair;
        print_line(&format!(
            "carrying a message between processors {one} and {two}, ns per half round trip:"
        ));
        print_line(&table.head());
    }
    let pipelines = find_best(pair, &large, SEARCH_NS).context(FAILED)?;
    for (mut pipeline, found) in pipelines {
        let (bytes, plan) = (pipeline.bytes(), found.plan);
        let time = amount.take(|n| Ok(pipeline.sample(plan, n, batch_ns)?.times));
        let way = format!("bare pipeline: {plan}");
        say_transfer(bytes, &way, &time, &table, form);
        for way in TRANSFER_WAYS {
            let time = amount.take(|n| measure_transfer(pair, way, bytes, n, batch_ns));
            say_transfer(bytes, &way.to_string(), &time, &table, form);
        }
    }
    // Last: from then on this process records.
    let points = measure_points(options.samples.min(100), batch_ns).context(FAILED)?;
    let in_place = format!(
        "recorded, each of the {} of a message to this rank itself, in place",
        points.of_message
    );
    for (times, what) in [
        (points.off, "not recorded"),
        (points.clock, "its clock alone"),
        (points.on, "recorded, in a loop"),
        (
            points.of_call,
            "recorded, each of the 3 of an immediate call, in a loop",
        ),
        (points.in_place, &in_place),
    ] {
        let time = summarize(&times).context(EMPTY)?;
        let record = json!({
            "record": "floor_point", "unit": "ns per point", "what": what, "time": time,
        });
        let time = say_time(&time);
        let text = format!("point of a trace (FASTPATH_TRACE), {what}: {time} ns");
        say(form, &record, &text);
    }
    Ok(())
}

/// What a case took.
fn measure(amount: Amount, take: impl FnMut(usize) -> io::Result<Vec<f64>>) -> Result<Summary> {
    summarize(&amount.take(take).context(FAILED)?).context(EMPTY)
}

/// One JSON object, or text for people.
fn say(form: Form, record: &Value, text: &str) {
    match form {
        Form::Json => print_json(record),
        Form::Text => text.lines().for_each(print_line),
    }
}

/// The cache line between two processors.
fn say_line(processors: [usize; 2], line: &Summary, batch_ns: u64, form: Form) {
    let clock_step_ns = observe_clock_step_ns();
    let record = json!({
        "record": "floor_line", "unit": "ns one way", "processors": processors,
        "time": line, "batch_ns": batch_ns, "clock_step_ns": clock_step_ns,
    });
    let text = format!(
        "cache line between {}, one way, two lines in turn: {} ns\n\
         ({} samples, each the mean over a batch of at least {} us; step of the clock \
         {clock_step_ns} ns)",
        describe_pair(processors[0] as i32, processors[1] as i32),
        say_time(line),
        line.samples,
        batch_ns as f64 / 1000.0,
    );
    say(form, &record, &text);
}

fn say_time(time: &Summary) -> String {
    format!(
        "min {:.1}, median {:.1}, p99 {:.1}",
        time.min, time.median, time.p99
    )
}

/// Lines that stream through a ring.
fn say_stream(stream: &Summary, form: Form) {
    let rate = 1e3 / stream.median;
    let record = json!({
        "record": "floor_stream", "unit": "ns per message of one line", "time": stream,
        "million_messages_per_s_at_median": rate,
    });
    let text = format!(
        "messages of one line streaming through a ring: {} ns each; {rate:.1} million per second \
         at the median",
        say_time(stream)
    );
    say(form, &record, &text);
}

/// Rows of a size, perhaps what is done with it, and a time.
fn make_table(what: &str) -> Table {
    Table::of(&format!(
        "bytes>9|{what}min>11|median>11|p99>11|GB/s, median>13"
    ))
}

fn list_times(bytes: usize, time: &Summary) -> [String; 4] {
    let rate = bytes as f64 / time.median;
    [time.min, time.median, time.p99, rate].map(|value| format!("{value:.1}"))
}

/// The copy of memory at one size.
fn say_copy(bytes: usize, copy: &Summary, table: &Table, form: Form) {
    let record = json!({
        "record": "floor_copy", "unit": "ns per copy", "bytes": bytes, "time": copy,
        "GB_per_s_at_median": bytes as f64 / copy.median,
    });
    let cells = [bytes.to_string()]
        .into_iter()
        .chain(list_times(bytes, copy));
    say(form, &record, &table.format_row(cells));
}

/// One way to carry a message of one size, or why it is not open.
fn say_transfer(bytes: usize, way: &str, taken: &io::Result<Vec<f64>>, table: &Table, form: Form) {
    let time = taken.as_ref().map(|taken| summarize(taken));
    let record = json!({
        "record": "floor_transfer", "unit": "ns per half round trip", "bytes": bytes,
        "way": way, "time": time.as_ref().ok(),
        "refused": time.as_ref().err().map(|e| e.to_string()),
    });
    let mut cells = vec![bytes.to_string(), way.to_owned()];
    match time {
        Ok(Some(time)) => cells.extend(list_times(bytes, &time)),
        Ok(None) => cells.push("no samples".to_owned()),
        Err(e) => cells.push(format!("not open: {e}")),
    }
    say(form, &record, &table.format_row(cells));
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn amount__of_time_is_filled_and_keeps_its_trial() {
        let asked = std::cell::RefCell::new(Vec::new());
        let take = |amount: Amount| {
            asked.borrow_mut().clear();
            let taken = amount.take(|n| {
                asked.borrow_mut().push(n);
                Ok(vec![1.0; n])
            });
            taken.unwrap().len()
        };
        assert_eq!(take(Amount::Samples(7)), 7);
        assert_eq!(take(Amount::Samples(7).at_most(5)), 5);
        // An hour of samples that take next to nothing.
        let many = take(Amount::DurationNs(3_600_000_000_000).at_most(5));
        assert_eq!(many, asked.borrow().iter().sum::<usize>());
        assert_eq!(*asked.borrow(), [TRIAL, SAMPLES_MAX]);
        // Less than the trial takes.
        assert_eq!(take(Amount::DurationNs(1)), TRIAL);
    }

    #[test]
    fn amount__passes_on_why_nothing_can_be_measured() {
        let refused = Amount::DurationNs(1000).take(|_| Err(io::Error::other("no")));
        assert_eq!(refused.unwrap_err().to_string(), "no");
    }
}
