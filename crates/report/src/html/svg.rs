//! Text and coordinates of drawings.

use std::fmt::Write as _;

/// Shortens a text to at most `limit` characters, with an ellipsis at the end.
pub fn shorten(text: &str, limit: usize) -> String {
    if text.chars().count() <= limit {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(limit.saturating_sub(1)).collect();
    short.truncate(short.trim_end().len());
    short.push('\u{2026}');
    short
}

/// Formats a coordinate, to a hundredth.
pub fn at(value: f64) -> String {
    let mut text = format!("{value:.2}");
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    text
}

/// Formats a path through the points, `M x y L x y ...`.
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
    fn text__is_cut_and_escaped() {
        assert_eq!(shorten("Open MPI 5.0.11", 9), "Open MPI\u{2026}");
        assert_eq!(
            crate::document::html::text("<a b='\"'>&\u{1}").0,
            "&lt;a b=&#39;&quot;&#39;&gt;&amp;\u{fffd}"
        );
    }
}
