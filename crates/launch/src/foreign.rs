//! Ranks of other jobs that this one is connected with: they get numbers in this job, the same on all of its hosts.

use crate::agent::Agent;
use crate::control::Client;
use crate::watch::Watch;
use fastpath_bootstrap::control::{Answer, Cause, Foreign, Request};
use fastpath_bootstrap::job::number_host;
use fastpath_bootstrap::segment::Elsewhere;

/// What a rank of another job is called where programs are named.
const PROGRAM: &str = "a process of another job";

impl Watch<'_> {
    /// The numbers of ranks of other jobs, and what the agents of other hosts are to be asked before those are told.
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

    /// The same on several hosts; the answer comes when all of them know those ranks.
    pub fn begin_numbers(&mut self, client: Client, asked: &[Foreign]) {
        let (answer, request) = self.number_foreign(asked);
        let peers = self.agent.as_ref().and_then(Agent::peers).cloned();
        let (Some(request), Some(peers)) = (request, peers) else {
            return client.reply(&answer);
        };
        let tell = move || {
            for node in 1..peers.nodes() {
                // One whose ranks have all ended need not know.
                let _ = peers.ask(node, &request);
            }
        };
        self.ask_beside(tell, move |_, ()| client.reply(&answer));
    }

    /// Makes room for ranks of other jobs.
    ///
    /// # Errors
    /// For people.
    pub fn add_foreign(&mut self, first: u32, new: &[Foreign]) -> Result<(), String> {
        let first = first as usize;
        if first != self.segment.present() {
            return Err("the hosts do not agree on which ranks there are".to_owned());
        }
        let left = self.segment.capacity() - first;
        if new.len() > left {
            return Err(format!(
                "{} ranks of another job are to be connected with, and there is room for {left} \
                 (ranks that were spawned, and those of other jobs that have ended, count too): \
                 start mpiexec with a larger FASTPATH_SPAWN_MAX",
                new.len()
            ));
        }
        let elsewhere = |rank: usize| {
            let foreign = new.get(rank - first)?;
            Some(Elsewhere {
                host: number_host(foreign.origin.job, foreign.host),
                card: &foreign.card,
            })
        };
        self.outputs.open_files(first..first + new.len(), |_| false)?;
        let added = self.segment.add_ranks(new.len(), elsewhere, |_, _| {});
        added.map_err(|e| format!("no memory for ranks of another job: {e}"))?;
        self.ranks.add_foreign(new.len(), PROGRAM);
        if let Some(agent) = &mut self.agent {
            agent.add(&vec![agent.node() as u32; new.len()]);
        }
        Ok(())
    }
}
