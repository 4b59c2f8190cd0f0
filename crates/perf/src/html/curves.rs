//! A chart of curves: time, rate or bandwidth by size or by ranks, with its floor and its table.

use std::fmt::Write as _;

use super::scale::{Axis, spread};
use super::svg::{at, decimal, escape, path, shorten, size, size_tick, time};
use crate::record::{Histogram, Summary};

// Narrow, so that what is written in it stays readable where a phone draws it smaller.
const WIDTH: f64 = 462.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 134.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 46.0;
/// Characters of a label at the end of a curve that fit beside it.
const LABEL_MAX: usize = 16;
/// The same for the lighter print of a floor.
const FLOOR_LABEL_MAX: usize = 18;
/// Bands of more curves than this would hide each other.
const BANDS_MAX: usize = 3;

/// What a value on the vertical axis is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// A time, in nanoseconds.
    Time,
    /// Bytes a second, from the time of a message.
    Bandwidth,
    /// Messages a second, from the time of one.
    Rate,
    /// Any other unit, as it is.
    Plain,
}

impl Quantity {
    /// A sample as the axis shows it.
    fn convert(self, sample: f64, bytes: f64) -> f64 {
        match self {
            Quantity::Time | Quantity::Plain => sample,
            Quantity::Bandwidth => bytes / sample * 1e9,
            Quantity::Rate => 1e9 / sample,
        }
    }

    /// A value with its unit.
    pub fn show(self, value: f64, unit: &str) -> String {
        match self {
            Quantity::Time => time(value),
            Quantity::Bandwidth => decimal(value, "B/s"),
            Quantity::Rate => decimal(value, "/s"),
            Quantity::Plain => format!("{} {unit}", super::svg::three_digits(value)),
        }
    }
}

/// What lies on the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Across {
    /// Message size in bytes.
    Bytes,
    /// Number of ranks.
    Ranks,
}

/// A point of a curve.
#[derive(Clone, Debug)]
pub struct Point {
    /// Size or ranks.
    pub x: u64,
    /// Payload in bytes (for a bandwidth).
    pub bytes: u64,
    /// The samples.
    pub samples: Histogram,
}

/// A curve.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Index of its colour.
    pub color: usize,
    /// Index of its dashes; 0 is a solid line.
    pub dash: usize,
    /// In the order of `x`.
    pub points: Vec<Point>,
}

/// What the hardware needs, drawn below.
#[derive(Clone, Debug)]
pub struct Floor {
    /// What it is.
    pub name: String,
    /// `x`, bytes, and the median.
    pub points: Vec<(u64, u64, f64)>,
}

/// Everything a chart shows.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Its heading.
    pub title: String,
    /// What the values are of, and under which conditions.
    pub about: String,
    /// The horizontal axis.
    pub across: Across,
    /// The vertical axis.
    pub quantity: Quantity,
    /// Unit of the samples.
    pub unit: String,
    /// The curves.
    pub series: Vec<Series>,
    /// The floors.
    pub floors: Vec<Floor>,
}

/// The quantiles that are drawn and listed, as values of the axis.
struct Shown {
    x: f64,
    median: f64,
    low: f64,
    high: f64,
}

impl Chart {
    fn shown(&self, point: &Point) -> Option<Shown> {
        let convert = |v: f64| self.quantity.convert(v, point.bytes as f64);
        let quantile = |share| point.samples.quantile(share).map(convert);
        let (a, b) = (quantile(0.1)?, quantile(0.9)?);
        let median = quantile(0.5)?;
        let has_place = |v: &f64| v.is_finite() && (*v > 0.0 || self.is_share());
        let usable = [a, b, median].iter().all(has_place);
        usable.then_some(Shown {
            x: point.x as f64,
            median,
            low: a.min(b),
            high: a.max(b),
        })
    }

    /// Whether the values are shares, of which none is as good as any.
    fn is_share(&self) -> bool {
        self.unit == "%"
    }

    fn statistic(&self) -> &'static str {
        match self.quantity {
            Quantity::Time => "median time",
            Quantity::Bandwidth => "median bandwidth",
            Quantity::Rate => "median rate of messages",
            Quantity::Plain => "median",
        }
    }

    /// The chart as a figure with its table below.
    pub fn write(&self, id: usize, out: &mut String) {
        let unit = &self.unit;
        let _ = write!(
            out,
            "<figure class=\"card\"><figcaption><h3>{}</h3><p>{}</p></figcaption>",
            escape(&self.title),
            escape(&self.about)
        );
        self.write_svg(id, out);
        self.write_table(unit, out);
        out.push_str("</figure>\n");
    }

    fn axes(&self) -> (Axis, Axis) {
        let shown: Vec<Shown> = self
            .series
            .iter()
            .flat_map(|s| s.points.iter().filter_map(|p| self.shown(p)))
            .collect();
        let floors = self.floors.iter().flat_map(|f| &f.points);
        let floors = floors.map(|(_, bytes, v)| self.quantity.convert(*v, *bytes as f64));
        let bands = self.has_bands();
        let values = shown.iter().flat_map(|s| {
            if bands {
                [s.low, s.high]
            } else {
                [s.median; 2]
            }
        });
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

    fn write_svg(&self, id: usize, out: &mut String) {
        let (x, y) = self.axes();
        let names: Vec<&str> = self.series.iter().map(|s| s.name.as_str()).collect();
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"t{id} d{id}\"><title id=\"t{id}\">{}</title>\
             <desc id=\"d{id}\">{} by {}, {} logarithmic: {}. The numbers are in the table below.</desc>",
            escape(&self.title),
            self.statistic(),
            match self.across {
                Across::Bytes => "message size",
                Across::Ranks => "number of ranks",
            },
            match self.is_share() {
                true => "that axis is",
                false => "both axes",
            },
            escape(&names.join(", "))
        );
        self.write_grid(&x, &y, out);
        let mut labels = Vec::new();
        for floor in &self.floors {
            self.write_floor(floor, &x, &y, &mut labels, out);
        }
        for series in &self.series {
            self.write_series(series, &x, &y, &mut labels, out);
        }
        write_labels(&labels, out);
        out.push_str("</svg>");
    }

    fn write_grid(&self, x: &Axis, y: &Axis, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let mut last = f64::INFINITY;
        for mark in y.decimal_marks() {
            let place = y.place(mark);
            if last - place < 15.0 {
                continue;
            }
            last = place;
            let _ = write!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {p}H{right}\"/><text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                at(place + 4.0),
                escape(&self.quantity.show(mark, &self.unit)),
                p = at(place)
            );
        }
        for mark in x.binary_marks(32.0) {
            let place = at(x.place(mark));
            let text = match self.across {
                Across::Bytes => size_tick(mark as u64),
                Across::Ranks => format!("{mark}"),
            };
            let _ = write!(
                out,
                "<path class=\"grid\" d=\"M{place} {TOP}V{bottom}\"/>\
                 <text class=\"tick\" x=\"{place}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
                bottom + 16.0
            );
        }
        let about = match self.across {
            Across::Bytes => "message size in bytes (K = 1024)",
            Across::Ranks => "number of ranks",
        };
        let _ = write!(
            out,
            "<path class=\"axis\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\
             <text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{about}</text>\
             <text class=\"name\" x=\"13\" y=\"{m}\" text-anchor=\"middle\" transform=\"rotate(-90 13 {m})\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 8.0,
            self.statistic(),
            m = (TOP + bottom) / 2.0
        );
    }

    fn write_floor(
        &self,
        floor: &Floor,
        x: &Axis,
        y: &Axis,
        labels: &mut Vec<Label>,
        out: &mut String,
    ) {
        let mut points: Vec<(f64, f64)> = floor
            .points
            .iter()
            .map(|(at, bytes, v)| (*at as f64, self.quantity.convert(*v, *bytes as f64)))
            .filter(|(_, v)| v.is_finite() && *v > 0.0)
            .map(|(a, v)| (x.place(a), y.place(v)))
            .collect();
        let Some(&(end_x, end_y)) = points.last() else {
            return;
        };
        if points.len() == 1 {
            // A line of one point would not be seen.
            points.insert(0, (end_x - 12.0, end_y));
        }
        let _ = write!(
            out,
            "<path class=\"floor\" d=\"{}\"><title>floor: {}</title></path>",
            path(&points),
            escape(&floor.name)
        );
        labels.push(Label {
            // What it is in full says the title; there is room for this much.
            text: format!("floor: {}", floor.name.trim_end_matches(" one way")),
            from: (end_x, end_y),
            class: "floor-label".to_owned(),
        });
    }

    fn write_series(
        &self,
        series: &Series,
        x: &Axis,
        y: &Axis,
        labels: &mut Vec<Label>,
        out: &mut String,
    ) {
        let points: Vec<(Shown, &Point)> = series
            .points
            .iter()
            .filter_map(|p| Some((self.shown(p)?, p)))
            .collect();
        let Some((last, _)) = points.last() else {
            return;
        };
        let color = series.color % super::COLORS;
        let place = |s: &Shown, v: f64| (x.place(s.x), y.place(v));
        let _ = write!(out, "<g class=\"c{color}\">");
        if self.has_bands() && points.len() > 1 {
            let above = points.iter().map(|(s, _)| place(s, s.high));
            let below = points.iter().rev().map(|(s, _)| place(s, s.low));
            let _ = write!(
                out,
                "<path class=\"band\" d=\"{}Z\"/>",
                path(&above.chain(below).collect::<Vec<_>>())
            );
        }
        let line: Vec<(f64, f64)> = points.iter().map(|(s, _)| place(s, s.median)).collect();
        let _ = write!(
            out,
            "<path class=\"line k{}\" d=\"{}\"/>",
            series.dash % 4,
            path(&line)
        );
        for ((_, point), (px, py)) in points.iter().zip(&line) {
            let _ = write!(
                out,
                "<circle cx=\"{}\" cy=\"{}\" r=\"2.6\"><title>{}</title></circle>",
                at(*px),
                at(*py),
                escape(&self.describe(series, point))
            );
        }
        out.push_str("</g>");
        labels.push(Label {
            text: series.name.clone(),
            from: place(last, last.median),
            class: format!("label c{color}"),
        });
    }

    fn describe(&self, series: &Series, point: &Point) -> String {
        let at = match self.across {
            Across::Bytes => size(point.x),
            Across::Ranks => format!("{} ranks", point.x),
        };
        let Some(s) = point.samples.summarize() else {
            return at;
        };
        let show = |v: f64| {
            self.quantity
                .show(self.quantity.convert(v, point.bytes as f64), &self.unit)
        };
        format!(
            "{}, {at}: minimum {}, median {}, mean {}, p99 {}, maximum {} of {} samples",
            series.name,
            show(s.min),
            show(s.median),
            show(s.mean),
            show(s.p99),
            show(s.max),
            s.count
        )
    }

    fn write_table(&self, unit: &str, out: &mut String) {
        out.push_str("<details><summary>Numbers</summary><div class=\"wide\"><table><thead><tr>");
        let first = match self.across {
            Across::Bytes => "size",
            Across::Ranks => "ranks",
        };
        let _ = write!(
            out,
            "<th scope=\"col\">{first}</th><th scope=\"col\">curve</th>"
        );
        // A percentile is one of times: what is faster than 99 % of the samples is not p99 of a rate.
        let of_time = self.quantity != Quantity::Plain;
        for name in ["min", "median", "mean", "p90", "p99", "p99.9", "max"] {
            let _ = write!(out, "<th scope=\"col\">{name}</th>");
        }
        out.push_str("<th scope=\"col\">samples</th></tr></thead><tbody>");
        let mut rows: Vec<(u64, &str, Summary)> = self
            .series
            .iter()
            .flat_map(|s| s.points.iter().map(move |p| (p, s)))
            .filter_map(|(p, s)| Some((p.x, s.name.as_str(), p.samples.summarize()?)))
            .collect();
        rows.sort_by_key(|r| r.0);
        for (x, name, s) in rows {
            let first = match self.across {
                Across::Bytes => size(x),
                Across::Ranks => x.to_string(),
            };
            let _ = write!(
                out,
                "<tr><th scope=\"row\">{first}</th><td class=\"text\">{}</td>",
                escape(name)
            );
            for v in [s.min, s.median, s.mean, s.p90, s.p99, s.p999, s.max] {
                let text = if of_time {
                    time(v)
                } else {
                    format!("{} {unit}", super::svg::three_digits(v))
                };
                let _ = write!(out, "<td>{}</td>", escape(&text));
            }
            let _ = write!(out, "<td>{}</td></tr>", s.count);
        }
        out.push_str("</tbody></table></div>");
        if matches!(self.quantity, Quantity::Bandwidth | Quantity::Rate) {
            out.push_str(
                "<p class=\"note\">Times of one message, from which the curve is formed.</p>",
            );
        }
        out.push_str("</details>");
    }
}

/// Text at the end of a curve.
struct Label {
    text: String,
    from: (f64, f64),
    class: String,
}

fn write_labels(labels: &[Label], out: &mut String) {
    let places: Vec<f64> = labels.iter().map(|l| l.from.1 + 4.0).collect();
    let places = spread(&places, 14.0, TOP + 6.0, HEIGHT - BOTTOM + 2.0);
    let x = WIDTH - RIGHT + 12.0;
    for (label, y) in labels.iter().zip(places) {
        let (from_x, from_y) = label.from;
        let _ = write!(
            out,
            "<path class=\"lead\" d=\"M{} {}L{} {}\"/><text class=\"{}\" x=\"{}\" y=\"{}\">{}<title>{}</title></text>",
            at(from_x + 4.0),
            at(from_y),
            at(x - 2.0),
            at(y - 4.0),
            label.class,
            at(x),
            at(y),
            escape(&if label.class.starts_with("floor") {
                shorten(&label.text, FLOOR_LABEL_MAX)
            } else {
                shorten_label(&label.text)
            }),
            escape(&label.text)
        );
    }
}

/// A label as long as there is room. Of `name, what tells it apart` the name gives way.
fn shorten_label(text: &str) -> String {
    let Some((name, tail)) = text.split_once(", ") else {
        return shorten(text, LABEL_MAX);
    };
    let room = LABEL_MAX.saturating_sub(tail.chars().count() + 2).max(4);
    shorten(&format!("{}, {tail}", shorten(name, room)), LABEL_MAX)
}
