//! `fastpath doctor --host a,b`: how hosts reach each other.
//!
//! An engine starts one process on each host ([`probe`]). They tell each other by the engine where they listen, try
//! every pair of addresses in both directions, and measure the connection that a job would use. So nothing of it needs
//! a network that works. The first of them prints the [`Report`], which this process reads and judges ([`verdict`]).

mod connection;
pub mod probe;
mod show;
mod verdict;

use std::io;
use std::net::IpAddr;

use fastpath_report::document;
use serde::{Deserialize, Serialize};

use super::diagnostics::{Severity, Trouble};
use crate::on_hosts::HostOptions;

/// An address of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Interface {
    name: String,
    address: IpAddr,
    /// Bytes of a packet; None where the kernel does not tell.
    mtu: Option<u32>,
}

/// What a host says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Host {
    name: String,
    /// Of this program.
    version: String,
    kernel: String,
    processors: usize,
    /// Files that a process may have open.
    open_files: u64,
    /// Bytes of memory that it may lock; None: no limit.
    locked_memory: Option<u64>,
    /// `FASTPATH_PORTS`, where it is set.
    ports: String,
    /// All addresses but those of loopback.
    interfaces: Vec<Interface>,
    /// Those that peers of a job would get, in the order in which they are tried.
    told: Vec<IpAddr>,
    /// Where it listens now.
    port: u16,
    /// Why it does not.
    problem: Option<String>,
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
enum CallResult {
    /// The peer has answered and proved who it is.
    Reached {
        /// Until it was connected.
        connect_us: f64,
    },
    /// The connection was refused: no process listens, or a firewall rejects it.
    Refused,
    /// Nothing answers: a firewall drops what comes, or the address leads nowhere.
    Silent,
    /// The call could not be made: no route, or not from that address.
    Impossible { why: String },
    /// Somebody else answers.
    Stranger,
}

/// A call to an address of a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Attempt {
    /// Number of the peer.
    peer: usize,
    /// From this address, or from whichever the kernel chooses, as jobs do.
    from: Option<IpAddr>,
    /// From where it went, where that is known.
    source: Option<IpAddr>,
    to: IpAddr,
    #[serde(flatten)]
    outcome: CallResult,
}

/// The connection that ranks of two hosts would use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Used {
    /// Number of the host that makes it, and of the other one.
    dialer: usize,
    peer: usize,
    from: IpAddr,
    to: IpAddr,
    /// Seconds until it is tried, after addresses that do not answer.
    after_s: f64,
}

/// What that connection carries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Speed {
    dialer: usize,
    peer: usize,
    /// Half a round trip of 8 bytes, both sides spinning on a bare socket: the minimum and the median over 2000.
    half_round_trip_us: [f64; 2],
    /// MB/s of one long message, from the dialer and to it.
    bandwidth_mb_s: [f64; 2],
    /// Bytes of a packet on the way, as far as the kernel knows.
    path_mtu: Option<u32>,
}

/// What all processes have found together.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Report {
    hosts: Vec<Host>,
    /// The calls of each host.
    tried: Vec<Vec<Attempt>>,
    /// Of pairs that reach each other; or why it could not be measured.
    speeds: Vec<Result<Speed, (usize, usize, String)>>,
}

/// The report, and what is to be said about it.
#[derive(Debug, Serialize)]
struct Examination {
    healthy: bool,
    #[serde(flatten)]
    report: Report,
    /// The connection of each pair that has one, in order.
    used: Vec<Used>,
    diagnostics: Vec<Trouble>,
}

/// Examines the hosts and prints; whether all is well.
///
/// # Errors
/// The processes cannot be started or do not come to an end; the output cannot be written.
pub fn run(options: &HostOptions, json: bool) -> io::Result<bool> {
    if options.hosts.len() < 2 {
        let why = "--host: name two hosts or more, separated by commas";
        return Err(io::Error::other(why));
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
