//! Charts below tables: the times of a sweep over sizes.

use super::chart::{Charset, Curve, draw};
use crate::headline::{find_floor, find_median};
use crate::lists::group;
use crate::record::Case;

/// Largest number of charts below a table.
const CHARTS_MAX: usize = 4;

/// Draws a chart of median and floor for each variant that has several sizes.
pub fn draw_cases(cases: &[&Case], charset: Charset) -> Vec<String> {
    let variants = group(cases.iter().map(|case| (&case.variant, *case)));
    let charts = variants.iter().map(|(variant, cases)| {
        let curve = |of: fn(&Case) -> Option<f64>, is_dotted| {
            let mut points: Vec<(u64, f64)> =
                cases.iter().filter_map(|case| Some((case.bytes, of(case)?))).collect();
            points.sort_by_key(|point| point.0);
            Curve { points, is_dotted }
        };
        let (median, floor) = (curve(find_median, false), curve(find_floor, true));
        let dots = if floor.points.is_empty() { "" } else { ", dots: floor" };
        let is_time = cases.iter().all(|case| case.unit == "ns");
        let of = if variant.is_empty() { String::new() } else { format!(" of {variant}") };
        let title = format!("Time{of} by size in bytes (line: median{dots})");
        if is_time { draw_titled(&title, &[median, floor], charset) } else { Vec::new() }
    });
    charts.filter(|lines| !lines.is_empty()).take(CHARTS_MAX).flatten().collect()
}

/// Draws curves below a title; no lines without a curve over several sizes.
pub fn draw_titled(title: &str, curves: &[Curve], charset: Charset) -> Vec<String> {
    let has_place = |&&(bytes, ns): &&(u64, f64)| bytes > 0 && ns > 0.0;
    if curves.iter().all(|curve| curve.points.iter().filter(has_place).count() < 2) {
        return Vec::new();
    }
    let lines = draw(curves, charset);
    [String::new(), title.to_owned()].into_iter().chain(lines).collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::testing::samples::make_case;

    #[test]
    fn chart__needs_several_sizes_and_times() {
        let cases = [make_case(8, &[95.0]), make_case(1024, &[200.0]), make_case(0, &[90.0])];
        let all: Vec<&Case> = cases.iter().collect();
        let lines = draw_cases(&all, Charset::Ascii);
        assert_eq!(lines[1], "Time by size in bytes (line: median, dots: floor)");
        assert!(lines.concat().contains('*') && lines.concat().contains('.'), "{lines:#?}");
        assert!(draw_cases(&all[..1], Charset::Ascii).is_empty());
        assert!(draw_cases(&[all[0], all[2]], Charset::Ascii).is_empty(), "size 0 has no place");
        let share = cases.clone().map(|case| Case { unit: "%".into(), ..case });
        assert!(draw_cases(&share.iter().collect::<Vec<_>>(), Charset::Ascii).is_empty());
    }
}
