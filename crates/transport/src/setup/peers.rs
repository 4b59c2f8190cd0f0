//! Classes of peers that are reached alike, and what reaches them can do, for reports.

use super::allowed::{Outside, choose_transports};
use super::choose_rule;
use crate::adapter::AdapterTransport;
use crate::adapter::upgrade::Rule;
use crate::interfaces::Interfaces;
use fastpath_base::config::Config;

/// Peers that are reached alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerClass {
    /// Which peers, for people.
    pub peer: &'static str,
    /// The transports, as `FASTPATH_TRANSPORTS` lists them; the one that a pair begins with first.
    pub transports: &'static [&'static str],
    /// Messages stay in the process.
    pub in_process: bool,
    /// The peers share memory with this process.
    pub same_host: bool,
    /// Messages go through the kernel's network.
    pub by_kernel: bool,
    /// Whether long messages go from where they lie ([`crate::Lane::has_bulk`]).
    pub bulk: bool,
    /// What copies between private memories, as `FASTPATH_TRANSPORTS` lists it, where something may.
    pub single_copy: Option<&'static str>,
    /// Whether memory that is given out to be shared is reached by load and store.
    pub load_store: bool,
    /// Whether memory that is registered is reached by the adapter; why not, for people.
    pub registered: Result<(), &'static str>,
    /// What [`crate::Lane::max_single`] comes to say of a pair that talks much, in bytes.
    pub max_single: u64,
    /// The adapter or the port that leads there, for people.
    pub adapter: Option<String>,
    /// What makes a pair change from the first transport to the second, where it does.
    pub upgrades: Option<String>,
}

/// What every class has unless it says something else.
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
    /// Those of a process. `loopback`: it reaches itself without shared memory. `others`: some of its host do share
    /// memory with it. `outside`: those that an adapter leads to.
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

    /// Those that are reached over the kernel's network. `at`: how, and why by no adapter, for people. `all`: those of
    /// the node too.
    fn by_kernel(at: String, all: bool, bulk: bool) -> Self {
        PeerClass {
            peer: match all {
                true => "all others",
                false => "ranks of other hosts",
            },
            transports: &["tcp"],
            by_kernel: true,
            bulk,
            registered: Err("the kernel's network reaches no memory; adapters do"),
            max_single: crate::tcp::MAX_SINGLE as u64,
            adapter: Some(at),
            ..PLAIN
        }
    }

    /// Those that an adapter leads to. `all`: those of the node too. `rule`: when pairs get connections, where they
    /// begin without.
    fn outside(by: AdapterTransport, adapter: String, all: bool, rule: Option<Rule>) -> Self {
        // Where no pair may ever have a connection, datagrams are all that there is.
        let stays = rule.is_some_and(|rule| rule.most == 0);
        let by = if stays { AdapterTransport::Ud } else { by };
        PeerClass {
            peer: match all {
                true => "all others",
                false => "ranks of other hosts",
            },
            transports: by.names(),
            // Of a pair that begins with datagrams what is told is what it comes to.
            registered: match by {
                AdapterTransport::Rc | AdapterTransport::Upgrading => Ok(()),
                AdapterTransport::Ud if stays => Err(
                    "datagrams reach no memory, and FASTPATH_CONNECTIONS=0 allows no connection",
                ),
                AdapterTransport::Ud => Err("datagrams reach no memory; rc does"),
            },
            max_single: by.max_single() as u64,
            adapter: Some(adapter),
            upgrades: rule.filter(|_| !stays).map(|rule| rule.to_string()),
            ..PLAIN
        }
    }
}

/// The peers that an adapter or the network would lead to in a job on several hosts. `find` says which adapter a
/// transport has here, for people.
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
            let at = "a port of the kernel's choice or FASTPATH_PORTS";
            let bulk = !config.is_disabled("bulk");
            Some(PeerClass::by_kernel(at.to_owned(), !allowed.shm, bulk))
        }
        None => None,
    }
}

impl Interfaces {
    /// The classes of this process's peers.
    pub fn peer_classes(&self) -> Vec<PeerClass> {
        let (allowed, rule) = (self.allowed, self.upgrade_rule());
        let at = || self.outside().unwrap_or_default();
        let outside = allowed.outside().map(|outside| match outside {
            Outside::Adapter(by) => PeerClass::outside(by, at(), !allowed.shm, rule),
            Outside::Tcp => PeerClass::by_kernel(at(), !allowed.shm, self.has_bulk()),
        });
        PeerClass::list(allowed.loopback, self.neighbour().is_some(), outside)
    }

    /// The first other rank that shares memory with this one; `None` where there is none.
    pub(crate) fn neighbour(&self) -> Option<u32> {
        let job = self.shared_domain().job;
        let mut others = (0..job.present()).filter(|&rank| rank != job.rank());
        let found = others.find(|&rank| self.allowed.shm && !job.is_remote(rank));
        found.map(|rank| rank as u32)
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
        // Without an adapter it is the kernel's network.
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
