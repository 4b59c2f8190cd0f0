//! All ranks of a job in one process, for tests and for measurements without a launcher.

use super::Job;
use super::error::BootstrapError;
use crate::identity::random_job_id;
use fastpath_base::sync::Ordering;
use fastpath_segment::{RemoteRank, Segment, SegmentError, SpareRanks};

impl Job {
    /// Makes all ranks of a new job in this process, each with its own mapping, as if they were processes.
    ///
    /// # Errors
    /// The number of ranks is out of range, or the kernel refuses the memory.
    pub fn in_process(ranks: usize) -> Result<Vec<Job>, BootstrapError> {
        Job::on_hosts(&vec![0; ranks])
    }

    /// Makes the ranks of a job as [`Job::in_process`] does, each on the host `hosts[rank]`.
    pub fn on_hosts(hosts: &[u32]) -> Result<Vec<Job>, BootstrapError> {
        let first = Segment::create(hosts.len(), random_job_id())?;
        for (rank, &host) in hosts.iter().enumerate() {
            if let Some(page) = first.page(rank) {
                page.host.store(host, Ordering::Relaxed);
            }
        }
        (0..hosts.len()).map(|rank| Job::in_memory(&first, rank)).collect()
    }

    /// Makes a job of `ranks` ranks as [`Job::in_process`] does, and adds `spawned` ranks with reusable places.
    ///
    /// # Errors
    /// The memory of the job cannot be made.
    pub fn with_spawned(ranks: usize, spawned: usize) -> Result<Vec<Job>, BootstrapError> {
        let (here, spare) =
            ((0..ranks).collect::<Vec<_>>(), SpareRanks { ranks: spawned, foreign: 0 });
        let first = Segment::create_for_node(&here, ranks, spare, random_job_id())?;
        first.header().began_with.store(ranks as u32, Ordering::Relaxed);
        first.add_ranks(spawned, |_| None, |_, _| {})?;
        (0..ranks + spawned).map(|rank| Job::in_memory(&first, rank)).collect()
    }

    /// Makes rank `rank` of the job in the memory `first`, with its own mapping of that memory.
    fn in_memory(first: &Segment, rank: usize) -> Result<Job, BootstrapError> {
        let file = first.file().map_err(std::io::Error::from);
        let file = file.and_then(|file| file.try_clone_to_owned());
        let file = file.map_err(|cause| SegmentError::System { step: "dup", cause })?;
        let segment = Segment::attach(file, first.header().job_id.load(Ordering::Relaxed))?;
        Ok(Job::without_launcher(segment, rank))
    }

    /// Makes the ranks of a job as [`Job::in_process`] does, each on the node `nodes[rank]`. Ranks of a node share a
    /// memory file. The file has no network addresses of the ranks of other nodes; [`Job::learn_card`] records them.
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
            let memory =
                Segment::create_for_node(&here, nodes.len(), SpareRanks::default(), job_id)?;
            let header = memory.header();
            header.set_secret(secret.get_or_insert_with(|| header.secret()));
            header.nodes.store(names.len() as u32, Ordering::Relaxed);
            for (rank, &host) in nodes.iter().enumerate() {
                match memory.page(rank).filter(|_| host == node) {
                    Some(page) => page.host.store(host, Ordering::Relaxed),
                    None => memory.tell(rank, RemoteRank { host, card: &[] })?,
                }
            }
            for rank in here {
                jobs[rank] = Some(Job::in_memory(&memory, rank)?);
            }
        }
        Ok(jobs.into_iter().flatten().collect())
    }

    /// Makes only the ranks `here`, on one node of a job of `ranks` ranks; see [`Job::on_nodes`].
    pub fn on_one_node(here: &[usize], ranks: usize) -> Result<Vec<Job>, BootstrapError> {
        let memory = Segment::create_for_node(here, ranks, SpareRanks::default(), random_job_id())?;
        memory.header().nodes.store(2, Ordering::Relaxed);
        let place = |&rank| Job::in_memory(&memory, rank);
        here.iter().map(place).collect()
    }
}
