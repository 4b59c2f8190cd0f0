//! The report as one self-contained HTML page.

use crate::report::Report;
use maud::{DOCTYPE, Markup, html};

const STYLE: &str = "\
body{font:14px sans-serif;margin:2em auto;max-width:70em;padding:0 1em}
table{border-collapse:collapse;margin:1em 0}
td,th{padding:.2em .7em;text-align:right;border-bottom:1px solid #ddd}
td.name,th.name{text-align:left}
.bar{background:#e8edf3;width:16em}
.bar div{background:#3b6ea5;height:.9em}
";
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Formats the page.
pub(crate) fn format(report: &Report) -> String {
    let longest = report.ranks.iter().map(|rank| rank.wall_seconds).fold(0.0, f64::max);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { "Fastpath profile" }
                style { (STYLE) }
            }
            body {
                h1 { "Profile of " (report.program) }
                p {
                    (report.ranks.len()) " ranks, " (decimal(longest)) " s. The slowest rank has "
                    (decimal(report.imbalance)) " x the mean MPI time."
                }
                @if let Some(rank) = report.aborted_by {
                    p { "Rank " (rank) " aborted the job: only its calls are listed." }
                }
                h2 { "MPI time by rank" }
                (ranks(report, longest))
                h2 { "Functions" }
                (functions(report))
                h2 { "Call sites" }
                (sites(report))
            }
        }
    };
    page.into_string()
}

fn decimal(value: f64) -> String {
    format!("{value:.3}")
}

/// Makes a table cell whose bar shows the share of `part` in `whole`.
fn bar(part: f64, whole: f64) -> Markup {
    let width = if whole > 0.0 { 100.0 * part / whole } else { 0.0 };
    html! { td class="bar" { div style=(format!("width:{width:.1}%")) {} } }
}

fn ranks(report: &Report, longest: f64) -> Markup {
    html! {
        table {
            tr {
                th { "Rank" } th class="name" { "Host" } th { "Wall s" } th { "MPI s" }
                th class="name" { "MPI" }
            }
            @for rank in &report.ranks {
                tr {
                    td { (rank.rank) }
                    td class="name" { (rank.host) }
                    td { (decimal(rank.wall_seconds)) }
                    td { (decimal(rank.mpi_seconds)) }
                    (bar(rank.mpi_seconds, longest))
                }
            }
        }
    }
}

fn functions(report: &Report) -> Markup {
    html! {
        table {
            tr {
                th class="name" { "Function" } th { "Calls" } th { "Time ms" } th { "Bytes" }
                th { "Max/mean" } th class="name" { "Share of MPI time" }
            }
            @for function in &report.functions {
                tr {
                    td class="name" { (function.function) }
                    td { (function.totals.calls) }
                    td { (decimal(function.totals.seconds * 1e3)) }
                    td { (function.totals.bytes) }
                    td { (decimal(function.imbalance)) }
                    (bar(function.totals.seconds, report.mpi_seconds()))
                }
            }
        }
    }
}

fn sites(report: &Report) -> Markup {
    html! {
        table {
            tr {
                th class="name" { "Place" } th class="name" { "Caller" }
                th class="name" { "Function" } th { "Calls" } th { "Time ms" } th { "Mean us" }
                th { "Max us" } th { "Bytes" } th { "Max/mean" }
            }
            @for call in &report.calls {
                @let place = report.sites.get(call.site.wrapping_sub(1)).map(|site| &site.place);
                tr {
                    td class="name" { (place.map(|place| place.describe()).unwrap_or_default()) }
                    td class="name" { (place.map(|place| place.function()).unwrap_or_default()) }
                    td class="name" { (call.function) }
                    td { (call.totals.calls) }
                    td { (decimal(call.totals.seconds * 1e3)) }
                    td { (decimal(call.totals.mean_seconds() * 1e6)) }
                    td { (decimal(call.totals.max_seconds * 1e6)) }
                    td { (call.totals.bytes) }
                    td { (decimal(call.imbalance)) }
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::report::tests::rank;

    #[test]
    fn page__escapes_names() {
        let page = format(&Report::new(vec![rank(0, &[("MPI_Send", 1, 10, 8)])], None));
        assert!(page.contains("a&lt;b") && !page.contains("a<b"), "{page}");
        assert!(page.contains("<td class=\"name\">none+0x1</td>"), "{page}");
    }
}
