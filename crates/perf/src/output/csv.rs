//! Comma-separated values (RFC 4180): one line a case, the first line names the columns.

use crate::record::{Case, Report, Run};

/// The first line.
pub const HEAD: &str = "test,variant,operation,level,of,unit,bytes,ranks,window,\
    samples,min,median,mean,p90,p99,p999,max,\
    operations_per_sample,warmup_operations,overhead_ns,floor_of,floor_median,\
    transport,protocol,checked,mpi,mpi_version,host,processor,clock,clock_resolution_ns,tool,\
    line_before,line_after";

/// All cases with the head.
pub fn format_report(report: &Report) -> String {
    let lines = report.cases.iter().map(|c| format_case(&report.run, c));
    format!("{HEAD}\n") + &lines.collect::<String>()
}

/// One case, with the end of the line.
pub fn format_case(run: &Run, case: &Case) -> String {
    let summary = case.samples.summarize();
    let number = |value: Option<f64>| value.map(|v| format!("{v:.3}")).unwrap_or_default();
    let of_summary =
        |pick: fn(&crate::record::histogram::Summary) -> f64| number(summary.as_ref().map(pick));
    let floor = case.floor.as_ref().and_then(|f| f.quantile(0.5));
    let fields = [
        quote(&case.test),
        quote(&case.variant),
        quote(&case.operation),
        case.level.name().to_owned(),
        word(&case.of),
        quote(&case.unit),
        case.bytes.to_string(),
        case.ranks.to_string(),
        case.window.map(|w| w.to_string()).unwrap_or_default(),
        case.samples.count().to_string(),
        of_summary(|s| s.min),
        of_summary(|s| s.median),
        of_summary(|s| s.mean),
        of_summary(|s| s.p90),
        of_summary(|s| s.p99),
        of_summary(|s| s.p999),
        of_summary(|s| s.max),
        case.timing.operations_per_sample.to_string(),
        case.timing.warmup_operations.to_string(),
        number(Some(case.timing.overhead_ns)),
        quote(case.floor_of.as_deref().unwrap_or_default()),
        number(floor),
        quote(case.transport.as_deref().unwrap_or_default()),
        quote(case.protocol.as_deref().unwrap_or_default()),
        case.checked.map(|c| c.to_string()).unwrap_or_default(),
        quote(&run.mpi.name),
        quote(&run.mpi.version),
        quote(&run.machine.host),
        quote(&run.machine.processor),
        quote(&run.clock.source),
        number(Some(run.clock.resolution_ns)),
        quote(&run.tool),
        number(case.lines.map(|l| l[0])),
        number(case.lines.map(|l| l[1])),
    ];
    fields.join(",") + "\n"
}

/// The name of an enumeration's value, as in JSON.
pub fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

fn quote(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::record::samples::make_report;

    #[test]
    fn line__has_a_field_for_each_column() {
        let text = format_report(&make_report());
        let mut lines = text.lines();
        let columns = lines.next().unwrap().split(',').count();
        for line in lines {
            assert_eq!(line.split(',').count(), columns, "{line}");
        }
    }

    #[test]
    fn fields__with_commas_and_quotes_are_quoted() {
        assert_eq!(quote("a \"b\", c"), "\"a \"\"b\"\", c\"");
        assert_eq!(quote("plain"), "plain");
    }

    #[test]
    fn values__are_those_of_the_case() {
        let report = make_report();
        let text = format_report(&report);
        let head: Vec<&str> = HEAD.split(',').collect();
        let first: Vec<&str> = text.lines().nth(1).unwrap().split(',').collect();
        let field = |name| first[head.iter().position(|h| *h == name).unwrap()];
        let summary = report.cases[0].samples.summarize().unwrap();
        assert_eq!(field("test"), report.cases[0].test);
        assert_eq!(field("of"), "half-round-trip");
        assert_eq!(field("median"), format!("{:.3}", summary.median));
        assert_eq!(field("samples"), summary.count.to_string());
    }
}
