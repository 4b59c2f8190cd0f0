//! Sets up the interfaces as the user's variables say: which transports, which adapter, what they do to be fast.

pub mod allowed;
pub mod inline;
pub mod peers;

use crate::adapter::AdapterTransport;
use crate::adapter::rc::registrations::Registrations;
use crate::adapter::upgrade::Rule;
use crate::interfaces::Interfaces;
use crate::shm::idle::Ahead;
use allowed::{Allowed, Outside, choose_transports};
use fastpath_base::config::{Config, Key};
use fastpath_base::sync::Ordering;
use inline::StoredInline;
use std::fmt::{self, Display};

/// What to do where an adapter cannot be used.
const EXAMINE: &str = "run `fastpath doctor` on this host: it examines adapters, libraries and \
    limits, and names the remedies";

/// Why a process cannot do what the user has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigureError {
    /// For people.
    pub why: String,
    /// What to do besides what `why` may say.
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
    /// Takes over what the user has set; to be called before the first lane is made. Says what is wrong with what is
    /// stored for the adapter, a line each.
    ///
    /// # Errors As [`choose_transports`]; or other ranks of the job have set something else; or there is no adapter
    /// that could be used.
    pub fn configure(&mut self, config: &Config) -> Result<Vec<String>, ConfigureError> {
        let job = self.shared_domain().job;
        let several = job.has_other_hosts();
        let ranks = job.present() as u32;
        let mut allowed = choose_transports(config, ranks, several, job.nodes())?;
        // A rank reaches itself without them; those that it may spawn reach it by them. Other jobs come later.
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

    /// Opens what leads to peers that share no memory with this rank: an adapter, or, where there is none, the kernel's
    /// network, if both may be used.
    fn configure_outside(&mut self, config: &Config) -> Result<Vec<String>, ConfigureError> {
        let mut diagnostics = Vec::new();
        if let Some(by) = self.allowed.adapter {
            match self.configure_adapter(config, by) {
                Ok(told) => {
                    (diagnostics, self.allowed.tcp) = (told, false);
                }
                // The only rank of a job needs none before it spawns others, which say what is wrong.
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
        // Ranks of other nodes find each other over the network, also where an adapter carries their messages.
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

    /// A rank with an adapter and one without would wait for each other for ever.
    fn agree_on_outside(&self, outside: Outside) -> Result<(), String> {
        let job = self.shared_domain().job;
        let choice = match outside {
            Outside::Adapter(by) => by as u32 + 1,
            Outside::Tcp => 0,
        };
        job.header().outside.join(job.rank(), choice).map_err(|other| {
            let (one, two) = match outside {
                Outside::Adapter(_) => (job.rank(), other),
                Outside::Tcp => (other, job.rank()),
            };
            format!(
                "rank {one} has an adapter for ranks of other hosts and rank {two} has none: \
                 messages between them would never arrive; leave rc and ud out of \
                 FASTPATH_TRANSPORTS (shm,tcp)"
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

    /// Bytes of the program's own memory that stay registered.
    fn registrations_most(&self, config: &Config) -> usize {
        let job = self.shared_domain().job;
        let neighbours = (0..job.present()).filter(|&rank| !job.is_remote(rank));
        match (config.is_disabled("registrations"), config.number(Key::Registrations)) {
            (true, _) => 0,
            (false, Some(bytes)) => bytes as usize,
            (false, None) => Registrations::default_most(neighbours.count()),
        }
    }

    /// Ranks that reach each other by different transports would wait for each other for ever.
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
                 FASTPATH_TRANSPORTS={theirs}: messages between \
                 them would never arrive; give all ranks of a job the same",
                job.rank()
            )
        })
    }
}

/// Tries what a job of two ranks of one node would use: `find` tries an adapter.
///
/// # Errors
/// Such a job ends before it begins: what it says.
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
        false => format!("FASTPATH_TRANSPORTS leaves only {by}"),
    };
    format!("{need}, which cannot be used: {why}")
}

/// When a pair gets a connection, as far as the user says.
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

fn choose_ahead(config: &Config) -> Ahead {
    let mut ahead = Ahead::default();
    if config.is_disabled("prefetch") {
        ahead = ahead.without_prefetch();
    }
    if config.is_disabled("pause") {
        ahead = ahead.without_pause();
    }
    if config.is_disabled("demote") {
        ahead = ahead.without_demotion();
    }
    if config.is_disabled("recycle") {
        ahead = ahead.without_recycling();
    }
    ahead
}
