//! The report for people.

use std::io::{self, Write};

use super::crossover::Finding;
use super::{Model, Report, VerbName};
use crate::compare::interval::{Ratio, Verdict};

pub(super) fn print(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let Report {
        device,
        port,
        part,
        firmware,
        driver,
        ..
    } = report;
    writeln!(
        out,
        "device {device} port {port}: part {part}, firmware {firmware}, driver {driver}"
    )?;
    if report.software {
        writeln!(
            out,
            "a software adapter: its times are this processor's, and say nothing of an adapter on a bus"
        )?;
    }
    print_cases(out, report)?;
    match &report.crossover {
        Some(found) => writeln!(out, "\n{}", describe(found, report))?,
        None => writeln!(out, "\nnothing to measure: no inline data is granted")?,
    }
    print_queues(out, report)?;
    writeln!(out, "\nby the model, not measured:")?;
    for model in &report.models {
        writeln!(out, "  {}", predict(model))?;
    }
    match (&report.stored_in, &report.not_stored) {
        (Some(path), _) => writeln!(
            out,
            "\nstored in {}: jobs ask {device} for {} bytes of inline data",
            path.display(),
            report.stored_bytes.unwrap_or(0)
        ),
        (None, Some(why)) => writeln!(out, "\nnothing is stored: {why}"),
        (None, None) => Ok(()),
    }
}

fn print_cases(out: &mut impl Write, report: &Report) -> io::Result<()> {
    if report.cases.is_empty() {
        return Ok(());
    }
    let what = match report.verb {
        VerbName::Send => "sends",
        VerbName::Write => "writes",
    };
    writeln!(
        out,
        "{what} between two queue pairs of the device, half a round trip: median over {} rounds of a batch's mean",
        report.rounds
    )?;
    writeln!(
        out,
        "\n{:>7} {:>12} {:>12} {:>9}  {:<16} inline is",
        "bytes", "inline (ns)", "DMA (ns)", "ratio", "95 % interval"
    )?;
    for case in &report.cases {
        write!(
            out,
            "{:>7} {:>12.1} {:>12.1}",
            case.bytes, case.inline_ns, case.dma_ns
        )?;
        match case.ratio {
            Some(ratio) => writeln!(out, " {:>9.4}  {}", ratio.ratio, judge(&ratio))?,
            None => writeln!(out)?,
        }
    }
    Ok(())
}

fn judge(ratio: &Ratio) -> String {
    let interval = match ratio.interval {
        Some([low, high]) => format!("{low:.4} to {high:.4}"),
        None => "none".to_owned(),
    };
    let verdict = match ratio.judge() {
        Verdict::Below => "faster",
        Verdict::Above => "slower",
        Verdict::CannotTell => "cannot tell",
    };
    format!("{interval:<16} {verdict}")
}

/// The crossover in a sentence.
pub(super) fn describe(found: &Finding, report: &Report) -> String {
    if !found.known {
        return format!(
            "crossover: cannot tell: by these {} rounds no limit is better than sending nothing inline or everything",
            report.rounds
        );
    }
    let size = |limit: Option<u32>| limit.map_or("never".to_owned(), |n| format!("{n} bytes"));
    let [low, high] = found.interval.map(size);
    let beyond = match found.limit.is_some() && found.all {
        true => ", the largest size looked at",
        false => "",
    };
    let what = say_limit(found.limit);
    format!(
        "crossover: {what}{beyond}; 95 % interval {low} to {high}; {:.0} % of repeated draws of the rounds say the same",
        100.0 * found.confidence
    )
}

fn say_limit(limit: Option<u32>) -> String {
    match limit {
        None => "inline never pays".to_owned(),
        Some(n) => format!("inline pays up to {n} bytes"),
    }
}

fn print_queues(out: &mut impl Write, report: &Report) -> io::Result<()> {
    writeln!(
        out,
        "\nwhat it costs in memory, for each connection:\n{:>7} {:>9} {:>7} {:>15} {:>12}  known by",
        "asked", "granted", "sends", "B for each send", "queue (B)"
    )?;
    for cost in &report.queues {
        write!(
            out,
            "{:>7} {:>9} {:>7}",
            cost.asked, cost.granted, cost.depth
        )?;
        match (cost.queue, cost.descriptor()) {
            (Some(queue), Some(descriptor)) => writeln!(
                out,
                " {descriptor:>15} {:>12}  {}",
                queue.bytes,
                queue.known_by.name()
            )?,
            _ => writeln!(out, " {:>15} {:>12}  not known", "-", "-")?,
        }
    }
    Ok(())
}

fn predict(model: &Model) -> String {
    let Model {
        adapter,
        host,
        asked,
        ..
    } = model;
    let what = match (model.limit, model.all) {
        (Some(n), true) => format!("inline pays up to all of {n} bytes granted"),
        (limit, _) => say_limit(limit),
    };
    format!("{adapter} in {host}, {asked} bytes asked for: {what}")
}
