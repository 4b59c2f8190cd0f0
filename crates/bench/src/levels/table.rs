//! Comparison of levels: one row a size, one column a level, with the cost that each adds.

use std::collections::BTreeMap;

use fastpath_report::document::{Document, Table};
use fastpath_report::lists::unique;
use fastpath_report::record::{Case, Level, Report};

/// Levels from the lowest to the highest.
const LEVELS: [Level; 4] = [Level::Verbs, Level::Transport, Level::Protocol, Level::Mpi];

/// Medians, and the difference to the level below; empty with fewer than two levels.
pub fn describe(report: &Report) -> Document {
    // The library's three levels are always shown, verbs only with results.
    let has_verbs = report.cases.iter().any(|c| c.level == Level::Verbs);
    let levels = &LEVELS[usize::from(!has_verbs)..];
    let adapter = report.cases.iter().any(|c| c.variant.starts_with("adapter"));
    let mapped = report.cases.iter().any(|c| c.variant.ends_with(", load-store"));
    let way = |c: &Case| match (c.test.as_str(), c.level) {
        ("atomics", Level::Mpi) => way_of_atomic(&c.variant, mapped),
        _ => way_of(c, adapter),
    };
    let key = |c: &Case| (c.test.clone(), way(c), c.window);
    let tests = unique(report.cases.iter().map(key));
    let mut said = Document::default();
    for test in tests {
        let of_test = report.cases.iter().filter(|c| key(c) == test && c.ranks == 2);
        let mut rows: BTreeMap<u64, BTreeMap<Level, (f64, &Case)>> = BTreeMap::new();
        for (median, case) in of_test.filter_map(|c| Some((c.samples.quantile(0.5)?, c))) {
            rows.entry(case.bytes).or_default().insert(case.level, (median, case));
        }
        rows.retain(|_, levels| levels.len() > 1);
        if rows.is_empty() {
            continue;
        }
        let name = format!("{} {}", test.0, test.1);
        said.heading(format!(
            "{} by level: median in ns; adds: difference to the level before",
            name.trim_end()
        ));
        said.table(tabulate(levels, &rows));
    }
    said
}

/// Variant in the terms of the levels below MPI. These variants name the transfer method of a put or get; MPI's
/// variants name the memory that determines the method.
fn way_of(case: &Case, adapter: bool) -> String {
    let way = match case.variant.strip_prefix("allocated, ") {
        _ if adapter => "adapter",
        Some(_) => "load-store",
        None => "kernel",
    };
    match case.variant.rsplit(", ").next() {
        Some("windows") => way.to_owned(),
        Some("each flushed") => format!("{way}, each completed"),
        _ => case.variant.clone(),
    }
}

/// Variant of an atomic in the terms of the levels below MPI. The processor that reaches the memory executes the
/// atomic: the local one if the memory is `mapped`, or the owner's.
fn way_of_atomic(variant: &str, mapped: bool) -> String {
    match variant.strip_suffix(", allocated") {
        Some(atomic) if mapped => format!("{atomic}, load-store"),
        atomic => format!("{}, messages", atomic.unwrap_or(variant)),
    }
}

fn tabulate(levels: &[Level], rows: &BTreeMap<u64, BTreeMap<Level, (f64, &Case)>>) -> Table {
    let mut table = Table::of("bytes>9");
    for (index, level) in levels.iter().enumerate() {
        table.add_columns([format!("{}>10", level.name())]);
        table.add_columns((index > 0).then_some("adds>8"));
    }
    table.add_columns([" protocol at this size"]);
    for (bytes, of_size) in rows {
        let (mut cells, mut below) = (vec![bytes.to_string()], None);
        for (index, level) in levels.iter().enumerate() {
            let median = of_size.get(level).map(|(m, _)| *m);
            cells.push(median.map_or("-".to_owned(), |m| format!("{m:.1}")));
            let adds = median.zip(below).map(|(m, b): (f64, f64)| m - b);
            let adds = adds.map_or("-".to_owned(), |a| format!("{a:+.1}"));
            cells.extend((index > 0).then_some(adds));
            below = median.or(below);
        }
        // The bare loops have no protocol.
        let mut above = of_size.values().filter(|(_, c)| c.level != Level::Verbs);
        let way = above.find_map(|(_, c)| c.protocol.as_deref());
        cells.push(format!(" {}", way.unwrap_or("-")));
        table.row(cells);
    }
    table
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_report::record::Run;
    use fastpath_report::testing::samples::make_case;

    fn columns(levels: &[(Level, f64)]) -> Vec<String> {
        let mut report = Report::new(Run::default());
        for &(level, ns) in levels {
            let case = make_case(8, &[ns]);
            report.cases.push(Case { level, ..case });
        }
        let text = describe(&report).to_text();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn columns__say_what_a_level_adds() {
        let lines = columns(&[(Level::Transport, 100.0), (Level::Mpi, 130.0)]);
        assert!(!lines[1].contains("verbs"), "{lines:?}");
        assert!(lines[2].contains("+30.0"), "{lines:?}");
        let lines = columns(&[(Level::Verbs, 90.0), (Level::Transport, 100.0)]);
        assert!(lines[1].contains("verbs  transport     adds"), "{lines:?}");
        assert!(lines[2].contains("+10.0"), "{lines:?}");
    }

    #[test]
    fn columns__of_put_stand_beside_the_way_that_the_memory_goes() {
        let mut report = Report::new(Run::default());
        for (level, variant, ns) in [
            (Level::Protocol, "load-store, each completed", 3.0),
            (Level::Protocol, "kernel, each completed", 1500.0),
            (Level::Mpi, "allocated, each flushed", 10.0),
            (Level::Mpi, "each flushed", 1600.0),
        ] {
            let (test, variant) = ("put".to_owned(), variant.to_owned());
            report.cases.push(Case { test, variant, level, ..make_case(8, &[ns]) });
        }
        let text = describe(&report).to_text();
        assert!(text.contains("+7.0") && text.contains("+100.0"), "{text}");
    }

    #[test]
    fn columns__of_atomics_stand_beside_who_makes_them() {
        let describe = |below: &[(Level, &str, f64)]| {
            let mut report = Report::new(Run::default());
            let mpi = [
                (Level::Mpi, "fetch_and_op", 900.0),
                (Level::Mpi, "fetch_and_op, allocated", 25.0),
                (Level::Mpi, "accumulate, allocated", 26.0),
            ];
            for &(level, variant, ns) in mpi.iter().chain(below) {
                let (test, variant) = ("atomics".to_owned(), variant.to_owned());
                report.cases.push(Case { test, variant, level, ..make_case(8, &[ns]) });
            }
            describe(&report).to_text()
        };
        let text = describe(&[
            (Level::Transport, "fetch_and_op, load-store", 10.0),
            (Level::Protocol, "fetch_and_op, load-store", 12.0),
            (Level::Protocol, "fetch_and_op, messages", 1000.0),
        ]);
        assert!(text.contains("atomics fetch_and_op, load-store by level"), "{text}");
        assert!(text.contains("+2.0") && text.contains("+13.0"), "{text}");
        assert!(text.contains("-100.0") && !text.contains("accumulate"), "{text}");
        // Between hosts, messages reach any kind of memory.
        let text = describe(&[(Level::Protocol, "fetch_and_op, messages", 20.0)]);
        assert!(text.contains("+5.0"), "{text}");
    }

    #[test]
    fn columns__of_one_level_are_not_there() {
        assert!(columns(&[(Level::Verbs, 90.0)]).is_empty());
    }
}
