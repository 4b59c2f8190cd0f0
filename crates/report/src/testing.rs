//! Code shared by tests of several crates: sample results, checks of schemas and pages, options from words.

use clap::{Args, Parser};

pub mod pages;
pub mod samples;
pub mod schema;

/// Parses the options of a command from words.
pub fn parse_options<T: Args>(words: &[&str]) -> Result<T, clap::Error> {
    #[derive(Parser)]
    struct TestCommand<T: Args> {
        #[command(flatten)]
        options: T,
    }
    TestCommand::try_parse_from([&["fastpath"], words].concat()).map(|line| line.options)
}

/// Parses the bytes of a dump printed by `lspci -xxxx`.
pub fn parse_dump(text: &str) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let rows = text.lines().filter_map(|l| l.split_once(": "));
    for (offset, row) in rows {
        let offset = usize::from_str_radix(offset, 16).unwrap();
        for (i, byte) in row.split_whitespace().enumerate() {
            bytes[offset + i] = u8::from_str_radix(byte, 16).unwrap();
        }
    }
    bytes
}
