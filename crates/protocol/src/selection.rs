//! Which protocol serves which size: by what each of them costs on this machine, as far as the user's
//! variables allow.

pub mod candidates;
pub mod constants;
pub mod decide;
pub mod envelope;
pub mod report;
pub mod thresholds;
pub mod tuning;

pub use constants::Constants;
pub use thresholds::Thresholds;

use crate::worker::Worker;
use constants::FIELDS;
use fastpath_base::config::{Config, Key};
use fastpath_base::stored::{Machine, TuningSource};
use fastpath_transport::ConfigureError;
use fastpath_transport::interfaces::Counts;
use fastpath_transport::single_copy::{self, SingleCopyCost};
use report::Report;
use std::path::PathBuf;

/// What the user has set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overrides {
    /// `FASTPATH_EAGER_MAX`
    pub eager_max: Option<u64>,
    /// `FASTPATH_PROGRESS=thread`
    pub serves: bool,
    /// `FASTPATH_PIPELINE_CHUNK`
    pub chunk: Option<u64>,
    /// Not switched off by `FASTPATH_DISABLE`.
    pub direct: bool,
    /// Not switched off by `FASTPATH_DISABLE`.
    pub pipeline: bool,
    /// Not switched off by `FASTPATH_DISABLE`.
    pub adapt: bool,
    /// Not switched off by `FASTPATH_DISABLE`.
    pub whole: bool,
}

impl Overrides {
    /// Those of a configuration.
    pub fn of(config: &Config) -> Overrides {
        Overrides {
            eager_max: config.number(Key::EagerMax),
            serves: config.choice(Key::Progress) == "thread",
            chunk: config.number(Key::PipelineChunk),
            direct: !config.is_disabled("direct"),
            pipeline: !config.is_disabled("pipeline"),
            adapt: !config.is_disabled("adapt"),
            whole: !config.is_disabled("whole"),
        }
    }
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
    pub overrides: Overrides,
    /// What things cost here.
    pub constants: Constants,
    /// Where that comes from.
    pub source: Source,
    /// Why the kernel does not copy between processes, as the user says or as far as this process has found out.
    pub kernel: Result<(), String>,
    /// What is wrong with stored constants and sizes, a line each.
    pub warnings: Vec<String>,
}

impl Default for Selection {
    /// Without overrides.
    fn default() -> Self {
        Selection {
            overrides: Overrides::of(&Config::defaults()),
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
            overrides: Overrides::of(config),
            kernel: single_copy::switched_off(config).map_or(Ok(()), |why| Err(why.to_owned())),
            ..Selection::default()
        };
        let place = TuningSource::of(config);
        if place == TuningSource::Off {
            selection.source = Source::Defaults("as FASTPATH_TUNING=none says");
            return selection;
        }
        match tuning::load(&place, Machine::current) {
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
        decide::decide(&self.constants, &self.overrides, self.kernel.is_ok())
    }
}

impl Constants {
    /// These, with the measured cost of single copies; beyond what can be believed it is at the border.
    #[must_use]
    pub fn with_single_copy(mut self, cost: SingleCopyCost) -> Constants {
        self.kernel_call_ns = cost.call_ns;
        self.kernel_byte_ns = cost.byte_ns;
        for field in FIELDS {
            let value = (field.get)(&self).clamp(field.least, field.most);
            (field.set)(&mut self, value);
        }
        self
    }
}

impl Worker {
    /// Takes over what the user has set; to be called before the first message.
    ///
    /// # Errors
    /// As [`Interfaces::configure`](fastpath_transport::Interfaces::configure).
    pub fn configure(&mut self, config: &Config) -> Result<(), ConfigureError> {
        let mut warnings = self.interfaces.configure(config)?;
        self.rma.resolves_once = !config.is_disabled("resolve-once");
        self.rma.gates_wireup = !config.is_disabled("wireup-gate");
        *self.selection = Selection::of(config);
        self.selection.warnings.append(&mut warnings);
        self.thresholds = self.selection.thresholds();
        Ok(())
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
            let numbers = numbers.into_iter().map(|(name, n)| (name.to_owned(), n.into()));
            object.insert(of.to_owned(), serde_json::Map::from_iter(numbers).into());
        }
        vec![serde_json::Value::Object(object).to_string()]
    }

    /// What is wrong with stored constants and sizes, a line each.
    pub fn selection_warnings(&self) -> &[String] {
        &self.selection.warnings
    }

    /// What was selected and why. Tries a copy from a peer's memory; waits for that peer to start for `timeout_ns`
    /// nanoseconds at most.
    pub fn report(&mut self, timeout_ns: u64) -> Report {
        let mut told = (*self.selection).clone();
        if told.kernel.is_ok() {
            told.kernel = self.interfaces.probe_single_copy(timeout_ns);
        }
        Report::of(&told, self.interfaces.peer_classes())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
