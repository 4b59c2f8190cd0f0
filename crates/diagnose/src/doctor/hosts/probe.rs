//! Process of one host. The processes communicate through their engine: a value put before a fence is visible to all
//! processes after the fence.

use std::net::SocketAddr;

use fastpath_base::config::{Config, Key};
use fastpath_base::entropy::draw_random;
use fastpath_base::topology;
use fastpath_job::network::interfaces::list_addresses;
use fastpath_job::network::proof::Pass;
use fastpath_job::network::{self, Listener, Reach};
use fastpath_report::files;
use fastpath_report::surroundings::name_tool;
use serde::{Deserialize, Serialize};

use super::connection::{self, call};
use super::{Attempt, HostConnection, HostFacts, HostsReport, Interface, Speed, verdict};
use crate::on_hosts::HostGroup;

const CALLS_MOST: usize = 128;

/// First message of each process.
#[derive(Serialize, Deserialize)]
struct Card {
    host: HostFacts,
    /// All processes use the secret of the first process.
    secret: [u8; 32],
}

type Speeds = Vec<Result<Speed, (usize, usize, String)>>;

/// Examines the connections between this host and the others; the first process prints the report.
pub fn run() -> Result<(), String> {
    Probe { group: HostGroup::join()? }.examine()
}

struct Probe {
    group: HostGroup,
}

impl Probe {
    fn examine(mut self) -> Result<(), String> {
        let (listener, host) = look();
        let secret = draw_random().map_err(|e| e.to_string())?;
        let cards: Vec<Card> = self.group.exchange("card", &Card { host, secret })?;
        let pass = Pass { job_id: 0, secret: cards[0].secret };
        let hosts: Vec<HostFacts> = cards.into_iter().map(|card| card.host).collect();
        if let Some(listener) = listener {
            connection::serve(pass, self.group.own as u32, listener);
        }
        let tried = self.group.exchange("tried", &self.try_all(&pass, &hosts))?;
        let mut report = HostsReport { hosts, tried, speeds: Vec::new() };
        let own = self.measure(&pass, &report)?;
        let all: Vec<Speeds> = self.group.exchange("speed", &own)?;
        report.speeds = all.into_iter().flatten().collect();
        self.group.end(&report)
    }

    /// Calls every address of every other host: from each address of this host, and from one that the kernel chooses.
    fn try_all(&self, pass: &Pass, hosts: &[HostFacts]) -> Vec<Attempt> {
        let own = &hosts[self.group.own];
        let mut calls = Vec::new();
        for (peer, host) in hosts.iter().enumerate().filter(|(peer, _)| *peer != self.group.own) {
            for &to in host.told.iter().filter(|_| host.port != 0) {
                let addresses = own.interfaces.iter().map(|one| one.address);
                let alike = addresses.filter(|from| from.is_ipv4() == to.is_ipv4());
                let sources = [None].into_iter().chain(alike.map(Some));
                calls.extend(sources.map(|from| (peer, from, SocketAddr::new(to, host.port))));
            }
        }
        let one = |&(peer, from, to): &(usize, _, SocketAddr)| {
            let (outcome, made) = call(pass, (self.group.own as u32, peer as u32), from, to);
            Attempt { peer, from, source: made.map(|call| call.source), to: to.ip(), outcome }
        };
        let mut tried = Vec::new();
        for part in calls.chunks(CALLS_MOST) {
            std::thread::scope(|scope| {
                let running: Vec<_> = part.iter().map(|call| scope.spawn(|| one(call))).collect();
                tried.extend(running.into_iter().flat_map(|one| one.join().ok()));
            });
        }
        tried
    }

    /// Measures the connections that this host makes, while no other pair with this host or the peer is measured.
    fn measure(&mut self, pass: &Pass, report: &HostsReport) -> Result<Speeds, String> {
        let used = verdict::list_used(report);
        let mut speeds = Vec::new();
        for round in 0..count_rounds(self.group.count) {
            let partner = find_partner(self.group.count, round, self.group.own);
            let is_own =
                |one: &&HostConnection| one.dialer == self.group.own && Some(one.peer) == partner;
            for one in used.iter().filter(is_own) {
                let port = report.hosts[one.peer].port;
                let speed = measure(pass, one, port);
                speeds.push(speed.map_err(|why| (one.dialer, one.peer, why)));
            }
            self.group.fence()?;
        }
        Ok(speeds)
    }
}

/// Number of rounds in which each of `count` hosts meets each other once.
fn count_rounds(count: usize) -> usize {
    (count + count % 2).saturating_sub(1)
}

/// Partner of host `own` in a round, as in a tournament: the last host stays, the other hosts rotate.
fn find_partner(count: usize, round: usize, own: usize) -> Option<usize> {
    let last = count + count % 2 - 1;
    let partner = match own {
        _ if own == last => (0..last).find(|&other| 2 * other % last == round % last),
        _ if 2 * own % last == round % last => Some(last),
        _ => Some((last + round - own) % last),
    };
    partner.filter(|&partner| partner < count && partner != own)
}

fn measure(pass: &Pass, used: &HostConnection, port: u16) -> Result<Speed, String> {
    let ends = (used.dialer as u32, used.peer as u32);
    let (outcome, made) = call(pass, ends, None, SocketAddr::new(used.to, port));
    let mut made = made.ok_or_else(|| format!("a second connection failed: {outcome:?}"))?;
    let trips = made.time_trips().map_err(|e| format!("messages of 8 bytes get no reply: {e}"))?;
    let bandwidth_mb_s =
        made.measure_streams().map_err(|e| format!("a transfer of 4 MiB does not finish: {e}"))?;
    Ok(Speed {
        dialer: used.dialer,
        peer: used.peer,
        half_round_trip_us: [trips.min, trips.median],
        bandwidth_mb_s,
        path_mtu: made.path_mtu(),
    })
}

fn look() -> (Option<Listener>, HostFacts) {
    let found = list_addresses().unwrap_or_default();
    let found = found.into_iter().filter(|one| !one.address.is_loopback());
    let limits = super::super::limits::read(std::path::Path::new("/"));
    let mut host = HostFacts {
        name: topology::host_name(),
        version: name_tool(),
        kernel: files::read_text("/proc/sys/kernel/osrelease").unwrap_or_default(),
        processors: topology::affinity().len(),
        open_files: fastpath_base::refusal::read_limit(libc::RLIMIT_NOFILE).unwrap_or(0),
        locked_memory: limits.locked.filter(|_| !limits.privileged),
        interfaces: found
            .map(|one| Interface {
                mtu: connection::read_mtu(&one.name),
                name: one.name,
                address: one.address,
            })
            .collect(),
        ..HostFacts::default()
    };
    let opened = Config::from_env().map_err(|e| e.to_string());
    let opened = opened.and_then(|config| {
        config.text(Key::Ports).clone_into(&mut host.ports);
        network::open(&config, Reach::Network, 1)
    });
    match opened {
        Ok((listener, card)) => {
            (host.told, host.port) = (card.addresses, card.port);
            (Some(listener), host)
        }
        Err(why) => {
            host.problem = Some(why);
            (None, host)
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn rounds__have_each_pair_once() {
        for count in 2..10 {
            let mut met = std::collections::BTreeSet::new();
            for round in 0..count_rounds(count) {
                for own in 0..count {
                    let Some(partner) = find_partner(count, round, own) else {
                        continue;
                    };
                    assert_eq!(find_partner(count, round, partner), Some(own));
                    if own < partner {
                        assert!(met.insert((own, partner)), "{count}: {own} and {partner}");
                    }
                }
            }
            assert_eq!(met.len(), count * (count - 1) / 2, "{count}");
        }
    }

    #[test]
    fn host__says_what_it_is() {
        let (listener, host) = look();
        assert_eq!(listener.is_some(), host.problem.is_none());
        assert!(host.open_files > 0 && host.processors > 0 && !host.kernel.is_empty());
    }
}
