//! What a device moves over its bus: it writes memory, reads it, or both at once.

use std::fmt;
use std::str::FromStr;

use fastpath_pcie::formulas::Traffic;
use fastpath_pcie::formulas::message::Part;
use fastpath_pcie::{Bytes, Link, LinkError};

/// Names of [`Moves`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Direction {
    /// The device writes memory: what arrives from a network, a copy from a GPU
    Write,
    /// The device reads memory: what is sent to a network, a copy to a GPU
    Read,
    /// Both at once; figures are the sum of the two
    Both,
}

/// How many bytes are written to how many read, where both happen at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// Written.
    pub written: u32,
    /// Read.
    pub read: u32,
}

impl Ratio {
    /// As much written as read.
    pub const EVEN: Ratio = Ratio { written: 1, read: 1 };
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.written, self.read)
    }
}

impl FromStr for Ratio {
    type Err = LinkError;

    /// `2:1`: whole numbers from 1 to 1000.
    fn from_str(text: &str) -> Result<Ratio, LinkError> {
        let number = |part: &str| part.parse().ok().filter(|n| (1..=1000).contains(n));
        let parts = text.trim().split_once(':');
        let read = parts.and_then(|(a, b)| Some((number(a)?, number(b)?)));
        let (written, read) = read.ok_or_else(|| LinkError {
            what: "ratio",
            found: format!("`{text}`"),
            expected: "bytes written to bytes read, as 2:1, each from 1 to 1000",
        })?;
        Ok(Ratio { written, read })
    }
}

/// What moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// The device writes memory.
    Write,
    /// The device reads memory.
    Read,
    /// Both at once.
    Both(Ratio),
}

impl Moves {
    /// What was asked for, if a direction was.
    ///
    /// # Errors
    /// A ratio is given without both directions.
    pub fn of_options(
        direction: Option<Direction>, ratio: Option<Ratio>,
    ) -> Result<Option<Moves>, LinkError> {
        match (direction, ratio) {
            (Some(Direction::Both), ratio) => Ok(Some(Moves::Both(ratio.unwrap_or(Ratio::EVEN)))),
            (_, Some(ratio)) => Err(LinkError {
                what: "ratio",
                found: ratio.to_string(),
                expected: "none without both directions at once (--direction both)",
            }),
            (Some(Direction::Write), None) => Ok(Some(Moves::Write)),
            (Some(Direction::Read), None) => Ok(Some(Moves::Read)),
            (None, None) => Ok(None),
        }
    }

    /// As a title.
    pub fn title(self) -> String {
        match self {
            Moves::Write => "device writes memory (receive, device to host)".to_owned(),
            Moves::Read => "device reads memory (send, host to device)".to_owned(),
            Moves::Both(ratio) => {
                format!("device writes and reads memory at once, {ratio}: the sum")
            }
        }
    }

    /// In a word or two.
    pub fn short(self) -> &'static str {
        match self {
            Moves::Write => "writes",
            Moves::Read => "reads",
            Moves::Both(_) => "writes and reads together",
        }
    }

    /// Whether the device writes.
    pub fn writes(self) -> bool {
        self != Moves::Read
    }

    /// Whether the device reads.
    pub fn reads(self) -> bool {
        self != Moves::Write
    }

    /// How much both directions of a link can carry, with one of them full, as a multiple of one.
    pub fn over_one(self) -> f64 {
        match self {
            Moves::Both(r) => f64::from(r.written + r.read) / f64::from(r.written.max(r.read)),
            _ => 1.0,
        }
    }

    /// All bytes to those read.
    pub fn of_reads(self) -> f64 {
        match self {
            Moves::Both(r) => f64::from(r.written + r.read) / f64::from(r.read),
            _ => 1.0,
        }
    }

    /// Bytes of an operation that moves `size` bytes as often as the ratio says.
    pub fn data(self, size: Bytes) -> Bytes {
        match self {
            Moves::Both(r) => Bytes(size.0 * u64::from(r.written + r.read)),
            _ => size,
        }
    }

    /// What such an operation puts on a link.
    pub fn parts(self, link: &Link, size: Bytes) -> Vec<Part> {
        let part = |name, traffic, times: u32| Part { name, traffic: traffic * f64::from(times) };
        let written = |times| part("payload, written", Traffic::write(link, size), times);
        let read = |times| part("payload, read", Traffic::read(link, size), times);
        match self {
            Moves::Write => vec![written(1)],
            Moves::Read => vec![read(1)],
            Moves::Both(r) => vec![written(r.written), read(r.read)],
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn ratio__is_two_whole_numbers() {
        let ratio = |written, read| Ratio { written, read };
        assert_eq!("2:1".parse(), Ok(ratio(2, 1)));
        assert_eq!(" 1:1000 ".parse(), Ok(ratio(1, 1000)));
        for wrong in ["", "2", "0:1", "1:0", "-1:1", "1.5:1", "1:1001", "1:1:1", "a:b"] {
            let error = wrong.parse::<Ratio>().unwrap_err().to_string();
            assert!(error.contains("as 2:1"), "{wrong}: {error}");
        }
    }

    #[test]
    fn ratio__needs_both_directions() {
        let two = Some(Ratio { written: 2, read: 1 });
        assert!(Moves::of_options(None, two).is_err());
        assert!(Moves::of_options(Some(Direction::Read), two).is_err());
        let both = Moves::of_options(Some(Direction::Both), two).unwrap();
        assert_eq!(both.unwrap().over_one(), 1.5);
        let even = Moves::of_options(Some(Direction::Both), None).unwrap();
        assert_eq!(even, Some(Moves::Both(Ratio::EVEN)));
        assert_eq!(Moves::of_options(None, None), Ok(None));
    }
}
