//! Choice of a job's transports, by the user's list and the placement of its ranks.

use crate::adapter::AdapterTransport;
use crate::allowed::{Allowed, is_listed};
use crate::shm::ring_tuning::RingTuning;
use crate::single_copy::switched_off;
use fastpath_base::config::{Config, Key};

/// Chooses the transports of a job of `ranks` ranks on `nodes` nodes; `several`: whether the job has several hosts. If
/// both an adapter and sockets are permitted, sockets serve hosts without an adapter.
///
/// # Errors
/// `FASTPATH_TRANSPORTS` leaves ranks that cannot reach each other; the text names the transports to add.
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
            ring_tuning: RingTuning::without(|name| config.is_disabled(name)),
        });
    }
    if several && adapter.is_none() && !tcp {
        return Err(format!(
            "FASTPATH_TRANSPORTS={} has no transport between ranks of several hosts: add tcp, rc \
             or ud",
            listed()
        ));
    }
    if ranks > 1 && !shm {
        return Err(format!(
            "FASTPATH_TRANSPORTS={} has no transport between the {ranks} ranks of one node: add \
             shm, tcp, rc or ud",
            listed()
        ));
    }
    if !loopback && !shm {
        return Err(format!(
            "FASTPATH_TRANSPORTS={} has no transport from a rank to itself: add loopback",
            listed()
        ));
    }
    Ok(Allowed {
        loopback,
        cma: switched_off(config).is_none(),
        ring_tuning: RingTuning::without(|name| config.is_disabled(name)),
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
