//! Options of `--level verbs`: how the bare loops use the adapter.

use anyhow::Result;
use clap::{Args, ValueEnum};
use fastpath_base::config::parse_size;
use fastpath_report::refuse_usage;
use serde::{Deserialize, Serialize};

/// Use of the adapter by the bare loops, only with `--level verbs`.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Options of --level verbs")]
pub struct VerbsOptions {
    /// Send queue depth: sends in flight [default: 128; put and get: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub tx_depth: Option<u32>,
    /// Receive queue depth: posted receive buffers [default: 512]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub rx_depth: Option<u32>,
    /// Sends posted by one call, in window tests [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub post_list: Option<u32>,
    /// Signal every N-th send; N is at most --tx-depth [default: 1 in ping-pongs, else a quarter of the depth]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub cq_moderation: Option<u32>,
    /// Largest number of completions taken by one poll [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub poll_batch: Option<u32>,
    /// Inline data to request, in bytes; the report prints the granted size [default: FASTPATH_MAX_INLINE, or the
    /// default of the library]
    #[arg(long, value_name = "BYTES", value_parser = parse_inline)]
    pub inline: Option<u32>,
    /// Payload of one packet: 256, 512, 1K, 2K or 4K, at most the MTU of the port [default: the MTU of the port]
    #[arg(long, value_name = "BYTES", value_parser = parse_mtu)]
    pub mtu: Option<u32>,
    /// Reliable connection or datagrams [default: by --transport, or rc]
    #[arg(long, value_enum, ignore_case = true)]
    pub connection: Option<Connection>,
    /// Send from both ranks at once, in window tests
    #[arg(long)]
    pub bidirectional: bool,
    /// When to poll for completions of sends: after each send, or when the queue is full [default: eager in ping-pongs,
    /// else lazy]
    #[arg(long, value_enum)]
    pub poll: Option<Polls>,
}

/// Service type of a queue pair.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Connection {
    /// Reliable connection
    Rc,
    /// Unreliable datagrams
    Ud,
}

impl Connection {
    /// Name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Connection::Rc => "rc",
            Connection::Ud => "ud",
        }
    }
}

/// When to poll for completions of sends.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Polls {
    /// After each send; in a ping-pong until the send is complete
    Eager,
    /// When the send queue is full
    Lazy,
}

impl VerbsOptions {
    /// Checks that the options are consistent.
    ///
    /// # Errors
    /// Options that contradict each other.
    pub fn check(&self) -> Result<()> {
        let depth = self.tx_depth.unwrap_or(128);
        for (name, value) in
            [("--post-list", self.post_list), ("--cq-moderation", self.cq_moderation)]
        {
            if let Some(value) = value.filter(|&value| value > depth) {
                refuse_usage!(
                    "{name} {value} is larger than the depth of the send queue, {depth}; lower \
                     {name}, or raise --tx-depth"
                );
            }
        }
        Ok(())
    }
}

fn parse_inline(text: &str) -> Result<u32, String> {
    match parse_size(text)? {
        bytes @ 0..=65536 => Ok(bytes as u32),
        _ => Err("the largest inline size is 64K".to_owned()),
    }
}

fn parse_mtu(text: &str) -> Result<u32, String> {
    match parse_size(text)? {
        bytes @ (256 | 512 | 1024 | 2048 | 4096) => Ok(bytes as u32),
        _ => Err("expected 256, 512, 1K, 2K or 4K".to_owned()),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::program::list_options;
    use fastpath_report::testing::parse_options;

    fn parse(words: &[&str]) -> Result<VerbsOptions, clap::Error> {
        parse_options(words)
    }

    #[test]
    fn options__are_told_apart_from_defaults() {
        assert!(list_options(&parse(&[]).unwrap()).is_empty());
        let words = "--tx-depth 8 --rx-depth 9 --post-list 2 --cq-moderation 4 --poll-batch 3 \
            --inline 1K --mtu 2K \
            --connection UD --bidirectional --poll lazy";
        let options =
            parse(&words.split(' ').filter(|w| !w.is_empty()).collect::<Vec<_>>()).unwrap();
        assert_eq!(list_options(&options).len(), 10);
        assert_eq!((options.inline, options.mtu), (Some(1024), Some(2048)));
        assert_eq!(options.connection, Some(Connection::Ud));
        assert!(options.check().is_ok());
    }

    #[test]
    fn options__that_make_no_sense_are_refused() {
        for wrong in [
            "--tx-depth=0",
            "--mtu=1000",
            "--inline=1M",
            "--connection=xrc",
            "--poll=never",
            "--post-list=0",
        ] {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
        for wrong in ["--cq-moderation", "--post-list"] {
            let options = parse(&["--tx-depth", "16", wrong, "17"]).unwrap();
            let why = options.check().unwrap_err().to_string();
            assert!(why.contains(wrong) && why.contains("16"), "{why}");
        }
    }
}
