//! Infers the unit of a bandwidth from the numbers beside it, if neither tool nor heading names it.
//!
//! If a row has a size, a bandwidth, and a message rate or time, each follows from the other two except for a factor.
//! The factor shows the unit. It is a power of ten for units of 10^n bytes, with a further factor of 1.048576 for units
//! of 2^20 bytes, or of 8 for bits.

use super::table::{Cell, Column, ParsedTable};

/// Unit of the bandwidth, by the factor.
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
    /// Twice a power of ten: the sum of both directions, or half a round trip.
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
    /// Factor between this unit and the decimal one for which it may be mistaken.
    pub fn factor(self) -> f64 {
        let found = FACTORS.iter().find(|(b, _)| *b == self);
        found.map_or(1.0, |(_, factor)| *factor)
    }
}

#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct UnitFinding {
    /// Column of the bandwidth, from 0.
    pub bandwidth: usize,
    pub size: usize,
    /// Column of the rate or time.
    pub other: usize,
    /// Whether `other` is a time (otherwise a rate).
    pub by_time: bool,
    pub base: Base,
    /// Number of rows that agree: all rows that have a size and no value printed as 0.00.
    pub rows: usize,
    /// Chance that one of all tried relations holds in random numbers.
    pub chance: f64,
}

/// Least assumed chance that the rows agree. Columns may be related in another way, for instance if both grow with the
/// size. Then all rows agree, or none does.
const AGREEMENT_LEAST: f64 = 0.1;

/// A table, three of its columns (size, bandwidth, rate or time), and whether the last is a time.
type Hypothesis = (usize, [usize; 3], bool);

/// Returns, for each table, the bandwidth columns whose inferred unit has a chance below `chance_max` of being an
/// accident. The chance covers all relations tried in the text.
pub fn find_units(tables: &[&ParsedTable], chance_max: f64) -> Vec<Vec<UnitFinding>> {
    let mut tried = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        list_hypotheses(index, table, &mut tried);
    }
    let count = tried.len() as f64;
    let mut found: Vec<Vec<UnitFinding>> = vec![Vec::new(); tables.len()];
    for &(table, [size, bandwidth, other], by_time) in &tried {
        let columns = [size, bandwidth, other].map(|i| &tables[table].columns[i]);
        let Some(relation) = relate(columns, by_time) else {
            continue;
        };
        // The chance is that the rows agree by accident in one of all relations tried, and that they agree on the
        // factor of a unit.
        let chance = relation.hit * (relation.agreement * count).max(AGREEMENT_LEAST);
        if chance < chance_max {
            found[table].push(UnitFinding {
                bandwidth,
                size,
                other,
                by_time,
                base: relation.base,
                rows: relation.rows,
                chance,
            });
        }
    }
    found
}

/// Lists every useful relation of a bandwidth without a known unit: with a time, if its unit is one of time or unknown,
/// or with a rate without a unit.
fn list_hypotheses(index: usize, table: &ParsedTable, tried: &mut Vec<Hypothesis>) {
    let columns = &table.columns;
    let all = || 0..columns.len();
    let sizes: Vec<usize> = all().filter(|&i| is_size(&columns[i])).collect();
    // Use only the sizes that vary, if there are any.
    let varying: Vec<usize> = sizes.iter().copied().filter(|&i| varies(&columns[i])).collect();
    let sizes = if varying.is_empty() { sizes } else { varying };
    let measured = |i: &usize| !columns[*i].is_parameter();
    let open = |i: &usize| columns[*i].unit().is_none_or(|u| !u.settled);
    let time = |i: &usize| columns[*i].unit().is_some_and(|u| u.ns.is_some());
    for size in sizes {
        for bandwidth in all().filter(measured).filter(open) {
            for other in all().filter(measured).filter(|&o| o != bandwidth) {
                let bare = columns[other].unit().is_none();
                let columns = [size, bandwidth, other];
                if bare {
                    tried.push((index, columns, false));
                }
                // Time times bandwidth is symmetric, so try it once if neither has a unit.
                if time(&other) || (bare && bandwidth > other) {
                    tried.push((index, columns, true));
                }
            }
        }
    }
}

fn is_size(column: &Column) -> bool {
    let whole = |c: &Cell| c.value >= 0.0 && c.value.fract() == 0.0;
    let name = column.name.to_lowercase();
    let counts = ["iter", "rep", "rank", "np", "sample"].iter().any(|w| name.contains(w));
    column.is_parameter() && !counts && column.cells.iter().all(whole)
}

fn varies(column: &Column) -> bool {
    column.cells.iter().any(|c| c.value != column.cells[0].value)
}

/// A relation that holds in every row with all three values.
struct Relation {
    base: Base,
    rows: usize,
    /// Chance that the factor on which the rows agree is by accident that of a unit.
    hit: f64,
    /// Chance that the rows agree on a factor by accident.
    agreement: f64,
}

/// Finds the unit for which `size * rate = bandwidth` (or `bandwidth * time = size`) holds in every row.
fn relate([size, bandwidth, other]: [&Column; 3], by_time: bool) -> Option<Relation> {
    // If the size changes, the other two columns must change too: `size * 100 = time` does not concern a bandwidth.
    let changes = varies(size);
    if changes && !(varies(bandwidth) && varies(other)) {
        return None;
    }
    // The factor is a power of ten times a number in [1, 10).
    let (mut low, mut high) = (0f64, f64::INFINITY);
    let (mut agreement, mut sizes, mut rows) = (1f64, Vec::new(), 0);
    for ((s, b), o) in size.cells.iter().zip(&bandwidth.cells).zip(&other.cells) {
        let error = relative(b) + relative(o);
        // A row without a size, or with a number printed as 0.00, has no information.
        if s.value == 0.0 || b.value == 0.0 || o.value == 0.0 || error > 0.5 {
            continue;
        }
        let positive = b.value > 0.0 && o.value > 0.0;
        if !positive || (!changes && !by_time && is_simple(b.value / o.value)) {
            return None;
        }
        rows += 1;
        let value = match by_time {
            true => s.value / (b.value * o.value),
            false => s.value * o.value / b.value,
        };
        let (from, to) = (value * (1.0 - error), value * (1.0 + error));
        if !sizes.contains(&s.value) {
            let first = sizes.is_empty();
            sizes.push(s.value);
            agreement *= if first { 1.0 } else { (to / from).log10().min(1.0) };
        }
        (low, high) = (low.max(from), high.min(to));
    }
    if !(low <= high && low > 0.0 && high.is_finite()) {
        return None;
    }
    let fits = |factor: f64| {
        let (from, to) = ((low / factor).log10(), (high / factor).log10());
        (from - 1e-9).ceil() <= to + 1e-9
    };
    let mut fitting = FACTORS.iter().filter(|(_, factor)| fits(*factor));
    let (base, _) = *fitting.next()?;
    if fitting.next().is_some() {
        return None;
    }
    let width = (high / low).log10().max(1e-9);
    let hit = (FACTORS.len() as f64 * width).min(1.0);
    Some(Relation { base, rows, hit, agreement })
}

/// Whether a ratio of two columns is so simple that it needs no unit: both hold one quantity, or one is half of the
/// other. If there is only one size, a power of two, a simple ratio looks like a unit.
fn is_simple(ratio: f64) -> bool {
    let log = ratio.log10();
    let near = |simple: f64| (log - simple.log10() - (log - simple.log10()).round()).abs() < 0.05;
    [1.0, 2.0, 4.0, 5.0, 8.0, 2.5, 1.25].into_iter().any(near)
}

/// Relative error of a printed number: half a unit of its last digit, and a tenth of that in addition. The caller adds
/// the errors of two numbers, and the error of their product or quotient is a little larger than that sum.
fn relative(cell: &Cell) -> f64 {
    0.55 * cell.quantum / cell.value
}
