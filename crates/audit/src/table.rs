//! Tables parsed from a text: columns of numbers. Each number has its printed precision. Each column has the unit and
//! the statistic that its tool or its heading gives it.

use serde::Deserialize;

use fastpath_report::data::Text;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Value; NaN if the tool printed none.
    pub value: f64,
    /// Value of one in the last printed digit; 0 for a size with K, M or G.
    pub quantum: f64,
}

impl Cell {
    /// Cell without a number: printed as `-nan`, or empty.
    pub const MISSING: Cell = Cell { value: f64::NAN, quantum: 0.0 };

    /// Converts the cell to another unit.
    pub fn scaled(self, factor: f64) -> Cell {
        Cell { value: self.value * factor, quantum: self.quantum * factor }
    }

    /// Number of printed significant digits.
    fn digits(self) -> u32 {
        if self.quantum <= 0.0 || self.value == 0.0 {
            return 0;
        }
        let digits = (self.value.abs() / self.quantum).log10().floor() as i32 + 1;
        digits.max(0) as u32
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let decimals = (-self.quantum.log10()).round().clamp(0.0, 12.0);
        let text = format!("{:.*}", decimals as usize, self.value);
        f.pad(&text)
    }
}

/// Splits a token into a number with its precision and the text behind it: `2.5us` gives 2.5, precise to 0.1, and `us`.
/// None if the token does not begin with a number.
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

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(from = "String")]
pub struct Unit {
    /// Name, with the factor if the name is ambiguous.
    pub name: Text,
    /// Length in nanoseconds for a unit of time.
    pub ns: Option<f64>,
    /// False if the heading's word means two units: `MB/s` stands for 10^6 and for 2^20 bytes.
    pub settled: bool,
}

impl From<String> for Unit {
    fn from(name: String) -> Unit {
        Unit::of_time(&name).unwrap_or_else(|| Unit::new(name.leak()))
    }
}

impl Unit {
    /// Creates a unit that is not of time.
    pub const fn new(name: &'static str) -> Unit {
        Unit { name, ns: None, settled: true }
    }

    /// Creates a unit whose word stands for two units.
    pub const fn unsettled(name: &'static str) -> Unit {
        Unit { settled: false, ..Unit::new(name) }
    }

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnRole {
    /// Unknown: judged by the numbers.
    #[default]
    Unknown,
    /// Sizes, counts or ranks: exact.
    Parameter,
    Measured,
    /// Computed from many measurements, so that no step of a clock can show: a standard deviation, a share.
    Derived,
}

#[derive(Clone, Debug, Default)]
pub struct Column {
    /// Heading; empty if there is none.
    pub name: String,
    /// Units of the numbers; more than one if the tool chooses one for each number.
    pub units: Vec<Unit>,
    pub statistic: Option<&'static str>,
    pub role: ColumnRole,
    /// Digits that the tool prints of each number, if it drops zeros or moves the point.
    pub digits: Option<u32>,
    /// Power of ten of which all numbers are multiples, if it is larger than a unit of the last printed digit; None if
    /// no such power was found.
    pub coarse: Option<f64>,
    pub cells: Vec<Cell>,
}

impl Column {
    pub fn unit(&self) -> Option<Unit> {
        match self.units[..] {
            [unit] => Some(unit),
            _ => None,
        }
    }

    /// Adds cells without a number until there are `rows` cells.
    pub fn fill(&mut self, rows: usize) {
        let missing = rows.saturating_sub(self.cells.len());
        self.cells.extend(std::iter::repeat_n(Cell::MISSING, missing));
    }

    pub fn add_unit(&mut self, unit: Unit) {
        if !self.units.contains(&unit) {
            self.units.push(unit);
        }
    }

    /// Whether the column holds sizes, counts or ranks rather than measurements. If neither the tool nor the heading
    /// shows this, all values must be powers of two, or whole numbers of at most two digits before trailing zeros.
    pub fn is_parameter(&self) -> bool {
        match self.role {
            ColumnRole::Parameter => return true,
            ColumnRole::Measured | ColumnRole::Derived => return false,
            ColumnRole::Unknown => {}
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

    pub fn label(&self, index: usize) -> String {
        match self.name.as_str() {
            "" => format!("column {}", index + 1),
            name => name.to_owned(),
        }
    }

    /// Treats zeros at the end of all measurements as digits that were not measured, because the numbers were rounded
    /// or converted from a coarser unit. Does nothing if the chance of an accident is above `chance_max`.
    pub fn coarsen(&mut self, chance_max: f64) {
        let printed = self.cells.iter().filter(|c| c.value.is_finite());
        let finest = printed.map(|c| c.quantum).fold(f64::INFINITY, f64::min);
        let skipped =
            self.is_parameter() || self.role == ColumnRole::Derived || self.digits.is_some();
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

/// Digits of a whole number without its trailing zeros.
fn digits(value: f64) -> u32 {
    let mut rest = value.abs() as u64;
    while rest > 0 && rest.is_multiple_of(10) {
        rest /= 10;
    }
    rest.checked_ilog10().map_or(0, |d| d + 1)
}

/// Resolution of printed numbers, in the column's own unit. The clock behind them may be coarser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resolution {
    /// Sizes and counts, which are exact.
    Exact,
    /// Value of one in the last digit, equal for all numbers.
    Step(f64),
    /// Value of one in the last digit, for the finest and for the coarsest number.
    Steps(f64, f64),
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

/// Formats a power of ten without rounding errors.
pub fn format_step(step: f64) -> String {
    let power = step.log10().round() as i32;
    match power {
        -8..0 => format!("{:.*}", power.unsigned_abs() as usize, step),
        0..7 => format!("{step:.0}"),
        _ => format!("{step:.0e}"),
    }
}

#[derive(Clone, Debug, Default)]
pub struct ParsedTable {
    /// First and last line, from 1.
    pub lines: (usize, usize),
    /// The tool that printed the table, with its version if the text has it; None: not recognised.
    pub tool: Option<String>,
    pub title: String,
    /// Facts about the tool that are in no column, in sentences.
    pub known: Vec<&'static str>,
    /// Facts that the table does not show.
    pub unknown: &'static str,
    pub columns: Vec<Column>,
}

impl ParsedTable {
    pub fn rows(&self) -> usize {
        self.columns.iter().map(|c| c.cells.len()).max().unwrap_or(0)
    }

    /// Extends all columns to `rows` cells without a number.
    pub fn fill(&mut self, rows: usize) {
        self.columns.iter_mut().for_each(|c| c.fill(rows));
    }
}
