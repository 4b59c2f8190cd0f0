//! Distributes the cases of reports over charts.

use fastpath_base::tell::count;
use std::collections::BTreeMap;

use super::curves::{Chart, ChartQuantity, Floor, HorizontalAxis, Point, Series};
use super::heat::Map;
use crate::format::size;
use crate::headline::{explain_floor_above, find_floor, is_floor_above};
use crate::lists::{group, unique};
use crate::record::{Case, CaseKey, Quantity, Report};

/// Maximum number of curves in one chart: a chart with more is not readable.
const SERIES_MAX: usize = 6;

pub enum Figure {
    Curves(Chart),
    Map(Map),
}

type FoundCase<'a> = (usize, &'a Case);

pub fn make_figures(reports: &[Report]) -> Vec<Figure> {
    let mut order = Vec::new();
    let mut groups: BTreeMap<_, Vec<FoundCase>> = BTreeMap::new();
    for (index, report) in reports.iter().enumerate() {
        for case in report.cases.iter().filter(|c| c.samples.count() > 0) {
            let key = (case.test.clone(), case.of, case.unit.clone(), case.window);
            if !groups.contains_key(&key) {
                order.push(key.clone());
            }
            groups.entry(key).or_default().push((index, case));
        }
    }
    let mut figures = Vec::new();
    for key in order {
        let cases = &groups[&key];
        if key.0 == "matrix" {
            figures.extend(make_maps(reports, cases));
        } else {
            figures.extend(make_charts(reports, cases));
        }
    }
    figures
}

fn make_maps(reports: &[Report], cases: &[FoundCase]) -> Vec<Figure> {
    let mut jobs: BTreeMap<_, BTreeMap<usize, Vec<&Case>>> = BTreeMap::new();
    for (report, case) in cases {
        let job = (case.ranks, case.bytes, case.level);
        let of_job = jobs.entry(job).or_default();
        of_job.entry(*report).or_default().push(case);
    }
    let mut figures = Vec::new();
    for ((ranks, bytes, _), by_report) in jobs {
        let map = |(report, cases): (usize, Vec<&Case>)| {
            let title = format!("latency by pair of ranks, {}", reports[report].run.mpi.name);
            let of = cases[0].of.text();
            let about = format!("{of}, {}, {ranks} ranks. Number and colour: median.", size(bytes));
            Map::from_cases(title, about, &cases)
        };
        let maps: Vec<Map> = by_report.into_iter().filter_map(map).collect();
        let low = maps.iter().map(|m| m.range().0).fold(f64::INFINITY, f64::min);
        let high = maps.iter().map(|m| m.range().1).fold(0.0, f64::max);
        figures.extend(maps.into_iter().map(|m| Figure::Map(m.with_range((low, high)))));
    }
    figures
}

/// Creates the charts of one test: by size if there are several sizes, otherwise by ranks.
fn make_charts(reports: &[Report], cases: &[FoundCase]) -> Vec<Figure> {
    let count = |pick: fn(&Case) -> u64| {
        let mut all: Vec<u64> = cases.iter().map(|(_, c)| pick(c)).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    };
    let (sizes, ranks) = (count(|c| c.bytes), count(|c| u64::from(c.ranks)));
    let across = match (sizes, ranks) {
        (1, 1) => return Vec::new(),
        (1, _) => HorizontalAxis::Ranks,
        _ => HorizontalAxis::Bytes,
    };
    let curves = curve_keys(across, cases);
    if curves.len() > SERIES_MAX && across == HorizontalAxis::Bytes && ranks > 1 {
        let mut parts: BTreeMap<u32, Vec<FoundCase>> = BTreeMap::new();
        for found in cases {
            parts.entry(found.1.ranks).or_default().push(*found);
        }
        let parts = parts.values();
        return parts.flat_map(|p| make_charts(reports, p)).collect();
    }
    vec![Figure::Curves(make_chart(reports, across, cases, &curves))]
}

/// Identity of a curve within a chart: the report, and the case without the horizontal quantity.
type CurveKey = (usize, CaseKey);

fn curve_key(across: HorizontalAxis, &(report, case): &FoundCase) -> CurveKey {
    let ranks = match across {
        HorizontalAxis::Bytes => case.ranks,
        HorizontalAxis::Ranks => 0,
    };
    let key = CaseKey { bytes: 0, ranks, ..case.key() };
    (report, key)
}

fn curve_keys(across: HorizontalAxis, cases: &[FoundCase]) -> Vec<CurveKey> {
    unique(cases.iter().map(|found| curve_key(across, found)))
}

/// Name of a curve: the properties that it does not share with all other curves.
fn name_curve(reports: &[Report], key: &CurveKey, all: &[CurveKey]) -> String {
    let differs = |pick: &dyn Fn(&CurveKey) -> String| all.iter().any(|k| pick(k) != pick(key));
    let mut parts = Vec::new();
    let mpi = |k: &CurveKey| match reports[k.0].run.mpi.name.as_str() {
        "" => format!("run {}", k.0 + 1),
        name => name.to_owned(),
    };
    if differs(&mpi) {
        parts.push(mpi(key));
    } else if differs(&|k| k.0.to_string()) {
        parts.push(format!("run {}", key.0 + 1));
    }
    if differs(&|k| k.1.level.name().to_owned()) {
        parts.push(key.1.level.name().to_owned());
    }
    let has = |k: &CurveKey, part: &str| k.1.variant.split(", ").any(|p| p == part);
    let own = |part: &&str| !part.is_empty() && all.iter().any(|k| !has(k, part));
    parts.extend(key.1.variant.split(", ").filter(own).map(str::to_owned));
    if differs(&|k| k.1.ranks.to_string()) {
        parts.push(count(key.1.ranks, "rank"));
    }
    if parts.is_empty() {
        parts.push(if differs(&|k| k.1.operation.clone()) {
            key.1.operation.clone()
        } else {
            mpi(key)
        });
    }
    parts.join(", ")
}

fn make_chart(
    reports: &[Report], across: HorizontalAxis, cases: &[FoundCase], keys: &[CurveKey],
) -> Chart {
    let first = cases[0].1;
    let quantity = match (first.unit.as_str(), first.test.as_str()) {
        ("ns", t)
            if t.contains("bandwidth")
                || (first.of == Quantity::Message && matches!(t, "put" | "get")) =>
        {
            ChartQuantity::Bandwidth
        }
        ("ns", t) if t.contains("rate") => ChartQuantity::Rate,
        ("ns", _) => ChartQuantity::Time,
        _ => ChartQuantity::Plain,
    };
    let several = reports.len() > 1 && keys.iter().any(|k| k.0 != keys[0].0);
    let mut used = BTreeMap::new();
    let series = keys.iter().enumerate().map(|(index, key)| {
        let mut points: Vec<Point> = cases
            .iter()
            .filter(|f| curve_key(across, f) == *key)
            .map(|(_, c)| Point {
                x: if across == HorizontalAxis::Bytes { c.bytes } else { u64::from(c.ranks) },
                bytes: c.bytes,
                samples: c.samples.clone(),
            })
            .collect();
        points.sort_by_key(|p| p.x);
        let dash = used.entry(key.0).or_insert(0);
        *dash += 1;
        Series {
            name: name_curve(reports, key, keys),
            color: if several { key.0 } else { index },
            dash: if several { *dash - 1 } else { 0 },
            points,
        }
    });
    let floors = if across == HorizontalAxis::Bytes { find_floors(cases) } else { Vec::new() };
    Chart {
        title: first.test.clone(),
        about: describe(across, cases),
        across,
        quantity,
        unit: first.unit.clone(),
        series: series.collect(),
        notes: explain_floors(reports, cases, &floors),
        floors,
    }
}

/// Explains where a drawn floor is slower than a curve.
fn explain_floors(reports: &[Report], cases: &[FoundCase], floors: &[Floor]) -> Vec<String> {
    let drawn =
        |case: &Case| floors.iter().find_map(|floor| floor.points.get(&case.bytes).copied());
    let explain = |&(report, case): &FoundCase| {
        let (floor, own) = (drawn(case)?, find_floor(case));
        let is_own = own.is_some_and(|own| own == floor);
        let why = match is_own {
            true => explain_floor_above(case)?,
            false if is_floor_above(case, floor) => {
                "the limit that is drawn was measured beside another curve"
            }
            false => return None,
        };
        Some(((super::name_run(report, &reports[report]), why), size(case.bytes)))
    };
    let places = group(cases.iter().filter_map(explain));
    let note = |((name, why), sizes): ((String, &str), Vec<String>)| {
        let sizes = unique(sizes);
        let at = match &sizes[..] {
            [first, .., last] if sizes.len() > PLACES_MAX => {
                format!("{} sizes from {first} to {last}", sizes.len())
            }
            _ => sizes.join(", "),
        };
        format!("{name} is faster than the floor at {at}, because {why}.")
    };
    places.into_iter().map(note).collect()
}

/// Largest number of sizes that are listed.
const PLACES_MAX: usize = 4;

fn describe(across: HorizontalAxis, cases: &[FoundCase]) -> String {
    let first = cases[0].1;
    let mut parts = vec![first.operation.clone(), first.of.text().to_owned()];
    if cases.iter().all(|(_, c)| c.ranks == first.ranks) {
        parts.push(count(first.ranks, "rank"));
    }
    if across == HorizontalAxis::Ranks {
        parts.push(size(first.bytes));
    }
    if let Some(window) = first.window {
        parts.push(format!("windows of {window}"));
    }
    format!("{}. Line: median; band: 10th to 90th percentile.", parts.join(", "))
}

fn find_floors(cases: &[FoundCase]) -> Vec<Floor> {
    let has = |(_, c): &&FoundCase| c.floor.as_ref().is_some_and(|f| f.count() > 0);
    let Some(&(report, first)) = cases.iter().find(has) else {
        return Vec::new();
    };
    let mut floors: BTreeMap<&str, BTreeMap<u64, f64>> = BTreeMap::new();
    for (index, case) in cases {
        let same = *index == report
            && case.level == first.level
            && case.variant == first.variant
            && case.ranks == first.ranks;
        let median = case.floor.as_ref().and_then(|f| f.quantile(0.5));
        if let (true, Some(median)) = (same, median) {
            let name = case.floor_of.as_deref().unwrap_or("hardware");
            floors.entry(name).or_default().insert(case.bytes, median);
        }
    }
    let make = |(name, points): (&str, _)| Floor { name: name.to_owned(), points };
    floors.into_iter().map(make).collect()
}
