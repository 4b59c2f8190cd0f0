//! `MPI_Win_lock_all` (MPI 5.0, section 12.5.3): how it shares a window with ranks that lock only one rank.
//!
//! A window that no rank locks exclusively needs no lock. So a rank that calls `MPI_Win_lock_all` is only counted, by
//! one operation on a word of its own host ([`Sharers`]). The first time that a rank locks exclusively it announces
//! that on every host, and waits until no rank is counted there. From then on `MPI_Win_lock_all` takes the shared locks
//! of all ranks, in the order of the ranks.
//!
//! A rank in `MPI_Win_lock_all` never waits for a lock later on, since it has all from the beginning. So ranks that
//! lock several ranks exclusively, in that order, and ranks in `MPI_Win_lock_all` cannot wait for each other for ever.
#![allow(unsafe_code)]

use super::control::{SHARERS, Words};
use super::counts::Counted;
use super::epoch::Sharing;
use super::lock::{
    check_assertion, complete_all, complete_pending, give, leave_fence, note, refuse, serve, take,
};
use super::window::Window;
use super::{hot, hot_lock};
use crate::common::consts::MPI_MODE_NOCHECK;
use crate::common::error::Result;
use crate::process::Process;
use fastpath_base::sync::{AtomicU64, Ordering};
use fastpath_base::trace::Point;
use std::collections::HashSet;

/// A host's word: how many ranks are in `MPI_Win_lock_all` without locks, and how many have announced that they lock
/// exclusively.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Sharers(u64);

impl Sharers {
    /// What is added to be counted, to be counted no more, and to announce.
    const ENTER: u64 = 1;
    const LEAVE: u64 = 1_u64.wrapping_neg();
    const ANNOUNCE: u64 = 1 << 32;

    /// Whether any rank locks exclusively.
    fn is_contested(self) -> bool {
        self.0 >> 32 != 0
    }

    /// Whether no rank is counted.
    fn is_empty(self) -> bool {
        self.0 as u32 == 0
    }
}

/// `MPI_Win_lock_all`
///
/// # Errors
/// `MPI_ERR_ASSERT`, `MPI_ERR_RMA_SYNC` where another epoch is open.
pub fn lock_all(p: &Process, window: &Window, assertion: i32) -> Result {
    check_assertion(assertion, MPI_MODE_NOCHECK)?;
    let may = window.epoch.borrow().may_lock(None);
    refuse(window, None, may)?;
    leave_fence(window);
    let sharing = match assertion & MPI_MODE_NOCHECK {
        0 if enter(p, window)? => Sharing::Counted,
        0 => {
            take_locks(p, window)?;
            Sharing::Locks
        }
        _ => Sharing::Unchecked,
    };
    window.epoch.borrow_mut().lock_all(sharing);
    window.counts.add(Counted::Epochs);
    window.record(Point::EpochBegins, 0, 0);
    window.open_again();
    Ok(())
}

/// `MPI_Win_unlock_all`
///
/// # Errors
/// `MPI_ERR_RMA_SYNC` without `MPI_Win_lock_all`; those of operations that are under way.
pub fn unlock_all(p: &Process, window: &Window) -> Result {
    let sharing = window.epoch.borrow().may_unlock_all();
    refuse(window, None, sharing.map(drop))?;
    window.close_for_now();
    // What gives a lock back orders what was written.
    let done = match sharing {
        Ok(Sharing::Unchecked) => complete_all(p, window),
        _ => complete_pending(p, window),
    };
    let left = match sharing {
        Ok(Sharing::Counted) => leave(p, window),
        _ => give_locks(p, window),
    };
    window.epoch.borrow_mut().unlock_all();
    window.record(Point::EpochEnds, 0, 0);
    done.and(left).and_then(|()| serve(p, window))
}

/// `MPI_Win_lock_all` of a window that no rank locks exclusively and whose word of this host was used before, or
/// nothing.
#[inline]
pub fn try_lock_all<const WAY: u8>(assertion: i32, win: usize) -> bool {
    let Some((window, home, word)) = find::<WAY>(win).filter(|_| assertion == 0) else {
        return false;
    };
    let Ok(mut epoch) = window.epoch.try_borrow_mut() else {
        return false;
    };
    if window.contested.get() || epoch.is_fenced() || epoch.may_lock(None).is_err() {
        return false;
    }
    // ORDERING: what was written to the window before is there for who counts itself, or locks; partner: the same
    // operations of the other ranks.
    if Sharers(word.fetch_add(Sharers::ENTER, Ordering::AcqRel)).is_contested() {
        window.contested.set(true);
        // ORDERING: as above.
        word.fetch_add(Sharers::LEAVE, Ordering::AcqRel);
        return false;
    }
    hot_lock::note::<WAY>(window, home, true);
    epoch.lock_all(Sharing::Counted);
    window.counts.add(Counted::Epochs);
    window.open_again();
    true
}

/// `MPI_Win_unlock_all` of such an epoch in which nothing is under way, or nothing.
#[inline]
pub fn try_unlock_all<const WAY: u8>(win: usize) -> bool {
    let Some((window, home, word)) = find::<WAY>(win) else {
        return false;
    };
    let Ok(mut epoch) = window.epoch.try_borrow_mut() else {
        return false;
    };
    if epoch.may_unlock_all() != Ok(Sharing::Counted) || !window.pending.borrow().is_empty() {
        return false;
    }
    window.close_for_now();
    hot_lock::note::<WAY>(window, home, false);
    // ORDERING: as in `try_lock_all`.
    word.fetch_add(Sharers::LEAVE, Ordering::AcqRel);
    epoch.unlock_all();
    true
}

/// A window of the hot table, the first rank of this host, and its word.
#[inline]
fn find<const WAY: u8>(win: usize) -> Option<(&'static Window, u32, &'static AtomicU64)> {
    let window = hot::lockable::<WAY>(win)?;
    let home = *window.home.get()?;
    Some((window, home, window.known(home)?.control.near(SHARERS)?))
}

/// Is counted among those in `MPI_Win_lock_all`; false where a rank locks exclusively.
fn enter(p: &Process, window: &Window) -> Result<bool> {
    if !window.contested.get() {
        let (home, words) = home(p, window)?;
        let seen = Sharers(words.add(SHARERS, Sharers::ENTER)?);
        if !seen.is_contested() {
            note(p, window, home, true)?;
            return Ok(true);
        }
        words.add(SHARERS, Sharers::LEAVE)?;
        window.contested.set(true);
    }
    Ok(false)
}

/// Is counted no more.
fn leave(p: &Process, window: &Window) -> Result {
    let (home, words) = home(p, window)?;
    note(p, window, home, false)?;
    words.add(SHARERS, Sharers::LEAVE).map(drop)
}

/// Ends the epoch of a process that ends without having done so, where that needs no other process: they may be gone.
pub(super) fn end_left(p: &Process, window: &Window) {
    if window.epoch.borrow().may_unlock_all() == Ok(Sharing::Counted)
        && home(p, window).is_ok_and(|(_, words)| words.near(SHARERS).is_some())
    {
        // What was begun is complete, as far as it can be.
        _ = unlock_all(p, window);
    }
}

/// Takes the shared locks of all ranks, in their order; none where that fails.
fn take_locks(p: &Process, window: &Window) -> Result {
    for rank in 0..window.size() {
        if let Err(error) = take(p, window, rank, false) {
            // That a lock cannot be given back says less than why there is none.
            let _ = give_locks(p, window);
            window.epoch.borrow_mut().unlock_all();
            return Err(error);
        }
        window.epoch.borrow_mut().note_shared(rank);
    }
    Ok(())
}

/// Gives back the locks that are held.
fn give_locks(p: &Process, window: &Window) -> Result {
    let held = window.epoch.borrow().locked();
    held.into_iter().try_for_each(|rank| give(p, window, rank, false))
}

/// Says on every host that this rank locks exclusively, and waits until no rank is in `MPI_Win_lock_all` without locks.
#[cold]
#[inline(never)]
pub(super) fn announce(p: &Process, window: &Window) -> Result {
    let homes = homes(p, window)?;
    for &rank in &homes {
        Words::of(p, window, rank)?.add(SHARERS, Sharers::ANNOUNCE)?;
    }
    for &rank in &homes {
        Words::of(p, window, rank)?.poll_word(SHARERS, |word| Sharers(word).is_empty())?;
    }
    window.announced.set(true);
    Ok(())
}

/// The first rank of this host, and its words.
fn home<'a>(p: &'a Process, window: &'a Window) -> Result<(u32, Words<'a>)> {
    let rank = match window.home.get() {
        Some(&rank) => rank,
        None => {
            let hosts = hosts(p, window)?;
            let own = hosts[window.rank as usize];
            let first = hosts.iter().position(|&host| host == own).unwrap_or(0);
            *window.home.get_or_init(|| first as u32)
        }
    };
    Ok((rank, Words::of(p, window, rank)?))
}

/// The first rank of each host.
fn homes(p: &Process, window: &Window) -> Result<Vec<u32>> {
    let mut seen = HashSet::new();
    let ranks = (0..).zip(hosts(p, window)?);
    Ok(ranks.filter(|&(_, host)| seen.insert(host)).map(|(rank, _)| rank).collect())
}

/// The host of each rank: every rank knows the same.
fn hosts(p: &Process, window: &Window) -> Result<Vec<u32>> {
    // SAFETY: the worker lives while MPI runs, and this call holds the lock.
    let job = unsafe { (*p.worker()?).job };
    let worlds = window.group.world_ranks().iter();
    Ok(worlds.map(|&world| job.host(world as usize)).collect())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::lock_word::{LockWord, Ticket};
    use super::*;
    use std::collections::VecDeque;

    /// What a rank does, one operation on one word at a time.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    enum LockStep {
        /// `MPI_Win_lock_all`.
        Enter,
        /// Accesses every rank.
        Access,
        /// Is counted no more.
        Uncount,
        Announce,
        AwaitNobody,
        Take(usize, bool),
        Await(usize, bool, Ticket),
        Press(usize, i8),
        Admit(usize),
        Give(usize, bool),
        /// Leaves what it went into to give way.
        GiveWay(usize),
    }
    use LockStep::*;

    /// A rank: what it has yet to do, and the locks it holds.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Rank {
        todo: VecDeque<LockStep>,
        holds: Vec<(usize, bool)>,
    }

    #[derive(Clone, PartialEq, Eq, Hash)]
    struct World {
        locks: [u64; 2],
        pressed: [i8; 2],
        sharers: Sharers,
        ranks: Vec<Rank>,
    }

    impl World {
        fn new(plans: &[&[LockStep]]) -> World {
            let rank = |plan: &&[LockStep]| Rank {
                todo: plan.iter().copied().collect(),
                holds: Vec::new(),
            };
            World {
                locks: [0; 2],
                pressed: [0; 2],
                sharers: Sharers(0),
                ranks: plans.iter().map(rank).collect(),
            }
        }

        /// The world after the next step of a rank; none where that one waits, or has done everything.
        fn after(&self, rank: usize) -> Option<World> {
            let mut world = self.clone();
            let World { locks, pressed, sharers, ranks } = &mut world;
            let rank = &mut ranks[rank];
            let mut further: Vec<LockStep> = Vec::new();
            match rank.todo.pop_front()? {
                Enter => {
                    let seen = *sharers;
                    sharers.0 += Sharers::ENTER;
                    further = match seen.is_contested() {
                        false => vec![Access, Uncount],
                        true => vec![
                            Uncount,
                            Take(0, false),
                            Take(1, false),
                            Access,
                            Give(0, false),
                            Give(1, false),
                        ],
                    };
                }
                Access => {}
                Uncount => sharers.0 = sharers.0.wrapping_add(Sharers::LEAVE),
                Announce => sharers.0 += Sharers::ANNOUNCE,
                AwaitNobody if !sharers.is_empty() => return None,
                AwaitNobody => {}
                Take(at, exclusive) => {
                    let (word, ticket, granted) = LockWord(locks[at]).request(exclusive);
                    locks[at] = word.0;
                    match (granted, exclusive) {
                        (true, _) => rank.holds.push((at, exclusive)),
                        (false, true) => further.push(Await(at, true, ticket)),
                        (false, false) => {
                            let presses = i8::from(!rank.holds.is_empty());
                            further = vec![
                                Press(at, presses),
                                Await(at, false, ticket),
                                Press(at, -presses),
                                Admit(at),
                            ];
                        }
                    }
                }
                Await(at, exclusive, ticket) => {
                    let word = LockWord(locks[at]);
                    if word.is_turn(ticket, exclusive) {
                        rank.holds.push((at, exclusive));
                    } else if exclusive && word.holds_up(ticket) && pressed[at] > 0 {
                        further = vec![Admit(at), GiveWay(at), Take(at, true)];
                    } else {
                        return None;
                    }
                }
                Press(at, by) => pressed[at] += by,
                Admit(at) => locks[at] = LockWord(locks[at]).admit().0,
                Give(at, exclusive) => {
                    rank.holds.retain(|held| *held != (at, exclusive));
                    locks[at] = LockWord(locks[at]).release(exclusive).0;
                }
                GiveWay(at) => locks[at] = LockWord(locks[at]).release(false).0,
            }
            for step in further.into_iter().rev() {
                rank.todo.push_front(step);
            }
            Some(world)
        }

        /// Whether a rank has locked exclusively what another may access.
        fn is_wrong(&self) -> bool {
            let accesses = |rank: &Rank, at| {
                rank.todo.front() == Some(&Access) || rank.holds.iter().any(|held| held.0 == at)
            };
            (0..self.ranks.len()).any(|one| {
                let exclusive = self.ranks[one].holds.iter().filter(|held| held.1);
                exclusive.clone().any(|&(at, _)| {
                    let mut others = (0..self.ranks.len()).filter(|&other| other != one);
                    others.any(|other| accesses(&self.ranks[other], at))
                })
            })
        }
    }

    /// Goes through every order of the ranks' steps: how many worlds there are, and whether in one of them all wait.
    fn explore(plans: &[&[LockStep]]) -> (usize, bool) {
        let first = World::new(plans);
        let (mut seen, mut open) = (HashSet::from([first.clone()]), vec![first]);
        let mut hangs = false;
        while let Some(world) = open.pop() {
            assert!(!world.is_wrong(), "two are inside");
            let next: Vec<World> = (0..plans.len()).filter_map(|rank| world.after(rank)).collect();
            let is_over = world.ranks.iter().all(|rank| rank.todo.is_empty());
            if is_over {
                let free = world.locks.iter().all(|&word| LockWord(word).is_free());
                assert!(free && world.sharers.is_empty() && world.pressed == [0; 2]);
            }
            hangs |= next.is_empty() && !is_over;
            open.extend(next.into_iter().filter(|world| seen.insert(world.clone())));
        }
        (seen.len(), hangs)
    }

    const SHARER: &[LockStep] = &[Enter, Enter];
    const BOTH: &[LockStep] = &[
        Announce,
        AwaitNobody,
        Take(0, true),
        Take(1, true),
        Give(1, true),
        Give(0, true),
        Take(0, true),
        Take(1, true),
        Give(0, true),
        Give(1, true),
    ];
    const fn one(at: usize) -> [LockStep; 4] {
        [Announce, AwaitNobody, Take(at, true), Give(at, true)]
    }
    const FIRST: &[LockStep] = &one(0);
    const SECOND: &[LockStep] = &one(1);

    #[test]
    fn lock_all__and_exclusive_locks_of_several_ranks_never_wait_for_each_other_for_ever() {
        let cases: [&[&[LockStep]]; 4] = [
            &[BOTH, SHARER],
            &[BOTH, SHARER, SHARER],
            &[BOTH, BOTH, SHARER],
            &[BOTH, FIRST, SECOND, SHARER],
        ];
        for plans in cases {
            let (worlds, hangs) = explore(plans);
            assert!(worlds > 100 && !hangs, "{worlds}");
        }
    }

    #[test]
    fn lock_all__of_locks_at_the_first_access_would_hang() {
        const LAZY: &[LockStep] =
            &[Take(1, false), Take(0, false), Access, Give(0, false), Give(1, false)];
        assert!(explore(&[BOTH, LAZY]).1);
    }
}
