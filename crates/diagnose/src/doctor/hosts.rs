//! `fastpath doctor --host a,b`: checks the connections between hosts.
//!
//! An engine starts one process on each host ([`probe`]). They exchange their addresses through the engine, try every
//! pair of addresses in both directions, and measure the connection that a job would use. The exchange of addresses
//! therefore needs no working network. The first process prints the [`HostsReport`], which this process reads and
//! judges ([`verdict`]).

mod connection;
pub mod probe;
mod show;
mod verdict;

use std::io;
use std::net::IpAddr;

use fastpath_report::document;
use fastpath_report::refuse_usage;
use serde::{Deserialize, Serialize};

use super::diagnostics::{Diagnostic, Severity};
use crate::on_hosts::HostOptions;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Interface {
    name: String,
    address: IpAddr,
    /// MTU in bytes; None if the kernel does not report it.
    mtu: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct HostFacts {
    name: String,
    /// Version of this program.
    version: String,
    kernel: String,
    processors: usize,
    open_files: u64,
    /// Limit of locked memory, in bytes; None: unlimited.
    locked_memory: Option<u64>,
    /// `FASTPATH_PORTS`, if set.
    ports: String,
    /// All addresses except loopback.
    interfaces: Vec<Interface>,
    /// Addresses that peers of a job would get, in the order of attempts.
    told: Vec<IpAddr>,
    port: u16,
    problem: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
enum CallResult {
    /// The peer has answered and authenticated.
    Reached {
        /// Time until the connection was established, in microseconds.
        connect_us: f64,
    },
    /// The connection was refused: no process listens, or a firewall rejects it.
    Refused,
    /// No answer: a firewall drops packets, or the address is unreachable.
    Silent,
    /// The call was impossible: no route, or an unusable source address.
    Impossible { why: String },
    /// Another program answers.
    Stranger,
}

/// A call: an attempt to connect to an address of a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Attempt {
    peer: usize,
    from: Option<IpAddr>,
    /// Actual source address, if known.
    source: Option<IpAddr>,
    to: IpAddr,
    #[serde(flatten)]
    outcome: CallResult,
}

/// Connection that ranks of two hosts would use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct HostConnection {
    /// Numbers of the connecting host and of its peer.
    dialer: usize,
    peer: usize,
    from: IpAddr,
    to: IpAddr,
    /// Delay, in seconds, before the connection is tried, because earlier addresses do not answer.
    after_s: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Speed {
    dialer: usize,
    peer: usize,
    /// Half a round trip of 8 bytes, both sides spinning on a bare socket: the minimum and the median over 2000.
    half_round_trip_us: [f64; 2],
    /// MB/s of one long message, from the dialer to the peer, and back.
    bandwidth_mb_s: [f64; 2],
    path_mtu: Option<u32>,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct HostsReport {
    hosts: Vec<HostFacts>,
    /// Calls of each host.
    tried: Vec<Vec<Attempt>>,
    /// Speed of pairs that reach each other, or the reason for which it could not be measured.
    speeds: Vec<Result<Speed, (usize, usize, String)>>,
}

#[derive(Debug, Serialize)]
struct Examination {
    healthy: bool,
    #[serde(flatten)]
    report: HostsReport,
    /// Connection of each pair that has one, in order.
    used: Vec<HostConnection>,
    diagnostics: Vec<Diagnostic>,
}

/// Examines the hosts and prints; returns whether all is well.
pub fn run(options: &HostOptions, json: bool) -> io::Result<bool> {
    if options.hosts.len() < 2 {
        refuse_usage!("--host needs two or more hosts, separated by commas");
    }
    let report = options.start(&["doctor"]).map_err(io::Error::other)?;
    let used = verdict::list_used(&report);
    let diagnostics = verdict::diagnose(&report, &used);
    let examination = Examination {
        healthy: diagnostics.iter().all(|t| t.severity == Severity::Note),
        report,
        used,
        diagnostics,
    };
    document::write(json, &examination, || show::describe(&examination))?;
    Ok(examination.healthy)
}
