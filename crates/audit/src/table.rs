//! What is read from a text: tables of columns of numbers, each number with the precision it was
//! printed with, each column with the unit and the statistic that its tool or its heading gives it.

use serde::Deserialize;

use fastpath_report::data::Text;

/// One printed number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Its value; not a number where the tool printed none.
    pub value: f64,
    /// What one more in its last printed digit would add; 0 for a size with K, M or G.
    pub quantum: f64,
}

impl Cell {
    /// A cell that holds no number: `-nan`, or nothing at all.
    pub const MISSING: Cell = Cell { value: f64::NAN, quantum: 0.0 };

    /// The same in another unit.
    pub fn scaled(self, factor: f64) -> Cell {
        Cell { value: self.value * factor, quantum: self.quantum * factor }
    }

    /// Significant digits that were printed.
    fn digits(self) -> u32 {
        if self.quantum <= 0.0 || self.value == 0.0 {
            return 0;
        }
        let digits = (self.value.abs() / self.quantum).log10().floor() as i32 + 1;
        digits.max(0) as u32
    }
}

impl std::fmt::Display for Cell {
    /// With the decimals that it was printed with.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let decimals = (-self.quantum.log10()).round().clamp(0.0, 12.0);
        let text = format!("{:.*}", decimals as usize, self.value);
        f.pad(&text)
    }
}

/// A number as text, with its precision, and what follows it without a blank: `2.5us` is 2.5 to 0.1, and `us`.
/// None where the text does not begin with a number.
pub fn read_number(token: &str) -> Option<(Cell, &str)> {
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-');
    let mut end = token.find(|c| !is_number(c)).unwrap_or(token.len());
    let mantissa = &token[..end];
    let exponent = token[end..].strip_prefix(['e', 'E']).and_then(|rest| {
        let stop = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
        let power = rest[..stop].parse::<i32>().ok()?;
        end += 1 + stop;
        Some(power)
    });
    let (number, suffix) = token.split_at(end);
    let value: f64 = number.parse().ok()?;
    if !value.is_finite() || value.abs() > 1e18 {
        return None;
    }
    let decimals = mantissa.split_once('.').map_or(0, |(_, d)| d.len()).min(18);
    let quantum = 10f64.powi(exponent.unwrap_or(0).clamp(-40, 40) - decimals as i32);
    Some((Cell { value, quantum }, suffix))
}

/// A unit of a column.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(from = "String")]
pub struct Unit {
    /// Its name, with the factor if the name says too little.
    pub name: Text,
    /// Its length in nanoseconds if it is one of time.
    pub ns: Option<f64>,
    /// False if the heading's word means two units: `MB/s` is written for 10^6 and for 2^20 bytes.
    pub settled: bool,
}

impl From<String> for Unit {
    fn from(name: String) -> Unit {
        Unit::of_time(&name).unwrap_or_else(|| Unit::new(name.leak()))
    }
}

impl Unit {
    /// A unit that is not of time.
    pub const fn new(name: &'static str) -> Unit {
        Unit { name, ns: None, settled: true }
    }

    /// A unit whose word means two.
    pub const fn unsettled(name: &'static str) -> Unit {
        Unit { settled: false, ..Unit::new(name) }
    }

    /// A unit of time, by any word for it.
    pub fn of_time(word: &str) -> Option<Unit> {
        const TIMES: [(&str, f64, &[&str]); 4] = [
            ("ns", 1.0, &["ns", "nsec", "nsecs", "nanoseconds"]),
            ("us", 1e3, &["us", "usec", "usecs", "\u{b5}s", "\u{3bc}s", "microseconds"]),
            ("ms", 1e6, &["ms", "msec", "msecs", "milliseconds"]),
            ("s", 1e9, &["s", "sec", "secs", "seconds"]),
        ];
        let word = word.to_lowercase();
        let (name, ns, _) = TIMES.iter().find(|(_, _, words)| words.contains(&word.as_str()))?;
        let ns = Some(*ns);
        Some(Unit { ns, ..Unit::new(name) })
    }
}

/// What the numbers of a column are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Not known: judged by the numbers.
    #[default]
    Unknown,
    /// Sizes, counts or ranks: exact.
    Parameter,
    /// Measurements.
    Measured,
    /// Computed from many measurements, so that no step of a clock can show: a standard deviation, a share.
    Derived,
}

/// A column of a table.
#[derive(Clone, Debug, Default)]
pub struct Column {
    /// Its heading; empty if it has none.
    pub name: String,
    /// The units of its numbers; more than one where the tool chooses one for each number.
    pub units: Vec<Unit>,
    /// The statistic, if the tool or the heading names it.
    pub statistic: Option<&'static str>,
    /// What its numbers are.
    pub role: Role,
    /// Digits that the tool prints of each number where it cuts zeros off or moves the point.
    pub digits: Option<u32>,
    /// The power of ten, above one in the last digit, that all its numbers are multiples of.
    pub coarse: Option<f64>,
    /// Its numbers.
    pub cells: Vec<Cell>,
}

impl Column {
    /// Its unit, if all of its numbers have the same.
    pub fn unit(&self) -> Option<Unit> {
        match self.units[..] {
            [unit] => Some(unit),
            _ => None,
        }
    }

    /// Adds cells without a number until it has `rows` cells.
    pub fn fill(&mut self, rows: usize) {
        let missing = rows.saturating_sub(self.cells.len());
        self.cells.extend(std::iter::repeat_n(Cell::MISSING, missing));
    }

    /// Notes that a number of the column is in a unit.
    pub fn add_unit(&mut self, unit: Unit) {
        if !self.units.contains(&unit) {
            self.units.push(unit);
        }
    }

    /// Whether these are sizes, counts or ranks rather than measurements. Where neither tool nor heading says so: whole
    /// numbers that are powers of two or have at most two digits that are not zero.
    pub fn is_parameter(&self) -> bool {
        match self.role {
            Role::Parameter => return true,
            Role::Measured | Role::Derived => return false,
            Role::Unknown => {}
        }
        let round = |c: &Cell| {
            let whole = c.value.fract() == 0.0 && c.value.abs() < 1e15 && c.quantum <= 1.0;
            whole && (is_power_of_two(c.value) || digits(c.value) <= 2)
        };
        let named = self.name.to_lowercase();
        let says = ["iter", "bytes", "size", "rank", "np", "sample"].iter();
        let says = says.into_iter().any(|w| named.contains(w)) && !named.contains('/');
        self.unit().is_none_or(|u| u.ns.is_none()) && (says || self.cells.iter().all(round))
    }

    /// Its heading, or its number where it has none.
    pub fn label(&self, index: usize) -> String {
        match self.name.as_str() {
            "" => format!("column {}", index + 1),
            name => name.to_owned(),
        }
    }

    /// Takes zeros at the end of all measurements for digits that were not measured, unless the chance that they are an
    /// accident is above `chance_max`: numbers that were rounded, or converted from a coarser unit.
    pub fn coarsen(&mut self, chance_max: f64) {
        let printed = self.cells.iter().filter(|c| c.value.is_finite());
        let finest = printed.map(|c| c.quantum).fold(f64::INFINITY, f64::min);
        let skipped = self.is_parameter() || self.role == Role::Derived || self.digits.is_some();
        if skipped || !(finest > 0.0 && finest.is_finite()) {
            return;
        }
        let mut counts: Vec<u64> = self
            .cells
            .iter()
            .filter(|c| c.value != 0.0 && c.value.is_finite())
            .map(|c| (c.value.abs() / finest).round() as u64)
            .collect();
        counts.sort_unstable();
        counts.dedup();
        // Whole numbers above 2^53 are not exact.
        if counts.last().is_none_or(|&largest| largest >= 1 << 53) {
            return;
        }
        let mut power = 0;
        while counts.iter().all(|n| n.is_multiple_of(10u64.pow(power + 1))) {
            power += 1;
        }
        let chance = 10f64.powf(-f64::from(power) * counts.len() as f64);
        if power == 0 || counts.len() < 2 || chance > chance_max {
            return;
        }
        let coarse = finest * 10f64.powi(power as i32);
        self.coarse = Some(coarse);
        for cell in &mut self.cells {
            cell.quantum = cell.quantum.max(coarse);
        }
    }

    /// How fine the printed numbers are.
    pub fn resolution(&self) -> Resolution {
        if let Some(least) = self.digits.filter(|_| !self.is_parameter()) {
            let fewest = self.cells.iter().map(|c| c.digits()).min();
            return Resolution::Digits(fewest.unwrap_or(0).max(least));
        }
        let numbers = || self.cells.iter().filter(|c| c.value.is_finite());
        let quanta = numbers().map(|c| c.quantum);
        let (low, high) = quanta.fold((f64::INFINITY, 0f64), |(l, h), q| (l.min(q), h.max(q)));
        let mut digits = numbers().map(|c| c.digits());
        let first = digits.next().unwrap_or(0);
        if self.is_parameter() || low > high || low <= 0.0 {
            Resolution::Exact
        } else if high / low < 1.5 {
            Resolution::Step(high)
        } else if digits.all(|d| d == first) {
            Resolution::Digits(first)
        } else {
            Resolution::Steps(low, high)
        }
    }
}

fn is_power_of_two(value: f64) -> bool {
    value == 0.0 || (value > 0.0 && (value as u64).is_power_of_two())
}

/// Digits of a whole number without the zeros at its end.
fn digits(value: f64) -> u32 {
    let mut rest = value.abs() as u64;
    while rest > 0 && rest.is_multiple_of(10) {
        rest /= 10;
    }
    rest.checked_ilog10().map_or(0, |d| d + 1)
}

/// How fine printed numbers are, in the column's own unit. The clock behind them may be coarser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resolution {
    /// Sizes and counts.
    Exact,
    /// One in the last digit, the same for all.
    Step(f64),
    /// One in the last digit, from the finest to the coarsest.
    Steps(f64, f64),
    /// So many significant digits.
    Digits(u32),
}

impl std::fmt::Display for Resolution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match *self {
            Resolution::Exact => "exact".to_owned(),
            Resolution::Step(step) => format_step(step),
            Resolution::Steps(low, high) => {
                format!("{} to {}", format_step(low), format_step(high))
            }
            Resolution::Digits(digits) => format!("{digits} digits"),
        };
        f.pad(&text)
    }
}

/// A power of ten without a tail of rounding errors.
pub fn format_step(step: f64) -> String {
    let power = step.log10().round() as i32;
    match power {
        -8..0 => format!("{:.*}", power.unsigned_abs() as usize, step),
        0..7 => format!("{step:.0}"),
        _ => format!("{step:.0e}"),
    }
}

/// A table of a text.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// First and last line, from 1.
    pub lines: (usize, usize),
    /// The tool that printed it, with its version if the text gives it; None: not recognised.
    pub tool: Option<String>,
    /// The test, as the tool calls it.
    pub title: String,
    /// What is known of the tool and stands in no column, in sentences.
    pub known: Vec<&'static str>,
    /// What the table cannot say.
    pub unknown: &'static str,
    /// All equally long.
    pub columns: Vec<Column>,
}

impl Table {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.columns.iter().map(|c| c.cells.len()).max().unwrap_or(0)
    }

    /// Makes all columns so long, with cells without a number.
    pub fn fill(&mut self, rows: usize) {
        self.columns.iter_mut().for_each(|c| c.fill(rows));
    }
}
