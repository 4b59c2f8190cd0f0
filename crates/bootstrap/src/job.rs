//! The job as one of its ranks sees it.

pub mod detect;
mod environment;
mod error;
mod foreign;
mod identity;
mod in_process;
mod join;
mod network;
pub mod parent;
mod parents;
mod traces;

use crate::engine::Engine;
use crate::segment::{
    JobHeader, Mapping, Phase, RankPage, STATE_DEAD, STATE_FINALIZED, Segment, SegmentError,
    WaitNoteRef,
};
use fastpath_base::sync::{AtomicU64, Ordering};
use fastpath_base::{topology, wait};
use std::ffi::OsString;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use detect::LaunchPlace;
pub use detect::is_identity;
pub use environment::{describe_copies, describe_start, find_mpiexec, find_place};
pub use error::BootstrapError;
use foreign::ForeignRanks;
pub use foreign::{ForeignNumbers, Origin, number_host};
pub use identity::{Identity, JOB_VARIABLE, random_job_id};
pub(crate) use join::{pause, send_all};
use network::NetworkPlace;
pub use parent::PARENT_VARIABLE;
pub(crate) use parents::find_engine_process;

/// This process's place in its job. One per process; it lives as long as the process uses MPI.
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
    /// To the launcher, where it is not ours.
    link: Option<join::Link>,
    foreign: ForeignRanks,
    /// The engine of a process that is a job of its own, once it was needed.
    late_engine: Mutex<Option<Engine>>,
    /// By whom this process was started, and how it knows; empty where a test has made the job.
    started: String,
}

impl Job {
    /// Finds the job that a launcher made for this process, or makes one of its own with a
    /// single rank when there is no launcher.
    ///
    /// # Errors
    /// A launcher's traces are there and cannot be followed: never silently a job of one.
    pub fn attach() -> Result<Job, BootstrapError> {
        let place = find_place();
        let started = place.to_string();
        let mut job = match place {
            LaunchPlace::Own => Job::attach_as(std::env::var_os(JOB_VARIABLE).unwrap_or_default()),
            LaunchPlace::Alone(alone) => {
                let sign = parents::find_lost(&alone).or_else(|| traces::find_others(&alone));
                if let Some(sign) = sign {
                    return Err(BootstrapError::Lost(sign));
                }
                traces::warn_of_hint(&alone);
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

    /// By whom this process was started, and by which variable or descriptor it knows that: one line. Empty where
    /// [`Job::attach`] has not made the job.
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
        match identity::claim_rank(page) {
            identity::Claim::Ours => {}
            // A rank has started another MPI program by itself: that one is on its own.
            identity::Claim::Ancestor => {
                let started = "alone: a rank that mpiexec has started has started it".to_owned();
                return Job::singleton().map(|job| Job { started, ..job });
            }
            identity::Claim::Taken(owner) => {
                return Err(BootstrapError::RankTaken { rank: id.rank, owner });
            }
        }
        let world = find_world(page, id.rank, segment.present());
        let header = segment.header();
        let job = Job {
            rank: id.rank,
            app: Some(page.app.load(Ordering::Relaxed) as usize),
            universe: None,
            app_ranks: (page.app_ranks.load(Ordering::Relaxed) as usize).clamp(1, world.len()),
            world,
            began_with: count_first(&segment),
            processors: (header.processors.load(Ordering::Relaxed) as usize).max(1),
            bound: page.bound.load(Ordering::Relaxed) == 1,
            launcher: Some(id.launcher),
            job_id: id.job_id,
            segment,
            place: NetworkPlace::inheriting(id.listeners),
            link: None,
            foreign: ForeignRanks::default(),
            late_engine: Mutex::default(),
            started: String::new(),
        };
        job.begin();
        Ok(job)
    }

    /// Makes a job of one rank, without a launcher.
    ///
    /// # Errors
    /// The kernel refuses the memory.
    pub fn singleton() -> Result<Job, BootstrapError> {
        let segment = Segment::create_for_node(&[0], 1, foreign::SPARE, random_job_id())?;
        Ok(Job::without_launcher(segment, 0))
    }

    /// A rank of a memory that no launcher has made.
    fn without_launcher(segment: Segment, rank: usize) -> Job {
        let processors = topology::usable_processors();
        let header = segment.header();
        header.processors.store(processors as u32, Ordering::Relaxed);
        let (job_id, ranks) = (header.job_id.load(Ordering::Relaxed), segment.present());
        let job = Job {
            rank,
            app: None,
            app_ranks: ranks,
            universe: None,
            world: 0..ranks,
            began_with: count_first(&segment),
            processors,
            bound: false,
            launcher: None,
            job_id,
            segment,
            place: NetworkPlace::default(),
            link: None,
            foreign: ForeignRanks::default(),
            late_engine: Mutex::default(),
            started: String::new(),
        };
        job.begin();
        job
    }

    fn begin(&self) {
        let page = self.own_page();
        page.owner_pid.store(std::process::id(), Ordering::Relaxed);
        page.set_phase(Phase::Attached);
        self.segment.count_awake(page);
        wait::register_membarrier();
    }

    /// This process's rank in the job: of a spawned process another one than in its `MPI_COMM_WORLD`.
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The ranks of the job that are this process's `MPI_COMM_WORLD`.
    pub fn world(&self) -> Range<usize> {
        self.world.clone()
    }

    /// Number of ranks in the job so far, all worlds together. It grows when processes are spawned, also of those that
    /// have ended.
    #[inline]
    pub fn present(&self) -> usize {
        self.segment.present()
    }

    /// Number of ranks that the launcher's command line has started: the same for all, whatever was spawned since.
    #[inline]
    pub fn began_with(&self) -> usize {
        self.began_with
    }

    /// Whether this process can exchange messages with a rank: not with one that came after it where address space is
    /// short.
    pub fn reaches(&self, rank: usize) -> bool {
        rank < self.present() && self.segment.reaches(rank)
    }

    /// Most ranks that the job can ever have.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.segment.capacity()
    }

    /// Most ranks that the job can have at the same time, if those that are spawned run on this host.
    fn most_ranks(&self) -> usize {
        let places = self.segment.layout().ranks();
        let first = self.segment.node_ranks().filter(|&rank| rank < self.began_with).count();
        self.began_with + places.saturating_sub(first)
    }

    /// The rank that spawned this process's world as root; None where the launcher's command line has started it.
    pub fn parent(&self) -> Option<usize> {
        let parent = self.own_page().parent.load(Ordering::Relaxed);
        (parent as usize).checked_sub(1)
    }

    /// Number of this rank's program in the launcher's command line (`MPI_APPNUM`); None if not known.
    pub fn appnum(&self) -> Option<usize> {
        self.app
    }

    /// How many ranks run this rank's program.
    pub fn app_size(&self) -> usize {
        self.app_ranks
    }

    /// How many ranks can usefully run at the same time (`MPI_UNIVERSE_SIZE`): what the launcher says; with ours, as
    /// many as it may start and there are processors for; at least those that the job began with.
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

    /// The ranks whose memory is this one: how many there are, and how many of them are below this rank.
    pub fn node_place(&self) -> (usize, usize) {
        let (mut all, mut below) = (0, 0);
        for rank in self.segment.node_ranks().filter(|&rank| self.is_node_peer(rank)) {
            all += 1;
            below += usize::from(rank < self.rank);
        }
        (all, below)
    }

    /// Whether the job is ended if a rank of it fails: by our launcher, or by the other ranks of the node.
    pub fn is_watched(&self) -> bool {
        self.launcher.is_some() || self.link.is_some()
    }

    /// Whether this process writes the trace of its node, as there is no launcher of ours that does: it is alone, or it
    /// waits for the others of the node when it leaves.
    pub fn writes_trace(&self) -> bool {
        let is_leader = self.own_page().leads.load(Ordering::Relaxed) == 1;
        self.launcher.is_none() && (self.node_place().0 == 1 || is_leader)
    }

    /// Begins to watch the other ranks of this node where no launcher of ours does: one that ends without having left
    /// ends the job. To be called once, when the job has its place in memory.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn watch(&'static self) -> std::io::Result<()> {
        self.link.as_ref().map_or(Ok(()), |link| link.watch(self))
    }

    /// This rank has finalized MPI: where the launcher is not ours, its end is no failure from here on. One rank of
    /// each node waits for the others of it.
    pub fn leave(&self) {
        if let Some(link) = &self.link {
            link.leave();
        }
        let late = self.late_engine.lock();
        if let Some(engine) = late.unwrap_or_else(PoisonError::into_inner).as_mut() {
            // Where it does not hear, it takes this process's end for a failure, and says so.
            let _ = engine.finalize();
        }
    }

    /// Number of the host that a rank counts as being on; ranks of one host can share memory.
    pub fn host(&self, rank: usize) -> u32 {
        self.segment.host(rank)
    }

    /// Whether a rank counts as being on another host than this one. No lane to it may use what lies in the job's
    /// memory.
    pub fn is_remote(&self, rank: usize) -> bool {
        self.host(rank) != self.host(self.rank) || !self.is_node_peer(rank)
    }

    /// Whether some rank of this job counts as being on another host than this one.
    pub fn has_other_hosts(&self) -> bool {
        let mut ranks = 0..self.present();
        ranks.any(|rank| self.is_remote(rank) && !self.is_foreign(rank))
    }

    /// Whether a rank has a page of its own in this memory. Of others, which are on other nodes, nothing is known here
    /// but their host and how they are reached.
    pub fn is_node_peer(&self, rank: usize) -> bool {
        !self.segment.is_elsewhere(rank)
    }

    /// Memory files that the job has, one on each of its nodes.
    pub fn nodes(&self) -> usize {
        (self.header().nodes.load(Ordering::Relaxed) as usize).max(1)
    }

    /// Processors worth of time that the job's ranks have together, at least 1. With more
    /// ranks than this, ranks wait for each other's processor.
    pub fn processors(&self) -> usize {
        self.processors
    }

    /// Is this rank bound to processors of its own?
    pub fn is_bound(&self) -> bool {
        self.bound
    }

    /// Random number that identifies this job.
    pub fn job_id(&self) -> u64 {
        self.job_id
    }

    /// The launcher's process number, None without a launcher.
    pub fn launcher(&self) -> Option<u32> {
        self.launcher
    }

    /// The job's header.
    #[inline]
    pub fn header(&self) -> &JobHeader {
        self.segment.header()
    }

    /// The shared memory itself.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The page of a rank; None beyond the last. One stands for all ranks of other nodes ([`Job::is_node_peer`]).
    #[inline]
    pub fn rank_page(&self, rank: usize) -> Option<&RankPage> {
        self.segment.page(rank)
    }

    /// The ranks that have a place in this memory: those of this node.
    pub fn node_ranks(&self) -> impl Iterator<Item = usize> {
        self.segment.node_ranks()
    }

    /// This rank's own page.
    #[inline]
    pub fn own_page(&self) -> &RankPage {
        self.segment.page(self.rank).expect("own rank was checked when the job was attached")
    }

    /// The bits that senders set for `rank`, each at its place ([`Segment::place`]); None where the rank has no place.
    pub fn incoming_bitmap(&self, rank: usize) -> Option<&[AtomicU64]> {
        self.segment.incoming_bitmap(rank)
    }

    /// The same for a worker of that rank ([`Segment::worker_bitmap`]).
    pub fn worker_bitmap(&self, place: usize, rank: usize) -> Option<&[AtomicU64]> {
        self.segment.worker_bitmap(place, rank)
    }

    /// First byte of the region that `src` fills and `dst` empties; None when either has no place in this memory.
    /// The sender has it backed ([`Job::back_pair`]) before either touches it.
    pub fn pair_region(&self, src: usize, dst: usize) -> Option<NonNull<u8>> {
        self.segment.pair_region(src, dst)
    }

    /// Has the region of a pair backed by memory.
    ///
    /// # Errors
    /// Too little memory; needed and available are stated.
    pub fn back_pair(&self, src: usize, dst: usize) -> Result<(), SegmentError> {
        self.segment.back_pair(src, dst)
    }

    /// Offsets of a rank's arena in the segment; None where it has no place there.
    pub fn arena(&self, rank: usize) -> Option<Range<u64>> {
        self.segment.arena(rank)
    }

    /// Maps a piece of the segment ([`Segment::map_range`]).
    ///
    /// # Errors
    /// Outside of the segment, or the kernel refuses.
    pub fn map_range(&self, offset: u64, bytes: usize) -> Result<Mapping, SegmentError> {
        self.segment.map_range(offset, bytes)
    }

    /// Notes what a thread of this rank waits for ([`RankPage::note_waiting`]). Call it before sleeping, never on the
    /// path of a message that is there.
    #[cold]
    pub fn note_waiting(&self, place: usize, note: WaitNoteRef<'_>) {
        self.own_page().note_waiting(place, note);
    }

    /// The wait is over, or something has arrived.
    #[cold]
    pub fn clear_waiting(&self, place: usize) {
        self.own_page().clear_waiting(place);
    }

    /// Notes this rank's phase.
    pub fn set_phase(&self, phase: Phase) {
        self.own_page().set_phase(phase);
        if phase == Phase::Finalized {
            self.own_page().set_left(STATE_FINALIZED);
            self.segment.uncount_awake(self.own_page());
        }
    }

    /// Says how this rank reaches others: `choice` for comparison, `text` as the user wrote it.
    ///
    /// # Errors
    /// Another rank has said something else before: that rank, and its text.
    pub fn agree_on_transports(&self, choice: u32, text: &str) -> Result<(), (usize, String)> {
        self.own_page().transports.store(text);
        let joined = self.header().transports.join(self.rank, choice);
        joined.map_err(|other| {
            let text = self.rank_page(other).map(|page| page.transports.load());
            (other, text.unwrap_or_default())
        })
    }

    /// Notes which algorithms of collective calls this rank was asked to use.
    ///
    /// # Errors
    /// Another rank was asked for others: that rank.
    pub fn agree_on_collectives(&self, choice: u32) -> Result<(), usize> {
        self.header().collectives.join(self.rank, choice)
    }

    /// Is this rank's process gone, or no rank at all?
    pub fn is_dead(&self, rank: usize) -> bool {
        // ORDERING: partner is the launcher's release store of the state.
        (self.rank_page(rank).filter(|_| rank < self.present()))
            .is_none_or(|p| p.state.load(Ordering::Acquire) == STATE_DEAD)
    }

    /// Has a rank failed, so that the launcher is ending the job, or this rank and those that are connected with it?
    pub fn has_failed(&self) -> bool {
        let is_ended = self.own_page().is_ended.load(Ordering::Relaxed);
        is_ended != 0 || self.header().failure.load().is_some()
    }

    /// Which of these ranks are of another world than this one.
    pub fn outside<'a>(&self, ranks: &'a [u32]) -> impl Iterator<Item = usize> + use<'a> {
        let (world, is_all) = (self.world(), self.present() == self.world.len());
        let ranks = if is_all { &[][..] } else { ranks };
        ranks.iter().map(|&rank| rank as usize).filter(move |rank| !world.contains(rank))
    }

    /// Notes for the launcher that this rank holds one communicator more, or less, with ranks of other worlds of its
    /// job: they end with it where it fails.
    pub fn note_link(&self, is_made: bool) {
        let links = &self.own_page().links;
        let _ = match is_made {
            true => links.fetch_add(1, Ordering::Relaxed),
            false => links.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Leaves an abort for the launcher's report, if it is the first of the job; the process
    /// should then end with [`exit_code`] of the code. Returns whether it was the first.
    pub fn record_abort(&self, code: i32, message: &str) -> bool {
        let first = self.header().abort.record(self.rank, code, message);
        if first {
            // ORDERING: whoever sees the count sees the record.
            self.header().events.fetch_add(1, Ordering::Release);
        }
        first
    }
}

/// How many ranks a job began with, as its launcher says; all that are there where it does not.
fn count_first(segment: &Segment) -> usize {
    let said = segment.header().began_with.load(Ordering::Relaxed) as usize;
    match (1..=segment.present()).contains(&said) {
        true => said,
        false => segment.present(),
    }
}

/// The world of a rank, as its page says; all that are there where that makes no sense.
fn find_world(page: &RankPage, rank: usize, present: usize) -> Range<usize> {
    let first = page.world_first.load(Ordering::Relaxed) as usize;
    let ranks = page.world_ranks.load(Ordering::Relaxed) as usize;
    let world = first..first.saturating_add(ranks);
    match world.contains(&rank) && world.end <= present {
        true => world,
        false => 0..present,
    }
}

/// What a process ends with for an MPI abort code: its low eight bits, 1 where those are 0.
pub fn exit_code(abort_code: i32) -> i32 {
    match abort_code & 0xff {
        0 => 1,
        code => code,
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::segment::{Awaited, Spare};
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
        assert_eq!(job.own_page().phase(), Phase::Attached);
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
        // Saying it again changes nothing.
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
                awaited: Awaited::of(&[2]),
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
        job.set_phase(Phase::Finalized);
        assert_eq!(segment.page(3).unwrap().state.load(Ordering::Relaxed), STATE_FINALIZED);
    }

    #[test]
    fn attach__of_a_rank_whose_place_is_gone__is_refused() {
        let spare = Spare { ranks: 1, foreign: 0 };
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
        // Not a descriptor of ours as far as fcntl is told, but the launcher's table has it.
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
        job.set_phase(Phase::Finalized);
        let e = Job::attach_as(variable(&segment, 0, 9)).unwrap_err();
        assert!(matches!(e, BootstrapError::RankTaken { rank: 0, .. }), "{e}");
    }

    #[test]
    fn attach__by_a_child_of_the_rank_is_a_job_of_its_own() {
        let segment = Segment::create(2, 9).unwrap();
        // Process 1 is everybody's ancestor.
        segment.page(0).unwrap().owner_pid.store(1, Ordering::Relaxed);
        segment.page(0).unwrap().set_phase(Phase::Initialized);
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

    #[test]
    fn exit_code__is_never_success() {
        assert_eq!([exit_code(0), exit_code(7), exit_code(256), exit_code(-1)], [1, 7, 1, 255]);
    }
}
