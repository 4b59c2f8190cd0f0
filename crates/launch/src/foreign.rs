//! Connected ranks of other jobs. Each gets a number in this job, equal on all of its hosts.

use crate::agent::Agent;
use crate::control::Client;
use crate::watch::JobWatch;
use fastpath_job::control::{Answer, Cause, Foreign, Request};
use fastpath_job::number_host;
use fastpath_segment::RemoteRank;

/// Program name of a rank of another job.
const PROGRAM: &str = "a process of another job";

impl JobWatch<'_> {
    /// Numbers ranks of other jobs. Returns the answer, and the request that must reach the agents of other hosts
    /// before the answer is sent.
    pub fn number_foreign(&mut self, asked: &[Foreign]) -> (Answer, Option<Request>) {
        let first = self.segment.present() as u32;
        let (ranks, new) = self.foreign.assign(asked, first);
        if new.is_empty() {
            return (Answer::Numbered { ranks }, None);
        }
        if let Err(text) = self.add_foreign(first, &new) {
            self.foreign.take_back(first);
            return (Answer::refuse(Cause::Spawn, text), None);
        }
        (Answer::Numbered { ranks }, Some(Request::AddForeign { first, foreign: new }))
    }

    /// Numbers ranks of other jobs on several hosts. Answers when all agents have these numbers.
    pub fn begin_numbers(&mut self, client: Client, asked: &[Foreign]) {
        let (answer, request) = self.number_foreign(asked);
        let peers = self.agent.as_ref().and_then(Agent::peers).cloned();
        let (Some(request), Some(peers)) = (request, peers) else {
            return client.reply(&answer);
        };
        let tell = move || {
            for node in 1..peers.nodes() {
                // Ignore a failure: the agent may have ended with all of its ranks, and then needs no numbers.
                let _ = peers.ask(node, &request);
            }
        };
        self.ask_beside(tell, move |_, ()| client.reply(&answer));
    }

    /// Adds ranks of other jobs to the segment and to the launcher's list of ranks.
    pub fn add_foreign(&mut self, first: u32, new: &[Foreign]) -> Result<(), String> {
        let first = first as usize;
        if first != self.segment.present() {
            return Err(
                "the hosts of the job disagree about the number of ranks of the job".to_owned()
            );
        }
        let left = self.segment.capacity() - first;
        if new.len() > left {
            return Err(format!(
                "the call connects {} ranks of another job, and there is room for {left}; spawned \
                 ranks and ranks of earlier connected jobs also take room. Start mpiexec with a \
                 larger FASTPATH_SPAWN_MAX",
                new.len()
            ));
        }
        let elsewhere = |rank: usize| {
            let foreign = new.get(rank - first)?;
            Some(RemoteRank {
                host: number_host(foreign.origin.job, foreign.host),
                card: &foreign.card,
            })
        };
        self.outputs.open_files(first..first + new.len(), |_| false)?;
        let added = self.segment.add_ranks(new.len(), elsewhere, |_, _| {});
        added.map_err(|e| format!("cannot allocate memory for ranks of another job: {e}"))?;
        self.ranks.add_foreign(new.len(), PROGRAM);
        if let Some(agent) = &mut self.agent {
            agent.add(&vec![agent.node() as u32; new.len()]);
        }
        Ok(())
    }
}
