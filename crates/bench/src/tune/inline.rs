//! `fastpath tune inline`: up to which size an adapter should be given payloads inside the descriptor.
//!
//! Two queue pairs of the device answer each other, with the payload inline and by DMA in turn; the limit that takes
//! least is the crossover, with its interval ([`crossover`]). It is stored for the device, and its jobs ask for so
//! much. Beside it stand what each size costs in queue memory ([`queue`]) and what the model says of adapters with a
//! bus.

mod crossover;
mod queue;
mod show;
mod sweep;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use fastpath_base::config::Config;
use fastpath_base::stored::{Machine, TuningSource};
use fastpath_pcie::crossover::{Crossover, choose};
use fastpath_pcie::profile::{adapter, host};
use fastpath_pcie::wire::{Transport, Verb as ModelVerb};
use fastpath_report::document;
use fastpath_transport::setup::inline as stored;
use fastpath_transport::verbs::echo::Verb;
use fastpath_transport::verbs::{DeviceContext, Identity, Loop, open_device};
use serde::Serialize;

use super::no_place;
use crate::bench::options::parse_bytes;
use crossover::Finding;
use queue::Cost;
use sweep::{Case, Plan};

/// Options of `fastpath tune inline`.
#[derive(Args, Debug)]
pub struct InlineOptions {
    /// The adapter, as mlx5_0 or mlx5_0:1 [default: FASTPATH_DEVICE, else the first with an active port]
    #[arg(long)]
    pub device: Option<String>,
    /// Sizes in bytes, as 8,64,1K [default: powers of two and what is granted for them, with its neighbour]
    #[arg(long, value_delimiter = ',', num_args = 1, value_parser = parse_inline)]
    pub sizes: Vec<u32>,
    /// Largest size looked at, in bytes, if the adapter grants so much
    #[arg(long, default_value = "1024", value_parser = parse_inline)]
    pub most: u32,
    /// How the bytes travel
    #[arg(long, value_enum, default_value = "send")]
    pub verb: VerbName,
    /// Rounds, in each of which every size goes inline and by DMA
    #[arg(long, default_value_t = 31)]
    pub rounds: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print the measured values and store nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Bytes as every other command takes them.
fn parse_inline(text: &str) -> Result<u32, String> {
    let bytes = parse_bytes(text)?;
    u32::try_from(bytes).map_err(|_| "too large".to_owned())
}

/// How the bytes travel.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VerbName {
    /// As messages
    Send,
    /// Into the other's memory
    Write,
}

/// Everything that was found, and what became of it.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    port: u8,
    part: String,
    firmware: String,
    driver: String,
    /// No adapter with a bus: times are the processor's.
    software: bool,
    verb: VerbName,
    rounds: u32,
    /// Most bytes of inline data that the device grants, of those looked at.
    largest_granted: u32,
    /// Half round trips, in the order of sizes.
    cases: Vec<Case>,
    /// None: nothing could be measured.
    crossover: Option<Finding>,
    queues: Vec<Cost>,
    /// What the model says of adapters and hosts: of this one's kind, or of several.
    models: Vec<Model>,
    /// Where the size is stored; None: it is not.
    stored_in: Option<PathBuf>,
    /// Bytes that jobs on this device ask for from now on.
    stored_bytes: Option<u32>,
    /// Why nothing is stored.
    not_stored: Option<String>,
}

/// A prediction.
#[derive(Debug, Serialize, PartialEq)]
struct Model {
    adapter: &'static str,
    host: &'static str,
    /// Bytes asked for.
    asked: u32,
    /// Up to which size inline pays; None: never.
    limit: Option<u32>,
    /// Whether that is all that is granted.
    all: bool,
}

/// Measures, prints and stores.
///
/// # Errors
/// The settings are wrong, the host or its processors cannot be used, or nothing can be written.
pub fn run(options: &InlineOptions) -> Result<()> {
    let config = Config::from_env()?;
    let (context, port) = open(options, &config)?;
    let identity = Identity::of(&context);
    let mut report = measure(options, &context, port, &identity)?;
    match keep(options, &config, &identity, report.crossover.as_ref()) {
        Ok((path, bytes)) => (report.stored_in, report.stored_bytes) = (Some(path), Some(bytes)),
        Err(why) => report.not_stored = Some(format!("{why:#}")),
    }
    Ok(document::write(options.json, &report, || show::describe(&report))?)
}

/// The wanted device, or else the first that has an active port.
fn open(options: &InlineOptions, config: &Config) -> Result<(Arc<DeviceContext>, Option<u8>)> {
    let wanted = options.device.as_deref().or(config.device());
    Ok(open_device(wanted, |context, port| {
        Loop::new(context, port).map(|_| (context.clone(), port))
    })?)
}

fn measure(
    options: &InlineOptions, context: &Arc<DeviceContext>, port: Option<u8>, identity: &Identity,
) -> Result<Report> {
    let port = Loop::new(context, port)?;
    let largest = sweep::find_largest(&port, options.most)?;
    // As the transport over connections makes its queues.
    let depth = fastpath_transport::adapter::rc::Settings::default().depth;
    let costs = sweep::list_powers(largest)
        .into_iter()
        .map(|asked| queue::measure(&port, identity, asked, depth));
    let queues: Vec<Cost> = costs.collect::<Result<_, _>>()?;
    let plan = Plan {
        sizes: choose_sizes(options, largest, &queues)?,
        verb: match options.verb {
            VerbName::Send => Verb::Send,
            VerbName::Write => Verb::Write,
        },
        rounds: options.rounds,
    };
    let times = match plan.sizes.is_empty() {
        true => Vec::new(),
        false => sweep::run(&port, largest, &plan).with_context(|| identity.name.clone())?,
    };
    Ok(Report {
        device: identity.name.clone(),
        port: port.port(),
        part: identity.part.clone(),
        firmware: identity.firmware.clone(),
        driver: identity.driver.clone(),
        software: identity.software,
        verb: options.verb,
        rounds: options.rounds,
        largest_granted: largest,
        cases: sweep::summarize(&plan.sizes, &times),
        crossover: (!times.is_empty()).then(|| crossover::find(&plan.sizes, &times)),
        queues,
        models: predict(identity, options.verb, largest),
        stored_in: None,
        stored_bytes: None,
        not_stored: None,
    })
}

/// The sizes to look at, in order: those of the user, or powers of two and, for each of them, what is granted and one
/// byte more.
fn choose_sizes(options: &InlineOptions, largest: u32, queues: &[Cost]) -> Result<Vec<u32>> {
    if options.rounds < 5 {
        bail!(
            "--rounds {} is too few to tell anything: give 5 or more, from which an interval \
             follows",
            options.rounds
        );
    }
    let least = u32::from(options.verb == VerbName::Write);
    let mut sizes = options.sizes.clone();
    if sizes.is_empty() {
        sizes = sweep::list_powers(largest);
        sizes.extend(queues.iter().flat_map(|q| [q.granted, q.granted + 1]));
        sizes.retain(|&size| size > 0 && size <= largest);
    }
    sizes.sort_unstable();
    sizes.dedup();
    match sizes.iter().find(|&&size| size > largest || size < least) {
        Some(0) => bail!("--sizes 0: a write carries a byte at least"),
        Some(size) => bail!(
            "--sizes {size}: the adapter grants no more than {largest} bytes (--most {})",
            options.most
        ),
        None => Ok(sizes),
    }
}

/// What the model says: of this adapter's kind with each host, or of three pairs that differ where it is of no kind
/// known.
fn predict(identity: &Identity, verb: VerbName, largest: u32) -> Vec<Model> {
    let verb = match verb {
        VerbName::Send => ModelVerb::Send,
        VerbName::Write => ModelVerb::Write,
    };
    let pairs = match find_profile(identity) {
        Some(name) => vec![(name, "2009"), (name, "2016"), (name, "uncombined")],
        None => vec![("connectx", "2009"), ("connectx5", "2016"), ("connectx5", "uncombined")],
    };
    // A default's worth where the device says nothing of adapters with a bus.
    let asked = match identity.software {
        true => fastpath_transport::verbs::inline::DEFAULT_INLINE,
        false => largest,
    };
    let model = |(adapter_name, host_name): (&str, &str)| {
        let (adapter, host) = (adapter(adapter_name).ok()?, host(host_name).ok()?);
        let found = choose(host, adapter, Transport::Rc, verb, asked).ok()?;
        Some(Model {
            adapter: adapter.title,
            host: host.title,
            asked,
            limit: found.crossover.limit(),
            all: matches!(found.crossover, Crossover::Always(_)),
        })
    };
    pairs.into_iter().filter_map(model).collect()
}

/// The profile of an adapter's kind.
fn find_profile(identity: &Identity) -> Option<&'static str> {
    let number = identity.part.split_once(':')?.1.parse().unwrap_or(0);
    match (identity.driver.split(' ').next()?, number) {
        ("ib_mthca", _) => Some("infinihost3"),
        ("mlx4_core", 4099..=4103) => Some("connectx3"),
        ("mlx4_core", _) => Some("connectx"),
        ("mlx5_core", 4129..) => Some("connectx7"),
        ("mlx5_core", _) => Some("connectx5"),
        _ => None,
    }
}

/// Stores what was found; where, and how many bytes jobs will ask for.
fn keep(
    options: &InlineOptions, config: &Config, identity: &Identity, found: Option<&Finding>,
) -> Result<(PathBuf, u32)> {
    let found = found.context("the adapter grants no inline data")?;
    if !found.known {
        bail!("the rounds do not tell where inline stops paying");
    }
    if options.dry_run {
        bail!("--dry-run");
    }
    let place = TuningSource::of(config);
    let processor = Machine::current().processor;
    let path = stored::path(&place, identity, &processor);
    let path = path.with_context(|| no_place(&place))?;
    let bytes = found.limit.unwrap_or(0);
    let done = stored::store(&path, bytes, identity, &processor);
    done.with_context(|| path.display().to_string())?;
    Ok((path, bytes))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
