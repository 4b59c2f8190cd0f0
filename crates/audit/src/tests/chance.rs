//! Tests that the stated chance is kept: of texts without any step or relation, at most the stated share shows a step
//! or a relation. The texts are equal in every run. The search uses a chance large enough for counting.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::super::*;
use super::genuine::{read_outputs, write_bare};

/// Share of texts that may show something.
const CHANCE: f64 = 0.05;

struct Numbers(TestRunner);

impl Numbers {
    /// A number between 0 and 1.
    fn next(&mut self) -> f64 {
        let tree = (0.0..1.0f64).new_tree(&mut self.0);
        tree.expect("a number").current()
    }

    fn below(&mut self, end: usize) -> usize {
        ((self.next() * end as f64) as usize).min(end - 1)
    }
}

fn numbers() -> Numbers {
    Numbers(TestRunner::deterministic())
}

fn shows_something(text: &str, chance: f64) -> bool {
    let found = audit_at(text, chance);
    found.tables.iter().any(|t| !t.steps.is_empty() || !t.units.is_empty())
}

/// Checks that the number of texts that show something agrees with the stated chance. Returns these texts.
fn expect_few<'a>(what: &str, texts: &'a [String]) -> Vec<&'a String> {
    let shown: Vec<&String> = texts.iter().filter(|t| shows_something(t, CHANCE)).collect();
    let allowed = CHANCE * texts.len() as f64;
    assert!(shown.len() as f64 <= allowed, "{what}: {} of {}", shown.len(), texts.len());
    shown
}

/// Shuffles the numbers of each column, which destroys relations between columns.
#[test]
fn shuffled_tables__show_no_more_than_their_chance() {
    let mut random = numbers();
    let mut texts = Vec::new();
    for (_, text) in read_outputs() {
        for mut table in recognise::recognise(&text).tables {
            for _ in 0..5 {
                for column in table.columns.iter_mut().filter(|c| !c.is_parameter()) {
                    for i in (1..column.cells.len()).rev() {
                        column.cells.swap(i, random.below(i + 1));
                    }
                }
                texts.push(write_bare(&table));
            }
        }
    }
    expect_few("shuffled", &texts);
}

/// Changes each measured number by up to a tenth, and prints it with equally many digits.
#[test]
fn disturbed_tables__show_no_more_than_their_chance() {
    let mut random = numbers();
    let mut texts = Vec::new();
    for (_, text) in read_outputs() {
        for table in recognise::recognise(&text).tables {
            for _ in 0..5 {
                let mut table = table.clone();
                for column in table.columns.iter_mut().filter(|c| !c.is_parameter()) {
                    column.cells.iter_mut().for_each(|c| c.value *= 0.9 + 0.2 * random.next());
                }
                texts.push(write_bare(&table));
            }
        }
    }
    expect_few("disturbed", &texts);
}

/// Columns: size, a constant count, then latencies that grow linearly and are almost equal.
#[test]
fn smooth_latencies__show_no_more_than_their_chance() {
    let mut random = numbers();
    let texts: Vec<String> = (0..500)
        .map(|_| {
            let (start, slope) = (0.3 + 5.0 * random.next(), 0.5 * random.next() / 1024.0);
            let (count, columns) = ([20, 1000, 1024][random.below(3)], 2 + random.below(4));
            let mut text = String::new();
            for shift in 0..1 + random.below(20) {
                let size = 2u64 << shift;
                text += &format!("{size} {count}");
                for column in 0..columns {
                    let noise = 1.0 + 0.02 * column as f64 * random.next();
                    text += &format!(" {:.2}", (start + slope * size as f64) * noise);
                }
                text += "\n";
            }
            text
        })
        .collect();
    expect_few("smooth", &texts);
}

/// One size, and columns of one quantity beside it: perftest without `-a`.
#[test]
fn rows_of_one_size__show_no_more_than_their_chance() {
    let mut random = numbers();
    let texts: Vec<String> = (0..100)
        .map(|_| {
            let (size, rows) = (1u64 << random.below(24), 1 + random.below(4));
            let mut text = String::new();
            for _ in 0..rows {
                let time = 1.0 + 3000.0 * random.next();
                let largest = time * (1.0 + random.next());
                text += &format!("{size} 1000 {time:.2} {largest:.2} {time:.2} {largest:.2}\n");
            }
            text
        })
        .collect();
    expect_few("one size", &texts);
}

#[test]
fn random_tables__show_no_more_than_their_chance() {
    let mut random = numbers();
    let texts: Vec<String> = (0..1000)
        .map(|_| {
            let (rows, columns) = (3 + random.below(13), 1 + random.below(4));
            let digits = random.below(3);
            let mut text = String::new();
            for row in 0..rows {
                text += &format!("{}", 1u64 << row);
                for _ in 0..columns {
                    text += &format!(" {:.digits$}", 10f64.powf(1.0 + 3.0 * random.next()));
                }
                text += "\n";
            }
            text
        })
        .collect();
    // A text that passes the smaller chance also passes the larger one, so only texts that pass the larger need a
    // check.
    let shown = expect_few("random", &texts);
    let shown = shown.into_iter().filter(|t| shows_something(t, CHANCE_MAX)).count();
    assert!(shown <= 1, "{shown} of 1000 at the chance that is reported");
}
