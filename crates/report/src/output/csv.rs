//! Comma-separated values (RFC 4180): one line a case, the first line names the columns.

use crate::record::{Case, Report, Run, Summary};

/// Formats all cases below a line that names the columns.
pub fn format_report(report: &Report) -> String {
    let names = list_fields(&report.run, &Case::default()).map(|(name, _)| name);
    let line = |case| {
        let values = list_fields(&report.run, case).map(|(_, value)| value);
        values.join(",") + "\n"
    };
    let lines: String = report.cases.iter().map(line).collect();
    names.join(",") + "\n" + &lines
}

fn list_fields(run: &Run, case: &Case) -> [(&'static str, String); 34] {
    let (statistics, timing) = (case.samples.summarize(), &case.timing);
    let number = |value: Option<f64>| value.map(|v| format!("{v:.3}")).unwrap_or_default();
    let summary = |pick: fn(&Summary) -> f64| number(statistics.as_ref().map(pick));
    let text = |text: &Option<String>| quote(text.as_deref().unwrap_or_default());
    let floor = case.floor.as_ref().and_then(|f| f.quantile(0.5));
    let window = case.window.map(|w| w.to_string()).unwrap_or_default();
    let checked = case.checked.map(|c| c.to_string()).unwrap_or_default();
    [
        ("test", quote(&case.test)),
        ("variant", quote(&case.variant)),
        ("operation", quote(&case.operation)),
        ("level", case.level.name().to_owned()),
        ("of", word(&case.of)),
        ("unit", quote(&case.unit)),
        ("bytes", case.bytes.to_string()),
        ("ranks", case.ranks.to_string()),
        ("window", window),
        ("samples", case.samples.count().to_string()),
        ("min", summary(|s| s.min)),
        ("median", summary(|s| s.median)),
        ("mean", summary(|s| s.mean)),
        ("p90", summary(|s| s.p90)),
        ("p99", summary(|s| s.p99)),
        ("p999", summary(|s| s.p999)),
        ("max", summary(|s| s.max)),
        ("operations_per_sample", timing.operations_per_sample.to_string()),
        ("warmup_operations", timing.warmup_operations.to_string()),
        ("overhead_ns", number(Some(timing.overhead_ns))),
        ("floor_of", text(&case.floor_of)),
        ("floor_median", number(floor)),
        ("transport", text(&case.transport)),
        ("protocol", text(&case.protocol)),
        ("checked", checked),
        ("mpi", quote(&run.mpi.name)),
        ("mpi_version", quote(&run.mpi.version)),
        ("host", quote(&run.machine.host)),
        ("processor", quote(&run.machine.processor)),
        ("clock", quote(&run.clock.source)),
        ("clock_resolution_ns", number(Some(run.clock.resolution_ns))),
        ("tool", quote(&run.tool)),
        ("line_before", number(case.lines.map(|l| l[0]))),
        ("line_after", number(case.lines.map(|l| l[1]))),
    ]
}

/// Name of an enumeration's value, as in JSON.
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
    use crate::testing::samples::make_report;

    #[test]
    fn columns__keep_their_names_and_their_order() {
        let head = "test,variant,operation,level,of,unit,bytes,ranks,window,samples,min,median,mean,\
            p90,p99,p999,max,operations_per_sample,warmup_operations,overhead_ns,floor_of,\
            floor_median,transport,protocol,checked,mpi,mpi_version,host,processor,clock,\
            clock_resolution_ns,tool,line_before,line_after";
        let text = format_report(&make_report());
        assert_eq!(text.lines().next(), Some(head));
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
        let head: Vec<&str> = text.lines().next().unwrap().split(',').collect();
        let first: Vec<&str> = text.lines().nth(1).unwrap().split(',').collect();
        let field = |name| first[head.iter().position(|h| *h == name).unwrap()];
        let summary = report.cases[0].samples.summarize().unwrap();
        assert_eq!(field("test"), report.cases[0].test);
        assert_eq!(field("of"), "half-round-trip");
        assert_eq!(field("median"), format!("{:.3}", summary.median));
        assert_eq!(field("samples"), summary.count.to_string());
    }
}
