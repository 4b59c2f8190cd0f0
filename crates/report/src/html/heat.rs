//! Heat map of latency by pair of ranks.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::svg::at;
use crate::document::Table;
use crate::document::html::text;
use crate::format::time;
use crate::record::Case;

/// Maximum number of ranks of a map that prints numbers in its cells.
const NUMBERED_MAX: usize = 12;

/// Colours from light to dark, in equal steps of the logarithm.
const COLORS: [[f64; 3]; 5] = [
    [240.0, 246.0, 232.0],
    [170.0, 219.0, 192.0],
    [88.0, 176.0, 190.0],
    [42.0, 112.0, 166.0],
    [28.0, 42.0, 104.0],
];

/// Heat map of the median time between each pair of ranks, in nanoseconds.
pub struct Map {
    title: String,
    about: String,
    ranks: usize,
    cells: BTreeMap<(usize, usize), (f64, String)>,
    range: (f64, f64),
}

impl Map {
    /// Creates the map of cases whose variant is `i-j`; None without such a case.
    pub fn from_cases(title: String, about: String, cases: &[&Case]) -> Option<Map> {
        let mut cells = BTreeMap::new();
        for case in cases {
            let (Some(pair), Some(s)) = (pair_of(&case.variant), case.samples.summarize()) else {
                continue;
            };
            let said = format!(
                "ranks {} and {}: minimum {}, median {}, p99 {} of {} samples",
                pair.0,
                pair.1,
                time(s.min),
                time(s.median),
                time(s.p99),
                s.count
            );
            cells.insert(pair, (s.median, said));
        }
        let ranks = cells.keys().map(|(i, j)| i.max(j) + 1).max()?;
        let medians = || cells.values().map(|c: &(f64, String)| c.0).filter(|v| *v > 0.0);
        let range = (medians().fold(f64::INFINITY, f64::min), medians().fold(0.0, f64::max));
        Some(Map { title, about, ranks, cells, range })
    }

    fn cell(&self, i: usize, j: usize) -> Option<&(f64, String)> {
        // A pair measured in one direction is shown in both directions.
        self.cells.get(&(i, j)).or_else(|| self.cells.get(&(j, i)))
    }

    /// Returns the smallest and the largest median, in nanoseconds.
    pub fn range(&self) -> (f64, f64) {
        self.range
    }

    /// Sets the range of the colours, so that several maps can be compared.
    pub fn with_range(self, range: (f64, f64)) -> Map {
        Map { range, ..self }
    }

    pub fn show(&self, id: usize) -> Markup {
        let (low, high) = self.range();
        let unit = self.bare_unit();
        let unit = unit.map_or(String::new(), |(name, _)| format!(" Numbers in {name}."));
        let about = format!(
            "Median latency of each pair of {} ranks, from {} to {}.",
            self.ranks,
            time(low),
            time(high)
        );
        let all = (0..self.ranks).flat_map(|i| (0..self.ranks).map(move |j| (i, j)));
        html! { figure class="card" {
            figcaption { h3 { (text(&self.title)) } p { (text(&self.about)) (unit) } }
            svg viewBox="0 0 480 478" role="img" aria-labelledby=(format!("t{id} d{id}")) {
                title id=(format!("t{id}")) { (text(&self.title)) }
                desc id=(format!("d{id}")) { (about) }
                @for (i, j) in all { (self.draw_cell(i, j)) }
                (self.draw_axes())
                (draw_legend(low, high))
            }
            (self.tabulate().to_fold("Numbers"))
        } }
    }

    fn side(&self) -> f64 {
        400.0 / self.ranks as f64
    }

    /// Common unit of the numbers, and its length in nanoseconds; None if cells have space for units or print no
    /// numbers.
    fn bare_unit(&self) -> Option<(&'static str, f64)> {
        const UNITS: [(&str, f64); 4] = [("s", 1e9), ("ms", 1e6), ("\u{b5}s", 1e3), ("ns", 1.0)];
        if self.side() >= 60.0 || self.ranks > NUMBERED_MAX {
            return None;
        }
        let (low, high) = self.range();
        let least = if high < 100.0 * low { low } else { high };
        let fits = UNITS.into_iter().find(|(_, ns)| least >= *ns);
        Some(fits.unwrap_or(("ns", 1.0)))
    }

    fn draw_cell(&self, i: usize, j: usize) -> Markup {
        let Some((median, said)) = self.cell(i, j) else {
            return html! {};
        };
        let (side, (low, high)) = (self.side(), self.range());
        let shade = shade_of(*median, low, high);
        let (x, y) = (46.0 + side * j as f64, 10.0 + side * i as f64);
        let wide = at(if side > 8.0 { side - 1.0 } else { side });
        let number = match self.bare_unit() {
            // Numbers without a unit share the unit of the map.
            Some((_, ns)) => three_places(*median / ns),
            None => time(*median),
        };
        let ink = if shade > 0.7 { "on-dark" } else { "on-light" };
        let size = (side / 3.2).clamp(8.5, 16.0);
        let (middle, base) = (at(x + side / 2.0), at(y + side / 2.0 + size * 0.35));
        html! {
            rect x=(at(x)) y=(at(y)) width=(wide) height=(wide) fill=(color_of(shade)) { title {
                (text(said)) } }
            @if self.ranks <= NUMBERED_MAX {
                text x=(middle) y=(base) class=(ink) text-anchor="middle" font-size=(at(size)) {
                    (text(&number)) }
            }
        }
    }

    fn draw_axes(&self) -> Markup {
        let every = self.ranks.div_ceil(16).next_power_of_two();
        let middle = |rank: usize| self.side() * (rank as f64 + 0.5);
        html! {
            @for rank in (0..self.ranks).step_by(every) {
                text class="tick" x="40" y=(at(14.0 + middle(rank))) text-anchor="end" { (rank) }
                text class="tick" x=(at(46.0 + middle(rank))) y="424" text-anchor="middle" {
                    (rank) }
            }
            text class="name" x="246" y="440" text-anchor="middle" { "rank" }
            text class="name" x="13" y="210" text-anchor="middle" transform="rotate(-90 13 210)" {
                "rank" }
        }
    }

    fn tabulate(&self) -> Table {
        let mut table = Table::of("median>");
        table.add_columns((0..self.ranks).map(|j| format!("{j}>")));
        for i in 0..self.ranks {
            let median = |j| self.cell(i, j).map_or("\u{2013}".to_owned(), |c| time(c.0));
            table.row([i.to_string()].into_iter().chain((0..self.ranks).map(median)));
        }
        table
    }
}

/// Formats a value with two decimals below 10, with one below 100, otherwise with none.
fn three_places(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

fn draw_legend(low: f64, high: f64) -> Markup {
    html! {
        @for step in 0..40 {
            @let color = color_of(f64::from(step) / 39.0);
            rect x=(at(146.0 + 5.0 * f64::from(step))) y="452" width="5.2" height="8" fill=(color)
                {}
        }
        text class="tick" x="140" y="461" text-anchor="end" { (time(low)) }
        text class="tick" x="353" y="461" { (time(high)) ", median" }
    }
}

/// Ranks of a variant such as `0-3`; None for other texts and for ranks that are too large.
fn pair_of(variant: &str) -> Option<(usize, usize)> {
    let (a, b) = variant.split_once('-')?;
    let pair = (a.trim().parse().ok()?, b.trim().parse().ok()?);
    (pair.0 < 512 && pair.1 < 512).then_some(pair)
}

/// Shade from 0 for the smallest value to 1 for the largest. If all values differ by less than a quarter, only the
/// light half is used: noise must not look like structure.
fn shade_of(value: f64, low: f64, high: f64) -> f64 {
    let span = (high / low).max(1.25 * 1.25).ln();
    ((value / low).ln() / span).clamp(0.0, 1.0)
}

fn color_of(shade: f64) -> String {
    let place = shade * (COLORS.len() - 1) as f64;
    let index = (place.floor() as usize).min(COLORS.len() - 2);
    let part = place - index as f64;
    let mix = |c: usize| COLORS[index][c] + (COLORS[index + 1][c] - COLORS[index][c]) * part;
    format!("#{:02x}{:02x}{:02x}", mix(0) as u8, mix(1) as u8, mix(2) as u8)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn pairs__are_read_and_bounded() {
        assert_eq!(pair_of("0-3"), Some((0, 3)));
        for wrong in ["", "3", "a-b", "1-99999999999999999999", "1-1000"] {
            assert_eq!(pair_of(wrong), None, "{wrong}");
        }
    }

    /// Draws a map of `ranks` ranks with the times of the first two pairs.
    fn draw(ranks: usize, times: [f64; 2]) -> String {
        let cell = |at: usize| ((0, at + 1), (times[at], String::new()));
        let map = Map {
            title: String::new(),
            about: "Median.".into(),
            ranks,
            cells: [cell(0), cell(1)].into(),
            range: (times[0], times[1]),
        };
        map.show(0).into_string()
    }

    #[test]
    fn numbers__without_room_for_units_are_all_in_one() {
        for (times, unit, numbers) in [
            ([183.0, 1210.0], "ns", [">183<", ">1210<"]),
            ([183.0, 50_000.0], "\u{b5}s", [">0.18<", ">50.0<"]),
        ] {
            let page = draw(8, times);
            assert!(page.contains(&format!("Numbers in {unit}.")), "{page}");
            assert!(numbers.iter().all(|n| page.contains(n)), "{page}");
        }
        let page = draw(4, [183.0, 1210.0]);
        assert!(page.contains(">183 ns<") && page.contains(">1.21 "), "{page}");
        assert!(!page.contains("Numbers in"), "{page}");
    }

    #[test]
    fn small_differences__stay_light() {
        assert!(shade_of(110.0, 100.0, 110.0) < 0.5);
        assert_eq!(shade_of(1000.0, 100.0, 1000.0), 1.0);
    }
}
