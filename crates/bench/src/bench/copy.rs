//! `fastpath bench copy`: the loops of the copy engine, alone and as a pipeline between two processors. The pipeline is
//! the floor of large messages.

use std::io;

use anyhow::{Context, Result};
use clap::Args;
use fastpath_base::copy::engine::Loop;
use fastpath_machine::measure::copies::{Copies, CopyTarget, Offsets, PIECE, RING};
use fastpath_machine::measure::pipeline::Pipeline;
use fastpath_machine::measure::pipeline::search::{BestPlan, Effort, compare, search};
use fastpath_machine::measure::steps_of_four;
use fastpath_report::document::Table;
use fastpath_report::output::table::describe_pair;
use fastpath_report::statistics::Summary;
use serde_json::json;

use super::floor::{
    EMPTY, FAILED, Output, choose_processors, choose_sizes, parse_batch, parse_samples,
};
use crate::options::parse_bytes;

/// Options of the copy loops.
#[derive(Args, Debug)]
pub struct CopyOptions {
    /// Sizes in bytes, separated by commas; K and M are powers of 1024 [default: 1K to 4M; for the pipeline 4K to 1M]
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes)]
    sizes: Vec<u64>,
    /// Number of samples of each case; the fastest cases of the pipeline get four times as many samples
    #[arg(long, default_value_t = Effort::DEFAULT.samples, value_parser = parse_samples)]
    samples: usize,
    /// Minimum duration of a batch; a sample is the mean over a batch
    #[arg(long, default_value = "100us", value_parser = parse_batch)]
    batch: u64,
    /// Pipeline: pair each loop of the sender with each loop of the receiver, instead of only the best loops
    #[arg(long)]
    all: bool,
    /// Measure only the pipeline
    #[arg(long)]
    pipeline: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Do not show a progress bar
    #[arg(long)]
    no_progress: bool,
    /// Two processors to use, such as 0,1 [default: the first two this process may use]
    #[arg(long, value_delimiter = ',', num_args = 1)]
    processors: Vec<usize>,
}

const SIZES: [u64; 7] = steps_of_four(1 << 10);

const PIPELINE_SIZES: [u64; 5] = steps_of_four(4 << 10);

/// Buffer offsets: large blocks of malloc begin 16 bytes into a page, a ring's chunks at a page.
const OFFSETS: [Offsets; 4] = [
    Offsets { from: 0, to: 0 },
    Offsets { from: 16, to: 0 },
    Offsets { from: 0, to: 16 },
    Offsets { from: 29, to: 7 },
];

struct Session<'a> {
    options: &'a CopyOptions,
    pair: [usize; 2],
    output: Output,
}

/// Measures all loops alone, then as the two sides of a pipeline.
///
/// # Errors
/// A processor cannot be used.
pub fn run(options: &CopyOptions) -> Result<()> {
    let session = Session {
        options,
        pair: choose_processors(&options.processors)?,
        output: Output::new(options.json, !options.no_progress),
    };
    if !options.pipeline {
        session.run_alone()?;
    }
    session.run_pipeline()?;
    session.output.bar.finish_and_clear();
    Ok(())
}

impl Session<'_> {
    fn sizes(&self, otherwise: &[u64]) -> Vec<usize> {
        choose_sizes(&self.options.sizes, otherwise)
    }

    /// Measures loops on one processor. Data is in its caches, if it fits.
    fn run_alone(&self) -> Result<()> {
        let (sizes, loops) = (self.sizes(&SIZES), Loop::all_available());
        let mut copies = Copies::new(sizes.iter().copied().max().unwrap_or(0));
        self.output.bar.set_length((sizes.len() * 2 * loops.len() * OFFSETS.len()) as u64);
        let legend = format!(
            "to: a buffer, or a ring of {} KiB in pieces of {} KiB; *: fastest median",
            RING >> 10,
            PIECE >> 10
        );
        let title = "copies on one processor: ns per copy (min, median) and GB/s at the median, \
                     by the page offsets of source and target";
        self.output.head(&[title, &legend], &make_alone(), ALONE_ORDER);
        for &bytes in &sizes {
            for target in [CopyTarget::Buffer, CopyTarget::Ring] {
                let mut rows = Vec::new();
                for &which in &loops {
                    self.output.bar.set_message(format!("{}, {bytes} B", which.name()));
                    rows.push((which, self.measure_alone(&mut copies, which, target, bytes)?));
                }
                self.print_alone(bytes, target, &rows);
            }
        }
        Ok(())
    }

    fn measure_alone(
        &self, copies: &mut Copies, which: Loop, target: CopyTarget, bytes: usize,
    ) -> Result<Vec<Summary>> {
        let amount = (self.options.samples, self.options.batch / 4);
        let mut times = Vec::new();
        for offsets in OFFSETS {
            let case = (target, offsets);
            let time = copies.measure(self.pair[0], which, case, bytes, amount);
            times.push(time.context(FAILED)?.context(EMPTY)?);
            self.output.bar.inc(1);
        }
        Ok(times)
    }

    fn print_alone(&self, bytes: usize, target: CopyTarget, rows: &[(Loop, Vec<Summary>)]) {
        let best = |column: usize| {
            let medians = rows.iter().map(|(_, times)| times[column].median);
            medians.fold(f64::INFINITY, f64::min)
        };
        let best: Vec<f64> = (0..OFFSETS.len()).map(best).collect();
        let to = match target {
            CopyTarget::Buffer => "buffer",
            CopyTarget::Ring => "ring",
        };
        for (which, times) in rows {
            let mut cells = vec![bytes.to_string(), to.to_owned(), which.name().to_owned()];
            let times_of = times.iter().zip(&best);
            cells.extend(times_of.map(|(time, &best)| write_alone(time, bytes, best)));
            let record = || {
                let by_offsets = OFFSETS.iter().zip(times).map(|(offsets, time)| {
                    json!({
                        "from": offsets.from, "to": offsets.to, "time": time,
                        "GB_per_s_at_median": bytes as f64 / time.median,
                    })
                });
                json!({
                    "record": "copy_alone", "unit": "ns per copy", "bytes": bytes,
                    "target": to, "loop": which.name(),
                    "by_offsets": by_offsets.collect::<Vec<_>>(),
                })
            };
            self.output.print_row(&make_alone(), cells, ALONE_ORDER, record);
        }
    }

    /// Measures every size through the pipeline, with the one-way time of a cache line beside it.
    fn run_pipeline(&self) -> Result<()> {
        let effort = Effort {
            samples: self.options.samples,
            batch_ns: self.options.batch,
            all: self.options.all,
            ..Effort::DEFAULT
        };
        let sizes = self.sizes(&PIPELINE_SIZES);
        let plans: usize = sizes.iter().map(|&b| effort.count_plans(b)).sum();
        self.output.bar.reset();
        self.output.bar.set_length(plans as u64);
        let ([title, legend], table) = (head_pipeline(self.pair), make_pipeline());
        self.output.head(&["", &title, &legend], &table, PIPELINE_ORDER);
        for bytes in sizes {
            self.output.bar.set_message(format!("pipeline, {bytes} B"));
            let mut found = self.search(bytes, effort).context(FAILED)?;
            found.sort_by(compare);
            for (place, found) in found.iter().enumerate() {
                self.print_pipeline(bytes, found, place == 0, &table);
            }
        }
        Ok(())
    }

    fn search(&self, bytes: usize, effort: Effort) -> io::Result<Vec<BestPlan>> {
        let mut pipeline = Pipeline::new(self.pair, bytes)?;
        search(&mut pipeline, effort, &mut || self.output.bar.inc(1))
    }

    fn print_pipeline(&self, bytes: usize, found: &BestPlan, best: bool, table: &Table) {
        let (plan, time) = (found.plan, found.time);
        let (into, out) = (plan.into_ring.name(), plan.out_of_ring.name());
        let kib = |n: usize| format!("{}K", n >> 10);
        let rate = bytes as f64 / time.median;
        let cells = vec![
            format!("{bytes}{}", if best { '*' } else { ' ' }),
            into.to_owned(),
            out.to_owned(),
            kib(plan.chunk),
            kib(plan.ring),
            format!("{:.0}", found.line),
            found.elsewhere.to_string(),
            format!("{:.1}", time.min),
            format!("{:.1}", time.median),
            format!("{rate:.1}"),
        ];
        self.output.print_row(table, cells, PIPELINE_ORDER, || {
            json!({
                "record": "copy_pipeline", "unit": "ns per half round trip", "bytes": bytes,
                "processors": self.pair, "into_ring": into, "out_of_ring": out,
                "chunk": plan.chunk, "ring": plan.ring, "time": time, "GB_per_s_at_median": rate,
                "line_ns_one_way": found.line, "batches_elsewhere": found.elsewhere, "best": best,
            })
        });
    }
}

/// Columns that a narrow terminal lacks: the second and third of [`OFFSETS`], then the last.
const ALONE_ORDER: &[&[usize]] = &[&[4, 5], &[4]];

/// Columns that a narrow terminal lacks: the shortest time, the time of a line, then batches left out.
const PIPELINE_ORDER: &[&[usize]] = &[&[7], &[5], &[5]];

fn make_alone() -> Table {
    let mut table = Table::of("bytes>8|to<6|loop<19");
    table.add_columns(OFFSETS.map(|o| format!("{} to {}>20", o.from, o.to)));
    table
}

fn write_alone(time: &Summary, bytes: usize, best: f64) -> String {
    let mark = if time.median <= best { '*' } else { ' ' };
    let rate = bytes as f64 / time.median;
    let short = |t: f64| match t < 1000.0 {
        true => format!("{t:.1}"),
        false => format!("{t:.0}"),
    };
    let (min, median) = (short(time.min), short(time.median));
    format!("{min:>6} {median:>6} {rate:>5.1}{mark}")
}

fn head_pipeline(pair: [usize; 2]) -> [String; 2] {
    let title = format!(
        "bare pipeline between {}, ns per half round trip",
        describe_pair(pair[0] as i32, pair[1] as i32)
    );
    let legend = "line: ns of a cache line one way, measured before and after every case\n\
                  other: number of batches left out, because the time of the line differed\n\
                  GB/s: at the median; *: fastest median";
    [title, legend.to_owned()]
}

fn make_pipeline() -> Table {
    const SIDES: &str = "into the ring<19|out of the ring<19|chunk>5|ring>5|line>6|other>5";
    Table::of(&format!("bytes >9|{SIDES}|min>11|median>9|GB/s>6"))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_report::testing::parse_options;

    const TIME: Summary =
        Summary { min: 123_456.7, median: 234_567.8, p99: 99_345_678.9, samples: 1 };

    #[test]
    fn heads__fit_a_line_of_120() {
        let [title, legend] = head_pipeline([0, 1]);
        let heads = [title, legend, make_pipeline().head()];
        assert!(heads.iter().flat_map(|h| h.lines()).all(|l| l.len() <= 120));
    }

    #[test]
    fn columns__stand_below_their_heads_on_a_line_of_120() {
        for which in Loop::all_available() {
            let name = which.name();
            let cells = OFFSETS.map(|_| write_alone(&TIME, 1 << 20, 0.0).len());
            let width =
                "1048576 buffer ".len() + 1 + 19 + cells.iter().sum::<usize>() + cells.len();
            assert_eq!(make_alone().head().len(), width);
            assert!(width <= 120 && name.len() <= 19);
        }
    }

    #[test]
    fn tables__fit_a_terminal_of_80() {
        for (mut table, order) in [(make_alone(), ALONE_ORDER), (make_pipeline(), PIPELINE_ORDER)] {
            let widest = table.width();
            table.narrow(80, order);
            assert!(widest > 80 && table.width() <= 80, "{}", table.head());
            assert!(table.columns.len() >= 5, "{}", table.head());
        }
        let mut table = make_pipeline();
        table.narrow(80, PIPELINE_ORDER);
        assert!(table.head().ends_with("median   GB/s"), "{}", table.head());
    }

    #[test]
    fn options__have_the_default_effort_of_a_search() {
        let options: CopyOptions = parse_options(&[]).unwrap();
        assert_eq!(options.samples, Effort::DEFAULT.samples);
        assert_eq!(options.batch, Effort::DEFAULT.batch_ns);
        let options: CopyOptions = parse_options(&["--sizes", "4K,1M", "--all"]).unwrap();
        assert_eq!(options.sizes, [4 << 10, 1 << 20]);
        assert!(options.all);
    }
}
