//! Requests and answers as they travel: numbers in 32 bits, little end first; texts and lists after their length.

use crate::job::Origin;

/// One program of a spawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Program and arguments; the program comes first.
    pub argv: Vec<Vec<u8>>,
    /// How many processes may run it, the best number first; each at least 1.
    pub counts: Vec<u32>,
    /// Folder it starts in.
    pub wdir: Option<Vec<u8>>,
    /// Folders that are searched for it before those of PATH, separated by `:`.
    pub path: Option<Vec<u8>>,
    /// The host it is to run on.
    pub host: Option<Vec<u8>>,
}

/// A rank of another job, as that job describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Who it is.
    pub origin: Origin,
    /// Number of its host in its own job.
    pub host: u32,
    /// How it is reached ([`crate::network::NetworkCard`]).
    pub card: Vec<u8>,
}

/// What a rank asks the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Start processes; `root` is the rank that asks.
    Spawn {
        /// The rank that asks.
        root: u32,
        /// At least one.
        programs: Vec<Program>,
    },
    /// Publish a service.
    Publish {
        /// The rank that asks.
        owner: u32,
        /// Its name.
        service: Vec<u8>,
        /// Where it is.
        port: Vec<u8>,
    },
    /// Look for a service.
    Lookup {
        /// Its name.
        service: Vec<u8>,
    },
    /// Take a service back.
    Unpublish {
        /// Its name.
        service: Vec<u8>,
        /// Where it was said to be.
        port: Vec<u8>,
    },
    /// Come to a port of a rank on another host, ask again what has become of it, or go away.
    Knock {
        /// The rank that has opened the port.
        rank: u32,
        /// The port's number.
        number: u32,
        /// Who comes, as it is written into the port's word.
        caller: u32,
        /// What it does there.
        visit: Visit,
    },
    /// From an agent: whatever this rank has published is gone.
    Forget {
        /// The rank.
        owner: u32,
    },
    /// From an agent: its node has ranks that run, as long as the connection is there. Nothing is answered.
    Stay,
    /// From an agent: ranks of its node read standard input, which follows on the connection. Nothing is answered.
    Input,
    /// From the first agent: look whether these processes can be started, and open what those of this node listen on.
    Prepare {
        /// For each new rank the number of its node.
        nodes: Vec<u32>,
        /// The programs, with one count each.
        programs: Vec<Program>,
    },
    /// From the first agent: these ranks are there now; start those of this node, as they were prepared.
    Add {
        /// The rank that has asked for them.
        root: u32,
        /// The first of them.
        first: u32,
        /// How many run each program.
        counts: Vec<u32>,
        /// For each of them the number of its node.
        nodes: Vec<u32>,
        /// For each of them how it is reached.
        cards: Vec<Vec<u8>>,
    },
    /// From the first agent: some ranks from this one on could not be started; end the others.
    GiveUp {
        /// The first of them.
        first: u32,
    },
    /// Give ranks of other jobs numbers in this one, those that they have where they have any.
    Number {
        /// The ranks.
        foreign: Vec<Foreign>,
    },
    /// From the first agent: these ranks of other jobs have numbers now, one after the other.
    AddForeign {
        /// The first number.
        first: u32,
        /// The ranks.
        foreign: Vec<Foreign>,
    },
    /// From an agent: a rank of its node has failed, and its world is being ended there. [`Request::End`] follows.
    Failed(WorldFailure),
    /// From the first agent: say which worlds are connected there, and which go on.
    Worlds,
    /// From the first agent: these worlds end because of a failure. None: the job does, by the agent that has told it.
    End {
        /// The first rank of each.
        worlds: Vec<u32>,
        /// What they end with.
        failure: WorldFailure,
    },
}

/// A failure that may not end the whole job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorldFailure {
    /// The first rank of its world.
    pub world: u32,
    /// Who has failed.
    pub rank: u32,
    /// The job's exit code, if it is the first one.
    pub code: u32,
    /// Others may be about to end by themselves, and get a moment for it.
    pub is_late: bool,
}

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A process cannot be started.
    Spawn = 1,
    /// A service of this name is there already, or is not there to be taken back.
    Service = 2,
    /// No service has this name.
    Name = 3,
    /// The request makes no sense.
    Malformed = 4,
    /// No place is free, but ranks that have no communicator with other worlds are about to end.
    PlacesBusy = 5,
}

/// What a caller does at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// It comes.
    Comes = 0,
    /// It has come, and checks whether it is let in.
    Asks = 1,
    /// It has waited long enough, and goes away.
    Leaves = 2,
}

/// What has become of a caller at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knocked {
    /// Somebody else is there, or this one has gone away.
    Waits = 1,
    /// It has come, and is not let in yet.
    Stands = 2,
    /// It is let in.
    LetIn = 3,
}

/// What the launcher answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Processes run: the first rank of theirs, and how many run each program.
    Spawned {
        /// Their first rank in the job.
        first: u32,
        /// For each program.
        counts: Vec<u32>,
    },
    /// It is done.
    Done,
    /// Where a service is.
    Found {
        /// The port's name.
        port: Vec<u8>,
    },
    /// What has become of a caller at a port.
    Knocked(Knocked),
    /// How the new ranks of a node are reached, in their order.
    Ready {
        /// Their cards.
        cards: Vec<Vec<u8>>,
    },
    /// The numbers of the ranks of other jobs, in the order in which they were asked for.
    Numbered {
        /// The numbers.
        ranks: Vec<u32>,
    },
    /// The worlds of a node, each by its first rank.
    Worlds {
        /// Those with a rank that holds communicators with other worlds.
        linked: Vec<u32>,
        /// Those with a rank that runs and is not being ended.
        going_on: Vec<u32>,
    },
    /// It was refused.
    Refused {
        /// Why.
        cause: Cause,
        /// The program that is to blame, by its number in a spawn; any other number: none of them.
        program: u32,
        /// For people.
        text: String,
    },
}

impl Answer {
    /// A refusal that no program of a spawn is to blame for.
    pub fn refuse(cause: Cause, text: impl Into<String>) -> Answer {
        let (program, text) = (u32::MAX, text.into());
        Answer::Refused { cause, program, text }
    }
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.number(value.len() as u32);
        self.0.extend_from_slice(value);
        self
    }

    fn optional(&mut self, value: Option<&[u8]>) -> &mut Self {
        match value {
            None => self.number(0),
            Some(value) => self.number(1).bytes(value),
        }
    }

    fn numbers(&mut self, list: &[u32]) -> &mut Self {
        self.list(list, |to, &number| _ = to.number(number))
    }

    fn failure(&mut self, failure: &WorldFailure) -> &mut Self {
        let WorldFailure { world, rank, code, is_late } = *failure;
        self.number(world).number(rank).number(code).number(is_late.into())
    }

    fn list<T>(&mut self, list: &[T], mut each: impl FnMut(&mut Self, &T)) -> &mut Self {
        self.number(list.len() as u32);
        list.iter().for_each(|value| each(self, value));
        self
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = self.number()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }

    fn optional(&mut self) -> Option<Option<Vec<u8>>> {
        match self.number()? {
            0 => Some(None),
            1 => Some(Some(self.bytes()?)),
            _ => None,
        }
    }

    fn failure(&mut self) -> Option<WorldFailure> {
        Some(WorldFailure {
            world: self.number()?,
            rank: self.number()?,
            code: self.number()?,
            is_late: match self.number()? {
                0 => false,
                1 => true,
                _ => return None,
            },
        })
    }

    /// Each entry has at least four bytes, so that a wrong length ends soon.
    fn list<T>(&mut self, mut each: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let length = self.number()? as usize;
        if length > self.0.len() / 4 {
            return None;
        }
        (0..length).map(|_| each(self)).collect()
    }

    fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

impl Request {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        match self {
            Request::Spawn { root, programs } => {
                to.number(1).number(*root).list(programs, write_program)
            }
            Request::Publish { owner, service, port } => {
                to.number(2).number(*owner).bytes(service).bytes(port)
            }
            Request::Lookup { service } => to.number(3).bytes(service),
            Request::Unpublish { service, port } => to.number(4).bytes(service).bytes(port),
            Request::Knock { rank, number, caller, visit } => {
                (to.number(5).number(*rank).number(*number).number(*caller)).number(*visit as u32)
            }
            Request::Forget { owner } => to.number(6).number(*owner),
            Request::Stay => to.number(7),
            Request::Prepare { nodes, programs } => {
                to.number(8).numbers(nodes).list(programs, write_program)
            }
            Request::Add { root, first, counts, nodes, cards } => {
                (to.number(9).number(*root).number(*first))
                    .numbers(counts)
                    .numbers(nodes)
                    .list(cards, |to, card| _ = to.bytes(card))
            }
            Request::GiveUp { first } => to.number(10).number(*first),
            Request::Input => to.number(11),
            Request::Number { foreign } => to.number(12).list(foreign, write_foreign),
            Request::AddForeign { first, foreign } => {
                to.number(13).number(*first).list(foreign, write_foreign)
            }
            Request::Failed(failure) => to.number(14).failure(failure),
            Request::Worlds => to.number(15),
            Request::End { worlds, failure } => to.number(16).numbers(worlds).failure(failure),
        };
        to.0
    }

    /// From bytes; None where they are no request.
    pub fn decode(bytes: &[u8]) -> Option<Request> {
        let mut from = Reader(bytes);
        let request = match from.number()? {
            1 => Request::Spawn {
                root: from.number()?,
                programs: from.list(read_program).filter(|list| !list.is_empty())?,
            },
            2 => Request::Publish {
                owner: from.number()?,
                service: from.bytes()?,
                port: from.bytes()?,
            },
            3 => Request::Lookup { service: from.bytes()? },
            4 => Request::Unpublish { service: from.bytes()?, port: from.bytes()? },
            5 => Request::Knock {
                rank: from.number()?,
                number: from.number()?,
                caller: from.number()?,
                visit: match from.number()? {
                    0 => Visit::Comes,
                    1 => Visit::Asks,
                    2 => Visit::Leaves,
                    _ => return None,
                },
            },
            6 => Request::Forget { owner: from.number()? },
            7 => Request::Stay,
            8 => Request::Prepare {
                nodes: from.list(Reader::number)?,
                programs: from.list(read_program)?,
            },
            9 => Request::Add {
                root: from.number()?,
                first: from.number()?,
                counts: from.list(Reader::number)?,
                nodes: from.list(Reader::number)?,
                cards: from.list(Reader::bytes)?,
            },
            10 => Request::GiveUp { first: from.number()? },
            11 => Request::Input,
            12 => Request::Number { foreign: from.list(read_foreign)? },
            13 => Request::AddForeign { first: from.number()?, foreign: from.list(read_foreign)? },
            14 => Request::Failed(from.failure()?),
            15 => Request::Worlds,
            16 => Request::End { worlds: from.list(Reader::number)?, failure: from.failure()? },
            _ => return None,
        };
        from.end(request)
    }
}

fn write_program(to: &mut Writer, program: &Program) {
    to.list(&program.argv, |to, word| _ = to.bytes(word));
    to.numbers(&program.counts);
    to.optional(program.wdir.as_deref());
    to.optional(program.path.as_deref());
    to.optional(program.host.as_deref());
}

fn read_program(from: &mut Reader<'_>) -> Option<Program> {
    let program = Program {
        argv: from.list(Reader::bytes)?,
        counts: from.list(Reader::number)?,
        wdir: from.optional()?,
        path: from.optional()?,
        host: from.optional()?,
    };
    let is_whole = !program.argv.is_empty() && !program.counts.contains(&0);
    (is_whole && !program.counts.is_empty()).then_some(program)
}

fn write_foreign(to: &mut Writer, foreign: &Foreign) {
    let Origin { job, rank } = foreign.origin;
    to.number(job as u32).number((job >> 32) as u32);
    to.number(rank).number(foreign.host).bytes(&foreign.card);
}

fn read_foreign(from: &mut Reader<'_>) -> Option<Foreign> {
    let (low, high) = (from.number()?, from.number()?);
    Some(Foreign {
        origin: Origin { job: u64::from(high) << 32 | u64::from(low), rank: from.number()? },
        host: from.number()?,
        card: from.bytes()?,
    })
}

impl Foreign {
    /// Several as bytes.
    pub fn encode_all(all: &[Foreign]) -> Vec<u8> {
        let mut to = Writer::default();
        to.list(all, write_foreign);
        to.0
    }

    /// The reverse; `None` where they are no such list.
    pub fn decode_all(bytes: &[u8]) -> Option<Vec<Foreign>> {
        let mut from = Reader(bytes);
        let all = from.list(read_foreign)?;
        from.end(all)
    }
}

impl Answer {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        match self {
            Answer::Spawned { first, counts } => to.number(1).number(*first).numbers(counts),
            Answer::Done => to.number(2),
            Answer::Found { port } => to.number(3).bytes(port),
            Answer::Knocked(what) => to.number(5).number(*what as u32),
            Answer::Ready { cards } => to.number(6).list(cards, |to, card| _ = to.bytes(card)),
            Answer::Numbered { ranks } => to.number(7).numbers(ranks),
            Answer::Worlds { linked, going_on } => to.number(8).numbers(linked).numbers(going_on),
            Answer::Refused { cause, program, text } => {
                to.number(4).number(*cause as u32).number(*program).bytes(text.as_bytes())
            }
        };
        to.0
    }

    /// From bytes; None where they are no answer.
    pub fn decode(bytes: &[u8]) -> Option<Answer> {
        let mut from = Reader(bytes);
        let answer = match from.number()? {
            1 => Answer::Spawned { first: from.number()?, counts: from.list(Reader::number)? },
            2 => Answer::Done,
            3 => Answer::Found { port: from.bytes()? },
            4 => Answer::Refused {
                cause: match from.number()? {
                    1 => Cause::Spawn,
                    2 => Cause::Service,
                    3 => Cause::Name,
                    4 => Cause::Malformed,
                    5 => Cause::PlacesBusy,
                    _ => return None,
                },
                program: from.number()?,
                text: String::from_utf8(from.bytes()?).ok()?,
            },
            5 => Answer::Knocked(match from.number()? {
                1 => Knocked::Waits,
                2 => Knocked::Stands,
                3 => Knocked::LetIn,
                _ => return None,
            }),
            6 => Answer::Ready { cards: from.list(Reader::bytes)? },
            7 => Answer::Numbered { ranks: from.list(Reader::number)? },
            8 => Answer::Worlds {
                linked: from.list(Reader::number)?,
                going_on: from.list(Reader::number)?,
            },
            _ => return None,
        };
        from.end(answer)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
