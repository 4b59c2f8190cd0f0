//! Direction of a device's bus transfers: writes to memory, reads from it, or both at once.

use std::fmt;
use std::str::FromStr;

use fastpath_pcie::formulas::Traffic;
use fastpath_pcie::formulas::message::TrafficPart;
use fastpath_pcie::{Bytes, Link, LinkError};

/// Directions on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum MoveDirection {
    /// Device writes memory: receive from a network, copy from a GPU
    Write,
    /// Device reads memory: send to a network, copy to a GPU
    Read,
    /// Both at once; figures are the sum of the two
    Both,
}

/// Ratio of bytes written to bytes read, if both happen at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    pub written: u32,
    pub read: u32,
}

impl Ratio {
    /// Equal parts.
    pub const EVEN: Ratio = Ratio { written: 1, read: 1 };
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.written, self.read)
    }
}

impl FromStr for Ratio {
    type Err = LinkError;

    /// Parses `2:1`: whole numbers from 1 to 1000.
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

/// Direction of transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moves {
    /// The device writes memory.
    Write,
    /// The device reads memory.
    Read,
    Both(Ratio),
}

impl Moves {
    /// Returns the requested direction, if there is one.
    ///
    /// # Errors
    /// A ratio is given without both directions.
    pub fn of_options(
        direction: Option<MoveDirection>, ratio: Option<Ratio>,
    ) -> Result<Option<Moves>, LinkError> {
        match (direction, ratio) {
            (Some(MoveDirection::Both), ratio) => {
                Ok(Some(Moves::Both(ratio.unwrap_or(Ratio::EVEN))))
            }
            (_, Some(ratio)) => Err(LinkError {
                what: "ratio",
                found: ratio.to_string(),
                expected: "no ratio, or --direction both",
            }),
            (Some(MoveDirection::Write), None) => Ok(Some(Moves::Write)),
            (Some(MoveDirection::Read), None) => Ok(Some(Moves::Read)),
            (None, None) => Ok(None),
        }
    }

    /// Description for a title.
    pub fn title(self) -> String {
        match self {
            Moves::Write => "device writes memory (receive, device to host)".to_owned(),
            Moves::Read => "device reads memory (send, host to device)".to_owned(),
            Moves::Both(ratio) => {
                format!("device writes and reads memory at once, {ratio}: the sum")
            }
        }
    }

    /// Description in a word or two.
    pub fn short(self) -> &'static str {
        match self {
            Moves::Write => "writes",
            Moves::Read => "reads",
            Moves::Both(_) => "writes and reads together",
        }
    }

    pub fn writes(self) -> bool {
        self != Moves::Read
    }

    pub fn reads(self) -> bool {
        self != Moves::Write
    }

    /// Sum of the rates in both directions, if the busier direction is full, as a multiple of one direction's rate.
    pub fn over_one(self) -> f64 {
        match self {
            Moves::Both(r) => f64::from(r.written + r.read) / f64::from(r.written.max(r.read)),
            _ => 1.0,
        }
    }

    /// Ratio of all bytes to the bytes read.
    pub fn of_reads(self) -> f64 {
        match self {
            Moves::Both(r) => f64::from(r.written + r.read) / f64::from(r.read),
            _ => 1.0,
        }
    }

    /// Bytes of one operation: one transfer of `size` bytes, or as many in each direction as the ratio states.
    pub fn data(self, size: Bytes) -> Bytes {
        match self {
            Moves::Both(r) => Bytes(size.0 * u64::from(r.written + r.read)),
            _ => size,
        }
    }

    /// Traffic on a link of the operation of [`Moves::data`], one part for each direction.
    pub fn parts(self, link: &Link, size: Bytes) -> Vec<TrafficPart> {
        let part =
            |name, traffic, times: u32| TrafficPart { name, traffic: traffic * f64::from(times) };
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
        assert!(Moves::of_options(Some(MoveDirection::Read), two).is_err());
        let both = Moves::of_options(Some(MoveDirection::Both), two).unwrap();
        assert_eq!(both.unwrap().over_one(), 1.5);
        let even = Moves::of_options(Some(MoveDirection::Both), None).unwrap();
        assert_eq!(even, Some(Moves::Both(Ratio::EVEN)));
        assert_eq!(Moves::of_options(None, None), Ok(None));
    }
}
