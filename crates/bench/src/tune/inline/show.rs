//! Text form of the report of `fastpath tune inline`.

use fastpath_report::document::{Document, Table};
use fastpath_report::record::interval::{Ratio, Verdict};

use super::crossover::Finding;
use super::{InlineModel, InlineReport, VerbName};

pub(super) fn describe(report: &InlineReport) -> Document {
    let mut said = Document::default();
    let InlineReport { device, port, part, firmware, driver, .. } = report;
    said.text(format!(
        "device {device} port {port}: part {part}, firmware {firmware}, driver {driver}"
    ));
    if report.software {
        said.text(
            "this is a software adapter: its times depend on this processor, and are not typical \
             of an adapter on a bus",
        );
    }
    list_cases(report, &mut said);
    said.heading(match &report.crossover {
        Some(found) => say_crossover(found, report),
        None => "nothing to measure: the adapter grants no inline data".to_owned(),
    });
    said.heading("memory of each connection by inline size:");
    said.table(list_queues(report));
    said.heading("predicted by the model, not measured:");
    report.models.iter().for_each(|model| said.text(predict(model)));
    match (&report.stored_in, &report.not_stored) {
        (Some(path), _) => said.heading(format!(
            "stored in {}: jobs will request {} bytes of inline data from {device}",
            path.display(),
            report.stored_bytes.unwrap_or(0)
        )),
        (None, Some(why)) => said.heading(format!("no value is stored: {why}")),
        (None, None) => {}
    }
    said
}

fn list_cases(report: &InlineReport, said: &mut Document) {
    if report.cases.is_empty() {
        return;
    }
    let what = match report.verb {
        VerbName::Send => "sends",
        VerbName::Write => "writes",
    };
    said.heading(format!(
        "half a round trip of {what} between two queue pairs of the device, median over {} \
         rounds, each the mean of a batch",
        report.rounds
    ));
    let columns = "bytes>7|inline (ns)>12|DMA (ns)>12|ratio>9|95 % interval<16|inline is";
    let mut table = Table::of(columns);
    for case in &report.cases {
        let times = [case.inline_ns, case.dma_ns].map(|ns| format!("{ns:.1}"));
        let first = [case.bytes.to_string()].into_iter().chain(times);
        table.row(first.chain(case.ratio.iter().flat_map(judge)));
    }
    said.table(table);
}

fn judge(ratio: &Ratio) -> [String; 3] {
    let interval = match ratio.interval {
        Some([low, high]) => format!("{low:.4} to {high:.4}"),
        None => "none".to_owned(),
    };
    let verdict = match ratio.judge() {
        Verdict::Below => "faster",
        Verdict::Above => "slower",
        Verdict::CannotTell => "cannot tell",
    };
    [format!("{:.4}", ratio.ratio), interval, verdict.to_owned()]
}

pub(super) fn say_crossover(found: &Finding, report: &InlineReport) -> String {
    if !found.known {
        return format!(
            "crossover unknown: in these {} rounds, no limit for inline data was faster than both \
             extremes (nothing inline, everything inline)",
            report.rounds
        );
    }
    let size = |limit: Option<u32>| limit.map_or("never".to_owned(), |n| format!("{n} bytes"));
    let [low, high] = found.interval.map(size);
    let beyond = match found.limit.is_some() && found.all {
        true => ", the largest measured size",
        false => "",
    };
    let what = say_limit(found.limit);
    format!(
        "crossover: {what}{beyond}; 95 % interval {low} to {high}; {:.0} % of resamples of the \
         rounds give the same result",
        100.0 * found.confidence
    )
}

fn say_limit(limit: Option<u32>) -> String {
    match limit {
        None => "inline data is never faster".to_owned(),
        Some(n) => format!("inline data is faster up to {n} bytes"),
    }
}

fn list_queues(report: &InlineReport) -> Table {
    let columns = "requested>9|granted>9|sends>7|B for each send>15|queue (B)>12| source";
    let mut table = Table::of(columns);
    for cost in &report.queues {
        let known = cost.queue.zip(cost.descriptor()).map(|(queue, each)| {
            [each.to_string(), queue.bytes.to_string(), format!(" {}", queue.known_by.name())]
        });
        let known = known.unwrap_or_else(|| ["-", "-", " unknown"].map(str::to_owned));
        let first = [cost.asked, cost.granted, cost.depth].map(|n| n.to_string());
        table.row(first.into_iter().chain(known));
    }
    table
}

fn predict(model: &InlineModel) -> String {
    let InlineModel { adapter, host, asked, .. } = model;
    let what = match (model.limit, model.all) {
        (Some(n), true) => format!("inline data is faster up to all {n} granted bytes"),
        (limit, _) => say_limit(limit),
    };
    format!("{adapter} in {host}, {asked} bytes requested: {what}")
}
