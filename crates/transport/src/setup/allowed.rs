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
}

impl Default for Allowed {
    fn default() -> Self {
        Allowed {
            loopback: true,
            cma: true,
            ahead: Ahead::default(),
            shm: true,
            adapter: None,
        }
    }
}

impl Allowed {
    /// What two ranks must have alike to reach each other, as a number.
    pub fn code(&self) -> u32 {
        self.shm as u32 | self.adapter.map_or(0, |by| (by as u32 + 1) << 1)
    }

    /// Whether a job's rank reaches `peer` by an adapter. Both say the same of each other.
    pub(crate) fn leads_outside(&self, job: &Job, peer: usize) -> bool {
        self.adapter.is_some() && peer != job.rank() && (!self.shm || job.is_remote(peer))
    }
}

/// Whether `FASTPATH_TRANSPORTS` lists a transport.
pub fn is_listed(config: &Config, name: &str) -> bool {
    let listed = config.list(Key::Transports);
    listed.is_empty() || listed.iter().any(|word| word == "all" || word == name)
}

/// Which transports a job of `ranks` ranks may use, whose ranks are on `several` hosts or on one.
///
/// # Errors
/// `FASTPATH_TRANSPORTS` leaves ranks that cannot reach each other; the text says what to add.
pub fn choose_transports(config: &Config, ranks: u32, several: bool) -> Result<Allowed, String> {
    let (loopback, shm) = (is_listed(config, "loopback"), is_listed(config, "shm"));
    let adapter = match (is_listed(config, "rc"), is_listed(config, "ud")) {
        (true, true) => Some(AdapterTransport::Upgrading),
        (true, false) => Some(AdapterTransport::Rc),
        (false, true) => Some(AdapterTransport::Ud),
        (false, false) => None,
    };
    let listed = || config.list(Key::Transports).join(",");
    if !shm && adapter.is_some() {
        // A rank reaches itself without an adapter.
        return Ok(Allowed {
            loopback: true,
            cma: false,
            shm: false,
            adapter: adapter.filter(|_| ranks > 1),
            ahead: choose_ahead(config),
        });
    }
    if several && adapter.is_none() {
        return Err(format!(
            "FASTPATH_TRANSPORTS={} leaves ranks of several hosts no way to each other: add rc or \
             ud",
            listed()
        ));
    }
    if ranks > 1 && !shm {
        return Err(format!(
            "FASTPATH_TRANSPORTS={} leaves {ranks} ranks of one node no way to each other: add \
             shm, rc or ud",
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
    })
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn transports__lead_to_every_rank_or_are_refused() {
        let choose = |listed: &str, ranks, several| {
            let config =
                Config::from_pairs([("FASTPATH_TRANSPORTS".into(), listed.into())]).unwrap();
            choose_transports(&config, ranks, several).map(|allowed| (allowed.shm, allowed.adapter))
        };
        let good = [
            ("all", 4, false, (true, None)),
            ("all", 4, true, (true, Some(AdapterTransport::Upgrading))),
            ("shm,rc", 4, true, (true, Some(AdapterTransport::Rc))),
            ("shm,cma", 4, false, (true, None)),
            ("rc", 4, false, (false, Some(AdapterTransport::Rc))),
            ("rc", 4, true, (false, Some(AdapterTransport::Rc))),
            ("rc", 1, false, (false, None)),
            ("shm,ud", 4, true, (true, Some(AdapterTransport::Ud))),
            ("ud", 2, false, (false, Some(AdapterTransport::Ud))),
            (
                "rc,ud",
                2,
                false,
                (false, Some(AdapterTransport::Upgrading)),
            ),
            ("loopback", 1, false, (true, None)),
        ];
        for (listed, ranks, several, expected) in good {
            let chosen = choose(listed, ranks, several);
            assert_eq!(chosen, Ok(expected), "{listed} {ranks} {several}");
        }
        for (listed, ranks, several) in [
            ("shm,cma", 2, true),
            ("loopback", 2, false),
            ("loopback", 2, true),
            ("cma", 1, false),
        ] {
            assert!(
                choose(listed, ranks, several).is_err(),
                "{listed} {ranks} {several}"
            );
        }
    }
}
