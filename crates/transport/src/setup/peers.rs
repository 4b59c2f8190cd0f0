//! Classes of peers with the same transport, for reports.

use super::choice::choose_transports;
use super::choose_rule;
use crate::adapter::AdapterTransport;
use crate::adapter::upgrade::Rule;
use crate::allowed::NetworkTransport;
use crate::interfaces::Interfaces;
use fastpath_base::config::Config;

/// Peers with the same transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerClass {
    /// Description of the peers.
    pub peer: &'static str,
    /// Names in `FASTPATH_TRANSPORTS`; the transport with which a pair starts comes first.
    pub transports: &'static [&'static str],
    /// Whether messages stay within the process.
    pub in_process: bool,
    /// Whether the peers share memory with this process.
    pub same_host: bool,
    /// Whether messages use sockets.
    pub by_kernel: bool,
    /// Whether long messages are sent directly from user memory ([`crate::Lane::has_bulk`]).
    pub bulk: bool,
    /// Single-copy mechanism, by its name in `FASTPATH_TRANSPORTS`, if there is one.
    pub single_copy: Option<&'static str>,
    /// Whether the peers' arenas are accessible by load and store.
    pub load_store: bool,
    /// Whether the adapter can access registered memory; otherwise the cause.
    pub registered: Result<(), &'static str>,
    /// Value of [`crate::Lane::max_single`], in bytes, for a pair that exchanges many messages.
    pub max_single: u64,
    /// Description of the adapter or port, if one is used.
    pub adapter: Option<String>,
    /// Description of the rule for upgrades, if pairs upgrade.
    pub upgrades: Option<String>,
}

const PLAIN: PeerClass = PeerClass {
    peer: "",
    transports: &[],
    in_process: false,
    same_host: false,
    by_kernel: false,
    bulk: false,
    single_copy: None,
    load_store: false,
    registered: Err("there is no adapter"),
    max_single: 0,
    adapter: None,
    upgrades: None,
};

impl PeerClass {
    /// Lists the classes of a process. `loopback`: whether the process reaches itself without shared memory. `others`:
    /// whether other ranks share memory with the process. `outside`: the class of peers without shared memory.
    pub fn list(loopback: bool, others: bool, outside: Option<PeerClass>) -> Vec<PeerClass> {
        let node =
            PeerClass { transports: &["shm"], same_host: true, single_copy: Some("cma"), ..PLAIN };
        let itself = PeerClass {
            peer: "itself",
            ..match loopback {
                true => PeerClass { transports: &["loopback"], in_process: true, ..PLAIN },
                false => node.clone(),
            }
        };
        let others =
            others.then_some(PeerClass { peer: "ranks on this node", load_store: true, ..node });
        [Some(itself), others, outside].into_iter().flatten().collect()
    }

    fn by_kernel(at: String, all: bool, bulk: bool) -> Self {
        PeerClass {
            peer: match all {
                true => "all others",
                false => "ranks of other hosts",
            },
            transports: &["tcp"],
            by_kernel: true,
            bulk,
            registered: Err("tcp cannot access the peer's memory; an adapter can"),
            max_single: crate::tcp::MAX_SINGLE as u64,
            adapter: Some(at),
            ..PLAIN
        }
    }

    /// Class of peers reached by an adapter. `all`: whether the class includes peers on this node. `rule`: when pairs
    /// upgrade.
    fn outside(by: AdapterTransport, adapter: String, all: bool, rule: Option<Rule>) -> Self {
        // If the rule permits no connections, pairs stay with datagrams.
        let stays = rule.is_some_and(|rule| rule.most == 0);
        let by = if stays { AdapterTransport::Ud } else { by };
        PeerClass {
            peer: match all {
                true => "all others",
                false => "ranks of other hosts",
            },
            transports: by.names(),
            // For a pair that upgrades, `registered` describes the state after the upgrade.
            registered: match by {
                AdapterTransport::Rc | AdapterTransport::Upgrading => Ok(()),
                AdapterTransport::Ud if stays => Err(
                    "datagrams cannot access the peer's memory, and FASTPATH_CONNECTIONS=0 allows \
                     no rc connection",
                ),
                AdapterTransport::Ud => Err("datagrams cannot access the peer's memory; rc can"),
            },
            max_single: by.max_single() as u64,
            adapter: Some(adapter),
            upgrades: rule.filter(|_| !stays).map(|rule| rule.to_string()),
            ..PLAIN
        }
    }
}

/// Class of peers on other hosts, as if the job had several hosts: reached by an adapter or sockets. `find` returns the
/// description of a transport's adapter, if there is one.
pub fn foresee_outside(
    config: &Config, find: impl FnOnce(AdapterTransport) -> Option<String>,
) -> Option<PeerClass> {
    let allowed = choose_transports(config, 2, true, 1).ok()?;
    let found = allowed.adapter.and_then(|by| Some((by, find(by)?)));
    match found {
        Some((by, adapter)) => {
            let rule = (by == AdapterTransport::Upgrading).then(|| choose_rule(config));
            Some(PeerClass::outside(by, adapter, !allowed.shm, rule))
        }
        None if allowed.tcp => {
            let at = "a port of FASTPATH_PORTS, or one that the kernel chooses";
            let bulk = !config.is_disabled("bulk");
            Some(PeerClass::by_kernel(at.to_owned(), !allowed.shm, bulk))
        }
        None => None,
    }
}

impl Interfaces {
    /// Classes of this process's peers.
    pub fn peer_classes(&self) -> Vec<PeerClass> {
        let (allowed, rule) = (self.allowed, self.upgrade_rule());
        let at = || self.outside().unwrap_or_default();
        let outside = allowed.outside().map(|outside| match outside {
            NetworkTransport::Adapter(by) => PeerClass::outside(by, at(), !allowed.shm, rule),
            NetworkTransport::Tcp => PeerClass::by_kernel(at(), !allowed.shm, self.has_bulk()),
        });
        PeerClass::list(allowed.loopback, self.neighbour().is_some(), outside)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn outside__is_foreseen_where_an_adapter_is_found() {
        let foresee = |listed: &str, found: Option<&str>| {
            let pair = ("FASTPATH_TRANSPORTS".into(), listed.into());
            let config = Config::from_pairs([pair]).unwrap();
            let outside =
                foresee_outside(&config, |by| found.map(|name| format!("{name} by {by}")));
            outside.map(|o| (o.adapter.unwrap(), o.peer, o.upgrades.is_some()))
        };
        let on = |by: &str| format!("rxe0 by {by}");
        let found = Some("rxe0");
        let (others, all) = ("ranks of other hosts", "all others");
        assert_eq!(foresee("all", found), Some((on("ud and rc"), others, true)));
        assert_eq!(foresee("rc", found), Some((on("rc"), all, false)));
        assert_eq!(foresee("shm,ud", found), Some((on("ud"), others, false)));
        assert_eq!(foresee("shm", found), None);
        assert_eq!(foresee("shm,rc", None), None);
        // Without an adapter, the peers are reached by sockets.
        let (at, peer, upgrades) = foresee("all", None).unwrap();
        assert!(at.contains("FASTPATH_PORTS"));
        assert_eq!((peer, upgrades), (others, false));
    }

    #[test]
    fn outside__of_pairs_that_may_not_connect_is_datagrams_alone() {
        let class = |connections: &str| {
            let pair = ("FASTPATH_CONNECTIONS".into(), connections.into());
            let config = Config::from_pairs([pair]).unwrap();
            foresee_outside(&config, |by| Some(by.to_string())).unwrap()
        };
        let (one, none) = (class("1"), class("0"));
        assert_eq!(one.transports, AdapterTransport::Upgrading.names());
        assert_eq!(none.transports, AdapterTransport::Ud.names());
        assert!(one.upgrades.is_some() && none.upgrades.is_none());
        assert!(one.registered.is_ok() && one.max_single > none.max_single);
        assert!(none.registered.unwrap_err().contains("FASTPATH_CONNECTIONS=0"));
    }
}
