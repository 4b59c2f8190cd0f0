//! Collective accesses: exchange of summaries, choice of the access method, and the common outcome.
//!
//! This code serves blocking calls and calls with a request. If one rank refuses its arguments, no rank reads or
//! writes. Ranks move their own bytes if their shares do not interleave or have large pieces. Otherwise all ranks
//! follow a plan ([`fastpath_io::AccessPlan`]), which [`super::two_phase`] performs.
//!
//! **ELEMENTS.** The elements in memory are readable or writable as in `access`. The data in an aggregator's buffer is
//! valid for the window with which it is passed.
#![allow(unsafe_code)]

use super::access::{Access, LocatedAccess};
use super::failure::{conclude, tell, to_words};
use super::hints::DEFAULT_BUFFER;
use super::two_phase::{self, AggregatorFile, Task};
use super::{AccessFailure, File, helper};
use crate::coll;
use crate::coll::fabric::{CallFabric, Fabric};
use crate::coll::vector::Vector;
use crate::coll::words;
use crate::common::consts::{MPI_ERR_INTERN, MPI_ERR_OTHER};
use crate::common::error::{Error, Result};
use crate::process::Process;
use fastpath_base::trace::{self, Point};
use fastpath_io::{
    AccessPlan, Action, Counter, Coverage, Descriptor, IoError, RankAccess, Sieve, Switch, Tuning,
};

const OUTCOME: usize = 4;
/// Number of words that a rank sends before an access: outcome, share, size of the file, flags, tuning.
const TOLD: usize = OUTCOME + 4 + 1 + 1 + 5;

/// Smallest piece, in bytes, that ranks of one host access independently at no loss. Measured:
/// docs/decisions/0052-large-pieces-alone.md.
const PIECE_OF_HOST: u64 = 4096;
/// Smallest piece, in bytes, that ranks of several hosts, or of hosts that use a file server, access independently at
/// no loss. There, another host may hold the block of the file that contains the piece.
const PIECE_OF_SERVER: u64 = 1 << 18;

/// Maximum bytes of an aggregator's buffer. A larger value from another rank is reduced to this maximum.
const MOST_BUFFER: u64 = 1 << 31;

/// Summary that a rank sends before an access.
#[derive(Debug, Clone, Copy)]
struct AccessSummary {
    share: RankAccess,
    /// Bytes of the file, if this rank reads.
    size: i64,
    /// Whether the rank's bytes can go through an aggregator.
    is_able: bool,
    writes: bool,
    tuning: Tuning,
}

impl AccessSummary {
    fn to_words(self, outcome: [u64; OUTCOME]) -> [u64; TOLD] {
        let (share, tuning) = (self.share, self.tuning);
        let mut words = [0; TOLD];
        words[..OUTCOME].copy_from_slice(&outcome);
        words[OUTCOME..].copy_from_slice(&[
            share.low as u64,
            share.high as u64,
            share.bytes,
            share.piece,
            self.size as u64,
            u64::from(self.is_able) | u64::from(self.writes) << 1,
            tuning.switch as u64,
            tuning.buffer,
            tuning.aggregators,
            tuning.align,
            tuning.worthwhile,
        ]);
        words
    }

    fn from_words(words: &[u64; TOLD], node: u32) -> AccessSummary {
        let at = |index: usize| words[OUTCOME + index];
        let offset = |index: usize| i64::try_from(at(index)).unwrap_or(i64::MAX);
        let high = offset(1);
        AccessSummary {
            share: RankAccess { low: offset(0).min(high), high, bytes: at(2), piece: at(3), node },
            size: offset(4),
            is_able: at(5) & 1 != 0,
            writes: at(5) & 2 != 0,
            tuning: Tuning {
                switch: match at(6) {
                    1 => Switch::Enabled,
                    2 => Switch::Disabled,
                    _ => Switch::Automatic,
                },
                buffer: at(7).min(MOST_BUFFER),
                aggregators: at(8),
                align: at(9),
                worthwhile: at(10),
            },
        }
    }
}

/// Performs a collective access. Returns the number of bytes of the file that this rank moved. Errors: one error on all
/// ranks, or errors of communication.
///
/// # Safety
/// See ELEMENTS, which must hold until the future is ready.
pub(super) async unsafe fn run<C: CallFabric>(
    f: &C, file: &File, access: &Access, located: Result<LocatedAccess>,
) -> Result<u64> {
    coll::compare_call(f).await?;
    let p = f.channel().process;
    let (located, told) = tell(located.map_err(AccessFailure::Other));
    let own = file.tell_share(p, access, located.as_ref());
    let words = words::gather(f, own.to_words(to_words(&told))).await?;
    let outcomes: Vec<[u64; OUTCOME]> = words.iter().map(outcome_of).collect();
    conclude(f.rank(), &file.name, told, outcomes.iter())?;
    let located = located.ok_or_else(|| Error::new(MPI_ERR_INTERN, "a rank's error was lost"))?;
    let all: Vec<AccessSummary> = (0..f.size())
        .zip(&words)
        .map(|(rank, words)| AccessSummary::from_words(words, host_of(p, file, rank)))
        .collect();
    check_direction(&file.name, &all)?;
    let mut buffer = file.buffer.take();
    let planned = file.plan_within_memory(f, access, &all, &mut buffer).await?;
    let own = match planned {
        // SAFETY: ELEMENTS.
        Some((plan, shares)) => unsafe {
            let size = size_of(&all);
            let planned = file.follow(f, access, &located, (&plan, &shares), size, &mut buffer);
            f.apart(planned).await?
        },
        // SAFETY: ELEMENTS.
        None => unsafe { file.transfer(access, &located) },
    };
    file.buffer.replace(buffer);
    let (bytes, told) = tell(own);
    let outcomes = words::gather(f, to_words(&told)).await?;
    conclude(f.rank(), &file.name, told, outcomes.iter())?;
    bytes.ok_or_else(|| Error::new(MPI_ERR_INTERN, "a rank's error was lost"))
}

/// Checks that all ranks write, or that all read. All ranks get the same result.
fn check_direction(name: &str, all: &[AccessSummary]) -> Result {
    let is_first = |told: &AccessSummary| told.writes == all[0].writes;
    let Some(other) = all.iter().position(|told| !is_first(told)) else {
        return Ok(());
    };
    let (first, second) = match all[0].writes {
        true => ("writes", "reads"),
        false => ("reads", "writes"),
    };
    let text = format!(
        "file \"{name}\": rank 0 {first} and rank {other} {second} in the same collective call: \
         all ranks must make the same collective calls on a file, in the same order"
    );
    Err(Error::new(MPI_ERR_OTHER, text))
}

fn outcome_of(words: &[u64; TOLD]) -> [u64; OUTCOME] {
    std::array::from_fn(|index| words[index])
}

/// Returns the largest size of the file, in bytes, that a rank sees. A host that caches attributes may see an old size.
fn size_of(all: &[AccessSummary]) -> i64 {
    all.iter().map(|told| told.size).max().unwrap_or(0)
}

fn host_of(p: &Process, file: &File, rank: u32) -> u32 {
    let world = file.comm.group.world_ranks().get(rank as usize).copied();
    match (p.engine(), world) {
        (Some(engine), Some(world)) => engine.job.host(world as usize),
        _ => 0,
    }
}

impl File {
    fn tell_share(
        &self, p: &Process, access: &Access, located: Option<&LocatedAccess>,
    ) -> AccessSummary {
        let shown = self.shown();
        let mut share = RankAccess::default();
        let mut is_able =
            !self.atomic.get() && shown.representation.is_native() && shown.is_ascending;
        if let Some(LocatedAccess { checked, start }) = located
            && checked.bytes > 0
        {
            let low = shown.view.offset_of(*start);
            let last = shown.view.offset_of(start + checked.bytes - 1);
            is_able &= low.is_some() && last.is_some();
            share = RankAccess {
                low: low.unwrap_or(0),
                high: last.map_or(0, |last| last.saturating_add(1)),
                bytes: checked.bytes,
                piece: shown.view.piece_bytes(*start, checked.bytes),
                node: 0,
            };
        }
        let size = match access.writes {
            true => Ok(0),
            false => self.with_descriptor(|file| Ok(file.size()?)),
        };
        AccessSummary {
            share,
            // If the size is unknown, each rank accesses the file independently and detects the error.
            is_able: is_able && size.is_ok(),
            writes: access.writes,
            size: size.unwrap_or(0),
            tuning: self.tuning(p, access.writes),
        }
    }

    pub(super) fn hosts(&self, p: &Process) -> u64 {
        *self.hosts.get_or_init(|| {
            let ranks = 0..self.comm.size();
            let mut hosts: Vec<u32> = ranks.map(|rank| host_of(p, self, rank)).collect();
            hosts.sort_unstable();
            hosts.dedup();
            hosts.len() as u64
        })
    }

    /// Returns the default number of aggregators. On several hosts it is one per host. On one host it is the number of
    /// processors, or of ranks if that is smaller.
    pub(super) fn aggregators(&self, p: &Process) -> u64 {
        let processors = p.engine().map_or(1, |engine| engine.job.processors() as u64);
        match self.hosts(p) {
            1 => processors.clamp(1, self.comm.size().into()),
            hosts => hosts,
        }
    }

    /// Returns this rank's tuning parameters. Only those of rank 0 are used.
    fn tuning(&self, p: &Process, writes: bool) -> Tuning {
        let hints = self.hints.borrow();
        let descriptor = self.descriptor.borrow();
        let is_uncached = descriptor.as_ref().is_some_and(|file| file.is_uncached());
        Tuning {
            switch: hints.exchange(writes),
            buffer: hints.buffer(),
            aggregators: hints.aggregators().unwrap_or_else(|| self.aggregators(p)),
            align: hints.align(),
            worthwhile: match self.hosts(p) {
                1 if !is_uncached => PIECE_OF_HOST,
                _ => PIECE_OF_SERVER,
            },
        }
    }

    /// Makes a plan by [`File::plan`]. If an aggregator lacks memory for the hinted buffer size, uses
    /// [`DEFAULT_BUFFER`].
    async fn plan_within_memory<F: Fabric>(
        &self, f: &F, access: &Access, all: &[AccessSummary], buffer: &mut Vec<u8>,
    ) -> Result<Option<(AccessPlan, Vec<RankAccess>)>> {
        let Some(mut tuning) = all.first().map(|told| told.tuning) else {
            return Ok(None);
        };
        let planned = self.plan(access, all, &tuning);
        let Some((plan, _)) = &planned else {
            return Ok(None);
        };
        let needs = (0..plan.aggregators().len()).map(|index| plan.buffer_bytes(index));
        if needs.max().unwrap_or(0) <= DEFAULT_BUFFER {
            return Ok(planned);
        }
        let has_room = two_phase::reserve(plan, f.rank(), buffer);
        let rooms = words::gather(f, [u64::from(has_room)]).await?;
        if rooms.iter().all(|room| *room != [0]) {
            return Ok(planned);
        }
        *buffer = Vec::new();
        tuning.buffer = DEFAULT_BUFFER;
        Ok(self.plan(access, all, &tuning))
    }

    /// Returns the plan and all shares; `None` if ranks move their own bytes. A read's shares end with the file.
    fn plan(
        &self, access: &Access, all: &[AccessSummary], tuning: &Tuning,
    ) -> Option<(AccessPlan, Vec<RankAccess>)> {
        if !all.iter().all(|told| told.is_able || told.share.bytes == 0) {
            return None;
        }
        let mut shares: Vec<RankAccess> = all.iter().map(|told| told.share).collect();
        if !access.writes {
            let size = size_of(all);
            for share in &mut shares {
                match share.low < size {
                    true => share.high = share.high.min(size),
                    false => share.bytes = 0,
                }
            }
        }
        Some((AccessPlan::make(&shares, tuning)?, shares))
    }

    /// Moves the bytes of an access by a plan, and returns their number.
    ///
    /// # Safety
    /// See ELEMENTS, which must hold until the future is ready.
    async unsafe fn follow<C: CallFabric>(
        &self, f: &C, access: &Access, located: &LocatedAccess,
        (plan, shares): (&AccessPlan, &[RankAccess]), size: i64, buffer: &mut Vec<u8>,
    ) -> Result<std::result::Result<u64, AccessFailure>> {
        let shown = self.shown();
        let (checked, start) = (&located.checked, located.start);
        let mut range = start..start + checked.bytes;
        if !access.writes {
            range = shown.view.positions_in(&(0..size), range);
        }
        let bytes = range.end - range.start;
        let layout = checked.datatype().layout();
        let task = Task {
            writes: access.writes,
            view: &shown.view,
            range,
            memory: Vector::at(access.buf, checked.count, layout),
        };
        let store = FileStore { file: self, sieve: self.sieve() };
        // SAFETY: ELEMENTS. All ranks have made the plan from equal words.
        let moved = unsafe { two_phase::run(f, plan, shares, &task, &store, buffer).await? };
        self.aggregated.replace(plan.aggregators().to_vec());
        let counted = self.with_descriptor(|file| {
            file.count(Counter::Exchanges, 1);
            file.count(Counter::ExchangedBytes, bytes);
            Ok(bytes)
        });
        Ok(moved.and(counted))
    }
}

/// The file, as an aggregator accesses it.
struct FileStore<'a> {
    file: &'a File,
    sieve: Sieve,
}

impl FileStore<'_> {
    fn with<T>(
        &self, body: impl FnOnce(&Descriptor) -> std::result::Result<T, IoError>,
    ) -> std::result::Result<T, AccessFailure> {
        self.file.with_descriptor(|file| Ok(body(file)?))
    }
}

impl AggregatorFile for FileStore<'_> {
    unsafe fn write(
        &self, covered: &Coverage, from: *const u8,
    ) -> std::result::Result<(), AccessFailure> {
        if self.sieve != Sieve::Never {
            helper::finish();
        }
        trace::record(Point::FileWrite, 0, 0, covered.bytes());
        // SAFETY: ELEMENTS.
        let written = self.with(|file| unsafe { file.write_covered(covered, from, self.sieve) });
        trace::record(Point::FileWriteDone, 0, 0, 0);
        written
    }

    unsafe fn read(
        &self, covered: &Coverage, to: *mut u8,
    ) -> std::result::Result<(), AccessFailure> {
        trace::record(Point::FileRead, 0, 0, covered.bytes());
        // SAFETY: ELEMENTS.
        let is_whole = self.with(|file| unsafe { file.read_covered(covered, to) });
        trace::record(Point::FileReadDone, 0, 0, 0);
        match is_whole? {
            true => Ok(()),
            // All ranks have agreed on the size, so missing bytes are an error.
            false => Err(AccessFailure::System(IoError {
                action: Action::Read,
                errno: libc::ENODATA,
                offset: covered.start(),
                bytes: 0,
            })),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fuzz__told_words_are_understood_within_bounds(
            words in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..100_000], TOLD), node in 0u32..3,
        ) {
            let words: [u64; TOLD] = words.try_into().unwrap();
            let told = AccessSummary::from_words(&words, node);
            prop_assert!(told.share.low <= told.share.high && told.share.low >= 0 && told.size >= 0);
            prop_assert!(told.tuning.buffer <= MOST_BUFFER);
            let again = AccessSummary::from_words(&told.to_words([0; OUTCOME]), node);
            prop_assert_eq!(again.share, told.share);
            prop_assert_eq!((again.size, again.is_able), (told.size, told.is_able));
            let other = RankAccess { low: 5, high: 5000, bytes: 100, piece: 1, node: 0 };
            if let Some(plan) = AccessPlan::make(&[told.share, other], &told.tuning) {
                for index in 0..plan.aggregators().len() {
                    let window = plan.window(index, 0);
                    prop_assert!((window.end - window.start) as u64 <= MOST_BUFFER);
                    prop_assert!(plan.window(index, plan.rounds()).is_empty());
                }
            }
        }
    }
}
