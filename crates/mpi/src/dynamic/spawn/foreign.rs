//! Processes that are spawned where no launcher of ours runs: a job of its own, started by the engine or by an
//! `mpiexec` that this process calls, and connected with through a port of the root (docs/decisions/0071).

use super::{Asked, Hints, codes_of, list_codes, read_programs};
use crate::coll::words;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::dynamic::{Timeout, port};
use crate::objects::comm::Comm;
use crate::p2p::channel::Channel;
use crate::process::{self, Process, ProcessPart};
use fastpath_base::{clock, topology};
use fastpath_bootstrap::control::Program;
use fastpath_bootstrap::engine::Engine;
use fastpath_bootstrap::job::{Job, PARENT_VARIABLE, describe_start, find_mpiexec, parent};
use fastpath_bootstrap::program::{self, ProgramError};
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Nanoseconds between two looks whether an `mpiexec` still runs, and whether the engine runs a job.
const LOOK_NS: u64 = 10_000_000;
const ASK_NS: u64 = 500_000_000;
/// How often in a row the engine must say that it runs no such job: the daemon of one host may hear of the job later
/// than this process.
const MISSES: u32 = 2;
/// Seconds that processes which the engine has started have to call `MPI_Init`: Hydra does not say that they have
/// ended. The info key `timeout` names another number.
const LIMIT_S: u32 = 300;
/// Each `mpiexec` that this process has called, until its end was seen.
static CHILDREN: ProcessPart<RefCell<Vec<Child>>> = ProcessPart::new(RefCell::new(Vec::new()));

/// What the root has begun.
struct Begun {
    /// Where the new processes come to.
    port: String,
    starter: Starter,
    /// How long they are waited for.
    timeout: Timeout,
    /// When they are looked for again.
    look_ns: u64,
}

/// Who starts the new processes.
enum Starter {
    /// An `mpiexec` that this process has called.
    Mpiexec(Child),
    /// The engine; what it calls their job, if it says so, and how often in a row it did not know that.
    Engine(Option<String>, u32),
}

impl Begun {
    /// Why no process will connect to the port any more.
    fn find_end(&mut self, job: &Job) -> Option<Error> {
        let now_ns = clock::now_ns();
        if now_ns < self.look_ns {
            return None;
        }
        let text = match &mut self.starter {
            Starter::Mpiexec(child) => {
                self.look_ns = now_ns + LOOK_NS;
                let status = child.try_wait().ok()??;
                format!(
                    "the mpiexec that was to start them has ended ({status}) before they called \
                     MPI_Init"
                )
            }
            Starter::Engine(name, misses) => {
                self.look_ns = now_ns + ASK_NS;
                let ask = |name: &String| job.ask_any_engine(|engine| Ok(engine.runs(name)));
                let runs = name.as_ref().and_then(ask);
                *misses = match runs {
                    Some(Ok(false)) => *misses + 1,
                    _ => 0,
                };
                let seconds = self.timeout.seconds();
                match *misses >= MISSES {
                    true => "they have ended before they called MPI_Init".to_owned(),
                    false if self.timeout.is_over() => format!(
                        "they have not called MPI_Init within {seconds} s: most likely they have \
                         ended before (the info key timeout sets the limit)"
                    ),
                    false => return None,
                }
            }
        };
        Some(Error::new(MPI_ERR_SPAWN, text))
    }
}

/// `MPI_Comm_spawn` and `MPI_Comm_spawn_multiple`: all members call it.
pub fn spawn(
    p: &Process, comm: &Comm, root: u32, asked: impl FnOnce() -> Result<Vec<Asked>>,
    codes: &mut Vec<i32>,
) -> Result<usize> {
    let begun = (comm.rank == root).then(|| begin(p, asked, codes));
    let mut begun = pass_codes(p, comm, root, begun, codes)?;
    let job = p.running()?.job;
    let name = begun.as_ref().map(|begun| begun.port.clone());
    let at = || Ok((name.clone().unwrap_or_default(), Timeout::ENDLESS));
    let has_ended = || begun.as_mut()?.find_end(job);
    let met = port::accept_while(p, at, root as i32, comm, has_ended);
    if let Some(begun) = begun {
        if let Starter::Mpiexec(mpiexec) = begun.starter {
            let mut children = CHILDREN.of(p).borrow_mut();
            children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            children.push(mpiexec);
        }
        port::close(p, &begun.port)?;
    }
    if met.is_err() {
        codes.fill(MPI_ERR_SPAWN);
    }
    met
}

fn begin(
    p: &Process, asked: impl FnOnce() -> Result<Vec<Asked>>, codes: &mut Vec<i32>,
) -> Result<Begun> {
    let asked = asked()?;
    list_codes(&asked, codes);
    let mut programs = read_programs(p, &asked)?;
    let job = p.running()?.job;
    let has_engine = job.may_ask_engine();
    if has_engine {
        programs.iter_mut().try_for_each(find_program)?;
    }
    let timeout = read_timeout(p, &asked)?;
    let port = port::open_to_others(p)?;
    let started = match has_engine {
        true => start_by_engine(job, &programs, &port),
        false => start_by_mpiexec(&programs, &port).map(Starter::Mpiexec),
    };
    match started {
        Ok(starter) => {
            let counts = programs.iter().map(|program| program.counts[0]);
            *codes = codes_of(&asked, &counts.collect::<Vec<u32>>());
            Ok(Begun {
                port,
                starter,
                timeout: timeout.unwrap_or_else(|| Timeout::of_seconds(LIMIT_S)),
                look_ns: 0,
            })
        }
        Err(error) => {
            port::close(p, &port)?;
            Err(error)
        }
    }
}

/// What the info key `timeout` of a program says.
fn read_timeout(p: &Process, asked: &[Asked]) -> Result<Option<Timeout>> {
    for asked in asked {
        if let Some(text) = Hints::read(p, asked.info)?.get("timeout") {
            return Timeout::parse(&String::from_utf8_lossy(&text)).map(Some);
        }
    }
    Ok(None)
}

/// Looks for a program as our own launcher does: an engine would end the job, or start it in another folder, where
/// something is not there. What a named host has is not known here.
fn find_program(program: &mut Program) -> Result {
    if program.host.is_some() {
        return Ok(());
    }
    let refuse = |error: ProgramError| Error::new(MPI_ERR_SPAWN, error.text);
    let folder = program.wdir.as_deref();
    let folder = folder.map(|folder| Path::new(OsStr::from_bytes(folder)));
    if let Some(folder) = folder {
        program::check_folder("wdir", folder).map_err(refuse)?;
    }
    let Some(name) = program.argv.first_mut() else {
        return Ok(());
    };
    let hint = program.path.clone().map(OsString::from_vec);
    let lists: Vec<_> = hint.into_iter().chain(std::env::var_os("PATH")).collect();
    let path = (!lists.is_empty()).then(|| lists.join(OsStr::new(":")));
    let found = program::find_program(OsStr::from_bytes(name), folder, path.as_deref());
    let found = found.map_err(refuse)?;
    let found = std::path::absolute(&found).unwrap_or(found);
    *name = found.into_os_string().into_vec();
    Ok(())
}

fn start_by_engine(job: &Job, programs: &[Program], port: &str) -> Result<Starter> {
    let spawn = |engine: &mut Engine| engine.spawn(programs, port);
    let asked = process::run_outside(|| job.ask_any_engine(spawn));
    let Some(asked) = asked else {
        return Err(Error::new(MPI_ERR_INTERN, "there is no engine"));
    };
    let started = asked.map(|name| Starter::Engine(name, 0));
    started.map_err(|error| {
        let advice = format!("start the program with mpiexec: {}", describe_start(1));
        let text = format!("{error}; under mpiexec they could be started");
        Error::new(MPI_ERR_SPAWN, text).with_advice(Some(advice))
    })
}

/// This process has no launcher: an `mpiexec` starts the others, on this host.
fn start_by_mpiexec(programs: &[Program], port: &str) -> Result<Child> {
    let refuse = |text: String| Error::new(MPI_ERR_SPAWN, text);
    let Some(mpiexec) = find_mpiexec() else {
        return Err(refuse(
            "no mpiexec of Fastpath is beside the library or in PATH, and only mpiexec can start \
             other processes"
                .to_owned(),
        ));
    };
    let own = topology::host_name();
    let mut command = Command::new(mpiexec);
    for (number, program) in programs.iter().enumerate() {
        if let Some(host) = &program.host {
            let host = String::from_utf8_lossy(host);
            if ![&own, "localhost", "127.0.0.1", "::1"].contains(&&*host) {
                return Err(refuse(format!(
                    "host {host:?}: a process without mpiexec starts others only on its own \
                     host, {own}"
                )));
            }
        }
        if number != 0 {
            command.arg(":");
        }
        command.arg("-n").arg(program.counts[0].to_string());
        for (option, value) in [("-wdir", &program.wdir), ("-path", &program.path)] {
            if let Some(value) = value {
                command.arg(option).arg(OsStr::from_bytes(value));
            }
        }
        command.args(program.argv.iter().map(|word| OsStr::from_bytes(word)));
    }
    command.env(PARENT_VARIABLE, parent::tell_launcher(port));
    command.stdin(Stdio::null());
    let started = command.spawn();
    started.map_err(|cause| refuse(format!("mpiexec cannot be started: {cause}")))
}

/// All members learn what became of the root's request; the root gets it back.
fn pass_codes(
    p: &Process, comm: &Comm, root: u32, begun: Option<Result<Begun>>, codes: &mut Vec<i32>,
) -> Result<Option<Begun>> {
    let members = Channel::next(p, comm);
    let class = match &begun {
        Some(Err(error)) => error.code() as u64,
        _ => 0,
    };
    let mut news = [class, codes.len() as u64];
    words::broadcast_from(&members, root, &mut news)?;
    let mut words: Vec<u64> = codes.iter().map(|&code| code as u64).collect();
    words.resize(news[1] as usize, 0);
    words::broadcast_from(&members, root, &mut words)?;
    *codes = words.iter().map(|&word| word as i32).collect();
    let begun = begun.transpose()?;
    match news[0] {
        0 => Ok(begun),
        class => {
            let text = format!("rank {root}, the root, could not start them: see its error");
            Err(Error::new(class as i32, text))
        }
    }
}

/// In `MPI_Init` of a process that another job has spawned: makes the communicator of `MPI_Comm_get_parent`.
pub fn meet_parent(p: &Process) -> Result {
    let job = p.running()?.job;
    let world = p.comm(MPI_COMM_WORLD)?;
    let found = match world.rank {
        0 => process::run_outside(|| job.find_foreign_parent()),
        _ => Ok(None),
    };
    let members = Channel::next(p, &world);
    let is_there = !matches!(found, Ok(None));
    let mut words = [u64::from(is_there)];
    words::broadcast_from(&members, 0, &mut words)?;
    // A program of another MPI has spawned this one.
    if words[0] == 0 {
        return Ok(());
    }
    let refuse = |why| Error::new(MPI_ERR_SPAWN, why);
    let name = || {
        let port = found.map_err(refuse)?.unwrap_or_default();
        Ok((port, Timeout::ENDLESS))
    };
    let handle = port::connect(p, name, 0, &world)?;
    let made = p.comm(handle)?;
    *made.name.borrow_mut() = "MPI_COMM_PARENT".to_owned();
    p.parent.set(handle);
    Ok(())
}
