//! Spawn without a launcher of this project. The spawned processes are a separate job, which the engine starts, or an
//! `mpiexec` that this process runs. They connect through a port of the root (docs/decisions/0071).

use super::{Hints, SpawnRequest, codes_of, list_codes, read_programs};
use crate::coll::words;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::dynamic::{Timeout, port};
use crate::objects::comm::Comm;
use crate::p2p::channel::Channel;
use crate::process::{self, Process, ProcessPart};
use fastpath_base::{clock, topology};
use fastpath_job::control::Program;
use fastpath_job::engine::Engine;
use fastpath_job::program::{self, ProgramError};
use fastpath_job::{Job, PARENT_VARIABLE, describe_start, find_mpiexec, parent};
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Nanoseconds between checks whether an `mpiexec` still runs. `ASK_NS` is the pause for a job of the engine.
const LOOK_NS: u64 = 10_000_000;
const ASK_NS: u64 = 500_000_000;
/// A job counts as ended after this number of consecutive answers of the engine that no such job runs. One answer is
/// not enough: a host's daemon may learn of a job later than this process.
const MISSES: u32 = 2;
/// Time limit for processes started by the engine to call `MPI_Init`, in seconds. Hydra does not report their end. The
/// info key `timeout` overrides the limit.
const LIMIT_S: u32 = 300;
/// Processes of `mpiexec` that this process has started and whose end it has not yet detected.
static CHILDREN: ProcessPart<RefCell<Vec<Child>>> = ProcessPart::new(RefCell::new(Vec::new()));

struct PendingSpawn {
    port: String,
    starter: SpawnStarter,
    timeout: Timeout,
    look_ns: u64,
}

enum SpawnStarter {
    Mpiexec(Child),
    /// A job of the engine: its name, if known, and the number of consecutive answers that no such job runs.
    Engine(Option<String>, u32),
}

impl PendingSpawn {
    /// Returns an error if no process can connect to the port any more.
    fn find_end(&mut self, job: &Job) -> Option<Error> {
        let now_ns = clock::now_ns();
        if now_ns < self.look_ns {
            return None;
        }
        let text = match &mut self.starter {
            SpawnStarter::Mpiexec(child) => {
                self.look_ns = now_ns + LOOK_NS;
                let status = child.try_wait().ok()??;
                format!(
                    "the mpiexec for the new processes ended ({status}) before these processes \
                     called MPI_Init"
                )
            }
            SpawnStarter::Engine(name, misses) => {
                self.look_ns = now_ns + ASK_NS;
                let ask = |name: &String| job.ask_any_engine(|engine| Ok(engine.runs(name)));
                let runs = name.as_ref().and_then(ask);
                *misses = match runs {
                    Some(Ok(false)) => *misses + 1,
                    _ => 0,
                };
                let seconds = self.timeout.seconds();
                match *misses >= MISSES {
                    true => "the new processes ended before they called MPI_Init".to_owned(),
                    false if self.timeout.is_over() => format!(
                        "the new processes have not called MPI_Init within {seconds} s, the limit \
                         of the info key timeout: most likely these processes have ended"
                    ),
                    false => return None,
                }
            }
        };
        Some(Error::new(MPI_ERR_SPAWN, text))
    }
}

/// `MPI_Comm_spawn` and `MPI_Comm_spawn_multiple`. All members call it.
pub fn spawn(
    p: &Process, comm: &Comm, root: u32, asked: impl FnOnce() -> Result<Vec<SpawnRequest>>,
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
        if let SpawnStarter::Mpiexec(mpiexec) = begun.starter {
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
    p: &Process, asked: impl FnOnce() -> Result<Vec<SpawnRequest>>, codes: &mut Vec<i32>,
) -> Result<PendingSpawn> {
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
        false => start_by_mpiexec(&programs, &port).map(SpawnStarter::Mpiexec),
    };
    match started {
        Ok(starter) => {
            let counts = programs.iter().map(|program| program.counts[0]);
            *codes = codes_of(&asked, &counts.collect::<Vec<u32>>());
            Ok(PendingSpawn {
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

fn read_timeout(p: &Process, asked: &[SpawnRequest]) -> Result<Option<Timeout>> {
    for asked in asked {
        if let Some(text) = Hints::read(p, asked.info)?.get("timeout") {
            return Timeout::parse(&String::from_utf8_lossy(&text)).map(Some);
        }
    }
    Ok(None)
}

/// Finds a program by the rules of this project's launcher. If a file were missing, an engine might end the job or
/// start the program in another folder. Programs for a named host are not checked.
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

fn start_by_engine(job: &Job, programs: &[Program], port: &str) -> Result<SpawnStarter> {
    let spawn = |engine: &mut Engine| engine.spawn(programs, port);
    let asked = process::run_outside(|| job.ask_any_engine(spawn));
    let Some(asked) = asked else {
        return Err(Error::new(
            MPI_ERR_INTERN,
            "this job has no launcher that can start processes",
        ));
    };
    let started = asked.map(|name| SpawnStarter::Engine(name, 0));
    started.map_err(|error| {
        let advice = format!(
            "start this program with Fastpath's mpiexec, which can spawn processes: {}",
            describe_start(1)
        );
        let text = format!(
            "{error}; spawning works reliably only in a program that Fastpath's mpiexec has started"
        );
        Error::new(MPI_ERR_SPAWN, text).with_advice(Some(advice))
    })
}

fn start_by_mpiexec(programs: &[Program], port: &str) -> Result<Child> {
    let refuse = |text: String| Error::new(MPI_ERR_SPAWN, text);
    let Some(mpiexec) = find_mpiexec() else {
        return Err(refuse(
            "only Fastpath's mpiexec can start other processes, and mpiexec is neither beside the \
             library nor in PATH: add the folder of Fastpath's mpiexec to PATH"
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
                    "host {host:?} cannot be used: a process that was started without mpiexec \
                     starts other processes only on its own host, {own}"
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

/// Broadcasts the outcome of the root's request. Returns the pending spawn at the root, `None` at other ranks.
fn pass_codes(
    p: &Process, comm: &Comm, root: u32, begun: Option<Result<PendingSpawn>>, codes: &mut Vec<i32>,
) -> Result<Option<PendingSpawn>> {
    let members = Channel::next(p, comm);
    let mut words: Vec<u64> = codes.iter().map(|&code| code as u64).collect();
    let failure = begun.as_ref().and_then(|begun| begun.as_ref().err());
    let told = words::broadcast_outcome(&members, root, failure, &mut words);
    *codes = words.iter().map(|&word| word as i32).collect();
    let begun = begun.transpose()?;
    told.map(|()| begun)
}

/// Makes the communicator of `MPI_Comm_get_parent`, in `MPI_Init` of a process spawned by another job.
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
    // The parent is a program of another MPI implementation.
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
    made.set_name("MPI_COMM_PARENT".to_owned());
    p.parent.set(handle);
    Ok(())
}
