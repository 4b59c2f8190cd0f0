//! Finds the unit of a bandwidth from the numbers beside it.
//!
//! Where a row gives a size, a bandwidth, and a rate of messages or a time, one follows from the
//! other two but for a factor, and the factor is the unit: a power of ten for units of 10^n bytes,
//! 1.048576 times one for units of 2^20 bytes, 8 times one for bits.

use super::parse::{Cell, Column, Table};

/// What a factor says about the unit of the bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Base {
    /// Bytes, kB, MB, GB: powers of ten.
    Decimal,
    /// KiB: 2^10 bytes.
    Kibi,
    /// MiB: 2^20 bytes.
    Mebi,
    /// GiB: 2^30 bytes.
    Gibi,
    /// Bits, powers of ten.
    Bits,
    /// Powers of ten, and a factor of two: both directions, or half a round trip.
    Twice,
}

const FACTORS: [(Base, f64); 6] = [
    (Base::Decimal, 1.0),
    (Base::Kibi, 1.024),
    (Base::Mebi, 1.048_576),
    (Base::Gibi, 1.073_741_824),
    (Base::Bits, 0.125),
    (Base::Twice, 2.0),
];

impl Base {
    /// Bytes (or bits) of the unit for which decimal ones may be mistaken, in its own bytes.
    pub fn factor(self) -> f64 {
        let found = FACTORS.iter().find(|(b, _)| *b == self);
        found.map_or(1.0, |(_, factor)| *factor)
    }
}

/// A bandwidth whose unit is known.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct UnitFinding {
    /// Column of the bandwidth, from 0.
    pub bandwidth: usize,
    /// Column of the size.
    pub size: usize,
    /// Column of the rate or time.
    pub other: usize,
    /// Whether that is a time (else a rate).
    pub by_time: bool,
    /// What was found.
    pub base: Base,
    /// Rows that agree: all of the table.
    pub rows: usize,
    /// How many such relations are expected in numbers that have none.
    pub chance: f64,
}

/// Most relations expected by chance at which one is reported.
const CHANCE_MAX: f64 = 5e-3;

/// Every bandwidth column whose unit its neighbours betray.
pub fn find_units(table: &Table) -> Vec<UnitFinding> {
    let mut found: Vec<UnitFinding> = Vec::new();
    let count = table.columns.len();
    let sizes = (0..count).filter(|&i| is_size(&table.columns[i]));
    let measured: Vec<usize> = (0..count)
        .filter(|&i| !table.columns[i].is_parameter())
        .collect();
    let tried = (measured.len() * measured.len()).max(1) as f64;
    for size in sizes {
        for &bandwidth in &measured {
            for &other in measured.iter().filter(|&&o| o != bandwidth) {
                for by_time in [false, true] {
                    let columns = [size, bandwidth, other].map(|i| &table.columns[i]);
                    let Some((base, chance)) = relate(columns, by_time) else {
                        continue;
                    };
                    let chance = chance * tried;
                    // A time times a bandwidth reads the same both ways; name it once.
                    let known = |f: &UnitFinding| f.by_time && by_time && f.bandwidth == other;
                    if chance < CHANCE_MAX && !found.iter().any(known) {
                        found.push(UnitFinding {
                            bandwidth,
                            size,
                            other,
                            by_time,
                            base,
                            rows: table.rows(),
                            chance,
                        });
                    }
                }
            }
        }
    }
    found
}

fn is_size(column: &Column) -> bool {
    let whole = |c: &Cell| c.value >= 1.0 && c.value.fract() == 0.0;
    column.is_parameter() && column.cells.iter().all(whole)
}

/// The unit that makes `size · rate = bandwidth` (or `bandwidth · time = size`) in every row, and
/// the chance that three columns of other numbers do so.
fn relate([size, bandwidth, other]: [&Column; 3], by_time: bool) -> Option<(Base, f64)> {
    // The factor is a power of ten times one in [1, 10).
    let (mut low, mut high) = (0f64, f64::INFINITY);
    for ((s, b), o) in size.cells.iter().zip(&bandwidth.cells).zip(&other.cells) {
        if b.value <= 0.0 || o.value <= 0.0 {
            return None;
        }
        let (value, error) = if by_time {
            (s.value / (b.value * o.value), relative(b) + relative(o))
        } else {
            (s.value * o.value / b.value, relative(b) + relative(o))
        };
        low = low.max(value * (1.0 - error));
        high = high.min(value * (1.0 + error));
    }
    if !(low <= high && low > 0.0 && high.is_finite()) {
        return None;
    }
    let width = (high / low).log10();
    let fits = |factor: f64| {
        let (from, to) = ((low / factor).log10(), (high / factor).log10());
        (from - 1e-9).ceil() <= to + 1e-9
    };
    let mut fitting = FACTORS.iter().filter(|(_, factor)| fits(*factor));
    let (base, _) = fitting.next()?;
    if fitting.next().is_some() {
        return None;
    }
    // Rows whose numbers move independently and still agree are further evidence.
    let moving = distinct_ratios(bandwidth, other).saturating_sub(1) as i32;
    let each = (FACTORS.len() as f64 * width.max(1e-9)).min(1.0);
    Some((*base, each * width.clamp(1e-9, 0.5).powi(moving.min(8))))
}

/// Half a digit, and what a product of rounded numbers adds, relative to the value.
fn relative(cell: &Cell) -> f64 {
    0.55 * cell.quantum / cell.value
}

fn distinct_ratios(a: &Column, b: &Column) -> usize {
    let ratio = |(a, b): (&Cell, &Cell)| (1e4 * (a.value / b.value).log10()).round() as i64;
    let mut ratios: Vec<i64> = a.cells.iter().zip(&b.cells).map(ratio).collect();
    ratios.sort_unstable();
    ratios.dedup();
    ratios.len()
}
