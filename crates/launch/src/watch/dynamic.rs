//! Spawned ranks (`MPI_Comm_spawn`), started and watched like those of the command line.

use super::JobWatch;
use crate::agent::Agent;
use crate::args::App;
use crate::start::{NewRank, PreparedProgram, StartContext, prepare_app};
use fastpath_base::refusal::read_limit;
use fastpath_base::sync::Ordering;
use fastpath_base::tell::escape;
use fastpath_base::topology::affinity;
use fastpath_job::control::{Answer, Cause, Program, Request};
use fastpath_job::network::Listener;
use fastpath_segment::{PlaceCounts, RemoteRank};
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

pub fn name_program(program: &Program) -> String {
    let name = program.argv.first();
    name.map_or(String::new(), |name| escape(&String::from_utf8_lossy(name)).into_owned())
}

#[derive(Debug)]
pub struct SpawnRefusal {
    /// Number of the program that cannot be started; `usize::MAX` if no program can be started.
    program: usize,
    cause: Cause,
    text: String,
}

impl SpawnRefusal {
    pub fn all(text: impl Into<String>) -> SpawnRefusal {
        SpawnRefusal::one(usize::MAX, text)
    }

    pub fn one(program: usize, text: impl Into<String>) -> SpawnRefusal {
        SpawnRefusal { program, cause: Cause::Spawn, text: text.into() }
    }

    /// Returns the refusal in another agent's answer; None if the answer is no refusal.
    pub fn of_answer(answer: Answer) -> Option<SpawnRefusal> {
        let Answer::Refused { cause, program, text } = answer else {
            return None;
        };
        let program = usize::try_from(program).unwrap_or(usize::MAX);
        Some(SpawnRefusal { program, cause, text })
    }

    pub fn on_host(self, host: &str) -> SpawnRefusal {
        SpawnRefusal { text: format!("on host {host}: {}", self.text), ..self }
    }
}

pub fn list_programs(counts: &[u32]) -> Vec<usize> {
    (counts.iter().enumerate()).flat_map(|(number, &count)| vec![number; count as usize]).collect()
}

pub struct NewRanks<'a> {
    pub root: usize,
    pub counts: &'a [u32],
    /// Node and card of each new rank; empty if the job has one node.
    pub places: Vec<(u32, &'a [u8])>,
}

impl JobWatch<'_> {
    /// Answers requests of ranks. `is_ending` tells whether the job is being ended.
    pub fn serve(&mut self, is_ending: bool) {
        for (client, request) in self.control.read(&self.poller) {
            match request {
                None => {
                    let text = "the request to mpiexec is malformed; use mpiexec and the library \
                                of the same version";
                    client.reply(&Answer::refuse(Cause::Malformed, text));
                }
                Some(Request::Spawn { root, .. }) if self.ranks.is_given_up(root as usize) => {
                    let text = "mpiexec is ending the rank that sent the request";
                    client.reply(&Answer::refuse(Cause::Spawn, text));
                }
                Some(
                    Request::Spawn { .. }
                    | Request::Prepare { .. }
                    | Request::Add { .. }
                    | Request::Number { .. }
                    | Request::AddForeign { .. },
                ) if is_ending => {
                    client.reply(&Answer::refuse(Cause::Spawn, "mpiexec is ending the job"));
                }
                Some(request) if self.agent.is_some() => self.serve_on_hosts(client, request),
                Some(Request::Spawn { root, programs }) => {
                    let done = self.spawn(root as usize, &programs);
                    client.reply(&answer_for(done));
                }
                Some(Request::Number { foreign }) => {
                    client.reply(&self.number_foreign(&foreign).0);
                }
                Some(request) => client.reply(&self.control.answer(&request)),
            }
        }
    }

    fn spawn(&mut self, root: usize, programs: &[Program]) -> Result<Answer, SpawnRefusal> {
        if root >= self.segment.present() {
            return Err(SpawnRefusal::all(format!("the job has no rank {root}")));
        }
        let prepared = programs.iter().enumerate();
        let prepared = prepared.map(|(number, program)| {
            self.check_host(program).map_err(|text| SpawnRefusal::one(number, text))?;
            self.prepare(program, number)
        });
        let prepared = prepared.collect::<Result<Vec<PreparedProgram>, _>>()?;
        let counts = self.choose_counts(programs)?;
        let new = NewRanks { root, counts: &counts, places: Vec::new() };
        let names = programs.iter().map(name_program).collect::<Vec<_>>();
        let taken = self.take_places(list_programs(&counts).len())?;
        let first = self.add_ranks(&new, &names, &taken)?;
        let starting = (0..list_programs(&counts).len()).map(|own| (own, None));
        self.start_added(first, &new, &prepared, starting.collect())?;
        let first = first as u32;
        Ok(Answer::Spawned { first, counts })
    }

    /// Starts the new ranks in `starting`, each with its listener.
    pub fn start_added(
        &mut self, first: usize, new: &NewRanks<'_>, prepared: &[PreparedProgram],
        starting: Vec<(usize, Option<Listener>)>,
    ) -> Result<(), SpawnRefusal> {
        let app_of = list_programs(new.counts);
        for (own, listener) in starting {
            let number = app_of[own];
            let new = NewRank {
                rank: first + own,
                world: (own, app_of.len()),
                app: &prepared[number],
                input: self.no_input.as_raw_fd(),
                cpus: None,
                listener: listener.as_ref(),
            };
            let mut at = StartContext {
                segment: self.segment,
                ranks: &mut self.ranks,
                outputs: &mut self.outputs,
                poller: &self.poller,
            };
            if let Err((_, text)) = self.starter.start(&new, &mut at) {
                self.ranks.give_up(first, self.segment);
                return Err(SpawnRefusal::one(number, text));
            }
        }
        Ok(())
    }

    fn check_host(&self, program: &Program) -> Result<(), String> {
        let Some(host) = &program.host else {
            return Ok(());
        };
        let host = String::from_utf8_lossy(host);
        match is_this_host(&host, self.host) {
            true => Ok(()),
            false => Err(format!(
                "mpiexec cannot start processes on host {host:?}, because the job runs only on {}; \
                 add the host to --host",
                self.host
            )),
        }
    }

    pub fn prepare(
        &self, program: &Program, number: usize,
    ) -> Result<PreparedProgram, SpawnRefusal> {
        let own = |bytes: &Vec<u8>| OsString::from_vec(bytes.clone());
        let app = App {
            argv: program.argv.iter().map(own).collect(),
            wdir: program.wdir.as_ref().map(own).map(PathBuf::from),
            path: program.path.as_ref().map(own),
            ..App::default()
        };
        prepare_app(&app, self.spec).map_err(|e| SpawnRefusal::one(number, e.text))
    }

    /// Chooses the number of processes of each program: the first of its numbers that fits.
    pub fn choose_counts(&self, programs: &[Program]) -> Result<Vec<u32>, SpawnRefusal> {
        let places = self.count_places();
        let numbers = self.segment.capacity() - self.segment.present();
        // In a job on several hosts, each host counts its free places later (`Request::Prepare`).
        let has_peers = self.agent.as_ref().and_then(Agent::peers).is_some();
        let mut left = if has_peers { numbers } else { numbers.min(places.free) };
        let mut counts = Vec::new();
        for (number, program) in programs.iter().enumerate() {
            let fits = |count: &&u32| **count as usize <= left;
            let Some(&count) = program.counts.iter().find(fits) else {
                let asked = program.counts.first().copied().unwrap_or_default();
                return Err(self.refuse_room(number, asked as usize, left, places));
            };
            left -= count as usize;
            counts.push(count);
        }
        Ok(counts)
    }

    /// Returns the reason for which places of ended ranks are not reused, if there is one.
    fn find_keeper(&self) -> Option<&'static str> {
        match (&self.trace, self.segment.is_pinned()) {
            // A trace stores the events of all ranks by place.
            (Some(_), _) => Some("a trace is recorded (FASTPATH_TRACE)"),
            (None, true) => Some("ranks of this host reach each other by an adapter"),
            (None, false) => None,
        }
    }

    /// Whether the place of a rank can be reused.
    fn has_ended(&self, rank: usize) -> bool {
        self.find_keeper().is_none() && self.ranks.has_ended(rank, self.segment)
    }

    pub fn count_places(&self) -> PlaceCounts {
        self.segment.count_places(|rank| self.has_ended(rank))
    }

    /// Makes the refusal of a spawn of `asked` ranks for lack of room, with the remedy.
    pub fn refuse_room(
        &self, program: usize, asked: usize, left: usize, places: PlaceCounts,
    ) -> SpawnRefusal {
        let numbers = self.segment.capacity() - self.segment.present();
        let most = self.segment.capacity() - self.began_with;
        let is_limited = read_limit(libc::RLIMIT_AS).is_some();
        let more = match is_limited {
            true => {
                "run `ulimit -v unlimited` before mpiexec, or start mpiexec with a larger \
                 FASTPATH_SPAWN_MAX"
            }
            false => "start mpiexec with a larger FASTPATH_SPAWN_MAX",
        };
        let (why, remedy) = if most == 0 && is_limited {
            let why = "the limit on the address space leaves no room for spawned ranks";
            (why.to_owned(), "run `ulimit -v unlimited` before mpiexec")
        } else if asked > numbers {
            (
                format!("this job can spawn {most} ranks in all, including ranks that have ended"),
                more,
            )
        } else {
            (describe_places(places, self.find_keeper()), more)
        };
        let text = format!(
            "the call requests {asked} more ranks, and there is room for {left}: {why}; {remedy}"
        );
        let is_leaving = asked <= numbers && self.is_any_leaving();
        let cause = if is_leaving { Cause::PlacesBusy } else { Cause::Spawn };
        SpawnRefusal { program, cause, text }
    }

    /// Whether a place may become free in a moment: a spawned rank of this host has ended, or has no communicator with
    /// other worlds any more.
    fn is_any_leaving(&self) -> bool {
        let segment = self.segment;
        let mut spawned = segment.node_ranks().filter(|&rank| segment.has_reusable_place(rank));
        self.find_keeper().is_none()
            && spawned.any(|rank| {
                let links = segment.page(rank).map_or(0, |page| page.links.load(Ordering::Relaxed));
                links == 0 || !self.ranks.goes_on(rank)
            })
    }

    /// Takes as many places of ended ranks as `count` new ranks of this host need beyond the unused places. Only places
    /// to which no other rank can refer any more are taken. If a taken place gets no rank, it can be taken again.
    pub fn take_places(&self, count: usize) -> Result<Vec<usize>, SpawnRefusal> {
        let unused = self.segment.layout().ranks() - self.segment.here();
        let missing = count.saturating_sub(unused);
        let taken = self.segment.reuse_places(missing, |rank| self.has_ended(rank));
        if taken.len() == missing {
            return Ok(taken);
        }
        let places = self.count_places();
        Err(self.refuse_room(usize::MAX, count, places.free.min(count - 1), places))
    }

    /// Adds new ranks, whose programs are called `names`. Ranks of this host get the places `taken`
    /// ([`JobWatch::take_places`]), then unused ones. Returns the first rank.
    pub fn add_ranks(
        &mut self, new: &NewRanks<'_>, names: &[String], taken: &[usize],
    ) -> Result<usize, SpawnRefusal> {
        let refuse = SpawnRefusal::all;
        let app_of = list_programs(new.counts);
        let first = self.segment.present();
        let here = self.agent.as_ref().map_or(0, |agent| agent.node() as u32);
        let place_of = |rank: usize| new.places.get(rank - first);
        let is_local = |rank| place_of(rank).is_none_or(|&(node, _)| node == here);
        self.outputs.open_files(first..first + app_of.len(), is_local).map_err(refuse)?;
        let host = self.segment.host(new.root);
        let elsewhere = |rank| {
            let &(host, card) = place_of(rank).filter(|_| !is_local(rank))?;
            Some(RemoteRank { host, card })
        };
        let unbound = affinity();
        let added = self.segment.add_ranks_at(app_of.len(), taken, elsewhere, |rank, page| {
            let app = app_of[rank - first];
            page.app.store(app as u32, Ordering::Relaxed);
            page.app_ranks.store(new.counts[app], Ordering::Relaxed);
            page.host.store(host, Ordering::Relaxed);
            page.world_first.store(first as u32, Ordering::Relaxed);
            page.world_ranks.store(app_of.len() as u32, Ordering::Relaxed);
            page.parent.store(new.root as u32 + 1, Ordering::Relaxed);
            page.links.store(1, Ordering::Relaxed);
            page.set_domains(self.topology.place_rank(rank, &unbound, false));
            if let Some(&(node, card)) = place_of(rank) {
                page.host.store(node, Ordering::Relaxed);
                page.network.store(card);
            }
        });
        added.map_err(|e| refuse(format!("cannot allocate memory for spawned ranks: {e}")))?;
        let name = |app: usize| names.get(app).cloned().unwrap_or_default();
        self.ranks.add(app_of.iter().map(|&app| name(app)));
        Ok(first)
    }
}

/// Describes used and total places for spawned ranks. `keeper` is the reason for not reusing places of ended ranks.
fn describe_places(places: PlaceCounts, keeper: Option<&str>) -> String {
    let PlaceCounts { running, held, .. } = places;
    let all = places.all();
    let are = if held == 1 { "is" } else { "are" };
    match keeper {
        None => format!(
            "this host can have {all} spawned ranks at a time: {running} run, and {held} ended \
             but {are} still in a communicator of a running rank"
        ),
        Some(keeper) => format!(
            "this host can have {all} spawned ranks, including ranks that have ended, because \
             {keeper}"
        ),
    }
}

pub fn answer_for(done: Result<Answer, SpawnRefusal>) -> Answer {
    done.unwrap_or_else(|SpawnRefusal { program, cause, text }| Answer::Refused {
        cause,
        program: program as u32,
        text,
    })
}

pub fn is_this_host(name: &str, own: &str) -> bool {
    [own, "localhost", "127.0.0.1", "::1"].contains(&name)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn places__that_are_kept__are_not_explained_by_communicators() {
        let places = PlaceCounts { free: 0, running: 3, held: 1 };
        let text = describe_places(places, None);
        assert!(
            text.contains("4 spawned ranks at a time: 3 run, and 1 ended but is still in"),
            "{text}"
        );
        let text = describe_places(places, Some("ranks use an adapter"));
        assert!(
            text.ends_with("including ranks that have ended, because ranks use an adapter"),
            "{text}"
        );
    }
}
