//! What the first agent does one thing after the other, though it takes answers of all hosts: spawns, numbers for ranks
//! of other jobs, and what failures end. While a thread asks the other agents, which may take as long as a silent host
//! is waited for, the loop goes on: it passes output on and answers what can be answered meanwhile.

use crate::control::Client;
use crate::poll::{Interest, Poller};
use crate::watch::{ROUND, Watch};
use fastpath_bootstrap::control::{Answer, Cause, Foreign, Program, WorldFailure};
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// What needs all agents, and must not be mixed with another such thing: each may change which ranks there are.
#[derive(Debug)]
pub enum Task {
    /// A rank spawns processes.
    Spawn { client: Client, root: usize, programs: Vec<Program> },
    /// A rank connects with those of another job.
    Number { client: Client, foreign: Vec<Foreign> },
    /// A rank has failed.
    Failure(WorldFailure),
}

/// What is done in the loop with the answers.
type NextStep = Box<dyn FnOnce(&mut Watch<'_>) + Send>;

/// The round of questions that is under way, and what waits for its end.
#[derive(Default)]
pub struct Rounds {
    waiting: VecDeque<Task>,
    /// Where the step comes from, once the thread has closed the other end of the socket.
    under_way: Option<(UnixStream, Receiver<NextStep>)>,
    /// The job is being ended, as the last round has found.
    is_ending: bool,
}

impl fmt::Debug for Rounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rounds").field("waiting", &self.waiting.len()).finish()
    }
}

impl Rounds {
    /// The step that has come; None without a round.
    fn take_step(&mut self, poller: &Poller) -> Option<NextStep> {
        let (bell, steps) = self.under_way.take()?;
        poller.change(bell.as_fd(), 0, Interest::Nothing);
        steps.recv().ok()
    }
}

impl Watch<'_> {
    /// Does a thing that needs all agents, as soon as those before it are done.
    pub fn take_turn(&mut self, task: Task) {
        self.rounds.waiting.push_back(task);
        self.begin_tasks();
    }

    fn begin_tasks(&mut self) {
        while self.rounds.under_way.is_none()
            && let Some(task) = self.rounds.waiting.pop_front()
        {
            match task {
                // Nobody would hear of the new ranks: an agent that passes on a request waits for a while only.
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

    /// Why no process is started any more for a rank, if that is so.
    pub fn refuse_start(&self, root: usize) -> Option<&'static str> {
        match self.rounds.is_ending {
            true => Some("the job is being ended"),
            false => self.ranks.is_given_up(root).then_some("the rank that asks is being ended"),
        }
    }

    /// Has a thread ask other agents; then the loop goes on with what it has heard.
    pub fn ask_beside<T: Send + 'static>(
        &mut self, ask: impl FnOnce() -> T + Send + 'static,
        then: impl FnOnce(&mut Watch<'_>, T) + Send + 'static,
    ) {
        // The loop is woken by the end of this socket: an end comes whatever becomes of the thread.
        let Ok((bell, ringing)) = UnixStream::pair() else {
            return then(self, ask());
        };
        self.poller.change(bell.as_fd(), ROUND, Interest::Read);
        let (telling, steps) = channel();
        self.rounds.under_way = Some((bell, steps));
        let work: Box<dyn FnOnce() + Send> = Box::new(move || {
            let heard = ask();
            let step: NextStep = Box::new(move |watch| then(watch, heard));
            // It fails where the job has ended meanwhile.
            let _ = telling.send(step);
            drop(ringing);
        });
        let (giving, given) = channel::<Box<dyn FnOnce() + Send>>();
        let run = move || given.recv().into_iter().for_each(|work| work());
        // Without a thread the loop waits itself.
        match thread::Builder::new().stack_size(1 << 18).spawn(run) {
            Ok(_) => drop(giving.send(work)),
            Err(_) => work(),
        }
    }

    /// A round is over: goes on with it, and with what has waited.
    pub fn end_round(&mut self, is_ending: bool) {
        self.rounds.is_ending = is_ending;
        if let Some(step) = self.rounds.take_step(&self.poller) {
            step(self);
        }
        self.begin_tasks();
    }
}
