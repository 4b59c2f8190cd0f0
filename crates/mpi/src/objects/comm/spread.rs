//! Communicators whose messages are spread over several workers, by tag or by rank of the other side: threads that use
//! one communicator do not share a lock either.
//!
//! A receive must be posted where its message comes. Without a promise of the program one with a wildcard may match a
//! message of any tag or rank, so that all of them need one worker. `mpi_assert_no_any_tag` says that no receive and
//! no probe of the communicator has `MPI_ANY_TAG`, `mpi_assert_no_any_source` the same of `MPI_ANY_SOURCE` (MPI-5.0
//! section 7.4.4): then messages of different tags, or of different pairs of ranks, are never compared with each other,
//! and each tag or pair has a worker that both sides compute alike. Within it the order is kept.
//! `mpi_assert_allow_overtaking` adds nothing to that, and by itself allows nothing: a receive with a wildcard would
//! still have to stand in several places at once.
//!
//! The promise of one rank is not enough, since a sender must know what the receiver may ask for. Members that make a
//! communicator with hints compare them, and what all promise counts. It counts for good: a hint that is set later, or
//! taken back, moves no message. A wildcard that breaks the promise is an error.

use super::{HotComm, hints};
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use fastpath_base::sync::{Ordering, StaticU32};
use fastpath_protocol::Endpoint;
use std::cell::OnceCell;

/// Promises, as bits of the word that members compare, by the names of their hints.
const NO_ANY_TAG: u64 = 1;
const NO_ANY_SOURCE: u64 = 2;
const PROMISES: [(&str, u64); 2] =
    [("mpi_assert_no_any_tag", NO_ANY_TAG), ("mpi_assert_no_any_source", NO_ANY_SOURCE)];

/// Communicators that were spread, for the report.
static SPREAD: StaticU32 = StaticU32::new(0);

/// How a communicator's messages are spread.
pub(crate) struct Spread {
    /// What all members have promised.
    promised: u64,
    /// The calling process's rank.
    own: u32,
    /// The endpoints in each further worker, by place from 1 on.
    endpoints: Box<[Box<[*mut Endpoint]>]>,
    /// What the immediate path reads instead of the communicator's own entry; by place as well.
    entries: OnceCell<Box<[HotComm]>>,
}

/// What the hints of a communicator promise of its messages, as a word that members compare; 0 for nothing.
pub(crate) fn find_promises(hints: &[(String, String)]) -> u64 {
    let promised = |name: &str| hints::value(hints, name) == "true";
    let bits = PROMISES.iter().filter(|(name, _)| promised(name));
    bits.fold(0, |all, (_, bit)| all | bit)
}

/// How many communicators this process has spread.
pub(crate) fn count() -> u32 {
    SPREAD.load(Ordering::Relaxed)
}

/// Which of `lanes` workers, from 0 on, has the messages between ranks `own` and `peer` with a tag; none where the
/// arguments do not say it. Alike on both sides. Tags and ranks in a row are those of threads in a row, which get
/// workers in a row.
#[inline]
fn choose(promised: u64, own: u32, peer: i32, tag: i32, lanes: usize) -> Option<usize> {
    let mut sum = 0;
    if promised & NO_ANY_TAG != 0 {
        sum += u64::from(u32::try_from(tag).ok()?);
    }
    if promised & NO_ANY_SOURCE != 0 {
        sum += u64::from(own) + u64::from(u32::try_from(peer).ok()?);
    }
    Some((sum % lanes as u64) as usize)
}

impl Spread {
    /// Of a communicator whose members have all promised that; the calling process's rank, and the endpoints in each
    /// further worker, by place from 1 on.
    pub fn new(promised: u64, own: u32, endpoints: Vec<Box<[*mut Endpoint]>>) -> Self {
        SPREAD.fetch_add(1, Ordering::Relaxed);
        Spread { promised, own, endpoints: endpoints.into(), entries: OnceCell::new() }
    }

    #[inline]
    fn index(&self, peer: i32, tag: i32) -> Option<usize> {
        choose(self.promised, self.own, peer, tag, self.endpoints.len())
    }

    /// The place of the worker that has the messages of a rank and a tag.
    ///
    /// # Errors
    /// `MPI_ERR_TAG`, `MPI_ERR_RANK` for a wildcard that the communicator was promised not to see.
    pub fn place(&self, peer: i32, tag: i32) -> Result<u32> {
        self.index(peer, tag).map(|index| index as u32 + 1).ok_or_else(|| self.refuse(tag))
    }

    #[cold]
    fn refuse(&self, tag: i32) -> Error {
        let (class, wildcard, hint) = match self.promised & NO_ANY_TAG != 0 && tag == MPI_ANY_TAG {
            true => (MPI_ERR_TAG, "MPI_ANY_TAG", "mpi_assert_no_any_tag"),
            false => (MPI_ERR_RANK, "MPI_ANY_SOURCE", "mpi_assert_no_any_source"),
        };
        let text = format!(
            "{wildcard} on a communicator that all its members made with the hint {hint}: its \
             messages are spread over several workers"
        );
        Error::new(class, text).with_advice(Some(
            "make the communicator without the hint, or run with FASTPATH_WORKERS=one",
        ))
    }

    /// Whether messages are where they are by the promise of that hint: it cannot be taken back.
    pub fn needs(&self, hint: &str) -> bool {
        let found = PROMISES.iter().find(|(name, _)| *name == hint);
        found.is_some_and(|(_, bit)| self.promised & bit != 0)
    }

    /// Makes the entries for the immediate path, from that of the communicator as a whole.
    pub fn make_entries(&self, whole: &HotComm) {
        let made = || {
            let by_place = self.endpoints.iter().zip(1..);
            let entry = by_place.map(|(endpoints, place)| HotComm {
                endpoints: endpoints.as_ptr(),
                place,
                ..*whole
            });
            entry.collect()
        };
        self.entries.get_or_init(made);
    }

    /// The entry for the messages of a rank and a tag; none where the arguments name no worker.
    #[inline]
    pub fn entry(&self, peer: i32, tag: i32) -> Option<&HotComm> {
        self.entries.get()?.get(self.index(peer, tag)?)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::objects::comm::hints::tests::pairs;

    #[test]
    fn promises__are_hints_that_are_true() {
        let given = [
            ("mpi_assert_no_any_tag", "true"),
            ("mpi_assert_no_any_source", "false"),
            ("mpi_assert_allow_overtaking", "true"),
        ];
        assert_eq!(find_promises(&pairs(&given)), NO_ANY_TAG);
        assert_eq!(find_promises(&[]), 0);
    }

    #[test]
    fn choose__is_alike_on_both_sides() {
        for promised in [NO_ANY_TAG, NO_ANY_SOURCE, NO_ANY_TAG | NO_ANY_SOURCE] {
            for (a, b, tag) in [(0, 1, 0), (3, 3, 5), (1000, 7, i32::MAX), (i32::MAX, 1, 6)] {
                let here = choose(promised, a as u32, b, tag, 7);
                assert_eq!(here, choose(promised, b as u32, a, tag, 7));
                assert!(here.unwrap() < 7);
            }
        }
    }

    #[test]
    fn choose__looks_at_what_was_promised_alone() {
        let all = |promised| -> Vec<_> {
            let pairs = (0..7).flat_map(|peer| (0..7).map(move |tag| (peer, tag)));
            pairs.map(|(peer, tag)| choose(promised, 2, peer, tag, 7).unwrap()).collect()
        };
        assert!(all(NO_ANY_TAG).iter().enumerate().all(|(i, &lane)| lane == i % 7));
        assert!(all(NO_ANY_SOURCE).iter().enumerate().all(|(i, &lane)| lane == (i / 7 + 2) % 7));
    }

    #[test]
    fn choose__knows_no_wildcard_that_was_excluded() {
        assert_eq!(choose(NO_ANY_TAG, 0, 1, MPI_ANY_TAG, 7), None);
        assert_eq!(choose(NO_ANY_SOURCE, 0, MPI_ANY_SOURCE, 1, 7), None);
        assert_eq!(choose(NO_ANY_TAG, 0, MPI_ANY_SOURCE, 3, 7), Some(3));
        assert_eq!(choose(NO_ANY_SOURCE, 1, 3, MPI_ANY_TAG, 7), Some(4));
    }
}
