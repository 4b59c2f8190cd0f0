//! Which transports a job may use.

use super::choose_ahead;
use crate::adapter::AdapterTransport;
use crate::shm::idle::Ahead;
use crate::single_copy::switched_off;
use fastpath_base::config::{Config, Key};
use fastpath_bootstrap::job::Job;

/// Which transports may be used, and what they may do to be fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// A rank's messages to itself, inside the process.
    pub loopback: bool,
    /// Single copy by the kernel.
    pub cma: bool,
    /// What shared memory does beside moving messages.
    pub ahead: Ahead,
    /// Shared memory, between ranks of one host.
    pub shm: bool,
    /// An adapter, and by which transport: between hosts, and within one where there is no shared memory.
    pub adapter: Option<AdapterTransport>,
    /// Connections of the kernel's network, for the same peers, where there is no adapter.
    pub tcp: bool,
    /// Whether pairs of other nodes that an adapter does not connect may use them instead.
    pub fall_back: bool,
}

/// What leads to peers that share no memory with a rank, as far as that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// An adapter.
    Adapter(AdapterTransport),
    /// The kernel's network.
    Tcp,
}

impl Default for Allowed {
    fn default() -> Self {
        Allowed {
            loopback: true,
            cma: true,
            ahead: Ahead::default(),
            shm: true,
            adapter: None,
            tcp: false,
            fall_back: false,
        }
    }
}

impl Allowed {
    /// What two ranks must have alike to reach each other, as a number.
    pub fn code(&self) -> u32 {
        let adapter = self.adapter.map_or(0, |by| by as u32 + 1);
        self.shm as u32 | adapter << 1 | (self.tcp as u32) << 3
    }

    /// What leads to peers that share no memory; an adapter first, where both may.
    pub fn outside(&self) -> Option<Outside> {
        let adapter = self.adapter.map(Outside::Adapter);
        adapter.or(self.tcp.then_some(Outside::Tcp))
    }

    /// Whether a job's rank reaches `peer` by an adapter or over the network. Both say the same of each other.
    pub(crate) fn leads_outside(&self, job: &Job, peer: usize) -> bool {
        self.outside().is_some() && peer != job.rank() && (!self.shm || job.is_remote(peer))
    }
}

/// Whether `FASTPATH_TRANSPORTS` lists a transport.
pub fn is_listed(config: &Config, name: &str) -> bool {
    let listed = config.list(Key::Transports);
    listed.is_empty() || listed.iter().any(|word| word == "all" || word == name)
}

/// Which transports a job of `ranks` ranks may use, whose ranks are on `several` hosts or on one, and share `nodes`
/// memories. Where an adapter and the kernel's network are both allowed, the second is for a host without the first.
///
/// # Errors
/// `FASTPATH_TRANSPORTS` leaves ranks that cannot reach each other; the text says what to add.
pub fn choose_transports(
    config: &Config, ranks: u32, several: bool, nodes: usize,
) -> Result<Allowed, String> {
    let [loopback, shm, tcp] = ["loopback", "shm", "tcp"].map(|name| is_listed(config, name));
    let adapter = match (is_listed(config, "rc"), is_listed(config, "ud")) {
        (true, true) => Some(AdapterTransport::Upgrading),
        (true, false) => Some(AdapterTransport::Rc),
        (false, true) => Some(AdapterTransport::Ud),
        (false, false) => None,
    };
    let listed = || config.list(Key::Transports).join(",");
    let fall_back = tcp && nodes > 1;
    if !shm && (adapter.is_some() || tcp) {
        return Ok(Allowed {
            loopback: true,
            cma: false,
            shm: false,
            adapter,
            tcp,
            fall_back,
            ahead: choose_ahead(config),
        });
    }
    if several && adapter.is_none() && !tcp {
        return Err(format!(
            "FASTPATH_TRANSPORTS={} leaves ranks of several hosts no way to each other: add \
             tcp, rc or ud",
            listed()
        ));
    }
    if ranks > 1 && !shm {
        return Err(format!(
            "FASTPATH_TRANSPORTS={} leaves {ranks} ranks of one node no way to each other: add \
             shm, tcp, rc or ud",
            listed()
        ));
    }
    if !loopback && !shm {
        return Err(format!(
            "FASTPATH_TRANSPORTS={} leaves a rank no way to itself: add loopback",
            listed()
        ));
    }
    Ok(Allowed {
        loopback,
        cma: switched_off(config).is_none(),
        ahead: choose_ahead(config),
        shm: true,
        adapter: adapter.filter(|_| several),
        tcp: tcp && several,
        fall_back,
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn choose(listed: &str, ranks: u32, several: bool, nodes: usize) -> Result<Allowed, String> {
        let config = Config::from_pairs([("FASTPATH_TRANSPORTS".into(), listed.into())]).unwrap();
        choose_transports(&config, ranks, several, nodes)
    }

    #[test]
    fn transports__lead_to_every_rank_or_are_refused() {
        use AdapterTransport::{Rc, Ud, Upgrading};
        let good = [
            ("all", 4, false, (true, None, false)),
            ("all", 4, true, (true, Some(Upgrading), true)),
            ("shm,rc", 4, true, (true, Some(Rc), false)),
            ("shm,cma", 4, false, (true, None, false)),
            ("rc", 4, false, (false, Some(Rc), false)),
            ("rc", 4, true, (false, Some(Rc), false)),
            ("rc", 1, false, (false, Some(Rc), false)),
            ("shm,ud", 4, true, (true, Some(Ud), false)),
            ("ud", 2, false, (false, Some(Ud), false)),
            ("rc,ud", 2, false, (false, Some(Upgrading), false)),
            ("loopback", 1, false, (true, None, false)),
            ("tcp", 4, false, (false, None, true)),
            ("tcp", 1, false, (false, None, true)),
            ("shm,tcp", 4, true, (true, None, true)),
            ("shm,tcp", 4, false, (true, None, false)),
            ("rc,tcp", 4, true, (false, Some(Rc), true)),
        ];
        for (listed, ranks, several, expected) in good {
            let chosen = choose(listed, ranks, several, 1);
            let chosen = chosen.map(|allowed| (allowed.shm, allowed.adapter, allowed.tcp));
            assert_eq!(chosen, Ok(expected), "{listed} {ranks} {several}");
        }
        for (listed, ranks, several) in
            [("shm,cma", 2, true), ("loopback", 2, false), ("loopback", 2, true), ("cma", 1, false)]
        {
            assert!(choose(listed, ranks, several, 1).is_err(), "{listed} {ranks} {several}");
        }
    }

    #[test]
    fn transports__of_several_nodes_are_those_of_several_hosts() {
        for listed in ["all", "shm,tcp", "shm,rc,tcp", "shm,ud"] {
            let (one, two) = (choose(listed, 4, true, 1), choose(listed, 4, true, 2));
            assert_eq!(one.unwrap().outside(), two.unwrap().outside(), "{listed}");
        }
        let falls_back = |listed, nodes| choose(listed, 4, true, nodes).unwrap().fall_back;
        assert!(falls_back("all", 2) && !falls_back("shm,rc", 2) && !falls_back("all", 1));
        assert!(!choose("tcp", 4, true, 2).unwrap().shm);
        assert!(choose("shm", 4, true, 2).unwrap_err().contains("tcp"));
    }

    #[test]
    fn code__tells_apart_what_cannot_meet() {
        let codes = ["all", "shm,rc", "ud", "tcp", "shm,tcp", "rc,tcp"];
        let mut codes = codes.map(|listed| choose(listed, 4, true, 1).unwrap().code());
        codes.sort();
        assert!(codes.windows(2).all(|two| two[0] != two[1]), "{codes:?}");
    }
}
