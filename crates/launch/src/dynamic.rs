//! Ranks that a rank asks for (`MPI_Comm_spawn`): started as those of the command line are, and watched like them.

use crate::agent::Agent;
use crate::agent::peers::Peers;
use crate::args::App;
use crate::start::{NewRank, Prepared, StartContext, prepare_app};
use crate::watch::Watch;
use fastpath_base::sync::Ordering;
use fastpath_base::tell::escape;
use fastpath_bootstrap::control::{Answer, Cause, Program, Request};
use fastpath_bootstrap::network::Listener;
use fastpath_bootstrap::segment::{Elsewhere, PlaceCounts};
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// What a program is called in reports.
pub fn name_program(program: &Program) -> String {
    let name = program.argv.first();
    name.map_or(String::new(), |name| escape(&String::from_utf8_lossy(name)).into_owned())
}

/// Why processes cannot be started.
#[derive(Debug)]
pub struct Refused {
    /// The number of the program that cannot be started; `usize::MAX`: none of them can.
    program: usize,
    cause: Cause,
    text: String,
}

impl Refused {
    /// None of the programs can be started.
    pub fn all(text: impl Into<String>) -> Refused {
        Refused::one(usize::MAX, text)
    }

    /// A program cannot be started.
    pub fn one(program: usize, text: impl Into<String>) -> Refused {
        Refused { program, cause: Cause::Spawn, text: text.into() }
    }

    /// A refusal of another agent; none for another answer.
    pub fn of_answer(answer: Answer) -> Option<Refused> {
        let Answer::Refused { cause, program, text } = answer else {
            return None;
        };
        let program = usize::try_from(program).unwrap_or(usize::MAX);
        Some(Refused { program, cause, text })
    }

    /// With the name of the host where it happened.
    pub fn on_host(self, host: &str) -> Refused {
        Refused { text: format!("on host {host}: {}", self.text), ..self }
    }
}

/// The number of the program that each of the new ranks runs.
pub fn list_programs(counts: &[u32]) -> Vec<usize> {
    (counts.iter().enumerate()).flat_map(|(number, &count)| vec![number; count as usize]).collect()
}

/// What is known of new ranks.
pub struct NewRanks<'a> {
    /// The rank that has asked for them.
    pub root: usize,
    /// How many run each program.
    pub counts: &'a [u32],
    /// Of each the number of its node and how it is reached; empty where the job has one node.
    pub places: Vec<(u32, &'a [u8])>,
}

impl Watch<'_> {
    /// Answers what ranks have asked for; `is_ending`: the job is being ended.
    pub fn serve(&mut self, is_ending: bool) {
        for (client, request) in self.control.read(&self.poller) {
            match request {
                None => {
                    let text = "the request cannot be understood";
                    client.reply(&Answer::refuse(Cause::Malformed, text));
                }
                Some(Request::Spawn { root, .. }) if self.ranks.is_given_up(root as usize) => {
                    let text = "the rank that asks is being ended";
                    client.reply(&Answer::refuse(Cause::Spawn, text));
                }
                Some(
                    Request::Spawn { .. }
                    | Request::Prepare { .. }
                    | Request::Add { .. }
                    | Request::Number { .. }
                    | Request::AddForeign { .. },
                ) if is_ending => {
                    client.reply(&Answer::refuse(Cause::Spawn, "the job is being ended"));
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

    fn spawn(&mut self, root: usize, programs: &[Program]) -> Result<Answer, Refused> {
        if root >= self.segment.present() {
            return Err(Refused::all(format!("there is no rank {root}")));
        }
        let prepared = programs.iter().enumerate();
        let prepared = prepared.map(|(number, program)| {
            self.check_host(program).map_err(|text| Refused::one(number, text))?;
            self.prepare(program, number)
        });
        let prepared = prepared.collect::<Result<Vec<Prepared>, _>>()?;
        let counts = self.choose_counts(programs)?;
        let new = NewRanks { root, counts: &counts, places: Vec::new() };
        let names = programs.iter().map(name_program).collect::<Vec<_>>();
        let first = self.add_ranks(&new, &names)?;
        let starting = (0..list_programs(&counts).len()).map(|own| (own, None));
        self.start_added(first, &new, &prepared, starting.collect())?;
        let first = first as u32;
        Ok(Answer::Spawned { first, counts })
    }

    /// Starts those of the new ranks that are listed, with what they listen on.
    pub fn start_added(
        &mut self, first: usize, new: &NewRanks<'_>, prepared: &[Prepared],
        starting: Vec<(usize, Option<Listener>)>,
    ) -> Result<(), Refused> {
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
                return Err(Refused::one(number, text));
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
            false => Err(format!("host {host:?}: mpiexec starts processes only on {}", self.host)),
        }
    }

    /// Looks everything up that a program is started with.
    pub fn prepare(&self, program: &Program, number: usize) -> Result<Prepared, Refused> {
        let own = |bytes: &Vec<u8>| OsString::from_vec(bytes.clone());
        let app = App {
            argv: program.argv.iter().map(own).collect(),
            wdir: program.wdir.as_ref().map(own).map(PathBuf::from),
            path: program.path.as_ref().map(own),
            ..App::default()
        };
        prepare_app(&app, self.spec).map_err(|e| Refused::one(number, e.text))
    }

    /// How many processes run each program: the best number that there is room for.
    pub fn choose_counts(&self, programs: &[Program]) -> Result<Vec<u32>, Refused> {
        let places = self.count_places();
        let numbers = self.segment.capacity() - self.segment.present();
        // On several hosts they are spread, and each host has the last word.
        let peers = self.agent.as_ref().and_then(Agent::peers);
        let hosts = peers.map_or(1, Peers::nodes);
        let mut left = numbers.min(places.free.saturating_mul(hosts));
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

    /// Whether the place of a rank can be another one's. A trace has the events of all ranks, in their places.
    fn has_ended(&self, rank: usize) -> bool {
        self.trace.is_none() && self.ranks.has_ended(rank, self.segment)
    }

    /// Places of this host for spawned ranks.
    pub fn count_places(&self) -> PlaceCounts {
        self.segment.count_places(|rank| self.has_ended(rank))
    }

    /// Why there is no room for `asked` spawned ranks, with the remedy.
    pub fn refuse_room(
        &self, program: usize, asked: usize, left: usize, places: PlaceCounts,
    ) -> Refused {
        let numbers = self.segment.capacity() - self.segment.present();
        let PlaceCounts { running, held, .. } = places;
        let why = match (asked > numbers, &self.trace) {
            (true, _) => {
                let most = self.segment.capacity() - self.began_with;
                format!("this job can spawn {most} in all, those that have ended included")
            }
            (false, None) => format!(
                "this host can have {} spawned ranks at a time, of which {running} run, and {held} \
                 have ended that a running rank still has a communicator with",
                places.all()
            ),
            (false, Some(_)) => format!(
                "this host can have {} spawned ranks, those that have ended included, since a \
                 trace is recorded (FASTPATH_TRACE)",
                places.all()
            ),
        };
        let text = format!(
            "{asked} more ranks are asked for, and there is room for {left}: {why}; \
             FASTPATH_SPAWN_MAX changes that, before mpiexec"
        );
        let is_leaving = asked <= numbers && self.is_any_leaving();
        let cause = if is_leaving { Cause::Leaving } else { Cause::Spawn };
        Refused { program, cause, text }
    }

    /// Whether a place may be free in a moment: a spawned rank of this host has ended, or has no communicator with
    /// other worlds any more.
    fn is_any_leaving(&self) -> bool {
        let segment = self.segment;
        let mut spawned = segment.node_ranks().filter(|&rank| segment.has_reusable_place(rank));
        self.trace.is_none()
            && spawned.any(|rank| {
                let links = segment.page(rank).map_or(0, |page| page.links.load(Ordering::Relaxed));
                links == 0 || !self.ranks.goes_on(rank)
            })
    }

    /// Makes room for new ranks, whose programs are called so; returns the first.
    pub fn add_ranks(&mut self, new: &NewRanks<'_>, names: &[String]) -> Result<usize, Refused> {
        let refuse = Refused::all;
        let app_of = list_programs(new.counts);
        let first = self.segment.present();
        let here = self.agent.as_ref().map_or(0, |agent| agent.node() as u32);
        let place_of = |rank: usize| new.places.get(rank - first);
        let is_local = |rank| place_of(rank).is_none_or(|&(node, _)| node == here);
        self.outputs.open_files(first..first + app_of.len(), is_local).map_err(refuse)?;
        let host = self.segment.host(new.root);
        let elsewhere = |rank| {
            let &(host, card) = place_of(rank).filter(|_| !is_local(rank))?;
            Some(Elsewhere { host, card })
        };
        let local = (first..first + app_of.len()).filter(|&rank| is_local(rank)).count();
        let fresh = self.segment.layout().ranks() - self.segment.here();
        let missing = local.saturating_sub(fresh);
        let free = self.segment.reuse_places(missing, |rank| self.has_ended(rank));
        let added = self.segment.add_ranks_at(app_of.len(), &free, elsewhere, |rank, page| {
            let app = app_of[rank - first];
            page.app.store(app as u32, Ordering::Relaxed);
            page.app_ranks.store(new.counts[app], Ordering::Relaxed);
            page.host.store(host, Ordering::Relaxed);
            page.world_first.store(first as u32, Ordering::Relaxed);
            page.world_ranks.store(app_of.len() as u32, Ordering::Relaxed);
            page.parent.store(new.root as u32 + 1, Ordering::Relaxed);
            page.links.store(1, Ordering::Relaxed);
            if let Some(&(node, card)) = place_of(rank) {
                page.host.store(node, Ordering::Relaxed);
                page.network.store(card);
            }
        });
        added.map_err(|e| refuse(format!("no memory for further ranks: {e}")))?;
        let name = |app: usize| names.get(app).cloned().unwrap_or_default();
        self.ranks.add(app_of.iter().map(|&app| name(app)));
        Ok(first)
    }
}

/// The answer to the rank that has asked for processes.
pub fn answer_for(done: Result<Answer, Refused>) -> Answer {
    done.unwrap_or_else(|Refused { program, cause, text }| Answer::Refused {
        cause,
        program: program as u32,
        text,
    })
}

/// Whether a name means the host that is called `own`.
pub fn is_this_host(name: &str, own: &str) -> bool {
    [own, "localhost", "127.0.0.1", "::1"].contains(&name)
}
