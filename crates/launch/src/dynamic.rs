//! Ranks that a rank asks for (`MPI_Comm_spawn`): started as those of the command line are, and watched like them.

use crate::args::App;
use crate::start::{NewRank, Place, Prepared, prepare_app};
use crate::watch::Watch;
use fastpath_base::sync::Ordering;
use fastpath_bootstrap::control::{Answer, Cause, Program, Request};
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

fn name_program(program: &Program) -> String {
    let name = program.argv.first();
    name.map_or(String::new(), |name| {
        String::from_utf8_lossy(name).into_owned()
    })
}

/// Each agent keeps the names of its own host: a name that is not there may be known on another one.
fn tell_of_one_host(answer: Answer) -> Answer {
    match answer {
        Answer::Refused {
            cause: cause @ (Cause::Name | Cause::Service),
            program,
            text,
        } => Answer::Refused {
            cause,
            program,
            text: text
                + "; in a job on several hosts each host knows the names alone that its own ranks \
                   have published",
        },
        answer => answer,
    }
}

/// A program that cannot be started: its number, and why.
type Refused = (usize, String);

impl Watch<'_> {
    /// Answers what ranks have asked for; `is_ending`: the job is being ended.
    pub fn serve(&mut self, is_ending: bool) {
        for (client, request) in self.control.read(&self.poller) {
            let answer = match request {
                None => Answer::refuse(Cause::Malformed, "the request cannot be understood"),
                Some(Request::Spawn { .. }) if is_ending => {
                    Answer::refuse(Cause::Spawn, "the job is being ended")
                }
                Some(Request::Spawn { root, programs }) => self
                    .spawn(root as usize, &programs)
                    .unwrap_or_else(|(program, text)| Answer::Refused {
                        cause: Cause::Spawn,
                        program: program as u32,
                        text,
                    }),
                Some(request) => {
                    let answer = self.control.answer(&request);
                    match self.agent {
                        Some(_) => tell_of_one_host(answer),
                        None => answer,
                    }
                }
            };
            client.reply(&answer);
        }
    }

    fn spawn(&mut self, root: usize, programs: &[Program]) -> Result<Answer, Refused> {
        if root >= self.segment.present() {
            return Err((usize::MAX, format!("there is no rank {root}")));
        }
        let prepared = programs.iter().enumerate();
        let prepared = prepared.map(|(number, program)| self.prepare(program, number));
        let prepared = prepared.collect::<Result<Vec<Prepared>, _>>()?;
        let counts = self.choose_counts(programs)?;
        let app_of: Vec<usize> = (counts.iter().enumerate())
            .flat_map(|(number, &count)| vec![number; count as usize])
            .collect();
        let names: Vec<String> = programs.iter().map(name_program).collect();
        let first = self.add_ranks(root, &counts, &app_of)?;
        self.ranks.add(app_of.iter().map(|&app| names[app].clone()));
        for (own, &number) in app_of.iter().enumerate() {
            let new = NewRank {
                rank: first + own,
                world: (own, app_of.len()),
                app: &prepared[number],
                input: self.no_input.as_raw_fd(),
                cpus: None,
                listener: None,
            };
            let mut at = Place {
                segment: self.segment,
                ranks: &mut self.ranks,
                outputs: &mut self.outputs,
                poller: &self.poller,
            };
            if let Err((_, text)) = self.starter.start(&new, &mut at) {
                self.ranks.give_up(first, self.segment);
                return Err((number, text));
            }
        }
        let first = first as u32;
        Ok(Answer::Spawned { first, counts })
    }

    fn prepare(&self, program: &Program, number: usize) -> Result<Prepared, Refused> {
        let refuse = |text: String| (number, text);
        if let Some(host) = &program.host {
            let host = String::from_utf8_lossy(host);
            let own = [self.host, "localhost", "127.0.0.1", "::1"];
            if !own.contains(&&*host) {
                return Err(refuse(format!(
                    "host {host:?}: mpiexec starts processes on {} alone",
                    self.host
                )));
            }
        }
        let own = |bytes: &Vec<u8>| OsString::from_vec(bytes.clone());
        let app = App {
            argv: program.argv.iter().map(own).collect(),
            wdir: program.wdir.as_ref().map(own).map(PathBuf::from),
            path: program.path.as_ref().map(own),
            ..App::default()
        };
        prepare_app(&app, self.spec).map_err(|e| refuse(e.text))
    }

    /// How many processes run each program: the best number that there is room for.
    fn choose_counts(&self, programs: &[Program]) -> Result<Vec<u32>, Refused> {
        let mut left = self.segment.layout().ranks() - self.segment.present();
        let mut counts = Vec::new();
        for (number, program) in programs.iter().enumerate() {
            let fits = |count: &&u32| **count as usize <= left;
            let Some(&count) = program.counts.iter().find(fits) else {
                let asked = program.counts.first().copied().unwrap_or_default();
                return Err((number, self.describe_room(asked, left)));
            };
            left -= count as usize;
            counts.push(count);
        }
        Ok(counts)
    }

    fn describe_room(&self, asked: u32, left: usize) -> String {
        if self.agent.is_some() {
            return "a job on several hosts cannot spawn ranks yet".to_owned();
        }
        let (capacity, began) = (self.segment.layout().ranks(), self.began_with);
        let most = capacity - began;
        format!(
            "{asked} more ranks are asked for, and there is room for {left}: this job can spawn \
             {most} in all, those that have ended included; FASTPATH_SPAWN_MAX changes that, \
             before mpiexec"
        )
    }

    /// Makes room for as many ranks as there are numbers of programs in `app_of`; returns the first.
    fn add_ranks(
        &mut self,
        root: usize,
        counts: &[u32],
        app_of: &[usize],
    ) -> Result<usize, Refused> {
        let refuse = |text: String| (usize::MAX, text);
        let first = self.segment.present();
        let end = first + app_of.len();
        self.outputs
            .open_files(first..end, &(first..end))
            .map_err(refuse)?;
        let host = self.segment.page(root);
        let host = host.map_or(0, |page| page.host.load(Ordering::Relaxed));
        let added = self.segment.add_ranks(app_of.len(), |rank, page| {
            let app = app_of[rank - first];
            page.app.store(app as u32, Ordering::Relaxed);
            page.app_ranks.store(counts[app], Ordering::Relaxed);
            page.host.store(host, Ordering::Relaxed);
            page.world_first.store(first as u32, Ordering::Relaxed);
            page.world_ranks
                .store(app_of.len() as u32, Ordering::Relaxed);
            page.parent.store(root as u32 + 1, Ordering::Relaxed);
        });
        added.map_err(|e| refuse(format!("no memory for further ranks: {e}")))?;
        Ok(first)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn names__of_one_host_say_so_where_the_job_has_several() {
        let text = |answer| match tell_of_one_host(answer) {
            Answer::Refused { text, .. } => text,
            other => format!("{other:?}"),
        };
        for cause in [Cause::Name, Cause::Service] {
            assert!(text(Answer::refuse(cause, "none")).contains("each host"));
        }
        assert_eq!(text(Answer::refuse(Cause::Spawn, "none")), "none");
        assert_eq!(text(Answer::Done), "Done");
    }
}
