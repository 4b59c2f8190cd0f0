//! A recursive lock that is biased to one thread: that thread enters by plain instructions until another thread wants
//! the lock.
//!
//! ```text
//! biased thread                    another thread, which holds `word`
//! inside = 1                       bias = none
//! (compiler order only)            fence_own_threads()
//! bias still its own? go on        inside == 0? go on, else wait for it
//! ```
//!
//! The handshake is that of sleepers in [`crate::wait`]: the revoking thread pays for the fence. Without a bias this is
//! a futex lock. A waiting thread yields a few times, then sleeps. After [`PASSES`] unsuccessful wake-ups a sleeper is
//! handed the lock, before any thread that has not slept for it.
//!
//! A thread that has long been the only user gets the bias, if one of two seats is free. A seat has the word `inside`
//! of one biased thread. It becomes free when that thread, after losing its bias, has entered without it or has ended.
//! The number of entries that a bias requires grows with the time of the last revocation's fence. Revocations therefore
//! take a bounded part of the time ("Biased locking", Russell and Detlefs 2006).
//!
//! A thread that makes progress for other threads borrows the lock ([`Biased::borrow`]). [`Biased::give_back`] then
//! returns the bias to its thread.
#![allow(unsafe_code)]

use crate::sync::{AtomicU32, AtomicUsize, Ordering, compiler_fence, fence};
use crate::wait;

mod seat;
mod word;
use seat::Seat;
pub use word::PASSES;
use word::{FREE, YIELDS};

/// Minimum number of successive entries by one thread that give it the bias.
const ALONE: u32 = 256;
/// Nanoseconds. If the fence of the last revocation took n times this long, a bias requires n entries. An entry and its
/// work take some 30 ns, so revocations take at most an eighth of the time. The fence takes 400 ns between threads that
/// share a processor, and 5 to 20 us if it interrupts other processors.
const FENCE_NS_PER_ENTRY: u64 = 4;
/// Maximum number of entries that a bias requires. A limit is needed because a preemption during the fence makes the
/// measured time long.
const ALONE_MOST: u32 = 1 << 14;

const NO_THREAD: usize = 0;
/// Bit set in `bias`, in addition to the thread's number, if the thread uses its second seat.
const SECOND: usize = 1 << (usize::BITS - 1);

/// First seat.
pub const FIRST_SEAT: u8 = 0;
/// Second seat.
pub const SECOND_SEAT: u8 = 1;
/// Stands for the ordinary lock instead of a seat. Valid only if no thread gets a bias ([`Biased::favour`]).
pub const BY_WORD: u8 = 2;

/// The lock. Each thread passes a number below [`SECOND`] that no other living thread has, and calls [`Biased::forget`]
/// before it ends.
///
/// There are two seats, because a thread that lost its bias keeps its seat while it is stopped or computes. The second
/// seat costs each MPI call a few instructions.
#[repr(C, align(64))]
pub struct Biased {
    /// Thread that enters without `word`, with [`SECOND`] if it uses its second seat.
    bias: AtomicUsize,
    last_seat: AtomicUsize,
    first: Seat,
    wanted: AtomicU32,
    second: Seat,
    word: AtomicU32,
    depth: AtomicU32,
    owner: AtomicUsize,
    last: AtomicUsize,
    /// Successive entries of `last`.
    streak: AtomicU32,
    /// Successive entries of one thread that give it the bias.
    needed: AtomicU32,
    /// Number of releases, with another thread asleep for the lock, since a sleeper last got the lock.
    passed: AtomicU32,
    revoked: AtomicU32,
    contended: AtomicU32,
    /// Thread that had the bias when the lock was borrowed.
    lender: AtomicUsize,
    /// Returns whether the calling thread may have the bias. Also ensures that the thread calls [`Biased::forget`].
    may_bias: fn() -> bool,
}

macro_rules! make {
    ($may_bias:expr, $needed:expr) => {
        Biased {
            bias: AtomicUsize::new(NO_THREAD),
            last_seat: AtomicUsize::new(0),
            first: Seat::new(),
            wanted: AtomicU32::new(0),
            second: Seat::new(),
            word: AtomicU32::new(FREE),
            depth: AtomicU32::new(0),
            owner: AtomicUsize::new(NO_THREAD),
            last: AtomicUsize::new(NO_THREAD),
            streak: AtomicU32::new(0),
            needed: AtomicU32::new($needed),
            passed: AtomicU32::new(0),
            revoked: AtomicU32::new(0),
            contended: AtomicU32::new(0),
            lender: AtomicUsize::new(NO_THREAD),
            may_bias: $may_bias,
        }
    };
}

impl Biased {
    /// Makes a free lock without a bias. `may_bias` returns whether the calling thread may have the bias.
    #[cfg(not(feature = "loom"))]
    pub const fn new(may_bias: fn() -> bool) -> Self {
        make!(may_bias, ALONE)
    }

    /// Makes a lock for the model checker, which gives the bias after `needed` entries.
    #[cfg(feature = "loom")]
    pub fn model(needed: u32) -> Self {
        make!(|| true, needed)
    }

    fn seats(&self) -> [(&Seat, usize); 2] {
        [(&self.first, 0), (&self.second, SECOND)]
    }

    #[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
    fn seat<const SEAT: u8>(&self) -> (&Seat, usize) {
        match SEAT {
            FIRST_SEAT => (&self.first, 0),
            _ => (&self.second, SECOND),
        }
    }

    /// Seat of the last bias given; [`BY_WORD`] if no thread gets one.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
    pub fn last_seat(&self) -> usize {
        self.last_seat.load(Ordering::Relaxed)
    }

    fn seat_for(&self, bias: usize) -> &Seat {
        match bias & SECOND {
            0 => &self.first,
            _ => &self.second,
        }
    }

    /// Gives the bias to thread `me`, which has none. Call it before other threads use the lock, or while `me` holds
    /// `word`. Without an expedited membarrier no thread gets a bias, and every thread enters [`BY_WORD`].
    pub fn favour(&self, me: usize) {
        if !has_fence() {
            self.last_seat.store(BY_WORD.into(), Ordering::Relaxed);
            return;
        }
        for (seat, mark) in self.seats() {
            // ORDERING: acquire pairs with the release in `forget`.
            let insider = seat.insider.load(Ordering::Acquire);
            if (insider == NO_THREAD || insider == me) && (self.may_bias)() {
                seat.insider.store(me, Ordering::Relaxed);
                self.bias.store(me | mark, Ordering::Relaxed);
                self.last_seat.store(usize::from(mark != 0), Ordering::Relaxed);
                return;
            }
        }
    }

    /// Takes the bias from thread `me`, which is about to end and is not inside.
    pub fn forget(&self, me: usize) {
        for (seat, mark) in self.seats() {
            for (word, value) in [(&seat.insider, me), (&self.bias, me | mark)] {
                // ORDERING: release; partners are the acquires in `drive_out`, if it finds no bias, and in `favour`, if
                // it takes over the seat. They make visible what this thread did inside.
                let release = Ordering::Release;
                _ = word.compare_exchange(value, NO_THREAD, release, Ordering::Relaxed);
                // ORDERING: partner is the fence in `return_bias`: either this thread finds the returned bias, or
                // `return_bias` finds that the thread has ended.
                fence(Ordering::SeqCst);
            }
        }
    }

    /// Enters by the bias, or changes nothing and returns false. [`Biased::release`] ends the entry.
    #[inline]
    pub fn try_enter(&self, me: usize) -> bool {
        match self.favours::<FIRST_SEAT>(me) {
            true => self.enter::<FIRST_SEAT>(me),
            false => self.favours::<SECOND_SEAT>(me) && self.enter_second(me),
        }
    }

    #[inline(never)]
    fn enter_second(&self, me: usize) -> bool {
        self.enter::<SECOND_SEAT>(me)
    }

    #[inline]
    fn enter<const SEAT: u8>(&self, me: usize) -> bool {
        let entered = self.step_in::<SEAT>(me);
        if !entered {
            self.back_out::<SEAT>();
        }
        entered
    }

    /// Returns whether thread `me` has the bias with this seat. Always true for [`BY_WORD`].
    #[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
    pub fn favours<const SEAT: u8>(&self, me: usize) -> bool {
        SEAT == BY_WORD || self.bias.load(Ordering::Relaxed) == me | self.seat::<SEAT>().1
    }

    /// Enters by the bias, with a seat that this thread had. Returns false if the bias was revoked meanwhile, or the
    /// word is taken. The caller must then call [`Biased::back_out`].
    #[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
    #[must_use]
    pub fn step_in<const SEAT: u8>(&self, me: usize) -> bool {
        if SEAT == BY_WORD {
            return self.enter_by_word(me);
        }
        let (seat, mark) = self.seat::<SEAT>();
        seat.step(1);
        // ORDERING: partner is the fence in `drive_out`: either that thread sees `inside`, or this one sees that the
        // bias is gone.
        compiler_fence(Ordering::SeqCst);
        // ORDERING: acquire; partner is the release in `return_bias`. Any other bias is this thread's own store.
        self.bias.load(Ordering::Acquire) == me | mark
    }

    /// Undoes a [`Biased::step_in`] that returned false.
    #[cold]
    #[inline(never)]
    pub fn back_out<const SEAT: u8>(&self) {
        if SEAT != BY_WORD {
            self.seat::<SEAT>().0.step(-1);
            self.wake_others::<SEAT>();
        }
    }

    /// Leaves after [`Biased::step_in`]. Returns whether threads wait; the caller must then call
    /// [`Biased::wake_others`].
    #[inline(always)] // `fastpath bench instructions` counts MPI_Send at MPI_THREAD_MULTIPLE
    #[must_use]
    pub fn leave<const SEAT: u8>(&self, me: usize) -> bool {
        if SEAT == BY_WORD {
            return !self.leave_by_word();
        }
        let (seat, mark) = self.seat::<SEAT>();
        self.leave_levels(seat, me | mark, 1)
    }

    #[inline(always)] // see `leave`
    fn leave_levels(&self, seat: &Seat, bias: usize, levels: u32) -> bool {
        seat.step(-(levels as i32));
        // ORDERING: partner is the fence in `drive_out`: either that thread sees that no thread is inside, or this one
        // sees that the bias is gone.
        compiler_fence(Ordering::SeqCst);
        self.bias.load(Ordering::Relaxed) != bias
    }

    /// Wakes the thread that revoked the bias with this seat. For [`BY_WORD`], releases a lock that others sleep for.
    #[cold]
    #[inline(never)]
    pub fn wake_others<const SEAT: u8>(&self) {
        match SEAT {
            BY_WORD => self.release_word(),
            _ => self.seat::<SEAT>().0.wake_revoker(),
        }
    }

    /// Acquires the lock, recursively.
    #[inline]
    pub fn acquire(&self, me: usize) {
        if !self.try_enter(me) {
            self.acquire_slow(me);
        }
    }

    #[cold]
    #[inline(never)]
    fn acquire_slow(&self, me: usize) {
        if let Some((seat, _)) = self.seat_of(me) {
            // The bias was revoked while this thread was inside.
            seat.step(1);
        } else if self.owner.load(Ordering::Relaxed) == me {
            let depth = self.depth.load(Ordering::Relaxed);
            self.depth.store(depth + 1, Ordering::Relaxed);
        } else {
            self.take(me, 1);
        }
    }

    /// Releases one level of nesting. Does nothing if the thread is not inside.
    #[inline]
    pub fn release(&self, me: usize) {
        if let Some((seat, mark)) = self.seat_of(me) {
            if self.leave_levels(seat, me | mark, 1) {
                seat.wake_revoker();
            }
        } else if self.owner.load(Ordering::Relaxed) == me {
            let depth = self.depth.load(Ordering::Relaxed) - 1;
            self.depth.store(depth, Ordering::Relaxed);
            if depth == 0 {
                self.owner.store(NO_THREAD, Ordering::Relaxed);
                self.release_word();
            }
        }
    }

    /// Returns the seat by which the thread is inside, and the seat's bit; `None` if the thread is not inside by a
    /// bias. The bias may have been revoked since the thread entered.
    #[inline]
    fn seat_of(&self, me: usize) -> Option<(&Seat, usize)> {
        self.seats().into_iter().find(|(seat, _)| {
            // ORDERING: acquire, before `insider` is read; partner is the release in `step`. Only the thread itself
            // stores its number in `insider`, so it never mistakes another thread's entry for its own.
            seat.inside.load(Ordering::Acquire) != 0 && seat.insider.load(Ordering::Relaxed) == me
        })
    }

    /// Returns whether another thread waits to enter.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) != 0
    }

    /// Releases all levels of nesting while `pause` runs.
    pub fn release_lock<R>(&self, me: usize, pause: impl FnOnce() -> R) -> R {
        let mut levels = 0;
        if let Some((seat, mark)) = self.seat_of(me) {
            levels = seat.inside.load(Ordering::Relaxed);
            if self.leave_levels(seat, me | mark, levels) {
                seat.wake_revoker();
            }
        }
        if self.owner.load(Ordering::Relaxed) == me {
            levels += self.depth.load(Ordering::Relaxed);
            self.depth.store(0, Ordering::Relaxed);
            self.owner.store(NO_THREAD, Ordering::Relaxed);
            self.release_word();
        }
        let result = pause();
        if levels != 0 {
            match self.try_enter(me) {
                true => (1..levels).for_each(|_| self.acquire(me)),
                false => self.take(me, levels),
            }
        }
        result
    }

    /// Number of revocations, and number of entries that found the lock taken by another thread.
    pub fn counts(&self) -> (u32, u32) {
        let counts = [&self.revoked, &self.contended];
        let [revoked, contended] = counts.map(|count| count.load(Ordering::Relaxed));
        (revoked, contended)
    }

    fn take(&self, me: usize, levels: u32) {
        self.take_word();
        self.revoke(me);
        let bias = self.bias.load(Ordering::Relaxed);
        let has_bias = bias & !SECOND == me; // the bias has returned since it was borrowed
        for (seat, mark) in self.seats() {
            if seat.insider.load(Ordering::Relaxed) == me && bias != me | mark {
                // Free the seat: this thread has seen that its bias is gone.
                seat.insider.store(NO_THREAD, Ordering::Relaxed);
            }
        }
        self.owner.store(me, Ordering::Relaxed);
        self.depth.store(levels, Ordering::Relaxed);
        let alone = self.last.load(Ordering::Relaxed) == me && !self.is_wanted();
        let streak = match alone {
            true => self.streak.load(Ordering::Relaxed) + 1,
            false => 0,
        };
        self.last.store(me, Ordering::Relaxed);
        self.streak.store(streak, Ordering::Relaxed);
        if streak >= self.needed.load(Ordering::Relaxed) && !has_bias {
            self.streak.store(0, Ordering::Relaxed);
            self.favour(me);
        }
    }

    /// Takes a lock that the thread does not hold, and borrows another thread's bias until [`Biased::give_back`].
    pub fn borrow(&self, me: usize) {
        self.take_word();
        let (lender, _) = self.drive_out(me);
        self.lender.store(lender, Ordering::Relaxed);
        self.owner.store(me, Ordering::Relaxed);
        self.depth.store(1, Ordering::Relaxed);
    }

    /// Ends a [`Biased::borrow`].
    pub fn give_back(&self) {
        self.depth.store(0, Ordering::Relaxed);
        self.owner.store(NO_THREAD, Ordering::Relaxed);
        self.return_bias(self.lender.load(Ordering::Relaxed));
        self.release_word();
    }

    /// Returns a borrowed bias to its thread. The caller holds `word`.
    fn return_bias(&self, lender: usize) {
        let (insider, thread) = (&self.seat_for(lender).insider, lender & !SECOND);
        // If the lender's number is still in the seat, the lender lives: only the lender clears it.
        if lender != NO_THREAD && insider.load(Ordering::Relaxed) == thread {
            // ORDERING: release: the stores made inside are visible to the lender; partner is the acquire in `step_in`.
            self.bias.store(lender, Ordering::Release);
            // ORDERING: partner is the fence in `forget`.
            fence(Ordering::SeqCst);
            if insider.load(Ordering::Relaxed) != thread {
                let relaxed = Ordering::Relaxed;
                _ = self.bias.compare_exchange(lender, NO_THREAD, relaxed, relaxed);
            }
        }
    }

    fn revoke(&self, me: usize) {
        let (revoked, fence_ns) = self.drive_out(me);
        if revoked != NO_THREAD {
            count(&self.revoked);
            self.note_fence(fence_ns);
        }
    }

    /// Takes the bias from another thread, and waits until that thread is not inside. Returns the bias, and the time of
    /// the fence in nanoseconds. The caller holds `word`.
    fn drive_out(&self, me: usize) -> (usize, u64) {
        // ORDERING: acquire pairs with the release in `forget`.
        let biased = self.bias.load(Ordering::Acquire);
        if biased == NO_THREAD || biased & !SECOND == me {
            return (NO_THREAD, 0);
        }
        let inside_word = &self.seat_for(biased).inside;
        self.wanted.fetch_add(1, Ordering::Relaxed);
        self.bias.store(NO_THREAD, Ordering::Relaxed);
        let began = now_ns();
        // This fence cannot fail: where the system has no expedited membarrier, `favour` gives no bias.
        wait::fence_own_threads();
        let fence_ns = now_ns().saturating_sub(began);
        let mut polls = 0;
        loop {
            // ORDERING: acquire pairs with the release in `Seat::step`.
            let inside = inside_word.load(Ordering::Acquire);
            if inside == 0 {
                break;
            }
            polls += 1;
            match polls > YIELDS {
                true => _ = wait::futex_wait(inside_word, inside, None),
                false => wait::yield_now(),
            }
        }
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        (biased, fence_ns)
    }

    /// Adapts `needed` to a revocation whose fence took `took_ns` ns. The fence of a loan ([`Biased::borrow`]) does not
    /// count, because the bias returns at once.
    fn note_fence(&self, took_ns: u64) {
        if !cfg!(feature = "loom") {
            let entries = (took_ns / FENCE_NS_PER_ENTRY).clamp(ALONE.into(), ALONE_MOST.into());
            self.needed.store(entries as u32, Ordering::Relaxed);
        }
    }
}

fn has_fence() -> bool {
    cfg!(feature = "loom") || wait::register_own_membarrier()
}

/// Monotonic time in nanoseconds; 0 in the model, which has no time.
fn now_ns() -> u64 {
    #[cfg(feature = "loom")]
    return 0;
    #[cfg(not(feature = "loom"))]
    crate::clock::now_ns()
}

fn count(number: &AtomicU32) {
    number.store(number.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

#[cfg(all(test, not(feature = "loom")))]
#[path = "biased/tests.rs"]
mod tests;

#[cfg(all(test, feature = "loom"))]
#[path = "biased/loom.rs"]
mod model;
