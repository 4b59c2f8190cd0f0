//! Pages of sample results: well formed, safe, self-contained, with readable labels.

use super::*;
use crate::compare::comparison::tests::make_comparison;
use crate::record::interval::Ratio;
use crate::record::{
    AblationStep, Breakdown, FunctionShare, Histogram, Level, MissingTest, Quantity, Run,
    StepChange, Timing,
};
use crate::testing::pages::{check_ids, check_labels, check_loads_nothing, parse};

fn make_case(test: &str, bytes: u64, ranks: u32, median: f64) -> Case {
    let spread = [0.9, 0.95, 0.98, 1.0, 1.0, 1.01, 1.03, 1.1, 1.3, 4.0];
    let window = (test == "bandwidth" || test == "rate").then_some(64);
    let of = match test {
        "latency" | "matrix" => Quantity::HalfRoundTrip,
        "bandwidth" | "rate" => Quantity::Message,
        _ => Quantity::Call,
    };
    Case {
        test: test.into(),
        variant: String::new(),
        operation: "MPI_Send/MPI_Recv".into(),
        level: Level::Mpi,
        of,
        unit: "ns".into(),
        bytes,
        ranks,
        window,
        samples: spread.iter().map(|s| s * median).collect(),
        timing: Timing::default(),
        transport: None,
        protocol_sizes: None,
        protocol: None,
        floor: None,
        floor_of: None,
        floor_line: None,
        lines: None,
        checked: None,
        processors: Vec::new(),
        processor_percent: None,
        defined: Default::default(),
        counts: Default::default(),
    }
}

fn sizes() -> impl Iterator<Item = u64> {
    [0].into_iter().chain((0..=22).map(|shift| 1 << shift))
}

fn floor_of(median: f64) -> Option<Histogram> {
    Some([median * 0.97, median, median * 1.1].into_iter().collect())
}

/// A report with everything that a page can show; `slow` scales its times.
pub fn make_report(name: &str, slow: f64) -> Report {
    let mut run = Run::default();
    run.mpi.name = name.into();
    run.mpi.version = format!("{name} 1.0");
    run.machine.host = "node".into();
    run.machine.processor = "A processor with a name".into();
    run.machine.processors = 2;
    let mut report = Report::new(run);
    for bytes in sizes() {
        let copy = bytes as f64 / 50.0;
        let mut case = make_case("latency", bytes, 2, slow * (95.0 + copy * 1.6));
        let line = bytes <= 64;
        case.floor = floor_of(if line { 57.0 } else { 57.0 + copy });
        case.floor_of = Some(if line { "cache line one way" } else { "memory copy" }.into());
        report.cases.push(case);
        if bytes > 0 {
            report.cases.push(make_case(
                "bandwidth",
                bytes,
                2,
                slow * (12.0 + bytes as f64 / 45.0),
            ));
        }
        report.cases.push(make_case("allreduce", bytes, 2, slow * (170.0 + copy * 4.0)));
        report.cases.push(make_case("allreduce", bytes, 8, slow * (5200.0 + copy * 20.0)));
    }
    for ranks in [2, 4, 8, 16, 64] {
        report.cases.push(make_case("barrier", 0, ranks, slow * 160.0 * f64::from(ranks)));
    }
    for i in 0..8 {
        for j in (0..8).filter(|j| *j != i) {
            let far = if i / 4 == j / 4 { 1.0 } else { 2.1 };
            let mut case =
                make_case("matrix", 8, 8, slow * (96.0 + 3.0 * ((i * j) % 5) as f64) * far);
            case.variant = format!("{i}-{j}");
            report.cases.push(case);
        }
    }
    report.cases.push(make_case("rate", 8, 2, 9.6 * slow));
    report.cases.push(make_case("startup", 0, 2, 40e6 * slow));
    report.missing.push(MissingTest {
        test: "get".into(),
        level: Level::Transport,
        reason: "the transport has none".into(),
    });
    report
}

/// Makes the changes of a step: the first two are significant, the others are not.
fn make_changes(added: &str) -> Vec<StepChange> {
    let change = |bytes, interval| StepChange {
        test: "latency".into(),
        bytes,
        ratio: Ratio { ratio: 0.9, interval: Some(interval) },
    };
    match added {
        "" => Vec::new(),
        "sendi" => vec![change(8, [0.8, 0.95]), change(4096, [0.85, 0.97])],
        _ => vec![change(8, [0.8, 1.1]), change(4096, [0.7, 1.2])],
    }
}

pub fn make_whole_report(name: &str) -> Report {
    let mut report = make_report(name, 1.0);
    let part = |level: &str, function: &str, instructions| FunctionShare {
        level: level.into(),
        function: function.into(),
        instructions,
    };
    let breakdown = |operation: &str, scale: f64| Breakdown {
        mpi: name.into(),
        operation: operation.into(),
        level: Level::Mpi,
        bytes: 8,
        calls: 1000,
        total: 80.0 * scale,
        parts: vec![
            part("transport", "am_short_known", 30.0 * scale),
            part("mpi", "try_send", 25.0 * scale),
            part("protocol", "send_immediate", 17.0 * scale),
            part("abi", "MPI_Send", 8.0 * scale),
        ],
    };
    report.breakdowns = vec![
        breakdown("MPI_Send", 1.0),
        breakdown("MPI_Recv", 1.4),
        breakdown("put", 0.6),
        Breakdown {
            mpi: "Open MPI 5.0.11".into(),
            parts: Vec::new(),
            ..breakdown("MPI_Send", 6.5)
        },
    ];
    let steps =
        [("", 3.1), ("sendi", 2.2), ("recvi", 1.5), ("directed", 1.2), ("immediate-datatype", 1.0)];
    report.ablation = steps
        .iter()
        .map(|(added, scale)| AblationStep {
            added: (*added).into(),
            disabled: Vec::new(),
            cases: vec![
                make_case("latency", 8, 2, 95.0 * scale),
                make_case("latency", 4096, 2, 300.0 * scale),
            ],
            changes: make_changes(added),
            instructions: vec![breakdown("MPI_Send", *scale), breakdown("MPI_Recv", *scale)],
        })
        .collect();
    report
}

fn make_page() -> String {
    write_page(
        &[
            make_whole_report("Fastpath"),
            make_report("Open MPI 5.0.11", 1.7),
            make_report("Intel MPI 2021", 1.3),
        ],
        None,
    )
}

#[test]
fn page__is_well_formed() {
    let page = make_page();
    let document = parse(&page);
    let count = |name: &str| document.descendants().filter(|n| n.has_tag_name(name)).count();
    assert!(count("svg") >= 6, "{}", count("svg"));
    assert_eq!(count("figure"), count("svg"));
    assert_eq!(count("script"), 0);
    // Every drawing has a title and description for screen readers, and a table of its numbers.
    for figure in document.descendants().filter(|n| n.has_tag_name("figure")) {
        let has = |name: &str| figure.descendants().any(|n| n.has_tag_name(name));
        assert!(has("title") && has("desc") && has("table") && has("h3"));
    }
    check_ids(&document);
}

#[test]
fn page__asks_no_other_host() {
    let page = make_page();
    check_loads_nothing(&page);
    assert!(!page.contains("//"));
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn page__escapes_what_a_result_says() {
    let nasty = "<script>alert('x')</script>&\"\u{0}";
    let mut report = make_whole_report(nasty);
    report.run.machine.host = nasty.into();
    report.run.command = vec![nasty.into()];
    report.run.environment.insert(nasty.into(), nasty.into());
    report.missing[0].reason = nasty.into();
    report.breakdowns[0].parts[0].function = nasty.into();
    report.breakdowns[0].parts[0].level = nasty.into();
    report.ablation[1].added = nasty.into();
    for case in &mut report.cases {
        case.operation = nasty.into();
        case.unit = if case.test == "rate" { nasty.into() } else { case.unit.clone() };
        case.floor_of = case.floor_of.as_ref().map(|_| nasty.into());
    }
    report.cases[5].variant = nasty.into();
    report.cases[6].test = nasty.into();
    let page = write_page(&[report.clone(), report], Some(nasty));
    assert!(!page.contains("<script") && !page.contains("alert('"));
    parse(&page);
}

#[test]
fn page__has_the_headline_of_each_result() {
    let page = make_page();
    for name in ["Fastpath", "Open MPI 5.0.11", "Intel MPI 2021"] {
        let headline = format!("<p><b>{name}: latency: 1 B: ");
        assert!(page.contains(&headline), "{name}");
    }
    assert!(page.contains("half round trip, 1.7 x the hardware&#39;s 57 ns; 4 MiB: "));
    assert!(!page.contains("class=\"tiles\""), "tiles of one result only");
    assert!(write_page(&[make_report("alone", 1.0)], None).contains("class=\"tiles\""));
}

#[test]
fn floor__above_a_curve_has_its_reason() {
    let note = "is faster than the floor at ";
    assert!(!make_page().contains(note));
    let mut report = make_report("Fastpath", 1.0);
    for case in report.cases.iter_mut().filter(|c| c.test == "latency" && c.bytes >= 1 << 21) {
        case.floor = floor_of(1e6);
    }
    let page = write_page(&[report.clone()], None);
    let reason = "other load disturbed the limit, which is a measurement too.";
    assert!(page.contains(&format!("Fastpath {note}2 MiB, 4 MiB, because {reason}")), "{page}");
    let faster = Report { cases: make_report("", 0.3).cases, ..make_report("Other", 1.0) };
    let page = write_page(&[report, faster], None);
    assert!(page.contains(&format!("Other {note}")) && page.contains("beside another curve."));
}

#[test]
fn comparison__is_a_table_above_the_curves_of_its_results() {
    let comparison = make_comparison();
    let path = std::env::temp_dir().join(format!("fastpath-page-{}.json", std::process::id()));
    std::fs::write(&path, comparison.format_json()).unwrap();
    let mut content = PageContent::default();
    let read = content.read(&path);
    std::fs::remove_file(&path).unwrap();
    read.unwrap();
    let page = content.write_page(None);
    assert!(page.contains("<h2>Comparison</h2>"), "{page}");
    assert!(page.contains("against alpha: 1 faster, 1 slower"), "{page}");
    assert_eq!(content.reports.len(), comparison.reports.len());
    parse(&page);
}

#[test]
fn page__of_nothing_and_of_empty_cases_is_a_page() {
    assert!(write_page(&[], None).contains("No results"));
    let mut report = Report::new(Run::default());
    let mut case = make_case("latency", 8, 2, 100.0);
    case.samples = Histogram::default();
    report.cases.push(case);
    let mut zero = make_case("bandwidth", 8, 2, 100.0);
    zero.samples = [0.0, 0.0].into_iter().collect();
    let other = Case { bytes: 16, ..zero.clone() };
    report.cases.extend([zero, other]);
    let page = write_page(&[report], None);
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}

#[test]
fn labels__do_not_overlap_and_stay_inside() {
    let page = make_page();
    let document = parse(&page);
    for svg in document.descendants().filter(|n| n.has_tag_name("svg")) {
        let view = svg.attribute("viewBox").and_then(|v| v.split(' ').nth(2));
        let wide = view.and_then(|w| w.parse().ok()).expect("a width");
        assert!(check_labels(svg, wide) > 4);
    }
}

/// Writes a page for inspection: `FASTPATH_TEST_PAGE=FILE cargo test -p fastpath-report sample_page`.
#[test]
fn sample_page__is_written_where_asked() {
    if let Some(path) = std::env::var_os("FASTPATH_TEST_PAGE") {
        std::fs::write(path, make_page()).unwrap();
    }
}

#[test]
fn ablation__shows_ratios_with_intervals_and_marks_those_that_tell() {
    let page = write_page(&[make_whole_report("ours")], None);
    assert!(page.contains("<small><b>\u{d7}0.90 [0.80, 0.95]</b></small>"));
    assert!(page.contains("<small>\u{d7}0.90 [0.80, 1.10]</small>"));
}
