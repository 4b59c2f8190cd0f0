//! A chart of curves: time, rate or bandwidth by size or by ranks, with floor and table.

use fastpath_base::tell::count;
use std::collections::BTreeMap;

use maud::{Markup, html};

use super::svg::{at, path, shorten};
use crate::document::Table;
use crate::document::html::text;
use crate::format::{decimal, size, size_tick, time};
use crate::record::{Histogram, Summary};
use crate::scale::{Axis, spread};

// Size and margins of a chart, in SVG units: narrow, so that text stays readable when a phone scales it down.
const WIDTH: f64 = 462.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 134.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 46.0;
/// Maximum length of the label at the end of a curve, in characters.
const LABEL_MAX: usize = 16;
/// Maximum length of the label of a floor, in characters. It exceeds that of a curve, because the font is lighter.
const FLOOR_LABEL_MAX: usize = 18;
/// Maximum number of curves that are drawn with bands: more bands would hide each other.
const BANDS_MAX: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChartQuantity {
    Time,
    /// Bytes per second, from the time of a message.
    Bandwidth,
    /// Messages per second, from the time of one message.
    Rate,
    /// A quantity in another unit, unconverted.
    Plain,
}

impl ChartQuantity {
    fn convert(self, sample: f64, bytes: f64) -> f64 {
        match self {
            ChartQuantity::Time | ChartQuantity::Plain => sample,
            ChartQuantity::Bandwidth => bytes / sample * 1e9,
            ChartQuantity::Rate => 1e9 / sample,
        }
    }

    pub fn show(self, value: f64, unit: &str) -> String {
        match self {
            ChartQuantity::Time => time(value),
            ChartQuantity::Bandwidth => decimal(value, "B/s"),
            ChartQuantity::Rate => decimal(value, "/s"),
            ChartQuantity::Plain => format!("{} {unit}", crate::format::three_digits(value)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HorizontalAxis {
    Bytes,
    Ranks,
}

#[derive(Clone, Debug)]
pub struct Point {
    /// Size in bytes, or number of ranks.
    pub x: u64,
    /// Payload in bytes (for a bandwidth).
    pub bytes: u64,
    pub samples: Histogram,
}

#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub color: usize,
    /// Index of the dash pattern; 0 is a solid line.
    pub dash: usize,
    pub points: Vec<Point>,
}

/// Floor: the time that the hardware needs, drawn as a curve below the other curves.
#[derive(Clone, Debug)]
pub struct Floor {
    pub name: String,
    /// Times in nanoseconds, by size.
    pub points: BTreeMap<u64, f64>,
}

#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    /// Meaning of the values, and the conditions.
    pub about: String,
    /// The horizontal axis.
    pub across: HorizontalAxis,
    /// The vertical axis.
    pub quantity: ChartQuantity,
    pub unit: String,
    pub series: Vec<Series>,
    pub floors: Vec<Floor>,
    /// Sentences below the chart.
    pub notes: Vec<String>,
}

/// A point's horizontal position, its median, and its 10 % and 90 % quantiles, in the chart's quantity.
struct PlottedPoint {
    x: f64,
    median: f64,
    low: f64,
    high: f64,
}

impl Chart {
    fn shown(&self, point: &Point) -> Option<PlottedPoint> {
        let convert = |v: f64| self.quantity.convert(v, point.bytes as f64);
        let quantile = |share| point.samples.quantile(share).map(convert);
        let (a, b) = (quantile(0.1)?, quantile(0.9)?);
        let median = quantile(0.5)?;
        let has_place = |v: &f64| v.is_finite() && (*v > 0.0 || self.is_share());
        let usable = [a, b, median].iter().all(has_place);
        usable.then_some(PlottedPoint { x: point.x as f64, median, low: a.min(b), high: a.max(b) })
    }

    /// Whether the values are shares, with 0 as an ordinary value.
    fn is_share(&self) -> bool {
        self.unit == "%"
    }

    fn statistic(&self) -> &'static str {
        match self.quantity {
            ChartQuantity::Time => "median time",
            ChartQuantity::Bandwidth => "median bandwidth",
            ChartQuantity::Rate => "median rate of messages",
            ChartQuantity::Plain => "median",
        }
    }

    /// Name of the horizontal quantity on the axis, in the description and in the table.
    fn across(&self) -> [&'static str; 3] {
        match self.across {
            HorizontalAxis::Bytes => ["message size in bytes (K = 1024)", "message size", "size"],
            HorizontalAxis::Ranks => ["number of ranks", "number of ranks", "ranks"],
        }
    }

    pub fn show(&self, id: usize) -> Markup {
        let is_formed = matches!(self.quantity, ChartQuantity::Bandwidth | ChartQuantity::Rate);
        html! { figure class="card" {
            figcaption { h3 { (text(&self.title)) } p { (text(&self.about)) } }
            (self.draw(id))
            @for note in &self.notes { p class="note" { (text(note)) } }
            (self.tabulate().to_fold("Numbers"))
            @if is_formed {
                p class="note" { "The table has the time of one message, from which the curve is \
                                  calculated." }
            }
        } }
    }

    fn axes(&self) -> (Axis, Axis) {
        let shown: Vec<PlottedPoint> = self
            .series
            .iter()
            .flat_map(|s| s.points.iter().filter_map(|p| self.shown(p)))
            .collect();
        let floors = self.floors.iter().flat_map(|f| &f.points);
        let floors = floors.map(|(bytes, v)| self.quantity.convert(*v, *bytes as f64));
        let bands = self.has_bands();
        let values = shown.iter().flat_map(|s| if bands { [s.low, s.high] } else { [s.median; 2] });
        let x = Axis::around(shown.iter().map(|s| s.x), LEFT + 8.0, WIDTH - RIGHT);
        if self.is_share() {
            return (x, Axis::of_shares(HEIGHT - BOTTOM, TOP));
        }
        let y = Axis::around(
            values.chain(floors).filter(|v| v.is_finite() && *v > 0.0),
            HEIGHT - BOTTOM,
            TOP,
        );
        (x, y.padded(0.06, 0.03))
    }

    fn has_bands(&self) -> bool {
        self.series.len() <= BANDS_MAX
    }

    fn draw(&self, id: usize) -> Markup {
        let (x, y) = self.axes();
        let names: Vec<&str> = self.series.iter().map(|s| s.name.as_str()).collect();
        let logarithmic = if self.is_share() { "that axis is" } else { "both axes" };
        let about = format!(
            "{} by {}, {logarithmic} logarithmic: {}. The numbers are in the table below.",
            self.statistic(),
            self.across()[1],
            names.join(", ")
        );
        let mut labels = Vec::new();
        html! {
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img"
                aria-labelledby=(format!("t{id} d{id}")) {
                title id=(format!("t{id}")) { (text(&self.title)) }
                desc id=(format!("d{id}")) { (text(&about)) }
                (self.draw_grid(&x, &y))
                @for floor in &self.floors { (self.draw_floor(floor, &x, &y, &mut labels)) }
                @for series in &self.series { (self.draw_series(series, &x, &y, &mut labels)) }
                (draw_labels(&labels))
            }
        }
    }

    fn draw_grid(&self, x: &Axis, y: &Axis) -> Markup {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let mut last = f64::INFINITY;
        let mut rows: Vec<(f64, f64)> =
            y.decimal_marks().into_iter().map(|m| (m, y.place(m))).collect();
        rows.retain(|(_, place)| {
            let is_apart = last - place >= 15.0;
            last = if is_apart { *place } else { last };
            is_apart
        });
        let name = |mark: f64| match self.across {
            HorizontalAxis::Bytes => size_tick(mark as u64),
            HorizontalAxis::Ranks => format!("{mark}"),
        };
        let middle = (TOP + bottom) / 2.0;
        html! {
            @for (mark, place) in rows {
                path class="grid" d=(format!("M{LEFT} {}H{right}", at(place))) {}
                text class="tick" x=(LEFT - 6.0) y=(at(place + 4.0)) text-anchor="end" {
                    (text(&self.quantity.show(mark, &self.unit)))
                }
            }
            @for mark in x.binary_marks(32.0) {
                @let place = at(x.place(mark));
                path class="grid" d=(format!("M{place} {TOP}V{bottom}")) {}
                text class="tick" x=(place) y=(bottom + 16.0) text-anchor="middle" { (name(mark)) }
            }
            path class="axis" d=(format!("M{LEFT} {TOP}V{bottom}H{right}")) {}
            text class="name" x=((LEFT + right) / 2.0) y=(HEIGHT - 8.0) text-anchor="middle" {
                (self.across()[0]) }
            text class="name" x="13" y=(middle) text-anchor="middle"
                transform=(format!("rotate(-90 13 {middle})")) {
                (self.statistic())
            }
        }
    }

    fn draw_floor(&self, floor: &Floor, x: &Axis, y: &Axis, labels: &mut Vec<Label>) -> Markup {
        let convert = |v: f64, bytes: f64| (bytes, self.quantity.convert(v, bytes));
        let values = floor.points.iter().map(|(bytes, v)| convert(*v, *bytes as f64));
        let shown = values.filter(|(_, v)| v.is_finite() && *v > 0.0);
        let mut points: Vec<(f64, f64)> = shown.map(|(a, v)| (x.place(a), y.place(v))).collect();
        let Some(&from) = points.last() else {
            return html! {};
        };
        if points.len() == 1 {
            // Extend a single point to the left, because it would otherwise be invisible.
            points.insert(0, (from.0 - 12.0, from.1));
        }
        labels.push(Label {
            // The label has space only for a part of the floor's name; the title has the full name.
            text: format!("floor: {}", floor.name.trim_end_matches(" one way")),
            from,
            class: "floor-label".to_owned(),
        });
        html! { path class="floor" d=(path(&points)) { title { "floor: " (text(&floor.name)) } } }
    }

    fn draw_series(&self, series: &Series, x: &Axis, y: &Axis, labels: &mut Vec<Label>) -> Markup {
        let shown = series.points.iter().filter_map(|p| Some((self.shown(p)?, p)));
        let points: Vec<(PlottedPoint, &Point)> = shown.collect();
        let place = |s: &PlottedPoint, v: f64| (x.place(s.x), y.place(v));
        let Some((last, _)) = points.last() else {
            return html! {};
        };
        let color = series.color % super::COLORS;
        labels.push(Label {
            text: series.name.clone(),
            from: place(last, last.median),
            class: format!("label c{color}"),
        });
        let above = points.iter().map(|(s, _)| place(s, s.high));
        let band: Vec<_> = above.chain(points.iter().rev().map(|(s, _)| place(s, s.low))).collect();
        let line: Vec<_> = points.iter().map(|(s, _)| place(s, s.median)).collect();
        html! { g class={ "c" (color) } {
            @if self.has_bands() && points.len() > 1 { path class="band" d={
                (path(&band)) "Z" } {} }
            path class={ "line k" (series.dash % 4) } d=(path(&line)) {}
            @for ((_, point), (px, py)) in points.iter().zip(&line) {
                circle cx=(at(*px)) cy=(at(*py)) r="2.6" { title { (text(&self.describe(series,
                    point))) } }
            }
        } }
    }

    fn describe(&self, series: &Series, point: &Point) -> String {
        let at = match self.across {
            HorizontalAxis::Bytes => size(point.x),
            HorizontalAxis::Ranks => count(point.x, "rank"),
        };
        let Some(s) = point.samples.summarize() else {
            return at;
        };
        let value = |v: f64| self.quantity.convert(v, point.bytes as f64);
        let [min, median, mean, p99, max] = [s.min, s.median, s.mean, s.p99, s.max]
            .map(|v| self.quantity.show(value(v), &self.unit));
        let (name, count) = (&series.name, s.count);
        format!(
            "{name}, {at}: minimum {min}, median {median}, mean {mean}, p99 {p99}, maximum {max} \
             of {count} samples"
        )
    }

    fn tabulate(&self) -> Table {
        const NUMBERS: &str = "min>|median>|mean>|p90>|p99>|p99.9>|max>|samples>";
        let mut table = Table::of(&format!("{}>|curve|{NUMBERS}", self.across()[2]));
        let points = self.series.iter().flat_map(|s| s.points.iter().map(move |p| (s, p)));
        let summaries = points.filter_map(|(s, p)| Some((p.x, &s.name, p.samples.summarize()?)));
        let mut rows: Vec<(u64, &String, Summary)> = summaries.collect();
        rows.sort_by_key(|r| r.0);
        // Show percentiles as times: the 99th percentile of the times does not give that of a rate.
        let show = |v: f64| match self.quantity {
            ChartQuantity::Plain => self.quantity.show(v, &self.unit),
            _ => time(v),
        };
        for (x, name, s) in rows {
            let x = match self.across {
                HorizontalAxis::Bytes => size(x),
                HorizontalAxis::Ranks => x.to_string(),
            };
            let values = [s.min, s.median, s.mean, s.p90, s.p99, s.p999, s.max].map(show);
            let ends = [s.count.to_string()];
            table.row([x, name.clone()].into_iter().chain(values).chain(ends));
        }
        table
    }
}

/// A name beside the end of a line.
struct Label {
    text: String,
    from: (f64, f64),
    class: String,
}

fn draw_labels(labels: &[Label]) -> Markup {
    let places: Vec<f64> = labels.iter().map(|l| l.from.1 + 4.0).collect();
    let places = spread(&places, 14.0, TOP + 6.0, HEIGHT - BOTTOM + 2.0);
    let x = WIDTH - RIGHT + 12.0;
    let lead = |(from_x, from_y): (f64, f64), y: f64| {
        format!("M{} {}L{} {}", at(from_x + 4.0), at(from_y), at(x - 2.0), at(y - 4.0))
    };
    let short = |label: &Label| match label.class.starts_with("floor") {
        true => shorten(&label.text, FLOOR_LABEL_MAX),
        false => shorten_label(&label.text),
    };
    html! { @for (label, y) in labels.iter().zip(places) {
        path class="lead" d=(lead(label.from, y)) {}
        text class=(label.class) x=(at(x)) y=(at(y)) { (text(&short(label))) title {
            (text(&label.text)) } }
    } }
}

/// Shortens a label to the available space. In `name, difference` the name is shortened.
fn shorten_label(text: &str) -> String {
    let Some((name, tail)) = text.split_once(", ") else {
        return shorten(text, LABEL_MAX);
    };
    let room = LABEL_MAX.saturating_sub(tail.chars().count() + 2).max(4);
    shorten(&format!("{}, {tail}", shorten(name, room)), LABEL_MAX)
}
