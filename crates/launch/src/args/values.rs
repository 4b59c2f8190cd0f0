//! The values of single options.

use super::parse::Given;
use super::spec::Stdin;
use super::{UsageError, wrong};
use fastpath_base::topology::CpuSet;
use fastpath_bootstrap::segment::MAX_JOB_RANKS;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

/// `-usize N`, `-usize SYSTEM` or `-usize INFINITE`: a number of processes, where one is given.
///
/// # Errors
/// The value is something else.
pub fn read_universe(given: &Given) -> Result<Option<usize>, UsageError> {
    let text = given.text();
    match (parse_ranks(&text), &*text.to_ascii_uppercase()) {
        (Some(size), _) => Ok(Some(size)),
        (None, "SYSTEM") => Ok(None),
        (None, "INFINITE") => Ok(Some(MAX_JOB_RANKS)),
        _ => {
            wrong(format!("{}: neither a number of processes, SYSTEM nor INFINITE", given.typed()))
        }
    }
}

/// A number of ranks.
///
/// # Errors
/// It is no number, or too many.
pub fn read_ranks(given: &Given) -> Result<usize, UsageError> {
    parse_ranks(&given.text()).map_or_else(
        || {
            wrong(format!(
                "{}: a number of ranks from 1 to {MAX_JOB_RANKS} is needed",
                given.typed()
            ))
        },
        Ok,
    )
}

/// A number of ranks from 1 to MAX_JOB_RANKS.
pub fn parse_ranks(text: &str) -> Option<usize> {
    let n = text.parse().ok()?;
    (1..=MAX_JOB_RANKS).contains(&n).then_some(n)
}

/// Seconds, with a fraction if wanted, but not zero.
///
/// # Errors
/// [`UsageError`] if the value is not a number of seconds in this range.
pub fn read_timeout(given: &Given) -> Result<Duration, UsageError> {
    parse_seconds(given, |s| s > 0.0)
}

/// Seconds, with a fraction if wanted.
///
/// # Errors
/// [`UsageError`] if the value is not a number of seconds in this range.
pub fn read_seconds(given: &Given) -> Result<Duration, UsageError> {
    parse_seconds(given, |s| s >= 0.0)
}

fn parse_seconds(given: &Given, is_valid: fn(f64) -> bool) -> Result<Duration, UsageError> {
    let text = given.text();
    let seconds = text.strip_suffix('s').unwrap_or(&text).parse::<f64>().ok();
    let valid = seconds.filter(|&s| is_valid(s));
    match valid.and_then(|s| Duration::try_from_secs_f64(s).ok()) {
        Some(duration) => Ok(duration),
        None => wrong(format!("{}: a number of seconds is needed", given.typed())),
    }
}

/// `all`, `none` or ranks such as `1,4-6`.
///
/// # Errors
/// It is not one of these.
pub fn read_stdin(given: &Given) -> Result<Stdin, UsageError> {
    match given.text().as_ref() {
        "all" | "ALL" => Ok(Stdin::All),
        "none" | "NONE" => Ok(Stdin::Ranks(Vec::new())),
        list => match CpuSet::parse(list).filter(|ranks| !ranks.is_empty()) {
            Some(ranks) => Ok(Stdin::Ranks(ranks.iter().collect())),
            None => wrong(format!(
                "{}: all, none or ranks such as 0 or 1,4-6 are possible",
                given.typed()
            )),
        },
    }
}

/// `NAME VALUE` or `NAME=VALUE`.
///
/// # Errors
/// There is no name.
pub fn read_pair(given: &Given) -> Result<(OsString, OsString), UsageError> {
    match &given.values[..] {
        [pair] => split_pair(pair),
        [name, value] => Some((name.clone(), value.clone())),
        _ => None,
    }
    .map_or_else(|| wrong(format!("{} needs a name and a value", given.name)), Ok)
}

/// `NAME=VALUE`; None where there is no name or no `=`.
pub fn split_pair(text: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = text.as_bytes();
    let at = bytes.iter().position(|&b| b == b'=')?;
    let part = |b: &[u8]| OsString::from_vec(b.to_vec());
    (at > 0).then(|| (part(&bytes[..at]), part(&bytes[at + 1..])))
}

/// Names with commas between them.
pub fn split_names(text: &OsStr) -> Vec<OsString> {
    let names = text.as_bytes().split(|&b| b == b',');
    names.filter(|n| !n.is_empty()).map(|n| OsString::from_vec(n.to_vec())).collect()
}

/// Numbers of ranks from the first to the second in steps (MPI 4.1, section 11.5, `soft`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Triplet {
    first: i64,
    last: i64,
    step: i64,
}

/// `2:8:2,16`.
///
/// # Errors
/// It is no list of triplets.
pub fn read_triplets(given: &Given) -> Result<Vec<Triplet>, UsageError> {
    let parse = |item: &str| {
        let mut numbers = item.split(':').map(|n| n.trim().parse::<i64>().ok());
        let first = numbers.next()??;
        let last = numbers.next().map_or(Some(first), |n| n)?;
        let step = numbers.next().map_or(Some(1), |n| n)?;
        (step != 0 && numbers.next().is_none()).then_some(Triplet { first, last, step })
    };
    let list: Option<Vec<Triplet>> = given.text().split(',').map(parse).collect();
    list.map_or_else(
        || wrong(format!("{}: numbers of ranks such as 2:8:2 or 1,4 are needed", given.typed())),
        Ok,
    )
}

/// The largest number of ranks that the triplets allow, at least 1 and at most `most`.
pub fn largest(soft: &[Triplet], most: usize) -> Option<usize> {
    let most = i64::try_from(most).ok()?;
    let of = |t: &Triplet| {
        // Steps may go down; the same numbers, upwards.
        let step = t.step.checked_abs()?;
        let (low, high) = match t.step > 0 {
            true => (t.first, t.last),
            false => {
                let steps = t.first.checked_sub(t.last)? / step;
                (t.first.checked_sub(steps.checked_mul(step)?)?, t.first)
            }
        };
        let high = high.min(most);
        let n = low.checked_add(high.checked_sub(low)?.checked_div_euclid(step)? * step)?;
        (high >= low && n >= 1).then_some(n)
    };
    usize::try_from(soft.iter().filter_map(of).max()?).ok()
}

/// Text for a pattern: a `%` in it stands for itself.
pub fn escape(text: &OsStr) -> Vec<u8> {
    let bytes = text.as_bytes().iter();
    bytes
        .flat_map(|&b| match b {
            b'%' => vec![b; 2],
            b => vec![b],
        })
        .collect()
}
