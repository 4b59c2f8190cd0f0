//! Formatting of numbers, times, rates and sizes.

use crate::record::{Case, Quantity};

/// Formats a number with four significant digits if it has a fraction, and with all digits before the point: `0.5721`,
/// `57.21`, `5721`, `57213`.
pub fn format_number(value: f64) -> String {
    let magnitude = value.abs();
    let digits = match magnitude {
        m if m >= 999.5 || m == 0.0 => 0,
        m if m >= 99.95 => 1,
        m if m >= 9.995 => 2,
        m if m >= 0.9995 => 3,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// Prepends a separator to a text; an empty text stays empty.
pub fn behind(mark: &str, text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!("{mark}{text}")
}

/// Formats a number like [`format_number`]; `-` for None.
pub fn format_optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), format_number)
}

/// Megabytes (10^6 bytes) per second, from the time of one message in nanoseconds; None if a case moves no payload.
pub fn megabytes_per_s(case: &Case, ns: f64) -> Option<f64> {
    let moves = matches!(case.of, Quantity::HalfRoundTrip | Quantity::Message | Quantity::Hop);
    let is_time = case.unit == "ns" && ns > 0.0;
    (moves && is_time && case.bytes > 0).then(|| case.bytes as f64 * 1e3 / ns)
}

/// Million messages per second, for window tests.
pub fn million_per_s(case: &Case, ns: f64) -> Option<f64> {
    (case.of == Quantity::Message && case.unit == "ns" && ns > 0.0).then(|| 1e3 / ns)
}

/// Formats three significant digits without a trailing point.
pub fn three_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let power = value.abs().log10().floor() as i32;
    let decimals = (2 - power).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        let trimmed = text.trim_end_matches('0').trim_end_matches('.');
        return trimmed.to_owned();
    }
    text
}

/// Formats a time given in nanoseconds.
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        v if v < 1e3 => (ns, "ns"),
        v if v < 1e6 => (ns / 1e3, "\u{b5}s"),
        v if v < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// Formats a rate with a decimal prefix.
pub fn decimal(value: f64, unit: &str) -> String {
    let (value, prefix) = match value.abs() {
        v if v < 1e3 => (value, ""),
        v if v < 1e6 => (value / 1e3, "k"),
        v if v < 1e9 => (value / 1e6, "M"),
        v if v < 1e12 => (value / 1e9, "G"),
        _ => (value / 1e12, "T"),
    };
    format!("{} {prefix}{unit}", three_digits(value))
}

/// Formats a size: K, M and G are powers of 1024.
pub fn size(bytes: u64) -> String {
    let scaled = |shift: u32, unit: &str| {
        let whole = bytes.trailing_zeros() >= shift;
        let value = bytes as f64 / (1u64 << shift) as f64;
        let text = if whole { format!("{value}") } else { three_digits(value) };
        format!("{text} {unit}")
    };
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => scaled(10, "KiB"),
        1_048_576..1_073_741_824 => scaled(20, "MiB"),
        _ => scaled(30, "GiB"),
    }
}

/// Formats a size in short form, for an axis.
pub fn size_tick(bytes: u64) -> String {
    size(bytes).replace(" B", "").replace("iB", "").replace(' ', "")
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn numbers__keep_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.57213, "0.5721"),
            (5.7213, "5.721"),
            (57.213, "57.21"),
            (572.13, "572.1"),
            (999.96, "1000"),
            (57213.4, "57213"),
        ] {
            assert_eq!(format_number(value), text);
        }
    }

    #[test]
    fn numbers__read_well() {
        assert_eq!(time(94.96), "95 ns");
        assert_eq!(time(1234.0), "1.23 \u{b5}s");
        assert_eq!(decimal(53.2e9, "B/s"), "53.2 GB/s");
        assert_eq!(decimal(260e6, "messages/s"), "260 Mmessages/s");
        assert_eq!(
            (size(65536), size(1500), size(8)),
            ("64 KiB".into(), "1.46 KiB".into(), "8 B".into())
        );
        assert_eq!((size_tick(0), size_tick(4 << 20)), ("0".into(), "4M".into()));
        assert_eq!(three_digits(100.0), "100");
        assert_eq!(three_digits(0.0), "0");
    }
}
