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

/// The bytes of a dump as `lspci -xxxx` prints them, from the first line that has an offset.
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
