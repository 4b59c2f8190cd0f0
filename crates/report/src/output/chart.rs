//! Charts in characters: curves over logarithmic axes, in braille dots or in ASCII.

use crate::format::{size_tick, time};
use crate::scale::Axis;

/// Largest width of a chart, in columns.
pub const COLUMNS: usize = 76;
/// Height of the plot, in rows.
const ROWS: usize = 12;
/// Width of the labels of the vertical axis, in columns.
const LABEL: usize = 7;
/// Width of the plot, in columns.
const PLOT: usize = COLUMNS - LABEL - 2;
/// Minimum distance between the marks of the horizontal axis, in columns.
const MARK_ROOM: usize = 6;

/// Characters of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charset {
    /// Braille dots, two by four in each cell, and box lines.
    Unicode,
    /// One character a cell.
    Ascii,
}

impl Charset {
    /// The charset of the user's locale.
    pub fn of_locale() -> Charset {
        match has_utf8_locale(|name| std::env::var(name).unwrap_or_default()) {
            true => Charset::Unicode,
            false => Charset::Ascii,
        }
    }

    /// Columns and rows of dots in a cell.
    fn dots(self) -> (usize, usize) {
        match self {
            Charset::Unicode => (2, 4),
            Charset::Ascii => (1, 1),
        }
    }

    /// The vertical axis without and with a mark, the corner, the horizontal axis without and with a mark.
    fn frame(self) -> [char; 5] {
        match self {
            Charset::Unicode => ['│', '┤', '└', '─', '┴'],
            Charset::Ascii => ['|', '+', '+', '-', '+'],
        }
    }

    /// Replaces characters that the charset lacks.
    pub fn encode(self, text: &str) -> String {
        match self {
            Charset::Unicode => text.to_owned(),
            Charset::Ascii => text.replace('\u{b5}', "u"),
        }
    }
}

/// A curve: times in nanoseconds over sizes in bytes, in ascending order of the size.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// Sizes and times. Zeros, which a logarithmic axis cannot show, are left out.
    pub points: Vec<(u64, f64)>,
    /// Whether the curve is drawn as single dots instead of a line.
    pub is_dotted: bool,
}

/// Draws curves into one chart. Returns a line for each row, or none without points.
pub fn draw(curves: &[Curve], charset: Charset) -> Vec<String> {
    let curves: Vec<(Vec<(f64, f64)>, bool)> =
        curves.iter().map(|curve| (list_points(curve), curve.is_dotted)).collect();
    let all = || curves.iter().flat_map(|(points, _)| points);
    if all().next().is_none() {
        return Vec::new();
    }
    let mut canvas = Canvas::new(charset);
    let (right, bottom) = ((canvas.width - 1) as f64, (canvas.height - 1) as f64);
    let across = Axis::around(all().map(|p| p.0), 0.0, right);
    let up = Axis::around(all().map(|p| p.1), bottom, 0.0).padded(0.02, 0.02);
    for (points, is_dotted) in &curves {
        let places: Vec<_> = points.iter().map(|p| (across.place(p.0), up.place(p.1))).collect();
        canvas.add_curve(&places, *is_dotted);
    }
    let (dots_across, dots_up) = charset.dots();
    let [plain, marked, corner, line, mark] = charset.frame();
    let mut labels = vec![String::new(); ROWS];
    for value in up.decimal_marks() {
        let row = canvas.limit_row(up.place(value)) / dots_up;
        let label = charset.encode(&time(value));
        // Leave out a label that is wider than its column: no measured time is that long.
        labels[row] = if label.chars().count() <= LABEL { label } else { String::new() };
    }
    let row = |(cells, label): (String, &String)| {
        let axis = if label.is_empty() { plain } else { marked };
        format!("{label:>LABEL$} {axis}{cells}").trim_end().to_owned()
    };
    let mut lines: Vec<String> = canvas.rows().zip(&labels).map(row).collect();
    let marks = across.binary_marks((MARK_ROOM * dots_across) as f64);
    let place = |bytes: &f64| canvas.limit_column(across.place(*bytes)) / dots_across;
    let marks: Vec<(usize, String)> =
        marks.iter().map(|bytes| (place(bytes), size_tick(*bytes as u64))).collect();
    lines.push(draw_axis(&marks, [corner, line, mark]));
    lines.push(draw_marks(&marks));
    lines
}

fn list_points(curve: &Curve) -> Vec<(f64, f64)> {
    let points = curve.points.iter().map(|&(bytes, ns)| (bytes as f64, ns));
    points.filter(|&(bytes, ns)| bytes > 0.0 && ns > 0.0 && ns.is_finite()).collect()
}

fn draw_axis(marks: &[(usize, String)], [corner, line, mark]: [char; 3]) -> String {
    let is_mark = |column| marks.iter().any(|(at, _)| *at == column);
    let cells = (0..PLOT).map(|column| if is_mark(column) { mark } else { line });
    format!("{:LABEL$} {corner}{}", "", cells.collect::<String>())
}

/// Labels below the horizontal axis, each centred below its mark; a label without space is left out.
fn draw_marks(marks: &[(usize, String)]) -> String {
    let mut line = " ".repeat(LABEL + 2);
    for (column, label) in marks {
        let width = label.chars().count();
        let start = (LABEL + 2 + column).saturating_sub(width / 2).min(COLUMNS - width);
        if start > line.len() || line.trim().is_empty() {
            line.truncate(start);
            line = format!("{line:<start$}{label}");
        }
    }
    line
}

struct Canvas {
    charset: Charset,
    width: usize,
    height: usize,
    /// Rows of dots: each position is empty, part of a line, or a single dot.
    dots: Vec<Vec<Option<Dot>>>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Dot {
    Single,
    Line,
}

impl Canvas {
    fn new(charset: Charset) -> Canvas {
        let (across, up) = charset.dots();
        let (width, height) = (PLOT * across, ROWS * up);
        Canvas { charset, width, height, dots: vec![vec![None; width]; height] }
    }

    fn limit_column(&self, x: f64) -> usize {
        (x.round().max(0.0) as usize).min(self.width - 1)
    }

    fn limit_row(&self, y: f64) -> usize {
        (y.round().max(0.0) as usize).min(self.height - 1)
    }

    fn set(&mut self, column: usize, row: usize, dot: Dot) {
        let at = &mut self.dots[row][column];
        *at = (*at).max(Some(dot));
    }

    /// Draws straight lines between neighbouring points.
    fn add_curve(&mut self, points: &[(f64, f64)], is_dotted: bool) {
        let [first, ..] = points else { return };
        let mut last = self.limit_row(first.1);
        let starts = points.iter().take(1).chain(points);
        for (from, to) in starts.zip(points) {
            for column in self.limit_column(from.0)..=self.limit_column(to.0) {
                let length = (to.0 - from.0).max(1.0);
                let share = ((column as f64 - from.0) / length).clamp(0.0, 1.0);
                let share = if from == to { 1.0 } else { share };
                let row = self.limit_row(from.1 + (to.1 - from.1) * share);
                if is_dotted {
                    if from == to || column % (2 * self.charset.dots().0) == 0 {
                        self.set(column, row, Dot::Single);
                    }
                } else {
                    // A steep line has no gaps.
                    let (low, high) = (row.min(last), row.max(last));
                    let step = usize::from(high > low);
                    let inner = if row > last { low + step..=high } else { low..=high - step };
                    inner.for_each(|row| self.set(column, row, Dot::Line));
                }
                last = row;
            }
        }
    }

    fn rows(&self) -> impl Iterator<Item = String> + '_ {
        let up = self.charset.dots().1;
        self.dots.chunks(up).map(|rows| (0..PLOT).map(|cell| self.cell(rows, cell)).collect())
    }

    /// The character of a cell, from the rows of dots that cross it.
    fn cell(&self, rows: &[Vec<Option<Dot>>], cell: usize) -> char {
        match self.charset {
            Charset::Ascii => match rows[0][cell] {
                None => ' ',
                Some(Dot::Single) => '.',
                Some(Dot::Line) => '*',
            },
            Charset::Unicode => {
                /// Bits of the dots of a braille cell, by row and column (Unicode, block U+2800).
                const BITS: [[u32; 2]; 4] =
                    [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
                let mut bits = 0;
                for (row, of_row) in rows.iter().zip(BITS) {
                    for (side, bit) in of_row.into_iter().enumerate() {
                        bits |= if row[2 * cell + side].is_some() { bit } else { 0 };
                    }
                }
                // A blank is a space, so that the ends of lines can be trimmed.
                let braille = char::from_u32(0x2800 + bits).filter(|_| bits != 0);
                braille.unwrap_or(' ')
            }
        }
    }
}

/// Whether the locale of these variables encodes text as UTF-8.
pub fn has_utf8_locale(variable: impl Fn(&str) -> String) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(variable);
    let locale = locale.iter().find(|value| !value.is_empty());
    locale.is_some_and(|locale| {
        let lower = locale.to_lowercase();
        lower.contains("utf-8") || lower.contains("utf8")
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// A latency and its floor, from 8 bytes to `largest`, `scale` nanoseconds and more.
    fn make_curves(largest: u64, scale: f64) -> [Curve; 2] {
        let sizes = std::iter::successors(Some(8u64), |s| s.checked_mul(4));
        let sizes: Vec<u64> = sizes.take_while(|s| *s <= largest).collect();
        let points = |scale: f64| -> Vec<(u64, f64)> {
            sizes.iter().map(|&s| (s, scale * (100.0 + s as f64 / 20.0))).collect()
        };
        [
            Curve { points: points(scale), is_dotted: false },
            Curve { points: points(scale / 2.0), is_dotted: true },
        ]
    }

    #[test]
    fn chart__never_exceeds_its_columns() {
        for charset in [Charset::Unicode, Charset::Ascii] {
            for largest in [8, 32, 4096, 1 << 20, 1 << 30] {
                for scale in [0.001, 1.0, 777.7, 1e9] {
                    let lines = draw(&make_curves(largest, scale), charset);
                    assert_eq!(lines.len(), ROWS + 2);
                    for line in &lines {
                        assert!(line.chars().count() <= COLUMNS, "{line}");
                    }
                }
            }
        }
        const { assert!(COLUMNS < 80) };
    }

    #[test]
    fn chart__in_ascii_has_only_ascii() {
        let text = draw(&make_curves(1 << 20, 100.0), Charset::Ascii).concat();
        assert!(text.is_ascii() && text.contains("10 us"), "{text}");
        assert!(text.contains('*') && text.contains('.'));
        let text = draw(&make_curves(1 << 20, 100.0), Charset::Unicode).concat();
        assert!(
            text.contains('\u{b5}') && text.contains(|c| ('\u{2801}'..='\u{28ff}').contains(&c))
        );
    }

    #[test]
    fn chart__shows_a_curve_from_corner_to_corner() {
        let curve = Curve { points: vec![(8, 10.0), (1 << 20, 1e5)], is_dotted: false };
        let lines = draw(&[curve], Charset::Ascii);
        let columns: Vec<usize> = lines[..ROWS].iter().filter_map(|line| line.find('*')).collect();
        assert_eq!(columns.len(), ROWS, "no row is skipped: {lines:#?}");
        assert!(columns.windows(2).all(|pair| pair[0] > pair[1]), "{lines:#?}");
        assert!(lines[0].ends_with('*') && lines[0].chars().count() == COLUMNS, "{lines:#?}");
        assert!(lines[ROWS + 1].contains(" 64 ") && lines[ROWS + 1].ends_with("1M"), "{lines:#?}");
    }

    #[test]
    fn chart__without_points_is_empty() {
        let zero = Curve { points: vec![(0, 5.0), (8, 0.0), (8, f64::NAN)], is_dotted: false };
        assert!(draw(&[zero, Curve::default()], Charset::Ascii).is_empty());
        let one = Curve { points: vec![(8, 5.0)], is_dotted: false };
        assert_eq!(draw(&[one], Charset::Ascii).len(), ROWS + 2);
    }
}
