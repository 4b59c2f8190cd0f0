//! Options for placement: `--bind-to`, `--map-by`, `--rank-by`, in the syntax of Open MPI and of Hydra.

use super::UsageError;
use super::parser_state::{Parser, PerNode};
use super::spec::{Bind, RankOrder};
use super::values::{GivenOption, parse_ranks, read_ranks};
use fastpath_base::topology::{CpuSet, Level};

/// Reason, for the notice, why options that name a file for the placement of ranks have no effect.
pub const BY_HAND: &str = "use --bind-to user:LIST to place ranks by hand";
/// Reason for options about choosing, reaching or preparing hosts.
pub const NODES: &str =
    "Fastpath does not support options of this kind for choosing, reaching or preparing hosts";

/// Finds a kind of place by any of its names.
pub fn find_level(name: &str) -> Option<Level> {
    let cache = |n: char| n.to_digit(10).filter(|n| (1..=4).contains(n));
    Some(match name.to_ascii_lowercase().as_str() {
        "hwthread" | "hwt" | "thread" | "pu" => Level::Thread,
        "core" => Level::Core,
        "numa" | "numanode" => Level::Numa,
        "socket" | "package" | "sock" => Level::Package,
        "node" | "machine" | "board" => Level::Node,
        // Names of caches: l2cache, l2, and Hydra's l1dcache and l1ucache.
        name => {
            let rest = name.strip_prefix('l')?;
            let level = cache(rest.chars().next()?)?;
            match &rest[1..] {
                "" | "cache" | "dcache" | "icache" | "ucache" => Level::Cache(level as u8),
                _ => return None,
            }
        }
    })
}

/// Kinds of places, for help and messages.
macro_rules! levels {
    () => {
        "hwthread, core, l1cache, l2cache, l3cache, numa, socket (or package), node (or machine, \
         board)"
    };
}
pub(super) use levels;

const LEVELS: &str = levels!();

fn need(given: &GivenOption, what: &str) -> UsageError {
    UsageError(format!("{}: {what}", given.typed()))
}

/// `--bind-to PLACE[:N][:QUALIFIER]...`
pub fn take_bind(parser: &mut Parser<'_>, given: &GivenOption) -> Result<(), UsageError> {
    let text = given.text();
    if text.contains('=') {
        parser.note(BY_HAND, given.typed());
        return Ok(());
    }
    let (what, rest) = text.split_once(':').unwrap_or((&text, ""));
    let place = &mut parser.spec.placement;
    match what.to_ascii_lowercase().as_str() {
        "" if !rest.is_empty() => {}
        "none" | "no" => place.bind = Bind::None,
        "rr" => place.bind = Bind::To(Level::Thread),
        "user" => {
            let list = parse_cpus(rest).ok_or_else(|| {
                need(given, "the value must be lists of processors, such as user:0+2,1,4-7")
            })?;
            place.bind = Bind::Cpus(list);
            return Ok(());
        }
        name => {
            let level = find_level(name).ok_or_else(|| {
                need(given, &format!("unknown place; use none, {LEVELS} or user:LIST"))
            })?;
            place.bind = Bind::To(level);
        }
    }
    for word in rest.split(':').filter(|w| !w.is_empty()) {
        match word.to_ascii_lowercase().as_str() {
            "overload-allowed" | "overload" => place.overload = true,
            "if-supported" => place.if_supported = true,
            "report" => parser.spec.report_bindings = true,
            "no-overload" => {}
            number => place.per_rank = Some(parse_ranks(number).ok_or_else(|| {
                need(
                    given,
                    "after the colon, use a number of places, overload-allowed, if-supported or \
                     report",
                )
            })?),
        }
    }
    Ok(())
}

/// Parses a list of processor sets, one for each rank in turn, such as `0+2,1,4-7`.
fn parse_cpus(text: &str) -> Option<Vec<CpuSet>> {
    text.split(',')
        .map(|item| CpuSet::parse(&item.replace('+', ",")).filter(|set| !set.is_empty()))
        .collect()
}

/// `--map-by PLACE[:N][:QUALIFIER]...`, `--map-by ppr:N:PLACE[:QUALIFIER]...`
pub fn take_map(parser: &mut Parser<'_>, given: &GivenOption) -> Result<(), UsageError> {
    let text = given.text();
    let mut words = text.split(':');
    match words.next().unwrap_or("").to_ascii_lowercase().as_str() {
        "" | "slot" | "seq" | "none" => {}
        "ppr" => {
            let ranks = words.next().and_then(parse_ranks);
            let level = words.next().and_then(find_level);
            let (Some(ranks), Some(level)) = (ranks, level) else {
                return Err(need(
                    given,
                    &format!("the value must be ppr:N:PLACE, where PLACE is one of {LEVELS}"),
                ));
            };
            take_per_place(parser, given, ranks, level);
        }
        "rankfile" | "dist" => {
            parser.note(BY_HAND, given.typed());
            return Ok(());
        }
        name if name.starts_with("pe-list=") => restrict(parser, given, &name["pe-list=".len()..])?,
        name => match find_level(name) {
            Some(level) => parser.spec.placement.map = Some((level, 1)),
            None => {
                return Err(need(
                    given,
                    &format!("unknown place; use slot, ppr:N:PLACE or one of {LEVELS}"),
                ));
            }
        },
    }
    for word in words {
        take_map_qualifier(parser, given, &word.to_ascii_lowercase())?;
    }
    Ok(())
}

fn take_map_qualifier(
    parser: &mut Parser<'_>, given: &GivenOption, word: &str,
) -> Result<(), UsageError> {
    let place = &mut parser.spec.placement;
    match word {
        "oversubscribe" => parser.allow_oversubscription(),
        "nooversubscribe" => parser.no_oversubscribe = Some(given.typed()),
        "hwtcpus" => place.threads = true,
        "" | "corecpus" | "span" | "inherit" | "noinherit" => {}
        "nolocal" => parser.note(NODES, given.typed()),
        "ordered" => {
            if let Some(cpus) = &parser.spec.cpus {
                place.bind = Bind::Cpus(cpus.iter().map(|cpu| CpuSet::from_iter([cpu])).collect());
            }
        }
        _ => {
            let number = word.strip_prefix("pe=");
            let n = parse_ranks(number.unwrap_or(word)).ok_or_else(|| {
                need(
                    given,
                    &format!(
                        "unknown modifier {word:?}; use pe=N (N cores per rank), oversubscribe, \
                         nooversubscribe or hwtcpus"
                    ),
                )
            })?;
            match (number, &mut place.map) {
                (Some(_), _) => place.per_rank = Some(n),
                (None, Some((_, size))) => *size = n,
                (None, None) => {
                    return Err(need(
                        given,
                        &format!(
                            "the number {word} is allowed only after one of {LEVELS}, such as \
                             numa:2; omit the number"
                        ),
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Requests `n` ranks at each place of the kind `level`. The places are filled in order.
fn take_per_place(parser: &mut Parser<'_>, given: &GivenOption, n: usize, level: Level) {
    let places = match level {
        Level::Node => 1,
        level => parser.here.count(level),
    };
    parser.spec.placement.map = Some((level, 1));
    parser.spec.placement.in_a_row = n;
    parser.count.per_node =
        Some(PerNode { ranks: n.saturating_mul(places), typed: given.typed(), strict: true });
}

/// `--cpus-per-proc N`
pub fn take_per_rank(parser: &mut Parser<'_>, given: &GivenOption) -> Result<(), UsageError> {
    parser.spec.placement.per_rank = Some(read_ranks(given)?);
    parser.spec.placement.per_rank_typed = Some(given.typed());
    Ok(())
}

/// `--npersocket N`
pub fn take_per_socket(parser: &mut Parser<'_>, given: &GivenOption) -> Result<(), UsageError> {
    let ranks = read_ranks(given)?;
    take_per_place(parser, given, ranks, Level::Package);
    Ok(())
}

/// `--ppr N:PLACE`
pub fn take_ppr(parser: &mut Parser<'_>, given: &GivenOption) -> Result<(), UsageError> {
    let text = given.text();
    let (ranks, level) = text.split_once(':').unwrap_or((&text, ""));
    match (parse_ranks(ranks), find_level(level)) {
        (Some(ranks), Some(level)) => {
            take_per_place(parser, given, ranks, level);
            Ok(())
        }
        _ => {
            Err(need(given, &format!("the value must be N:PLACE, where PLACE is one of {LEVELS}")))
        }
    }
}

/// `--rank-by ORDER`
pub fn take_rank(parser: &mut Parser<'_>, given: &GivenOption) -> Result<(), UsageError> {
    let text = given.text().to_ascii_lowercase();
    let (order, span) = text.split_once(':').unwrap_or((&text, ""));
    let known = match (order, find_level(order), span) {
        ("span", ..) => Some(RankOrder::Round(None)),
        ("slot" | "fill", ..) | (_, Some(Level::Core | Level::Thread), _) => Some(RankOrder::Fill),
        (_, Some(Level::Node), _) => Some(RankOrder::Mapped),
        (_, Some(level), "" | "span") => Some(RankOrder::Round(Some(level))),
        _ => None,
    };
    let wanted = || need(given, &format!("unknown order; use slot, fill, span or one of {LEVELS}"));
    parser.spec.placement.rank = known.ok_or_else(wanted)?;
    Ok(())
}

/// `--cpu-set LIST`
pub fn take_cpus(parser: &mut Parser<'_>, given: &GivenOption) -> Result<(), UsageError> {
    restrict(parser, given, &given.text())
}

fn restrict(parser: &mut Parser<'_>, given: &GivenOption, list: &str) -> Result<(), UsageError> {
    let set = CpuSet::parse(list).filter(|set| !set.is_empty());
    parser.spec.cpus = Some(
        set.ok_or_else(|| need(given, "the value must be a list of processors, such as 0-3,8"))?,
    );
    Ok(())
}
