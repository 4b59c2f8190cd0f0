//! The options of `--level verbs`: how the bare loops use the adapter.

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use fastpath_base::config::parse_size;
use serde::{Deserialize, Serialize};

/// How the bare loops use the adapter; only for `--level verbs`.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Options of --level verbs")]
pub struct VerbsOptions {
    /// Sends that may be under way [default: 128; of put and get 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub tx_depth: Option<u32>,
    /// Receive buffers that are posted [default: 512]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub rx_depth: Option<u32>,
    /// Sends posted by one call, in tests of windows [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub post_list: Option<u32>,
    /// Every N-th send reports its success, N at most the depth [default: 1 in ping-pongs, else a quarter of the depth]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub cq_moderation: Option<u32>,
    /// Completions taken by one poll at most [default: 16]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub poll_batch: Option<u32>,
    /// Bytes of inline data to ask for; a run says how many were granted [default: FASTPATH_MAX_INLINE, or the
    /// library's]
    #[arg(long, value_name = "BYTES", value_parser = parse_inline)]
    pub inline: Option<u32>,
    /// Payload of one packet, at most the port's: 256, 512, 1K, 2K, 4K [default: the port's]
    #[arg(long, value_name = "BYTES", value_parser = parse_mtu)]
    pub mtu: Option<u32>,
    /// Reliable connection or datagrams [default: as --transport says, or rc]
    #[arg(long, value_enum, ignore_case = true)]
    pub connection: Option<Connection>,
    /// Both ranks send at once, in tests of windows
    #[arg(long)]
    pub bidirectional: bool,
    /// When completions of sends are polled for: after each send, or when there is no room [default: eager in
    /// ping-pongs, else lazy]
    #[arg(long, value_enum)]
    pub poll: Option<Polls>,
}

/// The service of a queue pair.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Connection {
    /// Reliable connection
    Rc,
    /// Datagrams
    Ud,
}

impl Connection {
    /// As the command line and results call it.
    pub fn name(self) -> &'static str {
        match self {
            Connection::Rc => "rc",
            Connection::Ud => "ud",
        }
    }
}

/// When completions of sends are polled for.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Polls {
    /// After each send, in a ping-pong until it is complete
    Eager,
    /// When the send queue has no room
    Lazy,
}

impl VerbsOptions {
    /// Whether the options fit each other.
    ///
    /// # Errors
    /// Which do not, and why.
    pub fn check(&self) -> Result<()> {
        let depth = self.tx_depth.unwrap_or(128);
        for (name, value) in
            [("--post-list", self.post_list), ("--cq-moderation", self.cq_moderation)]
        {
            if let Some(value) = value.filter(|&value| value > depth) {
                bail!(
                    "{name} {value} is more than the send queue holds (--tx-depth {depth}): its \
                     room would never come back"
                );
            }
        }
        Ok(())
    }
}

fn parse_inline(text: &str) -> Result<u32, String> {
    match parse_size(text)? {
        bytes @ 0..=65536 => Ok(bytes as u32),
        _ => Err("at most 64K".to_owned()),
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
