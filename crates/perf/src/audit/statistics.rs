//! Which statistic a column is: by its heading, by its order among the others, by the clock's
//! steps; and what is known of the tools whose headings these are.

use super::parse::{Column, Table};

/// The statistic that a heading names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Statistic {
    /// The smallest sample.
    Minimum,
    /// The largest.
    Maximum,
    /// The middle one.
    Median,
    /// The arithmetic mean.
    Mean,
}

impl Statistic {
    /// Its name in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Statistic::Minimum => "minimum",
            Statistic::Maximum => "maximum",
            Statistic::Median => "median",
            Statistic::Mean => "mean",
        }
    }
}

/// The statistic that a heading names, if it names one.
pub fn named_statistic(heading: &str) -> Option<Statistic> {
    let lower = heading.to_lowercase();
    let any = |words: &[&str]| words.iter().any(|w| lower.contains(w));
    if any(&["typical", "median", "p50"]) {
        Some(Statistic::Median)
    } else if any(&["avg", "average", "mean"]) {
        Some(Statistic::Mean)
    } else if any(&["min"]) {
        Some(Statistic::Minimum)
    } else if any(&["max", "peak"]) {
        Some(Statistic::Maximum)
    } else {
        None
    }
}

/// Columns that are the smallest, and the largest, of the measured ones in every row, those aside that are known to
/// be no times: None with fewer than three columns or two rows, or where no column is always so.
pub fn find_extremes(table: &Table, no_times: &[usize]) -> Option<(usize, usize)> {
    let measured: Vec<(usize, &Column)> = table
        .columns
        .iter()
        .enumerate()
        .filter(|(i, c)| !c.is_parameter() && !no_times.contains(i))
        .collect();
    let same_unit = measured.windows(2).all(|w| w[0].1.unit == w[1].1.unit);
    if measured.len() < 3 || table.rows() < 2 || !same_unit {
        return None;
    }
    let value = |column: &Column, row: usize| column.cells[row].value;
    let leads = |pick: fn(f64, f64) -> bool| {
        let mut columns = measured.iter().filter(|(_, c)| {
            let row_leads = |r| measured.iter().all(|(_, o)| pick(value(c, r), value(o, r)));
            (0..table.rows()).all(row_leads)
        });
        match (columns.next(), columns.next()) {
            (Some(&(index, _)), None) => Some(index),
            _ => None,
        }
    };
    Some((leads(|a, b| a <= b)?, leads(|a, b| a >= b)?))
}

/// What is known of the tool whose headings a table has, beyond what its numbers say.
pub fn known_method(table: &Table) -> Option<&'static str> {
    let names: Vec<String> = table
        .columns
        .iter()
        .map(|c| c.name.to_lowercase())
        .collect();
    let has = |word: &str| names.iter().any(|n| n.contains(word));
    if has("t_typical") {
        Some(
            "the headings are perftest's: t_typical is the median; the two largest samples are dropped before t_max and all \
             percentiles; half a round trip for send and write, a whole one for read and atomic; its clock may be taken from the \
             processor's nominal frequency and be wrong by up to 2 %",
        )
    } else if has("bw peak") || has("msgrate") {
        Some(
            "the headings are perftest's: its MB/sec are divided by 2^20; its clock may be wrong by up to 2 %",
        )
    } else if has("latency (us)") || has("avg latency(us)") || has("avg latency") {
        Some(
            "the headings are OSU's: the mean over all iterations after the warm-up, half a round trip; no percentile",
        )
    } else {
        None
    }
}
