//! Text that is safe inside a page, and numbers as people read them.

use std::fmt::Write as _;

/// At most `limit` characters, the last an ellipsis where something was cut.
pub fn shorten(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(limit.saturating_sub(1)).collect();
    short.truncate(short.trim_end().len());
    short.push('\u{2026}');
    short
}

/// Three significant digits without a trailing point.
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

/// A time given in nanoseconds.
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        v if v < 1e3 => (ns, "ns"),
        v if v < 1e6 => (ns / 1e3, "\u{b5}s"),
        v if v < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// A rate in units of 10^n.
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

/// A size: K, M and G are powers of 1024.
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

/// A size as short as an axis wants it.
pub fn size_tick(bytes: u64) -> String {
    size(bytes).replace(" B", "").replace("iB", "").replace(' ', "")
}

/// A coordinate, to a hundredth.
pub fn at(value: f64) -> String {
    let mut text = format!("{value:.2}");
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    text
}

/// `M x y L x y ...` through the points.
pub fn path(points: &[(f64, f64)]) -> String {
    let mut out = String::new();
    for (i, (x, y)) in points.iter().enumerate() {
        let letter = if i == 0 { 'M' } else { 'L' };
        let _ = write!(out, "{letter}{} {}", at(*x), at(*y));
    }
    out
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

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

    #[test]
    fn text__is_cut_and_escaped() {
        assert_eq!(shorten("Open MPI 5.0.11", 9), "Open MPI\u{2026}");
        assert_eq!(
            crate::document::html::text("<a b='\"'>&\u{1}").0,
            "&lt;a b=&#39;&quot;&#39;&gt;&amp;\u{fffd}"
        );
    }
}
