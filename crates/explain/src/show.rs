//! An explanation as text: inputs, waterfalls drawn with bars, conclusions.

use std::io::IsTerminal;

use fastpath_report::document::wrap;
use fastpath_report::lists::unique;
use fastpath_report::output::chart::has_utf8_locale;

use super::{Explanation, FindingKind, Input, StepKind, Waterfall, WaterfallStep};

const COLUMNS: usize = 80;
/// Least and largest width of a bar, in columns.
const BAR: (usize, usize) = (8, 48);

/// Capabilities of the reader's terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub columns: usize,
    pub color: bool,
    /// Whether Unicode blocks may draw a bar; otherwise `#`.
    pub blocks: bool,
}

impl Look {
    pub const PLAIN: Look = Look { columns: COLUMNS, color: false, blocks: false };

    pub fn of_stdout() -> Look {
        if !std::io::stdout().is_terminal() {
            return Look::PLAIN;
        }
        let size = console::Term::stdout().size_checked();
        let columns = size.map_or(COLUMNS, |(_, columns)| usize::from(columns));
        Look::of_terminal(columns, |name| std::env::var(name).unwrap_or_default())
    }

    /// Look of a terminal. It has no colours with NO_COLOR (no-color.org) or on a dumb terminal, and no blocks without
    /// a UTF-8 locale.
    fn of_terminal(columns: usize, variable: impl Fn(&str) -> String) -> Look {
        Look {
            columns: columns.clamp(60, 160),
            color: variable("NO_COLOR").is_empty() && variable("TERM") != "dumb",
            blocks: has_utf8_locale(variable),
        }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

const BOLD: &str = "1";
const FAINT: &str = "2";
const BLUE: &str = "34";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

pub fn format_text(explanation: &Explanation, look: Look) -> String {
    let mut out = look.paint(BOLD, &wrap(&explanation.title, look.columns, 0, 4));
    if !explanation.inputs.is_empty() {
        out += "\n";
        out += &format_inputs(&explanation.inputs, look);
    }
    for waterfall in &explanation.waterfalls {
        out += "\n";
        out += &format_waterfall(waterfall, look);
    }
    if !explanation.findings.is_empty() {
        out += "\n";
    }
    let mut rank = 0;
    for finding in &explanation.findings {
        let (mark, color) = match finding.kind {
            FindingKind::Answer => ("=>".to_owned(), GREEN),
            FindingKind::Cause => {
                rank += 1;
                (format!("{rank}."), YELLOW)
            }
            FindingKind::Excluded => ("no".to_owned(), FAINT),
            FindingKind::Note => ("-".to_owned(), BLUE),
            FindingKind::Caution => ("!".to_owned(), RED),
        };
        let mark = format!("{mark:<3} ");
        out += &format_item(&mark, color, &finding.text, look);
        if !finding.why.is_empty() {
            out += &look.paint(FAINT, &wrap(&finding.why, look.columns, 4, 4));
        }
    }
    for experiment in &explanation.experiments {
        out += "\n";
        out += &format_item("try ", BOLD, &experiment.what, look);
        for outcome in &experiment.outcomes {
            let text = format!("{}: {}", outcome.seen, outcome.means);
            out += &format_item("    - ", FAINT, &text, look);
        }
    }
    out
}

/// Formats several explanations in a few lines each: the link, its limits, its problems.
pub fn format_overview(explanations: &[Explanation], look: Look) -> String {
    let mut out = String::new();
    for explanation in explanations {
        out += &format_item("", BOLD, &explanation.title, look);
        let value = |name: &str| {
            let found = explanation.inputs.iter().find(|i| i.name == name);
            found.map(|i| i.value.as_str())
        };
        if let Some(link) = value("link") {
            let could = value("could be").map_or(String::new(), |c| format!("; could be {c}"));
            out += &wrap(&format!("{link}{could}"), look.columns, 4, 4);
        }
        for finding in &explanation.findings {
            out += &match finding.kind {
                FindingKind::Answer => format_item(" => ", GREEN, &finding.text, look),
                FindingKind::Caution => format_item("  ! ", RED, &finding.text, look),
                _ => String::new(),
            };
        }
        out.push('\n');
    }
    out + "Use --device ADDRESS to explain one device in full.\n"
}

fn format_item(mark: &str, color: &str, text: &str, look: Look) -> String {
    let indent = mark.chars().count();
    let lines = wrap(text, look.columns, indent, indent);
    format!("{}{}", look.paint(color, mark), lines.trim_start())
}

fn format_inputs(inputs: &[Input], look: Look) -> String {
    let wide = |pick: fn(&Input) -> &str| {
        let lengths = inputs.iter().map(|i| pick(i).chars().count());
        lengths.max().unwrap_or(0).min(34)
    };
    let (name, value) = (wide(|i| &i.name), wide(|i| &i.value));
    let line = |input: &Input| {
        let head = format!("  {:<name$}  {:<value$}  ", input.name, input.value);
        let at = head.chars().count();
        // A source stays beside its value if all of it fits there, or a wrapped column of some width.
        let least = input.source.chars().count().min(24);
        let head = match head.trim_end() {
            long if long.chars().count() > look.columns => wrap(long, look.columns, 2, 4 + name),
            short if at + least > look.columns => format!("{short}\n"),
            _ => {
                let source = wrap(&input.source, look.columns, at, at);
                let source = look.paint(FAINT, source.trim());
                return format!("{head}{source}").trim_end().to_owned() + "\n";
            }
        };
        match input.source.as_str() {
            "" => head,
            source => head + &look.paint(FAINT, &wrap(source, look.columns, 4 + name, 4 + name)),
        }
    };
    inputs.iter().map(line).collect()
}

fn format_waterfall(waterfall: &Waterfall, look: Look) -> String {
    let digits = choose_digits(waterfall);
    let number = |step: &WaterfallStep| match step.kind {
        StepKind::Change | StepKind::Left => format!("{:+.digits$}", step.change),
        _ => format!("{:.digits$}", step.level),
    };
    let steps = &waterfall.steps;
    let wide = |texts: Vec<String>| texts.iter().map(|t| t.chars().count()).max().unwrap_or(0);
    let names = wide(steps.iter().map(|s| s.name.clone()).collect()).min(30);
    let numbers = wide(steps.iter().map(number).collect());
    // Two spaces between the columns; the bar and its arithmetic share the rest.
    let rest = look.columns.saturating_sub(names + numbers + 6);
    let bar = (rest * 2 / 5).clamp(BAR.0, BAR.1);
    let mut out = format!(
        "{} {}\n",
        look.paint(BOLD, &waterfall.title),
        look.paint(FAINT, &format!("({})", waterfall.unit))
    );
    for step in steps {
        let drawn = draw_bar(waterfall, step, bar, look);
        let head = format!("  {:<names$}  {:>numbers$}  ", step.name, number(step));
        let head = match step.kind {
            StepKind::Level | StepKind::Measured => look.paint(BOLD, &head),
            _ => head,
        };
        let at = 2 + names + 2 + numbers + 2 + bar + 2;
        let line = format!("{head}{drawn}  {}", format_how(&step.how, at, look));
        for line in line.lines() {
            out += line.trim_end();
            out.push('\n');
        }
    }
    out + &format_sources(steps, look)
}

/// Lists the sources of the steps' constants, each once.
fn format_sources(steps: &[WaterfallStep], look: Look) -> String {
    let told = steps.iter().filter(|s| s.kind != StepKind::Measured && !s.source.is_empty());
    let sources = unique(told.map(|s| s.source.as_str()));
    if sources.is_empty() {
        return String::new();
    }
    let text = format!("from: {}", sources.join("; "));
    look.paint(FAINT, &wrap(&text, look.columns, 2, 4))
}

/// Formats the arithmetic of a step. It starts beside the bar, or below the bar if there is no space, and continues on
/// further lines.
fn format_how(how: &str, at: usize, look: Look) -> String {
    if how.is_empty() {
        return "\n".to_owned();
    }
    if at + 24 > look.columns {
        return format!("\n{}", look.paint(FAINT, &wrap(how, look.columns, 4, 4)));
    }
    let lines = wrap(how, look.columns, at, at);
    look.paint(FAINT, lines.trim_start().trim_end()) + "\n"
}

/// Number of decimals that shows four digits of the largest level.
fn choose_digits(waterfall: &Waterfall) -> usize {
    let levels = waterfall.steps.iter().map(|s| s.level.abs());
    let largest = levels.fold(0.0, f64::max);
    match largest {
        l if l >= 1000.0 => 1,
        l if l >= 10.0 => 2,
        _ => 3,
    }
}

/// Draws a step's bar, padded to its columns: from zero for a figure, between both levels for a change.
fn draw_bar(waterfall: &Waterfall, step: &WaterfallStep, columns: usize, look: Look) -> String {
    let change = step.is_change();
    // Both ends in eighths of a column.
    let ends = waterfall.ends(step);
    let [a, b] = ends.map(|share| (share * (columns * 8) as f64).round() as usize);
    let (low, high) = (a.min(b), a.max(b));
    let color = match step.kind {
        StepKind::Measured => YELLOW,
        _ if change && step.change < 0.0 => RED,
        _ if change => GREEN,
        _ => BLUE,
    };
    let (filled, drawn) =
        if look.blocks { draw_blocks(low, high) } else { draw_signs(low, high, change) };
    let before = " ".repeat(filled);
    let after = columns.saturating_sub(filled + drawn.chars().count());
    format!("{before}{}{}", look.paint(color, &drawn), " ".repeat(after))
}

/// Empty columns before the bar, and the bar of blocks: exact to an eighth at its right end.
fn draw_blocks(low: usize, high: usize) -> (usize, String) {
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    if high == low {
        return (low / 8, String::new());
    }
    let start = low / 8;
    let (whole, part) = (high / 8, high % 8);
    let mut bar = "█".repeat(whole.saturating_sub(start));
    if part > 0 {
        bar.push(PARTS[part]);
    }
    (start, bar)
}

/// Empty columns before the bar, and the bar of `#`, or of `-` for a change. The bar has one character for each column
/// that it covers in whole or in part. It is empty if `low` and `high` are equal and a multiple of 8.
fn draw_signs(low: usize, high: usize, change: bool) -> (usize, String) {
    let start = low / 8;
    let count = (high.div_ceil(8)).saturating_sub(start);
    (start, if change { "-" } else { "#" }.repeat(count))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::samples::make_explanation;
    use super::*;

    const TERMINAL: Look = Look { columns: 100, color: true, blocks: true };

    #[test]
    fn look__follows_the_terminal_and_its_variables() {
        let look = |columns, set: &[(&str, &str)]| {
            Look::of_terminal(columns, |name| {
                let found = set.iter().find(|(n, _)| *n == name);
                found.map_or(String::new(), |(_, value)| (*value).to_owned())
            })
        };
        let usual = look(120, &[("LANG", "C.UTF-8"), ("TERM", "xterm")]);
        assert_eq!((usual.columns, usual.color, usual.blocks), (120, true, true));
        assert!(!look(120, &[("NO_COLOR", "1")]).color);
        assert!(!look(120, &[("TERM", "dumb")]).color);
        assert!(!look(120, &[("LC_ALL", "C"), ("LANG", "C.UTF-8")]).blocks);
        assert_eq!((look(3, &[]).columns, look(9999, &[]).columns), (60, 160));
    }

    #[test]
    fn text__has_every_part_of_an_explanation() {
        let explanation = make_explanation();
        for look in [Look::PLAIN, TERMINAL] {
            let text = format_text(&explanation, look);
            let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let step = |s: &WaterfallStep| s.name.clone();
            let steps = explanation.waterfalls.iter().flat_map(|w| &w.steps);
            let mut parts: Vec<String> = steps.map(step).collect();
            parts.extend(explanation.findings.iter().map(|f| f.text.clone()));
            parts.extend(explanation.inputs.iter().map(|i| i.value.clone()));
            parts.extend(explanation.experiments.iter().map(|e| e.what.clone()));
            for part in parts {
                assert!(flat.contains(&part), "{part} in {text}");
            }
        }
    }

    #[test]
    fn overview__has_answers_and_cautions_alone() {
        let text = format_overview(&[make_explanation(), make_explanation()], Look::PLAIN);
        for (part, count) in [
            ("PCIe 2.0 x8", 2),
            ("finding 0", 2),
            ("finding 5", 2),
            ("finding 1", 0),
            ("finding 4", 0),
            ("packet headers", 0),
            ("--device", 1),
        ] {
            assert_eq!(text.matches(part).count(), count, "{part} in {text}");
        }
    }

    #[test]
    fn text__to_a_file_is_plain_and_narrow() {
        let text = format_text(&make_explanation(), Look::PLAIN);
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(text.is_ascii(), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS, "{line}");
            assert_eq!(line, line.trim_end());
        }
    }

    #[test]
    fn short_source__is_beside_its_value_if_it_fits() {
        let input = |value: &str| Input {
            name: "maximum read request".to_owned(),
            value: value.to_owned(),
            source: "assumed".to_owned(),
        };
        let inputs = [input("512 B"), input("unknown, so not modelled; pass --adapter or --wire")];
        let look = Look { columns: 80, color: false, blocks: false };
        let text = format_inputs(&inputs, look);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].ends_with("  assumed") && lines[0].contains("512 B"), "{text}");
        assert_eq!(lines[2].trim(), "assumed", "{text}");
    }

    #[test]
    fn text__fits_every_terminal() {
        let mut explanation = make_explanation();
        let long = "a sentence of some length that has to go on in a second line ".repeat(3);
        explanation.title.clone_from(&long);
        explanation.inputs[0].source.clone_from(&long);
        explanation.inputs[1].value.clone_from(&long);
        explanation.inputs[1].source.clone_from(&long);
        for columns in [60, 100, 160] {
            let look = Look { columns, color: false, blocks: true };
            let text = format_text(&explanation, look);
            for line in text.lines() {
                assert!(line.chars().count() <= columns, "{columns}: {line}");
            }
        }
    }

    #[test]
    fn bars__are_as_long_as_their_levels() {
        let waterfall = &make_explanation().waterfalls[0];
        let look = Look { color: false, ..TERMINAL };
        let length = |i: usize| {
            let bar = draw_bar(waterfall, &waterfall.steps[i], 40, look);
            assert_eq!(bar.chars().count(), 40, "{bar:?}");
            let before = bar.chars().take_while(|c| *c == ' ').count();
            (before, bar.trim().chars().count())
        };
        // The bars: 4000 of 4000, a change of 800 below it, and the remaining 3200.
        assert_eq!(length(0), (0, 40));
        assert_eq!(length(1), (32, 8));
        assert_eq!(length(2), (0, 32));
        let plain = draw_bar(waterfall, &waterfall.steps[1], 40, Look::PLAIN);
        assert_eq!(plain.trim(), "--------");
    }

    #[test]
    fn bars__of_odd_figures_are_drawn() {
        let mut waterfall = make_explanation().waterfalls.remove(0);
        for (level, change) in [(f64::NAN, 1.0), (f64::INFINITY, 0.0), (-5.0, -9.0), (0.0, 0.0)] {
            waterfall.steps[1].level = level;
            waterfall.steps[1].change = change;
            for look in [Look::PLAIN, TERMINAL] {
                assert!(!format_waterfall(&waterfall, look).is_empty());
            }
        }
    }
}
