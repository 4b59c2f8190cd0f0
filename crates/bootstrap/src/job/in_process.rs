//! All ranks of a job in one process, as if they were processes: for tests, and for measurements without a launcher.

use super::{BootstrapError, Job, random_job_id};
use crate::segment::{Elsewhere, Segment, SegmentError, Spare};
use fastpath_base::sync::Ordering;

impl Job {
    /// All ranks of a new job in this one process, each with a mapping of its own, as if they were
    /// processes: for tests, and for measurements without a launcher.
    ///
    /// # Errors
    /// The number of ranks, or the kernel refuses the memory.
    pub fn in_process(ranks: usize) -> Result<Vec<Job>, BootstrapError> {
        Job::on_hosts(&vec![0; ranks])
    }

    /// As [`Job::in_process`], with the host that each rank counts as being on.
    ///
    /// # Errors
    /// As there.
    pub fn on_hosts(hosts: &[u32]) -> Result<Vec<Job>, BootstrapError> {
        let first = Segment::create(hosts.len(), random_job_id())?;
        for (rank, &host) in hosts.iter().enumerate() {
            if let Some(page) = first.page(rank) {
                page.host.store(host, Ordering::Relaxed);
            }
        }
        (0..hosts.len()).map(|rank| Job::in_memory(&first, rank)).collect()
    }

    /// Makes a job of `ranks` ranks in this process, as [`Job::in_process`] does, and adds `spawned` ranks. Their
    /// places can be reused.
    ///
    /// # Errors
    /// The memory of the job cannot be made.
    pub fn with_spawned(ranks: usize, spawned: usize) -> Result<Vec<Job>, BootstrapError> {
        let (here, spare) = ((0..ranks).collect::<Vec<_>>(), Spare { ranks: spawned, foreign: 0 });
        let first = Segment::create_for_node(&here, ranks, spare, random_job_id())?;
        first.header().began_with.store(ranks as u32, Ordering::Relaxed);
        first.add_ranks(spawned, |_| None, |_, _| {})?;
        (0..ranks + spawned).map(|rank| Job::in_memory(&first, rank)).collect()
    }

    /// A rank with a mapping of its own of a new memory.
    fn in_memory(first: &Segment, rank: usize) -> Result<Job, BootstrapError> {
        let file = first.file().map_err(std::io::Error::from);
        let file = file.and_then(|file| file.try_clone_to_owned());
        let file = file.map_err(|cause| SegmentError::System { step: "dup", cause })?;
        let segment = Segment::attach(file, first.header().job_id.load(Ordering::Relaxed))?;
        Ok(Job::without_launcher(segment, rank))
    }

    /// As [`Job::in_process`], with the node that each rank is on: those of a node share a memory file, and each file
    /// notes that the other ranks are elsewhere. [`Job::learn_card`] notes where those are reached.
    ///
    /// # Errors
    /// As there.
    pub fn on_nodes(nodes: &[u32]) -> Result<Vec<Job>, BootstrapError> {
        let mut names = nodes.to_vec();
        names.sort();
        names.dedup();
        let job_id = random_job_id();
        let mut secret = None;
        let mut jobs: Vec<Option<Job>> = nodes.iter().map(|_| None).collect();
        for &node in &names {
            let here = (0..nodes.len()).filter(|&rank| nodes[rank] == node);
            let here: Vec<usize> = here.collect();
            let memory = Segment::create_for_node(&here, nodes.len(), Spare::default(), job_id)?;
            let header = memory.header();
            header.set_secret(secret.get_or_insert_with(|| header.secret()));
            header.nodes.store(names.len() as u32, Ordering::Relaxed);
            for (rank, &host) in nodes.iter().enumerate() {
                match memory.page(rank).filter(|_| host == node) {
                    Some(page) => page.host.store(host, Ordering::Relaxed),
                    None => memory.tell(rank, Elsewhere { host, card: &[] })?,
                }
            }
            for rank in here {
                jobs[rank] = Some(Job::in_memory(&memory, rank)?);
            }
        }
        Ok(jobs.into_iter().flatten().collect())
    }

    /// As [`Job::on_nodes`], only the ranks of one node, of a job that has `ranks` in all: the others are only known to
    /// be elsewhere.
    ///
    /// # Errors
    /// As there.
    pub fn on_one_node(here: &[usize], ranks: usize) -> Result<Vec<Job>, BootstrapError> {
        let memory = Segment::create_for_node(here, ranks, Spare::default(), random_job_id())?;
        memory.header().nodes.store(2, Ordering::Relaxed);
        let place = |&rank| Job::in_memory(&memory, rank);
        here.iter().map(place).collect()
    }
}
