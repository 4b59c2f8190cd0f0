//! The result of a test in one sentence: smallest and largest message, each beside the limit of the hardware.

use crate::format::{decimal, size, three_digits, time};
use crate::lists::unique;
use crate::record::{Case, Quantity};
use crate::statistics::is_same_line;

/// Smallest processor share, in percent, of a rank that no other program disturbs.
const UNDISTURBED_PERCENT: f64 = 90.0;
/// Largest message, in bytes, at which a rank of an idle machine polls instead of sleeping.
const POLLED_MAX: u64 = 4 << 10;
/// Smallest message, in bytes, whose bandwidth tells more than its time.
const LARGE_MIN: u64 = 16 << 10;

/// Describes the cases of one test, level and number of ranks; `None` without samples.
pub fn describe<'a>(cases: impl IntoIterator<Item = &'a Case>) -> Option<String> {
    let cases: Vec<&Case> = cases.into_iter().filter(|case| find_median(case).is_some()).collect();
    let variants = unique(cases.iter().map(|case| &case.variant));
    let of_variant = |variant: &String| {
        let mut sweep: Vec<&Case> =
            cases.iter().copied().filter(|case| case.variant == *variant).collect();
        // Only messages with payload, unless a test has no others.
        if sweep.iter().any(|case| case.bytes > 0) {
            sweep.retain(|case| case.bytes > 0);
        }
        sweep.sort_by_key(|case| case.bytes);
        sweep
    };
    let sweeps = variants.iter().map(|variant| of_variant(variant));
    let sweep = sweeps.min_by(|a, b| compare_first(a, b))?;
    let (first, last) = (*sweep.first()?, *sweep.last()?);
    let busy = find_busy_share(&sweep);
    let mut parts = vec![describe_case(first, busy.is_none())];
    if last.bytes > first.bytes {
        parts.push(describe_case(last, busy.is_none()));
    }
    let mut text = parts.join("; ");
    if variants.len() > 1 {
        text += &format!(" ({}, of {} variants)", name_variant(first), variants.len());
    }
    text += first.level.phrase();
    if let Some(percent) = busy {
        let has_floor = [first, last].into_iter().any(|case| find_floor(case).is_some());
        let ratio = if has_floor { "no ratio: " } else { "" };
        text += &format!(
            "; {ratio}the machine is busy (the sending rank had {percent:.0} % of a processor)"
        );
    }
    Some(text)
}

/// The sweep with the fastest first case is first.
fn compare_first(a: &[&Case], b: &[&Case]) -> std::cmp::Ordering {
    let first = |sweep: &[&Case]| sweep.first().and_then(|case| find_median(case));
    first(a).unwrap_or(f64::INFINITY).total_cmp(&first(b).unwrap_or(f64::INFINITY))
}

fn name_variant(case: &Case) -> &str {
    if case.variant.is_empty() { "plain" } else { &case.variant }
}

/// Median of the samples; `None` if there is none above 0.
pub fn find_median(case: &Case) -> Option<f64> {
    case.samples.quantile(0.5).filter(|value| *value > 0.0)
}

/// Median of the floor; `None` if there is none above 0.
pub fn find_floor(case: &Case) -> Option<f64> {
    case.floor.as_ref()?.quantile(0.5).filter(|value| *value > 0.0)
}

/// Mean processor share, in percent, of the sending rank, if other programs disturbed it.
pub fn find_busy_share(cases: &[&Case]) -> Option<f64> {
    let small = cases.iter().filter(|case| case.bytes <= POLLED_MAX);
    let shares: Vec<f64> = small.filter_map(|case| case.processor_percent).collect();
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    (mean < UNDISTURBED_PERCENT).then_some(mean)
}

fn describe_case(case: &Case, has_ratio: bool) -> String {
    let median = find_median(case).unwrap_or_default();
    let at = match case.bytes {
        0 => String::new(),
        bytes => format!("{}: ", size(bytes)),
    };
    let is_large = case.bytes >= LARGE_MIN
        && matches!(case.of, Quantity::HalfRoundTrip | Quantity::Message | Quantity::Hop);
    let value = match is_large && case.unit == "ns" {
        true => decimal(case.bytes as f64 / median * 1e9, "B/s"),
        false => describe_value(case, median),
    };
    let Some(floor) = find_floor(case).filter(|_| has_ratio) else {
        return format!("{at}{value}");
    };
    let ratio = median / floor;
    let limit = match is_large {
        true => format!("{:.2} of {}", 1.0 / ratio, name_limit(case)),
        false => format!("{} x the hardware's {}", format_ratio(ratio), time(floor)),
    };
    let why = explain_floor_above(case)
        .map_or(String::new(), |why| format!(" (faster than it, because {why})"));
    format!("{at}{value}, {limit}{why}")
}

fn format_ratio(ratio: f64) -> String {
    let decimals = if ratio < 1.095 { 2 } else { 1 };
    format!("{ratio:.decimals$}")
}

/// Formats a value with its meaning.
fn describe_value(case: &Case, value: f64) -> String {
    if case.unit != "ns" {
        return match case.of {
            Quantity::Overlap => format!("{value:.0} % of the transfer time free to compute"),
            Quantity::Memory => format!("{} of memory", size(value as u64)),
            _ => format!("{} {}", three_digits(value), case.unit),
        };
    }
    let (took, operation, ranks) = (time(value), &case.operation, case.ranks);
    match case.of {
        Quantity::HalfRoundTrip => format!("{took} half round trip"),
        Quantity::RoundTrip => format!("{took} round trip of {operation}"),
        Quantity::Message => format!("{} messages/s, {took} each", count_per_s(value)),
        Quantity::Call => format!("{took} {operation} on {ranks} ranks"),
        Quantity::Hop => format!("{took} a hop on {ranks} ranks"),
        Quantity::Skew => format!("{took} between first and last rank after {operation}"),
        Quantity::Process => format!("{took} for a job of {ranks} ranks, from start to end"),
        _ => format!("{took} {operation}"),
    }
}

/// Formats operations per second, from the time of one: "20 million".
fn count_per_s(ns: f64) -> String {
    match 1e9 / ns {
        rate if rate >= 1e6 => format!("{} million", three_digits(rate / 1e6)),
        rate => three_digits(rate),
    }
}

fn name_limit(case: &Case) -> &'static str {
    match case.floor_of.as_deref().unwrap_or("") {
        name if name.contains("pipeline") || name.contains("copy") => "the copy limit",
        name if name.contains("socket") => "the socket's limit",
        _ => "the hardware's limit",
    }
}

/// Returns whether a floor of `floor` ns is slower than the median of a case, beyond the noise of both.
pub fn is_floor_above(case: &Case, floor: f64) -> bool {
    // Medians of repeated measurements differ by some percent.
    const NOISE: f64 = 1.02;
    find_median(case).is_some_and(|median| floor > median * NOISE)
}

/// Returns why a floor is slower than the messages beside it, as the end of a sentence; `None` if it is not slower.
pub fn explain_floor_above(case: &Case) -> Option<&'static str> {
    if !is_floor_above(case, find_floor(case)?) {
        return None;
    }
    let of = case.floor_of.as_deref().unwrap_or("");
    let protocol = case.protocol.as_deref().unwrap_or("");
    let is_copied_once =
        ["get", "put", "cooperative", "kernel"].iter().any(|way| protocol.contains(way));
    Some(match (case.floor_line, case.lines) {
        _ if of.contains("pipeline") && is_copied_once => {
            "the limit copies twice, and this protocol once"
        }
        (Some(line), Some(lines)) if !lines.iter().all(|&own| is_same_line(own, line)) => {
            "a cache line took another time when the limit was measured"
        }
        (Some(_), _) => "the limit was measured before the run, not in turn with the messages",
        _ if case.of == Quantity::Message => {
            "messages in flight overlap, and the limit is the time of one"
        }
        _ => "other load disturbed the limit, which is a measurement too",
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::testing::samples::make_case;

    /// A ping-pong of 1 MiB, with the time of its floor.
    fn make_large(ns: f64, floor: f64) -> Case {
        Case {
            floor: Some([floor].into_iter().collect()),
            floor_of: Some("bare pipeline and a cache line one way".into()),
            floor_line: Some(58.0),
            protocol: Some("rendezvous pipelined".into()),
            ..make_case(1 << 20, &[ns])
        }
    }

    #[test]
    fn ping_pong__has_the_time_of_a_small_and_the_bandwidth_of_a_large_message() {
        let cases = [make_case(0, &[90.0]), make_large(36_280.0, 34_470.0), make_case(8, &[95.0])];
        let text = describe(&cases).unwrap();
        let wanted = "8 B: 95 ns half round trip, 1.6 x the hardware's 58 ns; 1 MiB: 28.9 GB/s, \
                      0.95 of the copy limit";
        assert_eq!(text, wanted);
        assert_eq!(
            describe(&cases[..1]).unwrap(),
            "90 ns half round trip, 1.6 x the hardware's 58 ns"
        );
        assert_eq!(describe(&[]), None);
    }

    #[test]
    fn ratio__beyond_the_floor_has_its_reason() {
        let describe = |case: Case| describe(&[case]).unwrap();
        let text = describe(make_large(30_000.0, 40_000.0));
        assert!(text.ends_with("1.33 of the copy limit (faster than it, because the limit was measured before the run, not in turn with the messages)"), "{text}");
        let text = describe(Case { floor_line: Some(200.0), ..make_large(30_000.0, 40_000.0) });
        assert!(text.contains("because a cache line took another time"), "{text}");
        let protocol = Some("cooperative".into());
        let text = describe(Case { protocol, ..make_large(30_000.0, 40_000.0) });
        assert!(text.contains("because the limit copies twice"), "{text}");
        let text = describe(make_case(8, &[40.0]));
        assert!(
            text.contains("0.69 x the hardware's 58 ns (faster than it, because other load"),
            "{text}"
        );
        assert_eq!(explain_floor_above(&make_case(8, &[57.5])), None, "noise");
    }

    #[test]
    fn busy_machine__has_no_ratio() {
        let case = Case { processor_percent: Some(40.0), ..make_case(8, &[95.0]) };
        let text = describe(&[case]).unwrap();
        assert!(
            text.starts_with("8 B: 95 ns half round trip; no ratio: the machine is busy (the "),
            "{text}"
        );
        assert!(!text.contains(" x "), "{text}");
    }

    #[test]
    fn busy_machine__without_a_floor__has_no_word_of_a_ratio() {
        let case = Case { processor_percent: Some(40.0), floor: None, ..make_case(8, &[95.0]) };
        let text = describe(&[case]).unwrap();
        assert!(text.contains("; the machine is busy (the sending"), "{text}");
        assert!(!text.contains("ratio"), "{text}");
    }

    #[test]
    fn other_quantities__have_their_units() {
        let call = Case {
            of: Quantity::Call,
            operation: "MPI_Allreduce".into(),
            ranks: 4,
            floor: None,
            ..make_case(8, &[310.0])
        };
        assert_eq!(describe([&call]).unwrap(), "8 B: 310 ns MPI_Allreduce on 4 ranks");
        let rate =
            Case { of: Quantity::Message, window: Some(64), floor: None, ..make_case(8, &[50.0]) };
        assert_eq!(describe([&rate]).unwrap(), "8 B: 20 million messages/s, 50 ns each");
        let share = Case {
            of: Quantity::Overlap,
            unit: "%".into(),
            floor: None,
            ..make_case(4096, &[93.0])
        };
        assert_eq!(describe([&share]).unwrap(), "4 KiB: 93 % of the transfer time free to compute");
        let slow = Case { variant: "touched".into(), ..make_case(8, &[200.0]) };
        let text = describe([&slow, &make_case(8, &[95.0])]).unwrap();
        assert!(text.ends_with("hardware's 58 ns (plain, of 2 variants)"), "{text}");
    }
}
