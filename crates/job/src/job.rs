//! The job, as seen by one of its ranks.

mod attach;
mod connected;
mod error;
mod in_process;
mod join;
mod network;
mod places;
mod spawned;

use crate::detect::{LaunchPlace, find_lost, find_place, warn_of_hint};
use crate::engine::Engine;
use crate::foreign::{self, ForeignRanks};
use crate::identity::{Identity, JOB_VARIABLE, random_job_id};
use crate::network::NetworkPlace;
use crate::node::NodeLink;
use fastpath_base::host_topology::RankDomains;
use fastpath_base::sync::{AtomicU64, Ordering};
use fastpath_base::{topology, wait};
use fastpath_segment::{
    JobHeader, Mapping, RankPage, RankPhase, STATE_DEAD, STATE_FINALIZED, Segment, SegmentError,
    WaitNoteRef,
};
use std::ffi::OsString;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Mutex, OnceLock, PoisonError};

pub use error::BootstrapError;

/// This process's membership in its job. There is one per process, which lives as long as the process uses MPI.
#[derive(Debug)]
pub struct Job {
    rank: usize,
    app: Option<usize>,
    app_ranks: usize,
    universe: Option<usize>,
    world: Range<usize>,
    began_with: usize,
    processors: usize,
    bound: bool,
    launcher: Option<u32>,
    job_id: u64,
    segment: Segment,
    place: NetworkPlace,
    /// Connection to the engine and to the node's other ranks, if an engine has started the job.
    link: Option<NodeLink>,
    foreign: ForeignRanks,
    /// Engine of a process that is its own job. It is connected when it is first needed.
    late_engine: Mutex<Option<Engine>>,
    /// Launcher of this process, and the evidence for it; empty for a job made by a test.
    started: String,
    /// Domains of a process without launcher, once they were needed.
    own_domains: OnceLock<RankDomains>,
}

impl Job {
    /// Finds the job that a launcher made for this process. Makes a job with a single rank if there is no launcher.
    ///
    /// # Errors
    /// Traces of a launcher exist, but lead to no job. The result is then never a job of one rank.
    pub fn attach() -> Result<Job, BootstrapError> {
        let place = find_place();
        let started = place.to_string();
        let mut job = match place {
            LaunchPlace::Own => Job::attach_as(std::env::var_os(JOB_VARIABLE).unwrap_or_default()),
            LaunchPlace::Alone(alone) => {
                if let Some(sign) = find_lost(&alone) {
                    return Err(BootstrapError::Lost(sign));
                }
                warn_of_hint(&alone);
                Job::singleton()
            }
            LaunchPlace::Several(claim) => match claim.protocol {
                None => Err(BootstrapError::Launched(Box::new(claim))),
                Some(protocol) => match Engine::connect(protocol) {
                    Ok(engine) => Job::join(engine),
                    Err(e) => Err(BootstrapError::Engine(Box::new(claim), Box::new(e))),
                },
            },
        }?;
        if job.started.is_empty() {
            job.started = started;
        }
        Ok(job)
    }

    /// Returns the launcher of this process, and the deciding variable or descriptor, on one line. Empty unless
    /// [`Job::attach`] has made the job.
    pub fn started(&self) -> &str {
        &self.started
    }

    fn attach_as(text: OsString) -> Result<Job, BootstrapError> {
        let malformed = || BootstrapError::Variable(text.to_string_lossy().into_owned());
        let id = text.to_str().and_then(Identity::parse).ok_or_else(malformed)?;
        let segment = id.open_segment()?;
        let page = segment.page(id.rank).filter(|_| id.rank < segment.present());
        let page = page.ok_or_else(malformed)?;
        if segment.place(id.rank).is_none() {
            return Err(BootstrapError::RankEnded(id.rank));
        }
        match attach::claim_rank(page) {
            attach::Claim::Ours => {}
            // A rank has started another MPI program directly. That program is a separate job.
            attach::Claim::Ancestor => {
                let started = "alone: started by a rank of mpiexec".to_owned();
                return Job::singleton().map(|job| Job { started, ..job });
            }
            attach::Claim::Taken(owner) => {
                return Err(BootstrapError::RankTaken { rank: id.rank, owner });
            }
        }
        let world = find_world(page, id.rank, segment.present());
        let app =
            (page.app.load(Ordering::Relaxed) as usize, page.app_ranks.load(Ordering::Relaxed));
        let bound = page.bound.load(Ordering::Relaxed) == 1;
        let job = Job {
            app: Some(app.0),
            app_ranks: (app.1 as usize).clamp(1, world.len()),
            world,
            bound,
            launcher: Some(id.launcher),
            job_id: id.job_id,
            place: NetworkPlace::inheriting(id.listeners),
            ..Job::of_memory(segment, id.rank)
        };
        job.begin();
        attach::await_release(&job.segment);
        Ok(job)
    }

    /// Makes a job of one rank, without a launcher.
    ///
    /// # Errors
    /// The kernel refuses the memory.
    pub fn singleton() -> Result<Job, BootstrapError> {
        let segment = Segment::create_for_node(&[0], 1, foreign::SPARE, random_job_id())?;
        let job = Job::without_launcher(segment, 0);
        job.place_by_file()?;
        Ok(job)
    }

    /// Makes the job of a rank in memory that was not made by a launcher.
    fn without_launcher(segment: Segment, rank: usize) -> Job {
        let processors = topology::usable_processors();
        segment.header().processors.store(processors as u32, Ordering::Relaxed);
        let job = Job::of_memory(segment, rank);
        job.begin();
        job
    }

    /// Makes the job of a rank from the facts in its segment, without writing to the segment.
    fn of_memory(segment: Segment, rank: usize) -> Job {
        let (header, ranks) = (segment.header(), segment.present());
        Job {
            rank,
            app: None,
            app_ranks: ranks,
            universe: None,
            world: 0..ranks,
            began_with: count_first(&segment),
            processors: (header.processors.load(Ordering::Relaxed) as usize).max(1),
            bound: false,
            launcher: None,
            job_id: header.job_id.load(Ordering::Relaxed),
            segment,
            place: NetworkPlace::default(),
            link: None,
            foreign: ForeignRanks::default(),
            late_engine: Mutex::default(),
            started: String::new(),
            own_domains: OnceLock::new(),
        }
    }

    fn begin(&self) {
        let page = self.own_page();
        page.owner_pid.store(std::process::id(), Ordering::Relaxed);
        page.set_phase(RankPhase::Attached);
        self.segment.count_awake(page);
        wait::register_membarrier();
    }

    /// Rank of this process in the job. For a spawned process, this number differs from the rank in `MPI_COMM_WORLD`.
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks of the job that form this process's `MPI_COMM_WORLD`.
    pub fn world(&self) -> Range<usize> {
        self.world.clone()
    }

    /// Number of ranks of the job so far, in all worlds, including those that have ended. Spawning increases it.
    #[inline]
    pub fn present(&self) -> usize {
        self.segment.present()
    }

    /// Number of ranks that the launcher's command line has started. Equal in all ranks, and unchanged by spawning.
    #[inline]
    pub fn began_with(&self) -> usize {
        self.began_with
    }

    /// Returns whether this process can exchange messages with a rank. If address space is limited, a process cannot
    /// reach ranks that were added later.
    pub fn reaches(&self, rank: usize) -> bool {
        rank < self.present() && self.segment.reaches(rank)
    }

    /// Largest number of ranks of the job.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.segment.capacity()
    }

    /// Largest number of ranks of the job that can exist at a time, if spawned ranks run on this host.
    fn most_ranks(&self) -> usize {
        let places = self.segment.layout().ranks();
        let first = self.segment.node_ranks().filter(|&rank| rank < self.began_with).count();
        self.began_with + places.saturating_sub(first)
    }

    /// Rank that spawned this process's world as root; `None` if the launcher's command line has started it.
    pub fn parent(&self) -> Option<usize> {
        let parent = self.own_page().parent.load(Ordering::Relaxed);
        (parent as usize).checked_sub(1)
    }

    /// Number of this rank's program in the launcher's command line (`MPI_APPNUM`); `None` if unknown.
    pub fn appnum(&self) -> Option<usize> {
        self.app
    }

    /// Number of ranks that run this rank's program.
    pub fn app_size(&self) -> usize {
        self.app_ranks
    }

    /// Number of ranks that can usefully run at a time (`MPI_UNIVERSE_SIZE`), as reported by the launcher. Our launcher
    /// reports the number of ranks that it may start and that have processors. The result is at least the number of
    /// ranks with which the job began.
    pub fn universe_size(&self) -> usize {
        match self.launcher {
            None => self.universe.unwrap_or(0).max(self.began_with),
            Some(_) => {
                let told = self.header().universe.load(Ordering::Relaxed) as usize;
                let processors = if told == 0 { self.processors } else { told };
                processors.clamp(self.began_with, self.most_ranks())
            }
        }
    }

    /// Returns the number of ranks that share this memory, and how many of them are below this rank.
    pub fn node_place(&self) -> (usize, usize) {
        let (mut all, mut below) = (0, 0);
        for rank in self.segment.node_ranks().filter(|&rank| self.is_node_peer(rank)) {
            all += 1;
            below += usize::from(rank < self.rank);
        }
        (all, below)
    }

    /// Returns whether a rank's failure ends the job, through our launcher or the other ranks of the node.
    pub fn is_watched(&self) -> bool {
        self.launcher.is_some() || self.link.is_some()
    }

    /// Returns whether an engine has started the job, and threads of this process watch its other ranks.
    pub fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// Returns whether this process writes the trace of its node, because our launcher is absent. Such a process is the
    /// node's only rank, or the leader, which waits for the node's other ranks when it leaves.
    pub fn writes_trace(&self) -> bool {
        let is_leader = self.own_page().leads.load(Ordering::Relaxed) == 1;
        self.launcher.is_none() && (self.node_place().0 == 1 || is_leader)
    }

    /// Starts to watch the other ranks of this node, if our launcher does not. The job then ends if a rank ends before
    /// it calls [`Job::leave`]. Called once.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn watch(&'static self) -> std::io::Result<()> {
        self.link.as_ref().map_or(Ok(()), |link| link.watch(&self.segment, self.rank))
    }

    /// Records that this rank has finalized MPI, so that an engine no longer treats its end as a failure. The leader of
    /// each node waits here for the node's other ranks.
    pub fn leave(&self) {
        if let Some(link) = &self.link {
            link.leave();
        }
        let late = self.late_engine.lock();
        if let Some(engine) = late.unwrap_or_else(PoisonError::into_inner).as_mut() {
            // An engine that does not receive this message reports the process's end as a failure.
            let _ = engine.finalize();
        }
    }

    /// Number of a rank's host. Ranks of one host can share memory.
    pub fn host(&self, rank: usize) -> u32 {
        self.segment.host(rank)
    }

    /// Returns whether a rank is on another host than this rank. Transports to it cannot use the job's memory.
    pub fn is_remote(&self, rank: usize) -> bool {
        self.host(rank) != self.host(self.rank) || !self.is_node_peer(rank)
    }

    /// Returns whether any rank of this job is on another host than this rank.
    pub fn has_other_hosts(&self) -> bool {
        let mut ranks = 0..self.present();
        ranks.any(|rank| self.is_remote(rank) && !self.is_foreign(rank))
    }

    /// Returns whether a rank is on this node, and so has its own page in this memory. Of ranks on other nodes, only
    /// host and network address are known.
    pub fn is_node_peer(&self, rank: usize) -> bool {
        !self.segment.is_elsewhere(rank)
    }

    /// Number of memory files of the job, one on each of its nodes.
    pub fn nodes(&self) -> usize {
        (self.header().nodes.load(Ordering::Relaxed) as usize).max(1)
    }

    /// Number of processors that the job's ranks use together, at least 1. If the job has more ranks than this, ranks
    /// share processors.
    pub fn processors(&self) -> usize {
        self.processors
    }

    /// Returns whether this rank is bound to its own processors.
    pub fn is_bound(&self) -> bool {
        self.bound
    }

    /// Random number that identifies this job.
    pub fn job_id(&self) -> u64 {
        self.job_id
    }

    /// Process number of the launcher; `None` without one.
    pub fn launcher(&self) -> Option<u32> {
        self.launcher
    }

    /// The job's header.
    #[inline]
    pub fn header(&self) -> &JobHeader {
        self.segment.header()
    }

    /// Returns the job's memory.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Returns the page of a rank; `None` beyond the last one. Ranks of other nodes share a page
    /// ([`Job::is_node_peer`]).
    #[inline]
    pub fn rank_page(&self, rank: usize) -> Option<&RankPage> {
        self.segment.page(rank)
    }

    /// Returns the ranks with a place in this memory: those of this node.
    pub fn node_ranks(&self) -> impl Iterator<Item = usize> {
        self.segment.node_ranks()
    }

    /// This rank's own page.
    #[inline]
    pub fn own_page(&self) -> &RankPage {
        self.segment.page(self.rank).expect("own rank was checked when the job was attached")
    }

    /// Returns the bitmap of the ranks that have opened a ring to `rank`. A sender's bit is at its [`Segment::place`].
    /// `None` if `rank` has no place in this memory.
    pub fn incoming_bitmap(&self, rank: usize) -> Option<&[AtomicU64]> {
        self.segment.incoming_bitmap(rank)
    }

    /// Returns the first byte of the region that `src` fills and `dst` empties; `None` if either has no place in this
    /// memory. The sender backs the region ([`Job::back_pair`]) before either rank touches it.
    pub fn pair_region(&self, src: usize, dst: usize) -> Option<NonNull<u8>> {
        self.segment.pair_region(src, dst)
    }

    /// Reserves memory for the region that `src` fills and `dst` empties.
    ///
    /// # Errors
    /// Memory is short; the error states bytes needed and available.
    pub fn back_pair(&self, src: usize, dst: usize) -> Result<(), SegmentError> {
        self.segment.back_pair(src, dst)
    }

    /// Returns the offsets of a rank's arena (memory for `MPI_Alloc_mem`) in the segment; `None` if the rank has no
    /// place in this memory.
    pub fn arena(&self, rank: usize) -> Option<Range<u64>> {
        self.segment.arena(rank)
    }

    /// Maps a piece of the segment ([`Segment::map_range`]).
    ///
    /// # Errors
    /// The piece leaves the segment, or the kernel refuses.
    pub fn map_range(&self, offset: u64, bytes: usize) -> Result<Mapping, SegmentError> {
        self.segment.map_range(offset, bytes)
    }

    /// Records what a thread of this rank waits for ([`RankPage::note_waiting`]). Called before sleeping, never on the
    /// path of a message that has arrived.
    #[cold]
    pub fn note_waiting(&self, place: usize, note: WaitNoteRef<'_>) {
        self.own_page().note_waiting(place, note);
    }

    /// Clears the wait note at `place`, after the wait has ended or something has arrived.
    #[cold]
    pub fn clear_waiting(&self, place: usize) {
        self.own_page().clear_waiting(place);
    }

    /// Records this rank's phase.
    pub fn set_phase(&self, phase: RankPhase) {
        self.own_page().set_phase(phase);
        if phase == RankPhase::Finalized {
            self.own_page().set_left(STATE_FINALIZED);
            self.segment.uncount_awake(self.own_page());
        }
    }

    /// Records the user's choice of transports for this rank. `choice` is compared with other ranks; `text` is the
    /// choice as written.
    ///
    /// # Errors
    /// Another rank made a different choice first. The error holds that rank and its text.
    pub fn agree_on_transports(&self, choice: u32, text: &str) -> Result<(), (usize, String)> {
        self.own_page().transports.store(text);
        let joined = self.header().transports.join(self.rank, choice);
        joined.map_err(|other| {
            let text = self.rank_page(other).map(|page| page.transports.load());
            (other, text.unwrap_or_default())
        })
    }

    /// Records the collective algorithms that the user has chosen for this rank.
    ///
    /// # Errors
    /// The rank that made a different choice first.
    pub fn agree_on_collectives(&self, choice: u32) -> Result<(), usize> {
        self.header().collectives.join(self.rank, choice)
    }

    /// Returns whether this rank's process has ended, or there is no such rank.
    pub fn is_dead(&self, rank: usize) -> bool {
        // ORDERING: partner is the launcher's release store of the state.
        (self.rank_page(rank).filter(|_| rank < self.present()))
            .is_none_or(|p| p.state.load(Ordering::Acquire) == STATE_DEAD)
    }

    /// Returns whether a rank has failed. The launcher is then ending the job, or this rank and its connected ranks.
    pub fn has_failed(&self) -> bool {
        let is_ended = self.own_page().is_ended.load(Ordering::Relaxed);
        is_ended != 0 || self.header().failure.load().is_some()
    }

    /// Returns which of these ranks are of another world than this rank.
    pub fn outside<'a>(&self, ranks: &'a [u32]) -> impl Iterator<Item = usize> + use<'a> {
        let (world, is_all) = (self.world(), self.present() == self.world.len());
        let ranks = if is_all { &[][..] } else { ranks };
        ranks.iter().map(|&rank| rank as usize).filter(move |rank| !world.contains(rank))
    }

    /// Records that this rank holds one more, or one less, communicator with ranks of other worlds of its job. The
    /// launcher ends connected worlds together with a failed rank.
    pub fn note_link(&self, is_made: bool) {
        let links = &self.own_page().links;
        let _ = match is_made {
            true => links.fetch_add(1, Ordering::Relaxed),
            false => links.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Records an abort for the launcher's report if it is the first of the job, and returns whether it was the first.
    /// The process should then exit with [`crate::exit_code`] of the code.
    pub fn record_abort(&self, code: i32, message: &str) -> bool {
        let first = self.header().abort.record(self.rank, code, message);
        if first {
            // ORDERING: release: a rank that sees the new count also sees the abort record.
            self.header().events.fetch_add(1, Ordering::Release);
        }
        first
    }
}

/// Number of ranks that a job began with, as its launcher wrote it; all present ranks if that number is invalid.
fn count_first(segment: &Segment) -> usize {
    let said = segment.header().began_with.load(Ordering::Relaxed) as usize;
    match (1..=segment.present()).contains(&said) {
        true => said,
        false => segment.present(),
    }
}

/// World of a rank, from its page; all present ranks if the page is invalid.
fn find_world(page: &RankPage, rank: usize, present: usize) -> Range<usize> {
    let first = page.world_first.load(Ordering::Relaxed) as usize;
    let ranks = page.world_ranks.load(Ordering::Relaxed) as usize;
    let world = first..first.saturating_add(ranks);
    match world.contains(&rank) && world.end <= present {
        true => world,
        false => 0..present,
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_segment::{AwaitedRanks, SpareRanks};
    use std::os::fd::AsRawFd;

    fn variable(segment: &Segment, rank: usize, job_id: u64) -> OsString {
        let fd = segment.file().unwrap().as_raw_fd();
        Identity { fd, rank, launcher: std::process::id(), job_id, listeners: Vec::new() }
            .to_string()
            .into()
    }

    #[test]
    fn singleton__is_a_job_of_one() {
        let job = Job::singleton().unwrap();
        assert_eq!((job.rank(), job.present(), job.appnum()), (0, 1, None));
        assert_eq!(job.own_page().phase(), RankPhase::Attached);
        job.back_pair(0, 0).unwrap();
        assert!(job.processors() >= 1);
    }

    #[test]
    fn in_process__ranks_share_one_segment() {
        let jobs = Job::in_process(3).unwrap();
        assert_eq!(jobs.iter().map(Job::rank).collect::<Vec<_>>(), [0, 1, 2]);
        jobs[0].own_page().app.store(7, Ordering::Relaxed);
        assert_eq!(jobs[2].rank_page(0).unwrap().app.load(Ordering::Relaxed), 7);
        assert_eq!(jobs[1].header().awake.load(Ordering::Relaxed), 3);
        assert!(matches!(Job::in_process(0), Err(BootstrapError::Segment(_))));
    }

    #[test]
    fn agree_on_transports__refuses_another_choice_and_names_the_first() {
        let jobs = Job::in_process(3).unwrap();
        assert_eq!(jobs[2].agree_on_transports(5, "rc"), Ok(()));
        assert_eq!(jobs[0].agree_on_transports(5, "rc,loopback"), Ok(()));
        assert_eq!(jobs[2].agree_on_collectives(7), Ok(()));
        assert_eq!(jobs[0].agree_on_collectives(7), Ok(()));
        assert_eq!(jobs[1].agree_on_collectives(0), Err(2));
        let refused = jobs[1].agree_on_transports(0, "ud");
        assert_eq!(refused, Err((2, "rc".to_owned())));
        // A repeated choice changes nothing.
        assert_eq!(jobs[2].agree_on_transports(5, "rc"), Ok(()));
    }

    #[test]
    fn card__is_read_whole_or_not_at_all() {
        let jobs = Job::in_process(2).unwrap();
        let read = || jobs[0].rank_page(1).unwrap().iface_address.load();
        assert_eq!(read(), None);
        for bytes in [vec![7; 1], (0..64).collect(), (0..55).collect::<Vec<u8>>()] {
            jobs[1].own_page().iface_address.store(&bytes);
            assert_eq!(read(), Some(bytes));
        }
    }

    #[test]
    fn attach__finds_the_launchers_segment() {
        let segment = Segment::create(4, 77).unwrap();
        segment.header().processors.store(2, Ordering::Relaxed);
        segment.page(3).unwrap().app.store(1, Ordering::Relaxed);
        segment.page(3).unwrap().app_ranks.store(2, Ordering::Relaxed);
        let job = Job::attach_as(variable(&segment, 3, 77)).unwrap();
        assert_eq!((job.rank(), job.present(), job.appnum(), job.app_size()), (3, 4, Some(1), 2));
        assert_eq!(job.processors(), 2);
        assert_eq!(segment.header().awake.load(Ordering::Relaxed), 1);
        job.note_waiting(
            0,
            WaitNoteRef {
                call: "MPI_Recv",
                peer: 1,
                tag: 7,
                comm: "halo",
                bytes: 8,
                since_ns: 9,
                awaited: AwaitedRanks::of(&[2]),
                multiple: true,
                thread: 0,
            },
        );
        let note = segment.page(3).unwrap().wait_notes().pop().unwrap();
        assert_eq!((&*note.call, &*note.comm), ("MPI_Recv", "halo"));
        assert_eq!((note.peer, note.tag), (1, 7));
        assert_eq!((note.bytes, note.since_ns), (8, 9));
        assert_eq!((note.awaited.named(), note.multiple), (&[2][..], true));
        job.clear_waiting(0);
        assert_eq!(segment.page(3).unwrap().wait_notes().pop(), None);
        job.set_phase(RankPhase::Finalized);
        assert_eq!(segment.page(3).unwrap().state.load(Ordering::Relaxed), STATE_FINALIZED);
    }

    #[test]
    fn attach__of_a_rank_whose_place_is_gone__is_refused() {
        let spare = SpareRanks { ranks: 1, foreign: 0 };
        let segment = Segment::create_for_node(&[0], 1, spare, 9).unwrap();
        segment.add_ranks(1, |_| None, |_, _| {}).unwrap();
        assert_eq!(segment.reuse_places(1, |rank| rank == 1), [1]);
        let e = Job::attach_as(variable(&segment, 1, 9)).unwrap_err();
        assert!(matches!(e, BootstrapError::RankEnded(1)), "{e}");
        assert!(e.to_string().contains("setsid"), "{e}");
    }

    #[test]
    fn attach__falls_back_to_the_launchers_descriptor() {
        let segment = Segment::create(1, 5).unwrap();
        // `fcntl` refuses the number, but the launcher's table of open files has it.
        let fd = segment.file().unwrap().as_raw_fd();
        let id = Identity {
            fd,
            rank: 0,
            launcher: std::process::id(),
            job_id: 5,
            listeners: Vec::new(),
        };
        assert!(id.open_from_launcher().is_ok());
        let wrong = Identity { launcher: u32::MAX, ..id };
        assert!(wrong.open_from_launcher().is_err());
    }

    #[test]
    fn attach__refuses_a_rank_out_of_range_and_a_wrong_job() {
        let segment = Segment::create(2, 77).unwrap();
        let e = Job::attach_as(variable(&segment, 2, 77)).unwrap_err();
        assert!(matches!(e, BootstrapError::Variable(_)), "{e}");
        let e = Job::attach_as(variable(&segment, 0, 78)).unwrap_err();
        assert!(matches!(e, BootstrapError::NoSegment(_)), "{e}");
        let e = Job::attach_as("garbage".into()).unwrap_err();
        assert!(e.to_string().contains(JOB_VARIABLE), "{e}");
    }

    #[test]
    fn attach__refuses_a_rank_that_was_used_up() {
        let segment = Segment::create(1, 9).unwrap();
        let job = Job::attach_as(variable(&segment, 0, 9)).unwrap();
        job.set_phase(RankPhase::Finalized);
        let e = Job::attach_as(variable(&segment, 0, 9)).unwrap_err();
        assert!(matches!(e, BootstrapError::RankTaken { rank: 0, .. }), "{e}");
    }

    #[test]
    fn attach__by_a_child_of_the_rank_is_a_job_of_its_own() {
        let segment = Segment::create(2, 9).unwrap();
        // Process 1 is an ancestor of every process.
        segment.page(0).unwrap().owner_pid.store(1, Ordering::Relaxed);
        segment.page(0).unwrap().set_phase(RankPhase::Initialized);
        let job = Job::attach_as(variable(&segment, 0, 9)).unwrap();
        assert_eq!((job.present(), job.launcher()), (1, None));
    }

    #[test]
    fn abort__first_one_wins() {
        let job = Job::singleton().unwrap();
        assert!(job.record_abort(3, "no such file"));
        assert!(!job.record_abort(4, "later"));
        assert_eq!(job.header().abort.load(), Some((0, 3, "no such file".to_owned())));
        assert_eq!(job.header().events.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn world__others_are_outside_and_end_apart() {
        let segment = Segment::create(4, 9).unwrap();
        for rank in [2, 3] {
            let page = segment.page(rank).unwrap();
            page.world_first.store(2, Ordering::Relaxed);
            page.world_ranks.store(2, Ordering::Relaxed);
        }
        let job = Job::attach_as(variable(&segment, 2, 9)).unwrap();
        assert_eq!(job.outside(&[3, 0, 2, 1]).collect::<Vec<_>>(), [0, 1]);
        job.note_link(true);
        job.note_link(true);
        job.note_link(false);
        let page = segment.page(2).unwrap();
        assert_eq!(page.links.load(Ordering::Relaxed), 1);
        segment.page(0).unwrap().is_ended.store(1, Ordering::Relaxed);
        assert!(!job.has_failed());
        page.is_ended.store(1, Ordering::Relaxed);
        assert!(job.has_failed());
    }
}
