//! Instruction counts at the levels below MPI. The ranks execute this program (`levels/counted.rs`), so counted and
//! measuring code are distinguished by their source files.

use anyhow::{Context, Result, bail};
use fastpath_report::record::{Breakdown, Level, MissingTest};

use super::callgrind::Dump;
use super::job::{ScratchFolder, watch};
use super::symbols::{PROGRAM, Symbols};
use super::{CountedMpi, list_lacking, parse_name};
use crate::levels::{CALLS, LevelPlan, RECEIVES, SENDS, SIDE_MESSAGES, SharedBoard};
use crate::options::verbs::VerbsOptions;
use crate::options::{CaseOptions, PathOptions, TransportName};
use crate::program::Settings;

/// Operations that are counted, in addition to messages, between ranks that share memory.
const WAYS: [&str; 6] = [
    "put, load-store",
    "get, load-store",
    "flush, load-store",
    "put, kernel",
    "get, kernel",
    "flush, kernel",
];

/// Counts one level's operations, and lists those that it lacks. Fails if the job fails or there are no line tables.
pub fn count(
    mpi: &CountedMpi, level: Level, path: &PathOptions,
) -> Result<(Vec<Breakdown>, Vec<MissingTest>)> {
    let failed = "cannot create the file that the two ranks share";
    let folder = ScratchFolder::make()?;
    let board = SharedBoard::create().context(failed)?;
    let settings = Settings {
        case: CaseOptions { sizes: mpi.sizes.to_vec(), ..CaseOptions::default() },
        ..Settings::default()
    };
    let plan = LevelPlan {
        counted: true,
        devices: path.devices.clone(),
        verbs: VerbsOptions {
            connection: path.transport.and_then(TransportName::connection),
            ..VerbsOptions::default()
        },
        ..LevelPlan::new(level, &settings, &board)
    };
    let (own, arguments) = plan.rank().context(failed)?;
    let dumps = watch(mpi.mpi, &folder.0, &own.path, &arguments, 0)?;
    let mut symbols = Symbols::default();
    let counted: Result<Vec<_>, _> =
        dumps.iter().map(|dump| make_breakdown(mpi, level, dump, &mut symbols)).collect();
    let counted = counted?;
    let mut missing = list_missing(level, &counted);
    missing.extend(list_missing_sides(level, path, &counted));
    Ok((counted, missing))
}

fn calls_of(operation: &str) -> u64 {
    match [SENDS, RECEIVES].contains(&operation) {
        true => SIDE_MESSAGES,
        false => CALLS,
    }
}

fn make_breakdown(
    mpi: &CountedMpi, level: Level, dump: &Dump, symbols: &mut Symbols,
) -> Result<Breakdown> {
    let (operation, bytes) = parse_name(&dump.name)?;
    let calls = calls_of(&operation);
    let mut parts = symbols.break_down(dump, calls as f64, |_| true);
    if !parts.iter().any(|p| p.level == PROGRAM) {
        bail!(
            "fastpath was built without line tables, which assign instructions to levels; build \
             fastpath with `make`"
        );
    }
    parts.retain(|p| p.level != PROGRAM);
    Ok(Breakdown {
        mpi: mpi.mpi.name.clone(),
        operation,
        level,
        bytes,
        calls,
        // The sum of no numbers is negative zero; adding 0.0 makes it positive.
        total: 0.0 + parts.iter().map(|p| p.instructions).sum::<f64>(),
        parts,
    })
}

fn list_missing(level: Level, counted: &[Breakdown]) -> Vec<MissingTest> {
    let has = |name: &str| counted.iter().any(|b| b.operation == name);
    let all = ["put", "put, adapter", "put, messages"];
    if all.into_iter().any(has) {
        // An operation with one of these names accesses every kind of memory, so none is missing.
        return Vec::new();
    }
    list_lacking(
        &WAYS,
        counted,
        level,
        "no memory of the other rank was reached by the named method (load-store or kernel)",
    )
}

/// Lists sides of packets through an adapter that were not counted.
fn list_missing_sides(level: Level, path: &PathOptions, counted: &[Breakdown]) -> Vec<MissingTest> {
    let adapter = path.transport.and_then(TransportName::connection).is_some();
    if !adapter || level == Level::Protocol {
        return Vec::new();
    }
    let reason = "some packets arrived late in every window of messages, even after long waits";
    list_lacking(&[SENDS, RECEIVES], counted, level, reason)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn sides__are_of_a_packet_and_other_counts_of_a_call() {
        let (object, address) = ("/proc/none".to_owned(), 16);
        let dump = |name: &str| Dump {
            name: name.to_owned(),
            costs: [((object.clone(), address), SIDE_MESSAGES * CALLS)].into(),
            ..Dump::default()
        };
        let of_each = |name: &str| {
            let calls = calls_of(name);
            let parts = Symbols::default().break_down(&dump(name), calls as f64, |_| true);
            parts.iter().map(|p| p.instructions).sum::<f64>()
        };
        assert_eq!(of_each(SENDS), CALLS as f64);
        assert_eq!(of_each(RECEIVES), CALLS as f64);
        assert_eq!(of_each("send"), SIDE_MESSAGES as f64);
    }

    #[test]
    fn sides__that_were_not_counted_are_missing_over_an_adapter_alone() {
        let count = |operation: &str| Breakdown {
            mpi: "fastpath".to_owned(),
            operation: operation.to_owned(),
            level: Level::Transport,
            bytes: 8,
            calls: SIDE_MESSAGES,
            total: 1.0,
            parts: Vec::new(),
        };
        let rc = PathOptions { transport: Some(TransportName::Rc), ..PathOptions::default() };
        let missing = |level, path: &PathOptions| -> Vec<String> {
            let found = list_missing_sides(level, path, &[count(SENDS)]);
            found.into_iter().map(|m| m.test).collect()
        };
        assert_eq!(missing(Level::Transport, &rc), [RECEIVES]);
        assert!(missing(Level::Protocol, &rc).is_empty());
        assert!(missing(Level::Transport, &PathOptions::default()).is_empty());
    }
}
