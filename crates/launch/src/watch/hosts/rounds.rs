//! Tasks of the first agent that need answers of all hosts, and run one after the other: spawns, numbers for ranks of
//! other jobs, and failures. A thread sends the requests to the other agents, which may take up to the time limit of a
//! silent host. The main loop keeps running during that time: it forwards output and answers other requests.

use super::super::JobWatch;
use crate::control::Client;
use crate::poll::{Interest, Poller, ROUND};
use fastpath_job::control::{Answer, Cause, Foreign, Program, WorldFailure};
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// Task that needs all agents. Tasks must not overlap, because each may change the set of ranks.
#[derive(Debug)]
pub enum Task {
    Spawn { client: Client, root: usize, programs: Vec<Program> },
    Number { client: Client, foreign: Vec<Foreign> },
    Failure(WorldFailure),
}

/// Continuation that handles the answers in the main loop.
type NextStep = Box<dyn FnOnce(&mut JobWatch<'_>) + Send>;

/// The current round of requests to the other agents, and the tasks that wait for the end of the round.
#[derive(Default)]
pub struct Rounds {
    waiting: VecDeque<Task>,
    /// Socket that the thread closes at the end of the round, and channel of the continuation.
    under_way: Option<(UnixStream, Receiver<NextStep>)>,
    /// Whether the job is being ended, as of the last round.
    is_ending: bool,
}

impl fmt::Debug for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rounds").field("waiting", &self.waiting.len()).finish()
    }
}

impl Rounds {
    /// Takes the continuation that has arrived; None without a round.
    fn take_step(&mut self, poller: &Poller) -> Option<NextStep> {
        let (bell, steps) = self.under_way.take()?;
        poller.change(bell.as_fd(), 0, Interest::Nothing);
        steps.recv().ok()
    }
}

impl JobWatch<'_> {
    /// Queues a task, and begins it as soon as the tasks queued before it are done.
    pub fn take_turn(&mut self, task: Task) {
        self.rounds.waiting.push_back(task);
        self.begin_tasks();
    }

    fn begin_tasks(&mut self) {
        while self.rounds.under_way.is_none()
            && let Some(task) = self.rounds.waiting.pop_front()
        {
            match task {
                // Drop the task: the client has left, and would not learn of the new ranks. A client that is another
                // agent leaves at its time limit.
                Task::Spawn { ref client, .. } | Task::Number { ref client, .. }
                    if client.has_left() => {}
                Task::Spawn { client, root, programs } => match self.refuse_start(root) {
                    Some(text) => client.reply(&Answer::refuse(Cause::Spawn, text)),
                    None => self.begin_spawn(client, root, programs),
                },
                Task::Number { client, foreign } => self.begin_numbers(client, &foreign),
                Task::Failure(failure) => self.decide(failure),
            }
        }
    }

    /// Returns the reason for which no process may be started for a rank any more, if any.
    pub fn refuse_start(&self, root: usize) -> Option<&'static str> {
        match self.rounds.is_ending {
            true => Some("mpiexec is ending the job"),
            false => self
                .ranks
                .is_given_up(root)
                .then_some("mpiexec is ending the rank that sent the request"),
        }
    }

    /// Calls `ask` in a thread, and then `then` in the main loop with the result of `ask`.
    pub fn ask_beside<T: Send + 'static>(
        &mut self, ask: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(&mut JobWatch<'_>, T) + Send + 'static,
    ) {
        // The end of this socket wakes the loop, even if the thread fails.
        let Ok((bell, ringing)) = UnixStream::pair() else {
            return then(self, ask());
        };
        self.poller.change(bell.as_fd(), ROUND, Interest::Read);
        let (telling, steps) = channel();
        self.rounds.under_way = Some((bell, steps));
        let work: Box<dyn FnOnce() + Send> = Box::new(move || {
            let heard = ask();
            let step: NextStep = Box::new(move |watch| then(watch, heard));
            // Fails if the job has ended meanwhile.
            let _ = telling.send(step);
            drop(ringing);
        });
        let (giving, given) = channel::<Box<dyn FnOnce() + Send>>();
        let run = move || given.recv().into_iter().for_each(|work| work());
        // If no thread can be started, the main loop blocks while `ask` runs.
        match thread::Builder::new().stack_size(1 << 18).spawn(run) {
            Ok(_) => drop(giving.send(work)),
            Err(_) => work(),
        }
    }

    /// Ends a round: continues its task, then begins the waiting tasks.
    pub fn end_round(&mut self, is_ending: bool) {
        self.rounds.is_ending = is_ending;
        if let Some(step) = self.rounds.take_step(&self.poller) {
            step(self);
        }
        self.begin_tasks();
    }
}
