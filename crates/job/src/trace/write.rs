//! Writing of the file: the Trace Event Format (JSON object form), times in microseconds from the first rank's start.

use super::read::{RankTrace, ThreadTrace, TimedPoint};
use fastpath_base::trace::{Point, PointPhase};
use std::io::{self, Write};

/// Content of a trace.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Number of ranks that have recorded.
    pub ranks: usize,
    /// Number of points in the file.
    pub points: u64,
    /// Number of points overwritten by later ones.
    pub overwritten: u64,
    /// Number of threads that got no ring.
    pub threads_lost: u64,
}

pub(super) fn write(ranks: &[RankTrace], out: &mut dyn Write) -> io::Result<Summary> {
    let threads = || ranks.iter().flat_map(|r| &r.threads);
    let points = || threads().flat_map(|t| &t.points);
    let start = points().map(|p| p.ns).min().unwrap_or(0);
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut between = "\n";
    for rank in ranks {
        write!(
            out,
            "{between}{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{0},\
             \"args\":{{\"name\":\"rank {0} (process {1})\"}}}}",
            rank.rank, rank.pid
        )?;
        between = ",\n";
        write!(
            out,
            "{between}{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{0},\
             \"args\":{{\"sort_index\":{0}}}}}",
            rank.rank
        )?;
        for thread in &rank.threads {
            let name = match thread.tid == rank.pid {
                true => "main thread".to_owned(),
                false => format!("thread {}", thread.tid),
            };
            write!(
                out,
                "{between}{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\
                 \"args\":{{\"name\":\"{name}\"}}}}",
                rank.rank, thread.tid
            )?;
            write_thread(rank, thread, start, out)?;
        }
    }
    writeln!(out, "\n]}}")?;
    Ok(Summary {
        ranks: ranks.len(),
        points: points().count() as u64,
        overwritten: threads().fold(0, |sum, t| sum.saturating_add(t.overwritten)),
        threads_lost: ranks.iter().map(|r| r.threads_lost).sum(), // cannot overflow: 32 bits each
    })
}

fn write_thread(
    rank: &RankTrace, thread: &ThreadTrace, start: u64, out: &mut dyn Write,
) -> io::Result<()> {
    // Skip the end of an interval whose beginning was overwritten. If an interval has no end, the rank died in it, and
    // it stays open.
    let mut depth = 0u32;
    for stamped in &thread.points {
        let phase = match stamped.point.phase() {
            PointPhase::Begin => {
                depth += 1;
                "B"
            }
            PointPhase::End if depth == 0 => continue,
            PointPhase::End => {
                depth -= 1;
                "E"
            }
            PointPhase::Moment => "i",
        };
        let ns = stamped.ns.saturating_sub(start);
        write!(
            out,
            ",\n{{\"ph\":\"{phase}\",\"pid\":{},\"tid\":{},\"ts\":{}.{:03}",
            rank.rank,
            thread.tid,
            ns / 1000,
            ns % 1000
        )?;
        if phase != "E" {
            write_what(rank, stamped, out)?;
        }
        if phase == "i" {
            write!(out, ",\"s\":\"t\"")?;
        }
        write!(out, "}}")?;
    }
    Ok(())
}

fn write_what(rank: &RankTrace, stamped: &TimedPoint, out: &mut dyn Write) -> io::Result<()> {
    let name = match stamped.point {
        Point::Call => rank.name(stamped.bytes),
        point => point.name().to_owned(),
    };
    write!(out, ",\"name\":\"{name}\"")?;
    let values = [i128::from(stamped.peer), i128::from(stamped.tag), i128::from(stamped.bytes)];
    let mut between = ",\"args\":{";
    for (field, value) in stamped.point.fields().iter().zip(values) {
        if !field.is_empty() {
            write!(out, "{between}\"{field}\":{value}")?;
            between = ",";
        }
    }
    if let Some(subject) = stamped.subject {
        write!(out, "{between}\"window\":\"{}\"", rank.name(subject))?;
        between = ",";
    }
    match between {
        "," => write!(out, "}}"),
        _ => Ok(()),
    }
}
