//! The levels below MPI: this program is the ranks' program (`levels/counted.rs`), and what of it is
//! counted is told from what only measures by the source that each instruction stands in.

use super::callgrind::Dump;
use super::job::{Scratch, watch};
use super::symbols::{PROGRAM, Symbols};
use super::{CALLS, Counted, parse_name, usage};
use crate::bench::BenchError;
use crate::bench::options::{PathOptions, TransportName};
use crate::bench::verbs::VerbsOptions;
use crate::levels::{LevelPlan, SharedBoard};
use crate::program::Settings;
use crate::record::{Breakdown, Level, Missing};

/// What is counted at these levels between ranks that share memory, besides the messages.
const WAYS: [&str; 6] = [
    "put, load-store",
    "get, load-store",
    "flush, load-store",
    "put, kernel",
    "get, kernel",
    "flush, kernel",
];

/// Counts every operation of one level; and what that level has not.
///
/// # Errors
/// The job fails, or this program has no line tables.
pub fn count(
    mpi: &Counted,
    level: Level,
    path: &PathOptions,
) -> Result<(Vec<Breakdown>, Vec<Missing>), BenchError> {
    let failed = |e: std::io::Error| usage(format!("the ranks cannot be prepared: {e}"));
    let folder = Scratch::make()?;
    let board = SharedBoard::create().map_err(failed)?;
    let plan = LevelPlan {
        level,
        settings: Settings {
            sizes: mpi.sizes.to_vec(),
            ..Settings::default()
        },
        board: board.path(),
        counted: true,
        devices: path.devices.clone(),
        verbs: VerbsOptions {
            connection: path.transport.and_then(TransportName::connection),
            ..VerbsOptions::default()
        },
    };
    let plan = serde_json::to_string(&plan).map_err(|e| failed(e.into()))?;
    let own = std::env::current_exe().map_err(failed)?;
    let arguments = ["bench".to_owned(), "rank".to_owned(), plan];
    let dumps = watch(mpi, &folder.0, &own, &arguments, 0)?;
    let mut symbols = Symbols::default();
    let counted: Result<Vec<_>, _> = dumps
        .iter()
        .map(|dump| make_breakdown(mpi, level, dump, &mut symbols))
        .collect();
    let counted = counted?;
    let missing = list_missing(level, &counted);
    Ok((counted, missing))
}

fn make_breakdown(
    mpi: &Counted,
    level: Level,
    dump: &Dump,
    symbols: &mut Symbols,
) -> Result<Breakdown, BenchError> {
    let mut parts = symbols.break_down(dump, CALLS as f64, |_| true);
    if !parts.iter().any(|p| p.level == PROGRAM) {
        let why = "this program was built without line tables, by which its levels are told apart";
        return Err(usage(why));
    }
    parts.retain(|p| p.level != PROGRAM);
    let (operation, bytes) = parse_name(&dump.name)?;
    Ok(Breakdown {
        mpi: mpi.name.to_owned(),
        operation,
        level,
        bytes,
        calls: CALLS,
        total: parts.iter().map(|p| p.instructions).sum(),
        parts,
    })
}

fn list_missing(level: Level, counted: &[Breakdown]) -> Vec<Missing> {
    let has = |name: &str| counted.iter().any(|b| b.operation == name);
    let all = ["put", "put, adapter", "put, messages"];
    if all.into_iter().any(has) {
        // All memory is reached so.
        return Vec::new();
    }
    let missing = WAYS.iter().filter(|name| !has(name)).map(|name| Missing {
        test: (*name).to_owned(),
        level,
        reason: "the peer's memory cannot be reached so".to_owned(),
    });
    missing.collect()
}
