//! An explanation as a page.

use fastpath_report::document::Table;
use fastpath_report::document::html::{page, text};
use fastpath_report::format::three_digits;
use fastpath_report::html::svg::{at, shorten};
use maud::{Markup, html};

use super::{Explanation, Finding, FindingKind, StepKind, Waterfall, WaterfallStep};

/// Width of a drawing, and height of a row. A row has a line of text, and a bar below the text.
const WIDE: f64 = 380.0;
const ROW: f64 = 42.0;
const TEXT: f64 = 13.0;
const BAR: f64 = 14.0;
/// Maximum length of a name and of a figure, in characters.
const NAME_MAX: usize = 36;
const FIGURE_MAX: usize = 11;

/// Formats the page of some explanations.
pub fn write_page(explanations: &[Explanation]) -> String {
    let title = match explanations {
        [one] => one.title.clone(),
        many => format!("{} devices, explained", many.len()),
    };
    let main = html! { @for (index, explanation) in explanations.iter().enumerate() {
        @if explanations.len() > 1 { h2 { (text(&explanation.title)) } }
        (show(index, explanation))
    } };
    let footer = html! {
        "MB is 10" sup { "6" } " bytes, MiB is 2" sup { "20" } ". All values are calculated, \
         except those called measured."
    };
    page(&title, html! {}, main, footer)
}

fn show(index: usize, explanation: &Explanation) -> Markup {
    let is_answer = |finding: &&Finding| finding.kind == FindingKind::Answer;
    let (answers, others): (Vec<_>, Vec<_>) = explanation.findings.iter().partition(is_answer);
    let waterfalls = explanation.waterfalls.iter().enumerate();
    let mut inputs = Table::of("what|value|from");
    for input in &explanation.inputs {
        inputs.row([&input.name, &input.value, &input.source]);
    }
    html! {
        (show_findings(&answers))
        div class="charts" { @for (i, w) in waterfalls { (show_figure(w,
            &format!("w{index}-{i}"))) } }
        (show_findings(&others))
        @if !explanation.experiments.is_empty() { h2 { "What to measure next" } }
        @for experiment in &explanation.experiments { div class="card" {
            h3 { (text(&experiment.what)) }
            dl { @for outcome in &experiment.outcomes {
                dt { (text(&outcome.seen)) } dd { (text(&outcome.means)) }
            } }
        } }
        @if !explanation.inputs.is_empty() { h2 { "Given and assumed values" } (inputs.to_card()) }
    }
}

fn show_findings(findings: &[&Finding]) -> Markup {
    let mut rank = 0;
    let mut name = |kind| match kind {
        FindingKind::Answer => ("f-answer", "answer".to_owned()),
        FindingKind::Cause => {
            rank += 1;
            ("f-cause", format!("cause {rank}"))
        }
        FindingKind::Excluded => ("f-excluded", "ruled out".to_owned()),
        FindingKind::Note => ("f-note", "note".to_owned()),
        FindingKind::Caution => ("f-caution", "caution".to_owned()),
    };
    html! { @if !findings.is_empty() { ul class="findings" { @for finding in findings {
        @let (class, word) = name(finding.kind);
        li class=(class) { span class="word" { (word) } (text(&finding.text)) p {
            (text(&finding.why)) } }
    } } } }
}

fn figure_text(step: &WaterfallStep) -> String {
    match step.is_change() {
        true if step.change > 0.0 => format!("+{}", four_digits(step.change)),
        true => four_digits(step.change),
        false => four_digits(step.level),
    }
}

fn four_digits(value: f64) -> String {
    match value.abs() >= 1000.0 && value.is_finite() {
        true => format!("{value:.0}"),
        false => three_digits(value),
    }
}

fn show_figure(waterfall: &Waterfall, id: &str) -> Markup {
    let steps = &waterfall.steps;
    let title = text(&waterfall.title);
    let said: Vec<String> =
        steps.iter().map(|s| format!("{} {}", s.name, figure_text(s))).collect();
    let size = format!("0 0 {WIDE} {}", ROW * steps.len() as f64);
    html! { figure class="card" {
        figcaption { h3 { (title) } p { (text(&waterfall.unit)) } }
        svg class="steps" viewBox=(size) role="img" aria-labelledby=(format!("{id}t {id}d")) {
            title id=(format!("{id}t")) { (title) }
            desc id=(format!("{id}d")) { (text(&said.join("; "))) }
            (draw_rows(waterfall))
        }
        (tabulate(waterfall).to_fold("Numbers and where they come from"))
    } }
}

struct Bar {
    from: f64,
    to: f64,
    class: &'static str,
}

fn make_bar(waterfall: &Waterfall, step: &WaterfallStep) -> Bar {
    let [from, to] = waterfall.ends(step).map(|share| share * WIDE);
    let class = match step.kind {
        StepKind::Measured => "seen",
        _ if !step.is_change() => "level",
        _ if step.change < 0.0 => "fall",
        _ => "rise",
    };
    Bar { from, to, class }
}

fn draw_rows(waterfall: &Waterfall) -> Markup {
    let steps = &waterfall.steps;
    let bars: Vec<Bar> = steps.iter().map(|s| make_bar(waterfall, s)).collect();
    html! { @for (row, (step, bar)) in steps.iter().zip(&bars).enumerate() {
        @let line = ROW * row as f64 + TEXT;
        @let top = line + 6.0;
        // A line from the level before to the start of this bar.
        @if row > 0 {
            @let x = at(bars[row - 1].to);
            path class="lead" d=(format!("M{x} {}V{}", at(top - ROW + BAR), at(top))) {}
        }
        text x="0" y=(at(line)) font-size=(TEXT) { (text(&shorten(&step.name, NAME_MAX))) }
        text x=(WIDE) y=(at(line)) font-size=(TEXT) text-anchor="end" {
            (shorten(&figure_text(step), FIGURE_MAX)) }
        @let wide = (bar.to - bar.from).abs().max(1.5);
        rect class=(bar.class) x=(at(bar.from.min(bar.to))) y=(at(top)) width=(at(wide))
            height=(BAR) rx="2" {
            title { (text(&step.how)) }
        }
    } }
}

fn tabulate(waterfall: &Waterfall) -> Table {
    let mut table = Table::of(&format!("step|change>|{}>|how|source", waterfall.unit));
    for step in &waterfall.steps {
        let change = match step.kind {
            StepKind::Change | StepKind::Left => format!("{:+.2}", step.change),
            _ => String::new(),
        };
        let level = format!("{:.2}", step.level);
        table.row([step.name.clone(), change, level, step.how.clone(), step.source.clone()]);
    }
    table
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::samples::make_explanation;
    use super::*;
    use fastpath_report::testing::pages::{check_ids, check_labels, check_loads_nothing, parse};

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
        let picture = page.find("<svg").unwrap();
        assert!(page.find("f-answer").unwrap() < picture);
        for word in ["f-cause", "f-excluded", "f-note", "f-caution"] {
            assert!(
                page.find(&format!("<li class=\"{word}")).is_none_or(|at| at > picture),
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
        // The bars: 4000 of 4000, a change of 800 below it, and the remaining 3200.
        let wanted = [(0.0, WIDE), (0.8 * WIDE, 0.2 * WIDE), (0.0, 0.8 * WIDE)];
        for (bar, wanted) in bars.iter().zip(wanted) {
            let near = |a: f64, b: f64| (a - b).abs() < 0.02;
            assert!(near(bar.0, wanted.0) && near(bar.1, wanted.1), "{bar:?} {wanted:?}");
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

    /// Writes a page for inspection: `FASTPATH_TEST_PAGE=FILE cargo test -p fastpath-explain explanation_page`.
    #[test]
    fn explanation_page__is_written_where_asked() {
        if let Some(path) = std::env::var_os("FASTPATH_TEST_PAGE") {
            std::fs::write(path, write_page(&[make_explanation()])).unwrap();
        }
    }
}
