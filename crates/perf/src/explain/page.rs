//! Explanations as one page: each waterfall a drawing, with its numbers in a table below it.

use std::fmt::Write as _;

use super::{Explanation, Finding, FindingKind, Step, StepKind, Waterfall};
use crate::html::open_page;
use crate::html::svg::{at, escape, shorten, three_digits};

/// Width of a drawing: that of a telephone, so that its text can be read there too.
const WIDE: f64 = 380.0;
/// Height of a row, of the text at its top and of the bar below.
const ROW: f64 = 42.0;
const TEXT: f64 = 13.0;
const BAR: f64 = 14.0;
/// Characters of a name and of a figure that fit above a bar.
const NAME_MAX: usize = 36;
const FIGURE_MAX: usize = 11;

/// The page of some explanations.
pub fn write_page(explanations: &[Explanation]) -> String {
    let title = match explanations {
        [one] => one.title.clone(),
        many => format!("{} devices, explained", many.len()),
    };
    let mut out = String::with_capacity(16 << 10);
    open_page(&title, &mut out);
    out.push_str("</header>\n<main>");
    let mut id = 0;
    for explanation in explanations {
        if explanations.len() > 1 {
            let _ = write!(out, "<h2>{}</h2>", escape(&explanation.title));
        }
        // The answers, then the pictures; what else was found stands below them.
        let (answers, others): (Vec<_>, Vec<_>) = explanation
            .findings
            .iter()
            .partition(|finding| finding.kind == FindingKind::Answer);
        write_findings(&answers, &mut out);
        if !explanation.waterfalls.is_empty() {
            out.push_str("<div class=\"charts\">\n");
            for waterfall in &explanation.waterfalls {
                write_figure(waterfall, id, &mut out);
                id += 1;
            }
            out.push_str("</div>\n");
        }
        write_findings(&others, &mut out);
        write_experiments(explanation, &mut out);
        write_inputs(explanation, &mut out);
    }
    out.push_str(
        "</main>\n<footer>MB is 10<sup>6</sup> bytes, MiB is 2<sup>20</sup>. Calculated, except what is called measured.</footer></body></html>\n",
    );
    out
}

fn write_findings(findings: &[&Finding], out: &mut String) {
    if findings.is_empty() {
        return;
    }
    out.push_str("<ul class=\"findings\">");
    let mut rank = 0;
    for finding in findings {
        let (class, word) = match finding.kind {
            FindingKind::Answer => ("f-answer", "answer".to_owned()),
            FindingKind::Cause => {
                rank += 1;
                ("f-cause", format!("cause {rank}"))
            }
            FindingKind::Excluded => ("f-excluded", "ruled out".to_owned()),
            FindingKind::Note => ("f-note", "note".to_owned()),
            FindingKind::Caution => ("f-caution", "caution".to_owned()),
        };
        let _ = write!(
            out,
            "<li class=\"{class}\"><span class=\"word\">{word}</span>{}<p>{}</p></li>",
            escape(&finding.text),
            escape(&finding.why)
        );
    }
    out.push_str("</ul>\n");
}

fn write_experiments(explanation: &Explanation, out: &mut String) {
    if explanation.experiments.is_empty() {
        return;
    }
    out.push_str("<h2>What to measure next</h2>");
    for experiment in &explanation.experiments {
        let _ = write!(
            out,
            "<div class=\"card\"><h3>{}</h3><dl>",
            escape(&experiment.what)
        );
        for outcome in &experiment.outcomes {
            let (seen, means) = (escape(&outcome.seen), escape(&outcome.means));
            let _ = write!(out, "<dt>{seen}</dt><dd>{means}</dd>");
        }
        out.push_str("</dl></div>\n");
    }
}

fn write_inputs(explanation: &Explanation, out: &mut String) {
    if explanation.inputs.is_empty() {
        return;
    }
    out.push_str(
        "<h2>What this rests on</h2><div class=\"card wide\"><table><thead><tr><th class=\"text\">what</th>\
         <th class=\"text\">value</th><th class=\"text\">from</th></tr></thead><tbody>",
    );
    for input in &explanation.inputs {
        let _ = write!(
            out,
            "<tr><th class=\"text\">{}</th><td class=\"text\">{}</td><td class=\"text\">{}</td></tr>",
            escape(&input.name),
            escape(&input.value),
            escape(&input.source)
        );
    }
    out.push_str("</tbody></table></div>\n");
}

/// The figure of a step as people read it.
fn figure_text(step: &Step) -> String {
    match step.kind {
        StepKind::Change | StepKind::Left if step.change > 0.0 => {
            format!("+{}", four_digits(step.change))
        }
        StepKind::Change | StepKind::Left => four_digits(step.change),
        _ => four_digits(step.level),
    }
}

fn four_digits(value: f64) -> String {
    if value.abs() >= 1000.0 && value.is_finite() {
        format!("{value:.0}")
    } else {
        three_digits(value)
    }
}

fn write_figure(waterfall: &Waterfall, id: usize, out: &mut String) {
    let steps = &waterfall.steps;
    let tall = ROW * steps.len() as f64;
    let (title, unit) = (escape(&waterfall.title), escape(&waterfall.unit));
    let said: Vec<String> = steps
        .iter()
        .map(|s| format!("{} {}", s.name, figure_text(s)))
        .collect();
    let _ = write!(
        out,
        "<figure class=\"card\"><figcaption><h3>{title}</h3><p>{unit}</p></figcaption>\
         <svg class=\"steps\" viewBox=\"0 0 {WIDE} {tall}\" role=\"img\" aria-labelledby=\"w{id}t w{id}d\"><title id=\"w{id}t\">{title}</title>\
         <desc id=\"w{id}d\">{}</desc>",
        escape(&said.join("; "))
    );
    draw_rows(steps, out);
    out.push_str("</svg>");
    write_table(waterfall, out);
    out.push_str("</figure>\n");
}

fn draw_rows(steps: &[Step], out: &mut String) {
    let ends = steps.iter().flat_map(|s| [s.level, s.level - s.change]);
    let most = ends.filter(|v| v.is_finite()).fold(0.0, f64::max);
    let place = |level: f64| {
        let share = if most > 0.0 && level.is_finite() {
            (level / most).clamp(0.0, 1.0)
        } else {
            0.0
        };
        share * WIDE
    };
    let mut before: Option<f64> = None;
    for (row, step) in steps.iter().enumerate() {
        let line = ROW * row as f64 + TEXT;
        let top = line + 6.0;
        let change = matches!(step.kind, StepKind::Change | StepKind::Left);
        let from = if change {
            step.level - step.change
        } else {
            0.0
        };
        let (a, b) = (place(from), place(step.level));
        let class = match step.kind {
            StepKind::Measured => "seen",
            StepKind::Change | StepKind::Left if step.change < 0.0 => "fall",
            StepKind::Change | StepKind::Left => "rise",
            _ => "level",
        };
        // A line from the level before to where this bar begins.
        if let Some(level) = before {
            let x = at(level);
            let (y0, y1) = (at(top - ROW + BAR), at(top));
            let _ = write!(out, "<path class=\"lead\" d=\"M{x} {y0}V{y1}\"/>");
        }
        before = Some(b);
        let _ = write!(
            out,
            "<text x=\"0\" y=\"{y}\" font-size=\"{TEXT}\">{}</text>\
             <text x=\"{WIDE}\" y=\"{y}\" font-size=\"{TEXT}\" text-anchor=\"end\">{}</text>\
             <rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{BAR}\" rx=\"2\"><title>{}</title></rect>",
            escape(&shorten(&step.name, NAME_MAX)),
            escape(&shorten(&figure_text(step), FIGURE_MAX)),
            at(a.min(b)),
            at(top),
            at((a - b).abs().max(1.5)),
            escape(&step.how),
            y = at(line),
        );
    }
}

fn write_table(waterfall: &Waterfall, out: &mut String) {
    let _ = write!(
        out,
        "<details><summary>Numbers and where they come from</summary><div class=\"wide\"><table><thead><tr><th class=\"text\">step</th>\
         <th>change</th><th>{}</th><th class=\"text\">how</th><th class=\"text\">source</th></tr></thead><tbody>",
        escape(&waterfall.unit)
    );
    for step in &waterfall.steps {
        let change = match step.kind {
            StepKind::Change | StepKind::Left => format!("{:+.2}", step.change),
            _ => String::new(),
        };
        let _ = write!(
            out,
            "<tr><th class=\"text\">{}</th><td>{change}</td><td>{:.2}</td><td class=\"text\">{}</td><td class=\"text\">{}</td></tr>",
            escape(&step.name),
            step.level,
            escape(&step.how),
            escape(&step.source)
        );
    }
    out.push_str("</tbody></table></div></details>");
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::samples::make_explanation;
    use super::*;
    use crate::html::tests::{check_ids, check_labels, check_loads_nothing, parse};

    #[test]
    fn page__is_well_formed_and_has_a_drawing_for_each_waterfall() {
        let explanations = [make_explanation(), make_explanation()];
        let page = write_page(&explanations);
        let document = parse(&page);
        let count = |name: &str| {
            let all = document.descendants();
            all.filter(|n| n.has_tag_name(name)).count()
        };
        assert_eq!(count("svg"), 2 * explanations[0].waterfalls.len());
        assert_eq!(count("script"), 0);
        check_ids(&document);
        check_loads_nothing(&page);
        // Answers stand above the pictures, everything else below.
        let picture = page.find("<svg").unwrap();
        assert!(page.find("f-answer").unwrap() < picture);
        for word in ["f-cause", "f-excluded", "f-note", "f-caution"] {
            assert!(
                page.find(&format!("<li class=\"{word}"))
                    .is_none_or(|at| at > picture),
                "{word}"
            );
        }
    }

    #[test]
    fn drawing__has_bars_as_long_as_the_levels() {
        let explanation = make_explanation();
        let page = write_page(&[explanation]);
        let document = parse(&page);
        let bars: Vec<(f64, f64)> = document
            .descendants()
            .filter(|n| n.has_tag_name("rect"))
            .map(|n| {
                let number = |name| n.attribute(name).unwrap().parse::<f64>().unwrap();
                (number("x"), number("width"))
            })
            .collect();
        // 4000 of 4000, a change of 800 below it, 3200 that are left.
        let wanted = [(0.0, WIDE), (0.8 * WIDE, 0.2 * WIDE), (0.0, 0.8 * WIDE)];
        for (bar, wanted) in bars.iter().zip(wanted) {
            let near = |a: f64, b: f64| (a - b).abs() < 0.02;
            assert!(
                near(bar.0, wanted.0) && near(bar.1, wanted.1),
                "{bar:?} {wanted:?}"
            );
        }
        for svg in document.descendants().filter(|n| n.has_tag_name("svg")) {
            check_labels(svg, WIDE);
        }
    }

    #[test]
    fn page__escapes_what_a_device_is_called() {
        let nasty = "<script>alert('x')</script>&\"\u{0}";
        let mut explanation = make_explanation();
        explanation.title = nasty.into();
        explanation.inputs[0].value = nasty.into();
        explanation.findings[0].text = nasty.into();
        explanation.findings[0].why = nasty.into();
        explanation.waterfalls[0].title = nasty.into();
        explanation.waterfalls[0].unit = nasty.into();
        explanation.waterfalls[0].steps[0].name = nasty.into();
        explanation.waterfalls[0].steps[1].level = f64::NAN;
        explanation.experiments[0].outcomes[0].seen = nasty.into();
        let page = write_page(&[explanation.clone(), explanation]);
        assert!(!page.contains("<script") && !page.contains("alert('"));
        parse(&page);
    }

    /// For looking at: `FASTPATH_TEST_PAGE=FILE cargo test -p fastpath-perf explanation_page`.
    #[test]
    fn explanation_page__is_written_where_asked() {
        if let Some(path) = std::env::var_os("FASTPATH_TEST_PAGE") {
            std::fs::write(path, write_page(&[make_explanation()])).unwrap();
        }
    }
}
