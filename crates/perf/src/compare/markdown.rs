//! A comparison as a page of the documentation, and as the short table of a README.

mod beside;

use std::collections::BTreeSet;

use super::comparison::{Comparison, Row, find_median};
use super::interval::Ratio;
use super::show::{describe_test, name_test};
use crate::output::format::{format_number, format_optional};
use crate::record::{Key, Run};

/// Between these lines of a file stands the table that [`replace_table`] renews.
const BEGIN: &str = "<!-- comparison:";
/// See [`BEGIN`].
const END: &str = "<!-- end of comparison -->";

/// The test whose figures a README shows.
const README_TEST: &str = "latency";

/// The whole page; `levels` is a section of it that was made elsewhere.
pub fn format_page(comparison: &Comparison, levels: Option<&str>) -> String {
    let mut text = "# Results: this MPI beside others\n\n".to_owned();
    text += "Made by `make results`, which anyone can repeat; not written by hand. How to read it, and what is measured how: `measuring.md`.\n\n";
    if let Some(ours) = comparison.reports.first() {
        text += &describe_machine(&ours.run);
    }
    text += &list_mpis(comparison);
    text += &format!(
        "\nThe figure of a run is the {}; shown is its median over {} rounds, in which this MPI and the other ran one after the other and took turns \
         in beginning. Behind it stands the ratio of this MPI to the other, the geometric mean over the rounds with its 95 % interval: **bold** where the other is ahead, `~` where nobody can \
         tell (the interval holds 1), plain where this MPI is ahead. `hardware` is what the machine needs for the same (a cache line one way between the two processors, or one copy of the \
         message, the larger, measured in turn with this MPI; of a ping-pong from 4 KiB the bare pipeline between them and a line, measured before and after each run). A virtual machine shared with others is noisy: the ratios mean something, the times little.\n",
        comparison.statistic.name(),
        comparison.rounds
    );
    text += &count_verdicts(comparison);
    text += &beside::list_behind(comparison);
    for table in list_tables(comparison) {
        text += &format_table(comparison, &table);
    }
    if let Some(section) = levels {
        text += &format!("\n{}\n", section.trim());
    }
    text += &beside::list_others_alone(comparison);
    text + &list_missing(comparison)
}

/// A line for each thing that was asked for and not compared.
fn list_missing(comparison: &Comparison) -> String {
    let mut text = String::new();
    if !comparison.missing.is_empty() {
        text += "\n## Not compared\n\n";
    }
    for missing in &comparison.missing {
        let reason = missing.reason.lines().next().unwrap_or_default();
        let what = match missing.what.as_str() {
            "" => String::new(),
            what => format!(", {what}"),
        };
        text += &format!("- {}{what}: {reason}\n", missing.mpi);
    }
    text
}

fn describe_machine(run: &Run) -> String {
    let machine = &run.machine;
    format!(
        "{}, {}; {}, {} processors{}, Linux {}; clock {}, steps of {} ns.\n\n",
        run.tool,
        format_date(run.started_unix_s),
        machine.processor,
        machine.processors,
        machine
            .hypervisor
            .as_ref()
            .map(|h| format!(", a virtual machine ({h})"))
            .unwrap_or_default(),
        machine.kernel,
        run.clock.source,
        format_number(run.clock.resolution_ns),
    )
}

/// A day of the calendar (Gregorian, UTC) from seconds since 1970.
pub fn format_date(unix_s: u64) -> String {
    let mut days = unix_s / 86_400;
    let mut year = 1970;
    let is_leap = |y: u64| y.is_multiple_of(4) && !y.is_multiple_of(100) || y.is_multiple_of(400);
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

fn list_mpis(comparison: &Comparison) -> String {
    let mut text = "| name | what it says that it is |\n|---|---|\n".to_owned();
    for report in &comparison.reports {
        let mpi = &report.run.mpi;
        text += &format!("| {} | {} |\n", mpi.name, mpi.version.replace('|', "/"));
    }
    text
}

fn count_verdicts(comparison: &Comparison) -> String {
    let mut text = "\n| against | ahead | cannot tell | behind |\n|---|---|---|---|\n".to_owned();
    for peer in comparison.list_peers() {
        let rows: Vec<&Row> = comparison.rows.iter().filter(|r| r.peer == peer).collect();
        let behind = rows.iter().filter(|r| r.is_behind()).count();
        let open = rows.iter().filter(|r| r.says == "cannot tell").count();
        let ahead = rows.len() - behind - open;
        text += &format!("| {peer} | {ahead} | {open} | {behind} |\n");
    }
    text
}

/// Cases that stand in one table: all but the size alike.
fn list_tables(comparison: &Comparison) -> Vec<Key> {
    let mut seen = BTreeSet::new();
    let without_size = |row: &Row| Key {
        bytes: 0,
        ..row.key.clone()
    };
    let keys = comparison.rows.iter().map(without_size);
    keys.filter(|key| seen.insert(key.clone())).collect()
}

fn is_of(row: &Row, table: &Key) -> bool {
    Key {
        bytes: 0,
        ..row.key.clone()
    } == *table
}

fn format_table(comparison: &Comparison, table: &Key) -> String {
    let rows: Vec<&Row> = comparison.rows.iter().filter(|r| is_of(r, table)).collect();
    let Some(first) = rows.first() else {
        return String::new();
    };
    let peers = comparison.list_peers();
    let sizes = list_sizes(&rows);
    let floor = |bytes: u64| {
        find_floor(
            comparison,
            &Key {
                bytes,
                ..table.clone()
            },
        )
    };
    let has_floor = sizes.iter().any(|&size| floor(size).is_some());
    let mut text = format!(
        "\n## {}, {} ranks\n\n{}\n\n| bytes |{} this MPI |",
        name_test(first),
        table.ranks,
        describe_test(first),
        if has_floor { " hardware |" } else { "" }
    );
    text += &peers.iter().map(|p| format!(" {p} |")).collect::<String>();
    let columns = peers.len() + usize::from(has_floor);
    text += &format!("\n|---|---|{}\n", "---|".repeat(columns));
    for size in sizes {
        text += &format!("| {} |", format_size(size));
        let of_size: Vec<&&Row> = rows.iter().filter(|r| r.key.bytes == size).collect();
        if has_floor {
            text += &format!(" {} |", format_optional(floor(size)));
        }
        text += &format!(" {} |", format_own(&of_size));
        for peer in &peers {
            let cell = of_size.iter().find(|r| r.peer == *peer);
            text += &format!(" {} |", cell.map_or("-".to_owned(), |r| format_cell(r)));
        }
        text += "\n";
    }
    text
}

fn list_sizes(rows: &[&Row]) -> Vec<u64> {
    let sizes: BTreeSet<u64> = rows.iter().map(|r| r.key.bytes).collect();
    sizes.into_iter().collect()
}

/// Ours stands beside each peer anew: the middle of those figures.
fn format_own(rows: &[&&Row]) -> String {
    let middle = find_median(rows.iter().map(|r| r.ours));
    format_optional(middle)
}

/// What the hardware needs for a case, in the statistic of the comparison.
fn find_floor(comparison: &Comparison, key: &Key) -> Option<f64> {
    let ours = comparison.reports.first()?;
    let case = ours.cases.iter().find(|c| c.key() == *key)?;
    comparison.statistic.take(case.floor.as_ref()?)
}

fn format_cell(row: &Row) -> String {
    format!("{} ({})", format_number(row.theirs), mark_ratio(row))
}

/// A ratio that shows who is ahead.
fn mark_ratio(row: &Row) -> String {
    let ratio = format_ratio(&row.ratio);
    match row.says.as_str() {
        _ if row.is_behind() => format!("**{ratio}**"),
        "cannot tell" => format!("~{ratio}"),
        _ => ratio,
    }
}

fn format_ratio(ratio: &Ratio) -> String {
    match ratio.interval {
        Some([low, high]) => format!("{:.2} [{low:.2}, {high:.2}]", ratio.ratio),
        None => format!("{:.2}", ratio.ratio),
    }
}

/// Sizes as people write them: `4 Ki`.
fn format_size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} Mi", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} Ki", b >> 10),
        b => b.to_string(),
    }
}

/// The short table: the ping-pong alone, with the ratio to the best of the others.
pub fn format_summary(comparison: &Comparison) -> String {
    let rows: Vec<&Row> = comparison
        .rows
        .iter()
        .filter(|r| r.key.test == README_TEST && r.key.ranks == 2 && r.key.variant.is_empty())
        .collect();
    let peers = comparison.list_peers();
    let names: String = peers.iter().map(|p| format!(" {p} |")).collect();
    let mut text = format!("| bytes | Fastpath |{names} Fastpath to the best of them |\n");
    text += &format!("|---|---|{}---|\n", "---|".repeat(peers.len()));
    for size in list_sizes(&rows) {
        let of_size: Vec<&&Row> = rows.iter().filter(|r| r.key.bytes == size).collect();
        text += &format!("| {} | {} |", format_size(size), format_own(&of_size));
        for peer in &peers {
            let row = of_size.iter().find(|r| r.peer == *peer);
            let time = row.map_or("-".to_owned(), |r| format_number(r.theirs));
            text += &format!(" {time} |");
        }
        // The one that ours does worst against, by the pairs: not the one with the shortest time.
        let best = of_size
            .iter()
            .max_by(|a, b| a.ratio.ratio.total_cmp(&b.ratio.ratio));
        text += &match best {
            Some(row) => format!(" {} |\n", mark_ratio(row)),
            None => " - |\n".to_owned(),
        };
    }
    text
}

/// The text of a file with the table between its marks renewed.
///
/// # Errors
/// The marks are not there, or not in order.
pub fn replace_table(file: &str, comparison: &Comparison) -> Result<String, String> {
    let missing = || format!("the lines `{BEGIN} ... -->` and `{END}` are not there");
    let begin = file.find(BEGIN).ok_or_else(missing)?;
    let table = begin + file[begin..].find('\n').ok_or_else(missing)? + 1;
    let end = table + file[table..].find(END).ok_or_else(missing)?;
    let mut head = String::new();
    if let Some(ours) = comparison.reports.first() {
        head = format!(
            "Ping-pong, half a round trip in ns, the {} of a run and of that the median over {} rounds in turn; the ratio with its 95 % interval, **bold** where another is ahead, `~` where nobody can tell ({}, {}, {}, {} processors{}).\n\n",
            comparison.statistic.name(),
            comparison.rounds,
            ours.run.tool,
            format_date(ours.run.started_unix_s),
            ours.run.machine.processor,
            ours.run.machine.processors,
            if ours.run.machine.hypervisor.is_some() {
                ", a virtual machine"
            } else {
                ""
            },
        );
    }
    let summary = format_summary(comparison);
    Ok(format!("{}{head}{summary}{}", &file[..table], &file[end..]))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::comparison::tests::make_comparison;
    use super::*;
    use crate::record::samples::make_case;

    #[test]
    fn page__marks_who_is_ahead_and_names_what_is_missing() {
        let mut comparison = make_comparison();
        let page = format_page(&comparison, None);
        assert!(page.contains("## latency, 2 ranks"), "{page}");
        assert!(page.contains("| 8 | 57.75 | 100.0 (0.50 ["), "{page}");
        comparison.reports[0].cases.push(make_case(8, &[1.0]));
        let page = format_page(&comparison, None);
        assert!(
            page.contains("| 8 | 58.01 | 57.75 | 100.0 (0.50 ["),
            "{page}"
        );
        assert!(page.contains("65.00 (~1.00 ["), "{page}");
        assert!(page.contains("500.0 (**2.01 ["), "{page}");
        assert!(page.contains("| alpha | 1 | 0 | 1 |"), "{page}");
        assert!(page.contains("- gamma: cannot run mpicc"), "{page}");
        assert!(page.contains("2023-11-14"), "{page}");
    }

    #[test]
    fn section_of_levels__stands_behind_the_tables() {
        let mut comparison = make_comparison();
        comparison.reports[0].cases.clear();
        let page = format_page(&comparison, Some("## Levels\n\na table\n\n"));
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}: {page}"));
        assert!(at("## latency, 2 ranks") < at("\n\n## Levels\n\na table\n"));
        assert!(at("a table\n\n## Not compared") > 0);
    }

    #[test]
    fn summary__gives_the_ratio_to_the_best_of_the_others() {
        let text = format_summary(&make_comparison());
        assert!(
            text.contains("| 8 | 57.75 | 100.0 | 65.00 | ~1.00 ["),
            "{text}"
        );
        assert!(
            text.contains("| 4 Ki | 1002 | 500.0 | 2000 | **2.01 ["),
            "{text}"
        );
    }

    #[test]
    fn table_of_a_file__is_renewed_between_its_marks() {
        let file = "before\n<!-- comparison: make results -->\nearlier\n<!-- end of comparison -->\nafter\n";
        let new = replace_table(file, &make_comparison()).unwrap();
        assert!(new.starts_with("before\n<!-- comparison: make results -->\nPing-pong"));
        assert!(
            new.ends_with("|\n<!-- end of comparison -->\nafter\n"),
            "{new}"
        );
        assert!(!new.contains("earlier"));
        assert!(replace_table("nothing", &make_comparison()).is_err());
    }

    #[test]
    fn dates__are_those_of_the_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_700_000_000, "2023-11-14"),
            (1_735_689_599, "2024-12-31"),
        ] {
            assert_eq!(format_date(seconds), date);
        }
    }
}
