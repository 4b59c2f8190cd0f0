//! Numbers and words as tables show them.

use crate::record::{Case, Histogram, Of};

/// A number with four significant digits where it has a fraction, and with all its digits before
/// the point: `0.5721`, `57.21`, `5721`, `57213`.
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

/// A text behind what parts it from others; nothing where it is empty.
pub fn behind(mark: &str, text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!("{mark}{text}")
}

/// As [`format_number`]; `-` for none.
pub fn format_optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), format_number)
}

/// Megabytes (10^6 bytes) a second for a time in nanoseconds of one message; None if a case moves no payload.
pub fn megabytes_per_s(case: &Case, ns: f64) -> Option<f64> {
    let moves = matches!(case.of, Of::HalfRoundTrip | Of::Message | Of::Hop);
    let is_time = case.unit == "ns" && ns > 0.0;
    (moves && is_time && case.bytes > 0).then(|| case.bytes as f64 * 1e3 / ns)
}

/// Million messages a second, for tests of windows.
pub fn million_per_s(case: &Case, ns: f64) -> Option<f64> {
    (case.of == Of::Message && case.unit == "ns" && ns > 0.0).then(|| 1e3 / ns)
}

/// Standard deviation over samples (n - 1), from the buckets: good to three digits.
pub fn standard_deviation(samples: &Histogram) -> Option<f64> {
    let mean = samples.summarize()?.mean;
    let squares: f64 =
        samples.iter().map(|(value, count)| count as f64 * (value - mean) * (value - mean)).sum();
    (samples.count() > 1).then(|| (squares / (samples.count() - 1) as f64).sqrt())
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
    fn deviation__of_two_and_of_one() {
        let two: Histogram = [10.0, 14.0].into_iter().collect();
        assert!((standard_deviation(&two).unwrap() - 8f64.sqrt()).abs() < 0.01);
        let one: Histogram = [10.0].into_iter().collect();
        assert_eq!(standard_deviation(&one), None);
    }
}
