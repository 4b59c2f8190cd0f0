//! What tests of several crates share: made-up results, checks of schemas and pages, options from words.

use clap::{Args, Parser};

pub mod pages;
pub mod samples;
pub mod schema;

/// Options of a command as its words make them.
pub fn parse_options<T: Args>(words: &[&str]) -> Result<T, clap::Error> {
    #[derive(Parser)]
    struct Line<T: Args> {
        #[command(flatten)]
        options: T,
    }
    Line::try_parse_from([&["fastpath"], words].concat()).map(|line| line.options)
}
