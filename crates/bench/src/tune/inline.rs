//! `fastpath tune inline`: largest payload that an adapter should get inside the descriptor.
//!
//! Two queue pairs of the device answer each other, alternately with inline payload and by DMA. The fastest limit is
//! the crossover, with its interval ([`crossover`]). The crossover is stored for the device, and jobs request inline
//! data of this size. The report adds the queue memory of each size ([`queue`]) and the model's predictions for
//! adapters on a bus.

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
use fastpath_report::refuse_usage;
use fastpath_transport::setup::inline as stored;
use fastpath_transport::verbs::echo::Verb;
use fastpath_transport::verbs::{DeviceContext, DeviceIdentity, EchoPort, open_device};
use serde::Serialize;

use super::no_place;
use crate::options::parse_bytes;
use crossover::Finding;
use queue::InlineCost;
use sweep::{SweepPlan, SweepPoint};

/// Options of `fastpath tune inline`.
#[derive(Args, Debug)]
pub struct InlineOptions {
    /// Adapter, such as mlx5_0 or mlx5_0:1 [default: FASTPATH_DEVICE, else the first adapter with an active port]
    #[arg(long)]
    pub device: Option<String>,
    /// Sizes in bytes, such as 8,64,1K [default: powers of two and, for each, the size that the adapter grants and one
    /// byte more]
    #[arg(long, value_delimiter = ',', num_args = 1, value_parser = parse_inline)]
    pub sizes: Vec<u32>,
    /// Largest size to measure, in bytes, if the adapter grants it
    #[arg(long, default_value = "1024", value_parser = parse_inline)]
    pub most: u32,
    /// Operation that transfers the payload
    #[arg(long, value_enum, default_value = "send")]
    pub verb: VerbName,
    /// Number of rounds; each measures every size inline and by DMA
    #[arg(long, default_value_t = 31)]
    pub rounds: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print the measured values and store nothing
    #[arg(long)]
    pub dry_run: bool,
}

fn parse_inline(text: &str) -> Result<u32, String> {
    let bytes = parse_bytes(text)?;
    u32::try_from(bytes).map_err(|_| "the size must be less than 4G".to_owned())
}

/// Operation that transfers the payload.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VerbName {
    /// Send messages
    Send,
    /// Write to the other side's memory (RDMA write)
    Write,
}

#[derive(Debug, Serialize)]
struct InlineReport {
    device: String,
    port: u8,
    part: String,
    firmware: String,
    driver: String,
    /// Whether the adapter is software without a bus: times are the processor's.
    software: bool,
    verb: VerbName,
    rounds: u32,
    /// Largest granted inline data, in bytes, among the measured sizes.
    largest_granted: u32,
    cases: Vec<SweepPoint>,
    /// Measured crossover; None if nothing could be measured.
    crossover: Option<Finding>,
    queues: Vec<InlineCost>,
    /// Predictions of the model: for adapters of this kind, or for several.
    models: Vec<InlineModel>,
    /// File that stores the size; None if it is not stored.
    stored_in: Option<PathBuf>,
    /// Inline data that jobs on this device request from now on, in bytes.
    stored_bytes: Option<u32>,
    not_stored: Option<String>,
}

#[derive(Debug, Serialize, PartialEq)]
struct InlineModel {
    adapter: &'static str,
    host: &'static str,
    asked: u32,
    /// Largest size at which inline is faster; None: never.
    limit: Option<u32>,
    /// Whether the limit is the largest granted size.
    all: bool,
}

/// Runs `fastpath tune inline`: measures, prints and stores.
///
/// # Errors
/// The settings are invalid, the host or its processors cannot be used, or nothing can be written.
pub fn run(options: &InlineOptions) -> Result<()> {
    let config = Config::from_env()?;
    let (context, port) = open(options, &config)?;
    let identity = DeviceIdentity::of(&context);
    let mut report = measure(options, &context, port, &identity)?;
    match keep(options, &config, &identity, report.crossover.as_ref()) {
        Ok((path, bytes)) => (report.stored_in, report.stored_bytes) = (Some(path), Some(bytes)),
        Err(why) => report.not_stored = Some(format!("{why:#}")),
    }
    Ok(document::write(options.json, &report, || show::describe(&report))?)
}

/// Opens the requested device, or the first with an active port.
fn open(options: &InlineOptions, config: &Config) -> Result<(Arc<DeviceContext>, Option<u8>)> {
    let wanted = options.device.as_deref().or(config.device());
    Ok(open_device(wanted, |context, port| {
        EchoPort::new(context, port).map(|_| (context.clone(), port))
    })?)
}

fn measure(
    options: &InlineOptions, context: &Arc<DeviceContext>, port: Option<u8>,
    identity: &DeviceIdentity,
) -> Result<InlineReport> {
    let port = EchoPort::new(context, port)?;
    let largest = sweep::find_largest(&port, options.most)?;
    // Queue depth of the transport over reliable connections.
    let depth = fastpath_transport::adapter::rc::Settings::default().depth;
    let costs = sweep::list_powers(largest)
        .into_iter()
        .map(|asked| queue::measure(&port, identity, asked, depth));
    let queues: Vec<InlineCost> = costs.collect::<Result<_, _>>()?;
    let plan = SweepPlan {
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
    Ok(InlineReport {
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

/// Sizes to measure, in order: the user's, or powers of two and, for each, the granted size and one byte more.
fn choose_sizes(options: &InlineOptions, largest: u32, queues: &[InlineCost]) -> Result<Vec<u32>> {
    if options.rounds < 5 {
        refuse_usage!(
            "--rounds {} is too small to compute a confidence interval; use 5 or more",
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
        Some(0) => refuse_usage!("--sizes 0: a write has at least 1 byte"),
        Some(size) => refuse_usage!(
            "--sizes {size}: the largest size that can be measured is {largest} bytes, limited by \
             the adapter and by --most {}",
            options.most
        ),
        None => Ok(sizes),
    }
}

/// Returns the model's predictions for an adapter of this kind with each known host. For an unknown kind, they are for
/// three different pairs of adapter and host.
fn predict(identity: &DeviceIdentity, verb: VerbName, largest: u32) -> Vec<InlineModel> {
    let verb = match verb {
        VerbName::Send => ModelVerb::Send,
        VerbName::Write => ModelVerb::Write,
    };
    let pairs = match find_profile(identity) {
        Some(name) => vec![(name, "2009"), (name, "2016"), (name, "uncombined")],
        None => vec![("connectx", "2009"), ("connectx5", "2016"), ("connectx5", "uncombined")],
    };
    // A software device shows nothing about adapters on a bus, so the default size is used.
    let asked = match identity.software {
        true => fastpath_transport::verbs::inline::DEFAULT_INLINE,
        false => largest,
    };
    let model = |(adapter_name, host_name): (&str, &str)| {
        let (adapter, host) = (adapter(adapter_name).ok()?, host(host_name).ok()?);
        let found = choose(host, adapter, Transport::Rc, verb, asked).ok()?;
        Some(InlineModel {
            adapter: adapter.title,
            host: host.title,
            asked,
            limit: found.crossover.limit(),
            all: matches!(found.crossover, Crossover::Always(_)),
        })
    };
    pairs.into_iter().filter_map(model).collect()
}

/// Returns the name of the model's profile for an adapter; None for an unknown kind.
fn find_profile(identity: &DeviceIdentity) -> Option<&'static str> {
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

/// Stores the crossover. Returns the file, and the inline data that jobs will request.
fn keep(
    options: &InlineOptions, config: &Config, identity: &DeviceIdentity, found: Option<&Finding>,
) -> Result<(PathBuf, u32)> {
    let found = found.context("the adapter grants no inline data")?;
    if !found.known {
        bail!(
            "the measured times do not show the size up to which inline data is faster; raise \
             --rounds"
        );
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
