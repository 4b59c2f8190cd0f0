//! Applies the user's variables to the interfaces: transports, adapter, optimizations.

mod choice;
pub mod inline;
pub mod peers;

use crate::adapter::AdapterTransport;
use crate::adapter::rc::registrations::Registrations;
use crate::adapter::upgrade::Rule;
use crate::allowed::{Allowed, NetworkTransport};
use crate::interfaces::Interfaces;
use choice::choose_transports;
use fastpath_base::config::{Config, Key};
use fastpath_base::sync::Ordering;
use inline::StoredInline;
use std::fmt::{self, Display};

const EXAMINE: &str =
    "run `fastpath doctor` on this host to check its adapters, libraries and limits";

/// Error of a configuration that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigureError {
    /// Cause, for messages.
    pub why: String,
    /// Remedy in addition to the remedies in `why`, if there is one.
    pub advice: Option<&'static str>,
}

impl From<String> for ConfigureError {
    fn from(why: String) -> Self {
        ConfigureError { why, advice: None }
    }
}

impl Display for ConfigureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigureError { why, advice } = self;
        match advice {
            Some(advice) => write!(f, "{why}; {advice}"),
            None => f.write_str(why),
        }
    }
}

impl std::error::Error for ConfigureError {}

impl Interfaces {
    /// Applies the user's configuration, before the first lane. Returns diagnostics of adapter constants, one a line.
    ///
    /// # Errors
    /// [`choose_transports`] fails, other ranks have another configuration, or no adapter can be used.
    pub fn configure(&mut self, config: &Config) -> Result<Vec<String>, ConfigureError> {
        let job = self.shared_domain().job;
        let several = job.has_other_hosts();
        let ranks = job.present() as u32;
        let mut allowed = choose_transports(config, ranks, several, job.nodes())?;
        // A job of one rank that cannot spawn opens no network yet. It opens one when ranks of other jobs connect.
        if job.capacity() == 1 || (job.numbers_foreign() && job.began_with() == 1) {
            (allowed.adapter, allowed.tcp) = (None, false);
        }
        self.agree_on_transports(config, allowed)?;
        self.allowed = allowed;
        let diagnostics = self.configure_outside(config)?;
        self.set_tx_gate(!config.is_disabled("tx-gate"));
        self.set_repeats(!config.is_disabled("repeat"));
        self.keep_registrations(self.registrations_most(config));
        Ok(diagnostics)
    }

    /// Opens the transport to peers without shared memory: an adapter, or sockets if the adapter fails and sockets are
    /// permitted.
    fn configure_outside(&mut self, config: &Config) -> Result<Vec<String>, ConfigureError> {
        let mut diagnostics = Vec::new();
        if let Some(by) = self.allowed.adapter {
            match self.configure_adapter(config, by) {
                Ok(told) => {
                    (diagnostics, self.allowed.tcp) = (told, false);
                }
                // A lone rank needs no adapter until it spawns other ranks, which then report why the adapter failed.
                Err(why) if self.allowed.tcp || self.shared_domain().job.present() == 1 => {
                    self.allowed.adapter = None;
                    self.note_no_adapter(why);
                }
                Err(why) => {
                    return Err(ConfigureError {
                        why: refuse_adapter(by, self.allowed.shm, &why),
                        advice: Some(EXAMINE),
                    });
                }
            }
        }
        // Ranks on different nodes wire up through sockets, also those whose messages an adapter carries.
        let several = self.shared_domain().job.nodes() > 1;
        if self.allowed.tcp || (several && self.allowed.adapter.is_some()) {
            self.open_tcp(config)?;
        }
        if let Some(outside) = self.allowed.outside() {
            let page = self.shared_domain().job.own_page();
            page.by_adapter.store(1, Ordering::Relaxed);
            self.agree_on_outside(outside)?;
        }
        Ok(diagnostics)
    }

    /// Checks that either all ranks use an adapter or none does. Otherwise ranks would wait for each other forever.
    fn agree_on_outside(&self, outside: NetworkTransport) -> Result<(), String> {
        let job = self.shared_domain().job;
        let choice = match outside {
            NetworkTransport::Adapter(by) => by as u32 + 1,
            NetworkTransport::Tcp => 0,
        };
        job.header().outside.join(job.rank(), choice).map_err(|other| {
            let (one, two) = match outside {
                NetworkTransport::Adapter(_) => (job.rank(), other),
                NetworkTransport::Tcp => (other, job.rank()),
            };
            format!(
                "rank {one} has an adapter for ranks of other hosts and rank {two} has none: \
                 messages between them would never arrive; set FASTPATH_TRANSPORTS=shm,tcp on all \
                 ranks"
            )
        })
    }

    fn configure_adapter(
        &mut self, config: &Config, by: AdapterTransport,
    ) -> Result<Vec<String>, String> {
        let stored = StoredInline::of(config);
        let opened = stored
            .with_overrides(config, |overrides| self.open_adapter(by, config.device(), overrides));
        opened?;
        self.set_upgrade_rule(choose_rule(config));
        Ok(stored.take_diagnostics())
    }

    fn registrations_most(&self, config: &Config) -> usize {
        let job = self.shared_domain().job;
        let neighbours = (0..job.present()).filter(|&rank| !job.is_remote(rank));
        match (config.is_disabled("registrations"), config.number(Key::Registrations)) {
            (true, _) => 0,
            (false, Some(bytes)) => bytes as usize,
            (false, None) => Registrations::default_most(neighbours.count()),
        }
    }

    /// Checks that all ranks use the same transports. Otherwise ranks would wait for each other forever.
    fn agree_on_transports(&self, config: &Config, allowed: Allowed) -> Result<(), String> {
        let job = self.shared_domain().job;
        let own = match config.list(Key::Transports).join(",") {
            none if none.is_empty() => "all".to_owned(),
            listed => listed,
        };
        let agreed = job.agree_on_transports(allowed.code(), &own);
        agreed.map_err(|(other, theirs)| {
            format!(
                "rank {} has FASTPATH_TRANSPORTS={own} and rank {other} \
                 FASTPATH_TRANSPORTS={theirs}: messages between them would never arrive; set \
                 FASTPATH_TRANSPORTS to the same value on all ranks of a job",
                job.rank()
            )
        })
    }
}

/// Tests the transports of a job of two ranks on one node; `find` tests an adapter.
///
/// # Errors
/// The message with which the job would abort.
pub fn try_transports(
    config: &Config, find: impl FnOnce(AdapterTransport) -> Result<(), String>,
) -> Result<Allowed, String> {
    let allowed = choose_transports(config, 2, false, 1)?;
    if let Some(by) = allowed.adapter {
        match find(by) {
            Ok(()) => {}
            Err(_) if allowed.tcp => {}
            Err(why) => return Err(refuse_adapter(by, allowed.shm, &why)),
        }
    }
    Ok(allowed)
}

fn refuse_adapter(by: AdapterTransport, shm: bool, why: &str) -> String {
    let need = match shm {
        true => format!("ranks of other hosts are reached only by {by}"),
        false => format!("FASTPATH_TRANSPORTS allows only {by}"),
    };
    format!("{need}, which cannot be used: {why}")
}

fn choose_rule(config: &Config) -> Rule {
    let rule = Rule::default();
    Rule {
        connect_ns: config.number(Key::ConnectCost).unwrap_or(rule.connect_ns),
        most: match config.number(Key::Connections) {
            Some(most) => most.min(u32::MAX as u64) as u32,
            None => rule.most,
        },
    }
}
