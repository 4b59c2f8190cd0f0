//! Types for bytes, rates and times.
//!
//! A [`Rate`] is the quantity itself; [`MbPerS`], [`MibPerS`] and [`GbPerS`] are figures in one unit. Figures of
//! different units can be neither compared nor added: they must be converted to a [`Rate`] explicitly. MB is 10^6
//! bytes, MiB is 2^20, Gb is 10^9 bits.

use std::fmt;
use std::ops::{Add, Div, Mul, Sub};
use std::str::FromStr;

/// Error for an invalid quantity in text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitError {
    /// The text.
    pub found: String,
    /// The expected form.
    pub expected: String,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.found, self.expected)
    }
}

impl std::error::Error for UnitError {}

fn refuse(found: &str, expected: impl Into<String>) -> UnitError {
    UnitError { found: found.trim().to_owned(), expected: expected.into() }
}

/// Splits `1.5MiB/s` into its number and its unit, which may be empty.
fn split_number<'a>(text: &'a str, of: &str) -> Result<(f64, &'a str), UnitError> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && !"+-._,".contains(c));
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    if digits.starts_with('-') {
        return Err(refuse(text, format!("{of} cannot be negative")));
    }
    let number = digits.parse::<f64>().ok().filter(|n| n.is_finite());
    match number {
        Some(n) => Ok((n, unit.trim())),
        None => Err(refuse(text, format!("{of} begins with a number, such as 256 or 3.5"))),
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Converts to a floating-point number.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n >= 1 << 20 && n % (1 << 20) == 0 => write!(f, "{} MiB", n >> 20),
            n if n >= 1 << 10 && n % (1 << 10) == 0 => write!(f, "{} KiB", n >> 10),
            n => write!(f, "{n} B"),
        }
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    /// Parses `256`, `256B`, `64K`, `64KiB` (2^10), `64kB` (10^3), `1M`, `1MiB` (2^20), `1MB` (10^6).
    fn from_str(text: &str) -> Result<Bytes, UnitError> {
        let (number, unit) = split_number(text, "a size")?;
        let factor = match unit {
            "" | "B" => 1.0,
            "K" | "k" | "KiB" => 1024.0,
            "kB" | "KB" => 1e3,
            "M" | "MiB" => 1024.0 * 1024.0,
            "MB" => 1e6,
            "G" | "GiB" => 1024.0 * 1024.0 * 1024.0,
            "GB" => 1e9,
            _ => {
                let expected = "a size is a number of bytes, or one with K, M, G (powers of \
                    1024), kB, MB or GB (powers of 1000)";
                return Err(refuse(text, expected));
            }
        };
        let bytes = number * factor;
        if bytes.fract() != 0.0 || bytes >= 2f64.powi(63) {
            return Err(refuse(text, "a size is a whole number of bytes, below 2^63"));
        }
        Ok(Bytes(bytes as u64))
    }
}

/// A rate, independent of its unit.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Rate {
    bytes_per_s: f64,
}

/// A unit of rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RateUnit {
    /// 10^6 bytes a second.
    MbPerS,
    /// 2^20 bytes a second.
    MibPerS,
    /// 10^9 bytes a second.
    GbytePerS,
    /// 2^30 bytes a second.
    GibPerS,
    /// 10^6 bits a second.
    MbitPerS,
    /// 10^9 bits a second.
    GbPerS,
}

impl RateUnit {
    /// All units.
    pub const ALL: [RateUnit; 6] = [
        RateUnit::MbPerS,
        RateUnit::MibPerS,
        RateUnit::GbytePerS,
        RateUnit::GibPerS,
        RateUnit::MbitPerS,
        RateUnit::GbPerS,
    ];

    /// Number of bytes per second that 1 of this unit means, such as 10^6 for `MB/s`.
    pub fn bytes_per_s(self) -> f64 {
        match self {
            RateUnit::MbPerS => 1e6,
            RateUnit::MibPerS => 1_048_576.0,
            RateUnit::GbytePerS => 1e9,
            RateUnit::GibPerS => 1_073_741_824.0,
            RateUnit::MbitPerS => 1e6 / 8.0,
            RateUnit::GbPerS => 1e9 / 8.0,
        }
    }

    /// Symbol: `MB/s`, `MiB/s`, `GB/s`, `GiB/s`, `Mb/s`, `Gb/s`.
    pub fn name(self) -> &'static str {
        match self {
            RateUnit::MbPerS => "MB/s",
            RateUnit::MibPerS => "MiB/s",
            RateUnit::GbytePerS => "GB/s",
            RateUnit::GibPerS => "GiB/s",
            RateUnit::MbitPerS => "Mb/s",
            RateUnit::GbPerS => "Gb/s",
        }
    }

    fn parse(text: &str) -> Option<RateUnit> {
        match text {
            "Gbit/s" | "Gbps" => Some(RateUnit::GbPerS),
            "Mbit/s" | "Mbps" => Some(RateUnit::MbitPerS),
            _ => RateUnit::ALL.into_iter().find(|u| u.name() == text),
        }
    }
}

impl fmt::Display for RateUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Rate {
    /// Creates a rate from bytes per second.
    pub fn from_bytes_per_s(bytes_per_s: f64) -> Rate {
        Rate { bytes_per_s }
    }

    /// Creates a rate from a value in a unit.
    pub fn new(value: f64, unit: RateUnit) -> Rate {
        Rate::from_bytes_per_s(value * unit.bytes_per_s())
    }

    /// Value in bytes per second.
    pub fn bytes_per_s(self) -> f64 {
        self.bytes_per_s
    }

    /// Value in a unit.
    pub fn in_unit(self, unit: RateUnit) -> f64 {
        self.bytes_per_s / unit.bytes_per_s()
    }

    /// Value in 10^6 bytes per second.
    pub fn mb_per_s(self) -> MbPerS {
        MbPerS(self.in_unit(RateUnit::MbPerS))
    }

    /// Value in 2^20 bytes per second.
    pub fn mib_per_s(self) -> MibPerS {
        MibPerS(self.in_unit(RateUnit::MibPerS))
    }

    /// Value in 10^9 bits per second.
    pub fn gb_per_s(self) -> GbPerS {
        GbPerS(self.in_unit(RateUnit::GbPerS))
    }

    /// Time of a transfer of `bytes` bytes.
    pub fn time_of(self, bytes: f64) -> Time {
        Time::from_ns(bytes * 1e9 / self.bytes_per_s)
    }

    /// Smaller of two rates.
    pub fn min(self, other: Rate) -> Rate {
        Rate::from_bytes_per_s(self.bytes_per_s.min(other.bytes_per_s))
    }
}

impl Add for Rate {
    type Output = Rate;
    fn add(self, other: Rate) -> Rate {
        Rate::from_bytes_per_s(self.bytes_per_s + other.bytes_per_s)
    }
}

impl Sub for Rate {
    type Output = Rate;
    fn sub(self, other: Rate) -> Rate {
        Rate::from_bytes_per_s(self.bytes_per_s - other.bytes_per_s)
    }
}

impl Mul<f64> for Rate {
    type Output = Rate;
    fn mul(self, factor: f64) -> Rate {
        Rate::from_bytes_per_s(self.bytes_per_s * factor)
    }
}

impl Div for Rate {
    type Output = f64;
    fn div(self, other: Rate) -> f64 {
        self.bytes_per_s / other.bytes_per_s
    }
}

/// Types of figures in one unit.
macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
        pub struct $name(pub f64);

        impl From<$name> for Rate {
            fn from(figure: $name) -> Rate {
                Rate::new(figure.0, RateUnit::$name)
            }
        }

        impl From<Rate> for $name {
            fn from(rate: Rate) -> $name {
                $name(rate.in_unit(RateUnit::$name))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_rate(f, self.0, RateUnit::$name)
            }
        }
    )*};
}

figures! {
    /// A figure in MB/s: 10^6 bytes a second.
    MbPerS
    /// A figure in MiB/s: 2^20 bytes a second.
    MibPerS
    /// A figure in Gb/s: 10^9 bits a second.
    GbPerS
}

/// Uses one or two decimals unless a precision is given.
fn write_rate(f: &mut fmt::Formatter<'_>, value: f64, unit: RateUnit) -> fmt::Result {
    let digits = f.precision().unwrap_or(if value < 100.0 { 2 } else { 1 });
    write!(f, "{value:.digits$} {unit}")
}

/// A rate as written by a user: the quantity, and the unit for the answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StatedRate {
    /// The quantity.
    pub rate: Rate,
    /// The written unit.
    pub unit: RateUnit,
}

impl StatedRate {
    /// The written number.
    pub fn value(self) -> f64 {
        self.rate.in_unit(self.unit)
    }
}

impl fmt::Display for StatedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_rate(f, self.value(), self.unit)
    }
}

impl FromStr for StatedRate {
    type Err = UnitError;

    /// Parses a number and its unit: `3552MiB/s`, `3724.5 MB/s`, `32Gb/s`.
    fn from_str(text: &str) -> Result<StatedRate, UnitError> {
        let (number, unit) = split_number(text, "a rate")?;
        let units = "MB/s (10^6 bytes), MiB/s (2^20 bytes), GB/s, GiB/s, Mb/s or Gb/s (bits)";
        match RateUnit::parse(unit) {
            Some(_) if number == 0.0 => Err(refuse(text, "a rate is more than 0")),
            Some(unit) => Ok(StatedRate { rate: Rate::new(number, unit), unit }),
            None if unit.is_empty() => Err(refuse(
                text,
                format!("a rate needs its unit, such as {number}MiB/s, because {units} differ"),
            )),
            None => Err(refuse(text, format!("a rate ends in {units}"))),
        }
    }
}

impl FromStr for Rate {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Rate, UnitError> {
        text.parse::<StatedRate>().map(|stated| stated.rate)
    }
}

/// A duration.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Time {
    ns: f64,
}

impl Time {
    /// Zero.
    pub const ZERO: Time = Time { ns: 0.0 };

    /// Creates a duration from nanoseconds.
    pub const fn from_ns(ns: f64) -> Time {
        Time { ns }
    }

    /// Value in nanoseconds.
    pub const fn ns(self) -> f64 {
        self.ns
    }

    /// Value in microseconds.
    pub fn us(self) -> f64 {
        self.ns / 1e3
    }

    /// Longer of two durations.
    pub fn max(self, other: Time) -> Time {
        Time::from_ns(self.ns.max(other.ns))
    }
}

impl Add for Time {
    type Output = Time;
    fn add(self, other: Time) -> Time {
        Time::from_ns(self.ns + other.ns)
    }
}

impl Sub for Time {
    type Output = Time;
    fn sub(self, other: Time) -> Time {
        Time::from_ns(self.ns - other.ns)
    }
}

impl Mul<f64> for Time {
    type Output = Time;
    fn mul(self, factor: f64) -> Time {
        Time::from_ns(self.ns * factor)
    }
}

impl std::iter::Sum for Time {
    fn sum<I: Iterator<Item = Time>>(all: I) -> Time {
        all.fold(Time::ZERO, Add::add)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ns.abs() {
            n if n < 1e3 => write!(f, "{:.*} ns", f.precision().unwrap_or(0), self.ns),
            n if n < 1e6 => write!(f, "{:.*} us", f.precision().unwrap_or(3), self.ns / 1e3),
            n if n < 1e9 => write!(f, "{:.*} ms", f.precision().unwrap_or(3), self.ns / 1e6),
            _ => write!(f, "{:.*} s", f.precision().unwrap_or(3), self.ns / 1e9),
        }
    }
}

impl FromStr for Time {
    type Err = UnitError;

    /// Parses a number and its unit: `350ns`, `2.23us`, `1ms`, `2s`.
    fn from_str(text: &str) -> Result<Time, UnitError> {
        let (number, unit) = split_number(text, "a time")?;
        let ns = match unit {
            "ns" => 1.0,
            "us" | "µs" | "usec" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "" => {
                let expected =
                    format!("a time needs its unit (ns, us, ms or s), such as {number}us");
                return Err(refuse(text, expected));
            }
            _ => return Err(refuse(text, "a time ends in ns, us, ms or s")),
        };
        Ok(Time::from_ns(number * ns))
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
    }

    #[test]
    fn rate__is_the_same_in_every_unit() {
        let raw: Rate = "32 Gb/s".parse().unwrap();
        assert!(close(raw.mb_per_s().0, 4000.0));
        assert!(close(raw.mib_per_s().0, 3814.697265625));
        assert!(close(Rate::from(MibPerS(3814.697265625)).gb_per_s().0, 32.0));
        let stated: StatedRate = "3552MiB/s".parse().unwrap();
        assert!(close(stated.rate.mb_per_s().0, 3724.541952));
        assert_eq!(stated.to_string(), "3552.0 MiB/s");
    }

    #[test]
    fn rate__without_unit_or_below_zero_is_refused_with_what_was_expected() {
        for (text, expected) in [
            ("3552", "needs its unit"),
            ("-3MiB/s", "cannot be negative"),
            ("3552MIB/s", "ends in MB/s"),
            ("0MB/s", "more than 0"),
            ("MB/s", "begins with a number"),
            ("", "begins with a number"),
            ("1e999MB/s", "ends in MB/s"),
            ("1,5GB/s", "begins with a number"),
        ] {
            let error = text.parse::<StatedRate>().unwrap_err();
            assert!(error.to_string().contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn bytes__are_read_and_shown() {
        for (text, bytes) in [("256", 256), ("64K", 65536), ("64KiB", 65536), ("1MB", 1_000_000)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
        }
        assert_eq!(Bytes(65536).to_string(), "64 KiB");
        assert_eq!(Bytes(65537).to_string(), "65537 B");
        for text in ["-1", "1.5", "64Q", "B", "99999999999G"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn time__needs_a_unit() {
        assert_eq!("2.23us".parse(), Ok(Time::from_ns(2230.0)));
        assert_eq!("350 ns".parse(), Ok(Time::from_ns(350.0)));
        for text in ["2.23", "-1us", "2.23 parsecs"] {
            assert!(text.parse::<Time>().is_err(), "{text}");
        }
        assert_eq!(Time::from_ns(1117.46).to_string(), "1.117 us");
    }

    proptest! {
        #[test]
        fn text__of_any_kind_is_read_or_refused(text in "\\PC{0,24}") {
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<Time>();
            if let Ok(rate) = text.parse::<Rate>() {
                prop_assert!(rate.bytes_per_s() > 0.0);
            }
        }

        #[test]
        fn rate__survives_every_unit(value in 1e-3..1e9f64, i in 0..6usize, j in 0..6usize) {
            let rate = Rate::new(value, RateUnit::ALL[i]);
            let back = Rate::new(rate.in_unit(RateUnit::ALL[j]), RateUnit::ALL[j]);
            prop_assert!(close(back.in_unit(RateUnit::ALL[i]), value));
        }
    }
}
