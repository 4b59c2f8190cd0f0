//! Encoding of requests and answers: numbers are 32-bit little-endian; texts and lists follow their length.

use crate::identity::Origin;
use fastpath_segment::{CallOutcome, PortRequest};

/// A program of a spawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Program and arguments.
    pub argv: Vec<Vec<u8>>,
    /// Acceptable numbers of processes, the preferred one first; each at least 1.
    pub counts: Vec<u32>,
    /// Folder in which the program starts; `None` for the folder of the process that starts it.
    pub wdir: Option<Vec<u8>>,
    /// Folders, separated by `:`, that are searched for the program before those of PATH; `None` for PATH alone.
    pub path: Option<Vec<u8>>,
    /// Host on which the program runs; `None` if the launcher chooses.
    pub host: Option<Vec<u8>>,
}

/// A rank of another job, as that job describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Job and rank, which identify the process in every job.
    pub origin: Origin,
    /// Number of the rank's host in the rank's own job.
    pub host: u32,
    /// Network address ([`crate::network::NetworkCard`]).
    pub card: Vec<u8>,
}

/// Request of a rank or an agent to the launcher, or of the first agent to other agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Start processes.
    Spawn {
        /// Rank that sends the request.
        root: u32,
        /// At least one program.
        programs: Vec<Program>,
    },
    /// Publish a service.
    Publish {
        /// Rank that sends the request.
        owner: u32,
        /// Name of the service.
        service: Vec<u8>,
        /// Port of the service.
        port: Vec<u8>,
    },
    /// Look up a service.
    Lookup {
        /// Name of the service.
        service: Vec<u8>,
    },
    /// Unpublish a service.
    Unpublish {
        /// Name of the service.
        service: Vec<u8>,
        /// Port under which the service was published.
        port: Vec<u8>,
    },
    /// Register a call at a port of a rank on another host, check the state of the call, or withdraw the call.
    Knock {
        /// Rank that has opened the port.
        rank: u32,
        /// Number of the port.
        number: u32,
        /// Caller, in the encoding of `RankPage::knock`.
        caller: u32,
        /// Action of the caller.
        visit: PortRequest,
    },
    /// From an agent: remove all services that rank `owner` has published.
    Forget {
        /// The rank.
        owner: u32,
    },
    /// From an agent: its node has running ranks while the connection is open. The receiver sends no answer.
    Stay,
    /// From an agent: ranks of its node read standard input, which the receiver then sends on this connection. The
    /// receiver sends no answer.
    Input,
    /// From the first agent: check whether these processes can start, and open sockets for the new ranks of this node.
    Prepare {
        /// Number of the node of each new rank.
        nodes: Vec<u32>,
        /// Programs, with one count each.
        programs: Vec<Program>,
    },
    /// From the first agent: these ranks exist now; start the prepared ones of this node.
    Add {
        /// Rank that sent the request.
        root: u32,
        /// First new rank.
        first: u32,
        /// Number of ranks of each program.
        counts: Vec<u32>,
        /// Number of the node of each new rank.
        nodes: Vec<u32>,
        /// Network address of each new rank.
        cards: Vec<Vec<u8>>,
    },
    /// From the first agent: some ranks from `first` on could not be started; end those that were started.
    GiveUp {
        /// First new rank.
        first: u32,
    },
    /// Assign numbers of this job to ranks of other jobs. A rank that has a number keeps it.
    Number {
        /// The ranks.
        foreign: Vec<Foreign>,
    },
    /// From the first agent: these ranks of other jobs have consecutive numbers now.
    AddForeign {
        /// First number.
        first: u32,
        /// The ranks.
        foreign: Vec<Foreign>,
    },
    /// From an agent: a rank of its node has failed, and the agent ends the rank's world there. [`Request::End`]
    /// follows.
    Failed(WorldFailure),
    /// From the first agent: report which worlds of the node are connected to other worlds, and which have running
    /// ranks.
    Worlds,
    /// From the first agent: end the ranks of these worlds because of a failure. If the list is empty, the agent that
    /// reported the failure ends the job.
    End {
        /// First rank of each world.
        worlds: Vec<u32>,
        /// The failure.
        failure: WorldFailure,
    },
    /// From an agent: a rank of its node has died, in a job that tolerates failures.
    Died {
        /// The rank.
        rank: u32,
    },
}

/// A failure that may leave other worlds of the job running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorldFailure {
    /// First rank of the failed rank's world.
    pub world: u32,
    /// Failed rank.
    pub rank: u32,
    /// The job's exit code, if this failure is the first one.
    pub code: u32,
    /// Whether other ranks may be ending by themselves, and get a short time to do so.
    pub is_late: bool,
}

/// Cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A process cannot be started.
    Spawn = 1,
    /// The service is published already, or not published with this port.
    Service = 2,
    /// No service has this name.
    Name = 3,
    /// The request is malformed.
    Malformed = 4,
    /// The job's memory has no free place for a spawned rank, but ranks that share no communicator with other worlds
    /// are about to end.
    PlacesBusy = 5,
}

/// Answer of the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The processes were started.
    Spawned {
        /// First new rank of the job.
        first: u32,
        /// Number of ranks of each program.
        counts: Vec<u32>,
    },
    /// The request was carried out.
    Done,
    /// The service was found.
    Found {
        /// Name of the port.
        port: Vec<u8>,
    },
    /// State of a call at a port.
    Knocked(CallOutcome),
    /// Network addresses of a node's new ranks, in the order of the ranks.
    Ready {
        /// Cards of the ranks.
        cards: Vec<Vec<u8>>,
    },
    /// Numbers of ranks of other jobs, in the order of the request.
    Numbered {
        /// The numbers.
        ranks: Vec<u32>,
    },
    /// Worlds of a node, each by its first rank.
    Worlds {
        /// Worlds with a rank that holds communicators with other worlds.
        linked: Vec<u32>,
        /// Worlds with a running rank that is not being ended.
        going_on: Vec<u32>,
    },
    /// The request was refused.
    Refused {
        /// Cause of the refusal.
        cause: Cause,
        /// Number, in the spawn, of the program that caused the refusal; another number if no program did.
        program: u32,
        /// Text for users.
        text: String,
    },
}

impl Answer {
    /// Returns a refusal that was not caused by a program of the spawn.
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

    /// Reads a list. An entry has at least four bytes, so a length above a quarter of the remaining bytes is invalid.
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
    /// Encodes the request.
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
            Request::Died { rank } => to.number(17).number(*rank),
        };
        to.0
    }

    /// Decodes a request; `None` if the bytes are not a request.
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
                    0 => PortRequest::Comes,
                    1 => PortRequest::Asks,
                    2 => PortRequest::Leaves,
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
            17 => Request::Died { rank: from.number()? },
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
    /// Encodes a list of ranks.
    pub fn encode_all(all: &[Foreign]) -> Vec<u8> {
        let mut to = Writer::default();
        to.list(all, write_foreign);
        to.0
    }

    /// Decodes a list of ranks; `None` if the bytes are not such a list.
    pub fn decode_all(bytes: &[u8]) -> Option<Vec<Foreign>> {
        let mut from = Reader(bytes);
        let all = from.list(read_foreign)?;
        from.end(all)
    }
}

impl Answer {
    /// Encodes the answer.
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

    /// Decodes an answer; `None` if the bytes are not an answer.
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
                1 => CallOutcome::Waits,
                2 => CallOutcome::Stands,
                3 => CallOutcome::LetIn,
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
