//! Which protocol serves which size: by what each of them costs on this machine, as far as the user's
//! variables allow.

pub mod candidates;
pub mod constants;
pub mod decide;
pub mod envelope;
pub mod inline;
pub mod report;
pub mod thresholds;
pub mod tuning;

pub use constants::Constants;
pub use thresholds::Thresholds;

use crate::worker::Worker;
use fastpath_base::config::{Config, Key};
use fastpath_base::sync::Ordering;
use fastpath_base::{clock, wait};
use fastpath_transport::adapter::{By, Counts};
use fastpath_transport::interfaces::Allowed;
use fastpath_transport::rc::registrations::Registrations;
use fastpath_transport::rising::Rule;
use fastpath_transport::shm::idle::Ahead;
use inline::StoredInline;
use report::{Outside, Peers, Report};
use std::fmt::{self, Display};
use std::path::PathBuf;
use tuning::{Machine, Place};

/// What the user has set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wishes {
    /// `FASTPATH_EAGER_MAX`
    pub eager_max: Option<u64>,
    /// `FASTPATH_PIPELINE_CHUNK`
    pub chunk: Option<u64>,
    /// Why the kernel is not to copy between processes, if the user says so.
    pub no_cma: Option<&'static str>,
    /// Not switched off by `FASTPATH_DISABLE`.
    pub direct: bool,
    /// Not switched off by `FASTPATH_DISABLE`.
    pub pipeline: bool,
    /// Not switched off by `FASTPATH_DISABLE`.
    pub adapt: bool,
    /// Not switched off by `FASTPATH_DISABLE`.
    pub whole: bool,
}

/// What to do where an adapter cannot be used.
const EXAMINE: &str = "run `fastpath doctor` on this host: it examines adapters, libraries and limits, and names the remedies";

/// Why a worker cannot do what the user has set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigureError {
    /// For people.
    pub why: String,
    /// What to do besides what `why` may say.
    pub advice: Option<&'static str>,
}

impl ConfigureError {
    fn of(why: String) -> Self {
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

/// Whether `FASTPATH_TRANSPORTS` lists a transport.
pub fn is_listed(config: &Config, name: &str) -> bool {
    let listed = config.list(Key::Transports);
    listed.is_empty() || listed.iter().any(|word| word == "all" || word == name)
}

impl Wishes {
    /// Those of a configuration.
    pub fn of(config: &Config) -> Wishes {
        Wishes {
            eager_max: config.number(Key::EagerMax),
            chunk: config.number(Key::PipelineChunk),
            no_cma: match config.is_disabled("cma") {
                true => Some("switched off by FASTPATH_DISABLE"),
                false if !is_listed(config, "cma") => Some("not listed in FASTPATH_TRANSPORTS"),
                false => None,
            },
            direct: !config.is_disabled("direct"),
            pipeline: !config.is_disabled("pipeline"),
            adapt: !config.is_disabled("adapt"),
            whole: !config.is_disabled("whole"),
        }
    }
}

/// Which transports a job of `ranks` ranks may use, whose ranks are on `several` hosts or on one.
///
/// # Errors
/// `FASTPATH_TRANSPORTS` leaves ranks that cannot reach each other; the text says what to add.
pub fn choose_transports(config: &Config, ranks: u32, several: bool) -> Result<Allowed, String> {
    let (loopback, shm) = (is_listed(config, "loopback"), is_listed(config, "shm"));
    let adapter = match (is_listed(config, "rc"), is_listed(config, "ud")) {
        (true, true) => Some(By::Rising),
        (true, false) => Some(By::Rc),
        (false, true) => Some(By::Ud),
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
            "FASTPATH_TRANSPORTS={} leaves ranks of several hosts no way to each other: add rc or ud",
            listed()
        ));
    }
    if ranks > 1 && !shm {
        return Err(format!(
            "FASTPATH_TRANSPORTS={} leaves {ranks} ranks of one node no way to each other: add shm, rc or ud",
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
        cma: Wishes::of(config).no_cma.is_none(),
        ahead: choose_ahead(config),
        shm: true,
        adapter: adapter.filter(|_| several),
    })
}

/// Tries what a job of two ranks of one node would use: `find` tries an adapter.
///
/// # Errors
/// Such a job ends before it begins: what it says.
pub fn try_transports(
    config: &Config,
    find: impl FnOnce(By) -> Result<(), String>,
) -> Result<Allowed, String> {
    let allowed = choose_transports(config, 2, false)?;
    if let Some(by) = allowed.adapter {
        find(by).map_err(|why| refuse_adapter(by, allowed.shm, &why))?;
    }
    Ok(allowed)
}

fn refuse_adapter(by: By, shm: bool, why: &str) -> String {
    let need = match shm {
        true => format!("ranks of other hosts are reached by {by} alone"),
        false => format!("FASTPATH_TRANSPORTS leaves {by} alone"),
    };
    format!("{need}, which cannot be used: {why}")
}

/// The peers that an adapter would lead to in a job on several hosts. `find` says which adapter a transport has here, for
/// people.
pub fn foresee_outside(
    config: &Config,
    find: impl FnOnce(By) -> Option<String>,
) -> Option<Outside> {
    let Allowed { adapter, shm, .. } = choose_transports(config, 2, true).ok()?;
    let by = adapter?;
    Some(Outside {
        by,
        adapter: find(by)?,
        all: !shm,
        rises: (by == By::Rising).then(|| choose_rule(config)),
    })
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
    ahead
}

/// Where constants come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Nothing was measured, because.
    Defaults(&'static str),
    /// A file that `fastpath tune` has made.
    File(PathBuf),
}

/// What was selected, and of what.
#[derive(Debug, Clone)]
pub struct Selection {
    /// What the user has set.
    pub wishes: Wishes,
    /// What things cost here.
    pub constants: Constants,
    /// Where that comes from.
    pub source: Source,
    /// Why the kernel does not copy between processes, as far as this process has found out.
    pub kernel: Result<(), String>,
    /// What is wrong with stored constants and sizes, a line each.
    pub warnings: Vec<String>,
}

impl Default for Selection {
    /// Without wishes.
    fn default() -> Self {
        Selection {
            wishes: Wishes::of(&Config::defaults()),
            constants: Constants::default(),
            source: Source::Defaults("nothing was asked for"),
            kernel: Ok(()),
            warnings: Vec::new(),
        }
    }
}

impl Selection {
    /// That of a configuration: reads the stored constants.
    pub fn of(config: &Config) -> Selection {
        let mut selection = Selection {
            wishes: Wishes::of(config),
            ..Selection::default()
        };
        let place = Place::of(config);
        if place == Place::Off {
            selection.source = Source::Defaults("as FASTPATH_TUNING=none says");
            return selection;
        }
        match place.load(Machine::current) {
            Ok(Some((path, constants))) => {
                selection.constants = constants;
                selection.source = Source::File(path);
                return selection;
            }
            Ok(None) => {}
            Err(why) => selection.warnings.push(why),
        }
        selection.source = Source::Defaults("corrected by what messages take");
        selection
    }

    /// What follows for the message path.
    pub fn thresholds(&self) -> Thresholds {
        decide::decide(&self.constants, &self.wishes, self.kernel.is_ok())
    }
}

impl Worker {
    /// Takes over what the user has set; to be called before the first message.
    ///
    /// # Errors
    /// As [`choose_transports`]; or there is no adapter that could be used.
    pub fn configure(&mut self, config: &Config) -> Result<(), ConfigureError> {
        let job = self.job;
        let several = (0..job.size()).any(|rank| job.is_remote(rank));
        let allowed =
            choose_transports(config, self.size(), several).map_err(ConfigureError::of)?;
        self.agree_on_transports(config, allowed)
            .map_err(ConfigureError::of)?;
        self.interfaces.allowed = allowed;
        let mut warnings = Vec::new();
        if let Some(by) = allowed.adapter {
            let stored = StoredInline::of(config);
            let opened = stored.with_wishes(config, |wishes| {
                self.interfaces.open_adapter(by, config.device(), wishes)
            });
            opened.map_err(|why| ConfigureError {
                why: refuse_adapter(by, allowed.shm, &why),
                advice: Some(EXAMINE),
            })?;
            job.own_page().by_adapter.store(1, Ordering::Relaxed);
            warnings = stored.take_troubles();
            self.interfaces.set_rise_rule(choose_rule(config));
        }
        self.rma.resolves_once = !config.is_disabled("resolve-once");
        self.rma.gates_wireup = !config.is_disabled("wireup-gate");
        self.interfaces.set_tx_gate(!config.is_disabled("tx-gate"));
        self.interfaces.set_repeats(!config.is_disabled("repeat"));
        self.interfaces
            .keep_registrations(self.registrations_most(config));
        *self.selection = Selection::of(config);
        self.selection.warnings.append(&mut warnings);
        self.thresholds = self.selection.thresholds();
        Ok(())
    }

    /// Bytes of the program's own memory that stay registered.
    fn registrations_most(&self, config: &Config) -> usize {
        let neighbours = (0..self.job.size()).filter(|&rank| !self.job.is_remote(rank));
        match (
            config.is_disabled("registrations"),
            config.number(Key::Registrations),
        ) {
            (true, _) => 0,
            (false, Some(bytes)) => bytes as usize,
            (false, None) => Registrations::default_most(neighbours.count()),
        }
    }

    /// Ranks that reach each other by different transports would wait for each other for ever.
    fn agree_on_transports(&self, config: &Config, allowed: Allowed) -> Result<(), String> {
        let listed = || config.list(Key::Transports).join(",");
        let own = match listed() {
            none if none.is_empty() => "all".to_owned(),
            listed => listed,
        };
        let agreed = self.job.agree_on_transports(allowed.code(), &own);
        agreed.map_err(|(other, theirs)| {
            format!(
                "rank {} has FASTPATH_TRANSPORTS={own} and rank {other} FASTPATH_TRANSPORTS={theirs}: messages between \
                 them would never arrive; give all ranks of a job the same",
                self.rank
            )
        })
    }

    /// Those that an adapter leads to, where there is one.
    fn outside(&self) -> Option<Outside> {
        let Allowed { adapter, shm, .. } = self.interfaces.allowed;
        Some(Outside {
            by: adapter?,
            adapter: self.interfaces.adapter()?,
            all: !shm,
            rises: self.interfaces.rise_rule(),
        })
    }

    /// The first other rank that shares memory with this one; `None` where there is none.
    fn neighbour(&self) -> Option<u32> {
        if !self.interfaces.allowed.shm {
            return None;
        }
        let mut others = (0..self.size()).filter(|&rank| rank != self.rank);
        others.find(|&rank| !self.job.is_remote(rank as usize))
    }

    /// What the adapter by which peers are reached has counted, for the end of the job: a line for each of its parts,
    /// or one object in JSON. Empty where there is no adapter.
    pub fn report_counts(&self, json: bool) -> Vec<String> {
        let (counts, rank) = (self.interfaces.adapter_counts(), self.rank);
        if !json {
            let line = |c: &Counts| format!("rank {rank}: {}: {}", c.of, c.text);
            return counts.iter().map(line).collect();
        }
        if counts.is_empty() {
            return Vec::new();
        }
        let mut object = serde_json::Map::new();
        object.insert("rank".to_owned(), rank.into());
        for Counts { of, numbers, .. } in counts {
            let numbers = numbers
                .into_iter()
                .map(|(name, n)| (name.to_owned(), n.into()));
            object.insert(of.to_owned(), serde_json::Map::from_iter(numbers).into());
        }
        vec![serde_json::Value::Object(object).to_string()]
    }

    /// What is wrong with stored constants and sizes, a line each.
    pub fn selection_warnings(&self) -> &[String] {
        &self.selection.warnings
    }

    /// What was selected and why. Tries a copy from a peer's memory; waits for that peer to start for `patience_ns` nanoseconds at most.
    pub fn report(&mut self, patience_ns: u64) -> Report {
        let mut told = (*self.selection).clone();
        let neighbour = self.neighbour();
        if let Some(peer) = neighbour
            && told.wishes.no_cma.is_none()
            && told.kernel.is_ok()
        {
            told.kernel = self.probe_neighbour(peer, patience_ns);
        }
        let peers = Peers {
            loopback: self.interfaces.allowed.loopback,
            others: neighbour.is_some(),
            outside: self.outside(),
        };
        Report::of(&told, peers)
    }

    fn probe_neighbour(&self, peer: u32, patience_ns: u64) -> Result<(), String> {
        let start = clock::now_ns();
        loop {
            if let Some(tried) = self.interfaces.probe_single_copy(peer) {
                return tried;
            }
            if clock::now_ns() - start > patience_ns {
                return Err(format!("not known yet: rank {peer} has not started"));
            }
            wait::yield_now();
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
