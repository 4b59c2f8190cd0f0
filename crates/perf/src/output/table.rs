//! The table for people: every statistic of each case, and the floor of the hardware beside it.

use super::csv::word;
use super::format::{describe_of, format_number, format_optional, megabytes_per_s, million_per_s};
use crate::record::{Case, Level, Missing, Of, Report, Run};

/// A table that grows: a new head where a case is of another kind than the one before it.
#[derive(Default)]
pub struct Table {
    group: Option<Group>,
}

/// Cases that share a head.
#[derive(PartialEq)]
struct Group {
    test: String,
    operation: String,
    level: Level,
    of: Of,
    unit: String,
    ranks: u32,
    window: Option<u32>,
    has_variant: bool,
    has_floor: bool,
}

impl Group {
    fn of(case: &Case) -> Group {
        Group {
            test: case.test.clone(),
            operation: case.operation.clone(),
            level: case.level,
            of: case.of,
            unit: case.unit.clone(),
            ranks: case.ranks,
            window: case.window,
            has_variant: !case.variant.is_empty(),
            has_floor: case.floor.is_some(),
        }
    }
}

impl Table {
    /// An empty table.
    pub fn new() -> Table {
        Table::default()
    }

    /// The line of a case, below a head where it begins a new table.
    pub fn add(&mut self, case: &Case) -> String {
        let group = Group::of(case);
        let mut text = String::new();
        if self.group.as_ref() != Some(&group) {
            text += &format_head(case);
            self.group = Some(group);
        }
        text + &format_line(case)
    }
}

/// All of a result.
pub fn format_report(report: &Report) -> String {
    let mut table = Table::new();
    let cases = report.cases.iter().map(|c| table.add(c));
    let mut text = describe_run(&report.run) + &cases.collect::<String>();
    for missing in &report.missing {
        text += &describe_missing(missing);
    }
    text
}

/// How the run was made.
pub fn describe_run(run: &Run) -> String {
    let (mpi, machine, clock) = (&run.mpi, &run.machine, &run.clock);
    let mut text = format!("{}: {}\n", run.tool, run.command.join(" "));
    if !mpi.name.is_empty() {
        text += &format!("MPI:     {} ({}; {})\n", mpi.name, mpi.version, mpi.path);
    }
    text += &format!(
        "machine: {}, {}, {} processors, Linux {}, governor {}{}\n",
        machine.host,
        machine.processor,
        machine.processors,
        machine.kernel,
        machine.governor.as_deref().unwrap_or("not readable"),
        machine
            .hypervisor
            .as_ref()
            .map(|h| format!(", a virtual machine ({h})"))
            .unwrap_or_default(),
    );
    if !clock.source.is_empty() {
        text += &format!(
            "clock:   {}, {:.3} MHz (off by {:.1} ppm against the kernel's), steps of {} ns, one reading {} ns\n",
            clock.source,
            clock.frequency_hz / 1e6,
            clock.frequency_error_ppm,
            format_number(clock.resolution_ns),
            format_number(clock.read_ns),
        );
    }
    for (name, value) in &run.environment {
        text += &format!("set:     {name}={value}\n");
    }
    text
}

/// One line about what was not measured.
pub fn describe_missing(missing: &Missing) -> String {
    let level = match missing.level {
        Level::Mpi => String::new(),
        level => format!(" at level {}", word(&level)),
    };
    format!(
        "{}{level}: not measured: {}\n",
        missing.test, missing.reason
    )
}

fn has_rate(case: &Case) -> bool {
    case.of == Of::Message && case.bytes <= 64
}

fn format_head(case: &Case) -> String {
    let mut text = format!(
        "\n{}{}: {}; {}, {}; {} rank{}",
        case.test,
        match case.level {
            Level::Mpi => String::new(),
            level => format!(" at level {}", word(&level)),
        },
        case.operation,
        describe_of(case.of),
        case.unit,
        case.ranks,
        if case.ranks == 1 { "" } else { "s" },
    );
    if let Some(window) = case.window {
        text += &format!("; windows of {window}");
    }
    if let &[first, last] = case.processors.as_slice() {
        text += &format!("; processors {first} and {last}");
    }
    text += &format!(
        "\nwarm-up of {} operations, not counted; measuring adds {} ns to an operation",
        case.timing.warmup_operations,
        format_number(case.timing.overhead_ns),
    );
    match case.checked {
        Some(true) => text += "; payloads verified",
        Some(false) => text += "; PAYLOADS WRONG",
        None => {}
    }
    text += "\n";
    if !case.variant.is_empty() {
        text += &format!("{:<18}", "");
    }
    text += &format!(
        "{:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>5}",
        "bytes", "min", "median", "mean", "p90", "p99", "p99.9", "max", "samples", "each"
    );
    if has_speed(case) {
        let speed = if has_rate(case) { "M/s" } else { "MB/s" };
        text += &format!(" {speed:>8}");
    }
    if case.floor.is_some() {
        text += &format!(" {:>8} {:>7}", "floor", "x floor");
    }
    text + "\n"
}

fn has_speed(case: &Case) -> bool {
    case.unit == "ns" && matches!(case.of, Of::HalfRoundTrip | Of::Message | Of::Hop)
}

fn format_line(case: &Case) -> String {
    let mut text = String::new();
    if !case.variant.is_empty() {
        text += &format!("{:<18}", case.variant);
    }
    text += &format!("{:>9}", case.bytes);
    let Some(s) = case.samples.summarize() else {
        return text + " no samples\n";
    };
    for value in [s.min, s.median, s.mean, s.p90, s.p99, s.p999] {
        text += &format!(" {:>8}", format_number(value));
    }
    text += &format!(
        " {:>9} {:>9} {:>5}",
        format_number(s.max),
        s.count,
        case.timing.operations_per_sample
    );
    if has_speed(case) {
        let speed = if has_rate(case) {
            million_per_s(case, s.median)
        } else {
            megabytes_per_s(case, s.median)
        };
        text += &format!(" {:>8}", format_optional(speed));
    }
    if let Some(floor) = case.floor.as_ref().and_then(|f| f.quantile(0.5)) {
        let ratio = (floor > 0.0).then_some(s.median / floor);
        text += &format!(" {:>8} {:>7}", format_number(floor), format_optional(ratio));
    }
    let how = [&case.transport, &case.protocol].map(|s| s.as_deref().unwrap_or_default());
    text += how.map(|s| " ".to_owned() + s).concat().trim_end();
    if let Some(what) = &case.floor_of
        && case.floor.is_some()
    {
        text += &format!(" (floor: {what})");
    }
    for (name, value) in &case.defined {
        text += &format!(" ({name}: {} {})", format_number(*value), case.unit);
    }
    text + "\n"
}

/// What the columns mean, for the end of a table or a help.
pub const LEGEND: &str = "\
each: operations behind one sample, which is their mean; every sample counts, percentiles are nearest rank.
MB/s, M/s: 10^6 bytes, 10^6 messages a second at the median. floor: median of what the hardware needs, measured in turn.
";

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::record::samples::{make_case, make_report};

    #[test]
    fn table__has_one_head_for_a_sweep_and_another_for_the_next_test() {
        let text = format_report(&make_report());
        assert_eq!(text.matches(" p99.9 ").count(), 3, "{text}");
        assert!(text.contains("put: not measured: MPI_Win_create"), "{text}");
    }

    #[test]
    fn head__states_unit_what_it_is_of_and_the_warm_up() {
        let text = format_head(&make_case(8, &[1.0]));
        for part in [
            "half a round trip, ns",
            "2 ranks",
            "processors 0 and 1",
            "warm-up of 1000",
            "adds 0.4000 ns",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn line__shows_every_statistic() {
        let samples: Vec<f64> = (1..=1000).map(f64::from).collect();
        let line = format_line(&make_case(1000, &samples));
        let fields: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(fields[0], "1000");
        assert_eq!(fields[1], "1.000", "minimum");
        assert_eq!(fields[3], "500.5", "mean");
        assert_eq!(fields[7], "1000", "maximum");
        assert_eq!(fields[8], "1000", "count");
        assert!(line.contains("eager short"), "{line}");
    }

    #[test]
    fn line__without_samples_says_so() {
        assert!(format_line(&make_case(8, &[])).contains("no samples"));
    }

    #[test]
    fn payloads__that_were_wrong_are_shouted() {
        let case = Case {
            checked: Some(false),
            ..make_case(8, &[1.0])
        };
        assert!(format_head(&case).contains("PAYLOADS WRONG"));
    }
}
