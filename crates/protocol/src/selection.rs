//! Selection of protocols by message size: by their costs on this machine, within the user's settings.

pub mod candidates;
pub mod constants;
pub mod envelope;
pub mod thresholds;
pub mod tuning;

pub use constants::Constants;
pub use thresholds::Thresholds;

use constants::FIELDS;
use fastpath_base::config::{Config, Key};
use fastpath_base::stored::{Machine, TuningSource};
use fastpath_transport::single_copy::{self, SingleCopyCost};
use std::path::PathBuf;

/// Settings of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overrides {
    /// Value of `FASTPATH_EAGER_MAX`, in bytes.
    pub eager_max: Option<u64>,
    /// Whether `FASTPATH_PROGRESS` is `thread`.
    pub serves: bool,
    /// Value of `FASTPATH_PIPELINE_CHUNK`, in bytes.
    pub chunk: Option<u64>,
    /// Whether transfers by load and store are permitted: `FASTPATH_DISABLE` does not have `direct`.
    pub direct: bool,
    /// Whether pipelining is permitted: `FASTPATH_DISABLE` does not have `pipeline`.
    pub pipeline: bool,
    /// Whether learning is permitted: `FASTPATH_DISABLE` does not have `adapt`.
    pub adapt: bool,
    /// Whether long messages in one buffer are permitted: `FASTPATH_DISABLE` does not have `whole`.
    pub whole: bool,
}

impl Overrides {
    /// Returns the settings of a configuration.
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

/// Source of constants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Default constants, with the reason why nothing was measured.
    Defaults(&'static str),
    /// File that `fastpath tune` has written.
    File(PathBuf),
}

/// Selected constants and settings, with their source.
#[derive(Debug, Clone)]
pub struct Selection {
    /// Settings of the user.
    pub overrides: Overrides,
    /// Measured costs.
    pub constants: Constants,
    /// Source of the constants.
    pub source: Source,
    /// `Ok` if the kernel copies between processes. Otherwise the reason: a setting, or the kernel's refusal.
    pub kernel: Result<(), String>,
    /// Warnings about stored constants and sizes, a line each.
    pub warnings: Vec<String>,
}

impl Default for Selection {
    fn default() -> Self {
        Selection {
            overrides: Overrides::of(&Config::defaults()),
            constants: Constants::default(),
            source: Source::Defaults("without settings"),
            kernel: Ok(()),
            warnings: Vec::new(),
        }
    }
}

impl Selection {
    /// Returns the selection of a configuration. Reads the stored constants.
    pub fn of(config: &Config) -> Selection {
        let mut selection = Selection {
            overrides: Overrides::of(config),
            kernel: single_copy::switched_off(config).map_or(Ok(()), |why| Err(why.to_owned())),
            ..Selection::default()
        };
        let place = TuningSource::of(config);
        if place == TuningSource::Off {
            selection.source = Source::Defaults("because of FASTPATH_TUNING=none");
            return selection;
        }
        match tuning::load(&place, Machine::current) {
            Ok(Some((path, tuning))) => {
                selection.constants = tuning.constants;
                selection.source = Source::File(path);
                return selection;
            }
            Ok(None) => {}
            Err(why) => selection.warnings.push(why),
        }
        selection.source =
            Source::Defaults("corrected during the run by measured times of messages");
        selection
    }
}

impl Constants {
    /// Returns the constants with the measured cost of single copies, clamped to the plausible range.
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
