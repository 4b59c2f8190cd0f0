//! Values of single options.

use super::spec::Stdin;
use super::{UsageError, wrong};
use fastpath_base::config::parse_duration_ns;
use fastpath_base::topology::CpuSet;
use fastpath_segment::MAX_JOB_RANKS;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

#[derive(Debug)]
pub struct GivenOption {
    /// Name of the option, with dashes.
    pub name: String,
    pub values: Vec<OsString>,
}

impl GivenOption {
    pub fn value(&self) -> &OsStr {
        self.values.first().map_or(OsStr::new(""), |v| v)
    }

    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        self.value().to_string_lossy()
    }

    pub fn typed(&self) -> String {
        let mut text = self.name.clone();
        for value in &self.values {
            text.push(' ');
            text.push_str(&value.to_string_lossy());
        }
        text
    }
}

/// Reads `-usize N`, `-usize SYSTEM` or `-usize INFINITE`. Returns the number of processes; `None` for SYSTEM.
pub fn read_universe(given: &GivenOption) -> Result<Option<usize>, UsageError> {
    let text = given.text();
    match (parse_ranks(&text), &*text.to_ascii_uppercase()) {
        (Some(size), _) => Ok(Some(size)),
        (None, "SYSTEM") => Ok(None),
        (None, "INFINITE") => Ok(Some(MAX_JOB_RANKS)),
        _ => wrong(format!(
            "{}: unknown value; use a number of processes, SYSTEM or INFINITE",
            given.typed()
        )),
    }
}

pub fn read_ranks(given: &GivenOption) -> Result<usize, UsageError> {
    parse_ranks(&given.text()).map_or_else(
        || {
            wrong(format!(
                "{}: the value must be a number of ranks from 1 to {MAX_JOB_RANKS}",
                given.typed()
            ))
        },
        Ok,
    )
}

pub fn parse_ranks(text: &str) -> Option<usize> {
    let n = text.parse().ok()?;
    (1..=MAX_JOB_RANKS).contains(&n).then_some(n)
}

/// Reads a positive time: a number of seconds, or a number with a unit.
pub fn read_timeout(given: &GivenOption) -> Result<Duration, UsageError> {
    let timeout = read_seconds(given)?;
    match timeout.is_zero() {
        true => wrong(format!(
            "{}: the value must be above 0; omit {} for a job without a time limit",
            given.typed(),
            given.name
        )),
        false => Ok(timeout),
    }
}

/// Reads a time, zero or more: a number of seconds, or a number with a unit.
pub fn read_seconds(given: &GivenOption) -> Result<Duration, UsageError> {
    let text = given.text();
    let parsed = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => parse_duration_ns(&text).ok().map(Duration::from_nanos),
    };
    match parsed {
        Some(duration) => Ok(duration),
        None => wrong(format!(
            "{}: the value must be a number of seconds, or a time such as 90s, 1.5m or 2h",
            given.typed()
        )),
    }
}

/// Reads `all`, `none` or ranks such as `1,4-6`.
pub fn read_stdin(given: &GivenOption) -> Result<Stdin, UsageError> {
    match given.text().as_ref() {
        "all" | "ALL" => Ok(Stdin::All),
        "none" | "NONE" => Ok(Stdin::Ranks(Vec::new())),
        list => match CpuSet::parse(list).filter(|ranks| !ranks.is_empty()) {
            Some(ranks) => Ok(Stdin::Ranks(ranks.iter().collect())),
            None => wrong(format!(
                "{}: unknown value; use all, none or ranks such as 0 or 1,4-6",
                given.typed()
            )),
        },
    }
}

/// Reads `NAME VALUE` or `NAME=VALUE`.
pub fn read_pair(given: &GivenOption) -> Result<(OsString, OsString), UsageError> {
    match &given.values[..] {
        [pair] => split_pair(pair),
        [name, value] => Some((name.clone(), value.clone())),
        _ => None,
    }
    .map_or_else(|| wrong(format!("{} needs a name and a value", given.name)), Ok)
}

/// Splits `NAME=VALUE`; None without a name or `=`.
pub fn split_pair(text: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = text.as_bytes();
    let at = bytes.iter().position(|&b| b == b'=')?;
    let part = |b: &[u8]| OsString::from_vec(b.to_vec());
    (at > 0).then(|| (part(&bytes[..at]), part(&bytes[at + 1..])))
}

pub fn split_names(text: &OsStr) -> Vec<OsString> {
    let names = text.as_bytes().split(|&b| b == b',');
    names.filter(|n| !n.is_empty()).map(|n| OsString::from_vec(n.to_vec())).collect()
}

/// Allowed numbers of ranks, from `first` to `last` in steps (MPI 4.1, section 11.5, `soft`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Triplet {
    first: i64,
    last: i64,
    step: i64,
}

/// Reads triplets such as `2:8:2,16`.
pub fn read_triplets(given: &GivenOption) -> Result<Vec<Triplet>, UsageError> {
    let parse = |item: &str| {
        let mut numbers = item.split(':').map(|n| n.trim().parse::<i64>().ok());
        let first = numbers.next()??;
        let last = numbers.next().map_or(Some(first), |n| n)?;
        let step = numbers.next().map_or(Some(1), |n| n)?;
        (step != 0 && numbers.next().is_none()).then_some(Triplet { first, last, step })
    };
    let list: Option<Vec<Triplet>> = given.text().split(',').map(parse).collect();
    list.map_or_else(
        || {
            wrong(format!(
                "{}: the value must be numbers of ranks such as 2:8:2 or 1,4",
                given.typed()
            ))
        },
        Ok,
    )
}

/// Returns the largest number of ranks that the triplets allow, at least 1 and at most `most`.
pub fn largest(soft: &[Triplet], most: usize) -> Option<usize> {
    let most = i64::try_from(most).ok()?;
    let of = |t: &Triplet| {
        // A negative step gives the same set of numbers as a positive step.
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

/// Escapes text for a pattern: each `%` stands for itself.
pub fn escape(text: &OsStr) -> Vec<u8> {
    let bytes = text.as_bytes().iter();
    bytes
        .flat_map(|&b| match b {
            b'%' => vec![b; 2],
            b => vec![b],
        })
        .collect()
}
