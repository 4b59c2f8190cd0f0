//! Service names (MPI 5.0, section 11.9.4). The launcher, `mpiexec` or an engine, stores them for all ranks of its job.
//! A process without a launcher stores its own. A name that the job does not know is looked up in this user's other
//! jobs on this host.

use super::ask;
use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::process::{self, Process};
use fastpath_job::control::{Answer, Cause, Request, ServiceNames, client};
use fastpath_job::engine::{Engine, EngineError};
use fastpath_job::{Job, describe_start};
use std::time::Duration;

fn refuse(cause: Cause, text: String) -> Error {
    let class = match cause {
        Cause::Name => MPI_ERR_NAME,
        Cause::Service => MPI_ERR_SERVICE,
        Cause::Spawn | Cause::Malformed | Cause::PlacesBusy => MPI_ERR_OTHER,
    };
    Error::new(class, text)
}

fn ask_engine(engine: &mut Engine, request: &Request) -> std::result::Result<Answer, EngineError> {
    let refused = |cause, name: &[u8], what: &str| {
        Answer::refuse(
            cause,
            format!("the service name {:?} {what}", String::from_utf8_lossy(name)),
        )
    };
    Ok(match request {
        Request::Publish { service, port, .. } => match engine.publish(service, port)? {
            true => Answer::Done,
            false => refused(Cause::Service, service, "is published already"),
        },
        Request::Lookup { service } => match engine.look_up(service)? {
            Some(port) => Answer::Found { port },
            None => refused(Cause::Name, service, "is not published"),
        },
        Request::Unpublish { service, port } => match engine.look_up(service)? {
            Some(there) if there != *port => {
                refused(Cause::Service, service, "is published with another port")
            }
            Some(_) if engine.unpublish(service)? => Answer::Done,
            _ => refused(Cause::Service, service, "is not published"),
        },
        _ => Answer::refuse(Cause::Malformed, "the request is not about a service name"),
    })
}

/// Lets the engine perform a request. If no engine stores names, returns `None`: this process is then its own job, and
/// stores its names itself.
fn settle_with_engine(job: &Job, request: &Request) -> Option<Result<Answer>> {
    if !job.may_ask_engine() {
        return None;
    }
    let asked = process::run_outside(|| job.ask_any_engine(|engine| ask_engine(engine, request)))?;
    match asked {
        Ok(answer) => Some(Ok(answer)),
        Err(error) if !job.has_engine() && !is_answer(&error) => None,
        Err(error) => {
            let advice =
                format!("start the program with Fastpath's mpiexec: {}", describe_start(1));
            let error = Error::new(MPI_ERR_OTHER, error.to_string());
            Some(Err(error.with_advice(Some(advice))))
        }
    }
}

fn is_answer(error: &EngineError) -> bool {
    matches!(error, EngineError::Answer { .. } | EngineError::TooLong { .. })
}

/// Lets the launcher perform a request. If this process is its own job, `here` performs the request.
fn settle(
    p: &Process, request: Request,
    here: impl FnOnce(&mut ServiceNames) -> std::result::Result<Answer, (Cause, String)>,
) -> Result<Answer> {
    let job = p.running()?.job;
    let answer = match job.launcher() {
        None => match settle_with_engine(job, &request) {
            Some(answer) => answer?,
            None => here(&mut p.names.borrow_mut()).map_err(|(cause, text)| refuse(cause, text))?,
        },
        Some(_) => ask(p, MPI_ERR_OTHER, "store service names", &request)?,
    };
    match answer {
        Answer::Refused { cause, text, .. } => Err(refuse(cause, text)),
        answer => Ok(answer),
    }
}

/// `MPI_Publish_name`. Errors: `MPI_ERR_SERVICE` if the name is in use.
pub fn publish(p: &Process, service: &[u8], port: &[u8]) -> Result {
    let owner = p.running()?.job.rank() as u32;
    let request = Request::Publish { owner, service: service.to_vec(), port: port.to_vec() };
    let here =
        |names: &mut ServiceNames| names.publish(service, port, owner).map(|()| Answer::Done);
    settle(p, request, here).map(|_| ())
}

/// `MPI_Lookup_name`. Returns the port name. Errors: `MPI_ERR_NAME` if the service name is not published.
pub fn look_up(p: &Process, service: &[u8]) -> Result<Vec<u8>> {
    let request = Request::Lookup { service: service.to_vec() };
    let here = |names: &mut ServiceNames| {
        let port = names.look_up(service)?.to_vec();
        Ok(Answer::Found { port })
    };
    let found = match settle(p, request.clone(), here) {
        Err(error) if error.code() == MPI_ERR_NAME => {
            look_in_other_jobs(p, &request)?.ok_or(error)?
        }
        found => found?,
    };
    match found {
        Answer::Found { port } => Ok(port),
        _ => Err(Error::new(MPI_ERR_INTERN, "unexpected answer from mpiexec")),
    }
}

/// Time limit for the launcher of another job, which may be stopped.
const OTHER_JOB: Option<Duration> = Some(Duration::from_secs(1));

/// Looks a name up at the launchers of this user's other jobs on this host; `None` if no job knows it.
fn look_in_other_jobs(p: &Process, request: &Request) -> Result<Option<Answer>> {
    let own = p.running()?.job.job_id();
    Ok(process::run_outside(|| {
        let jobs = client::list_jobs().into_iter().filter(|&job| job != own);
        let mut answers = jobs.filter_map(|job| client::ask_within(job, request, OTHER_JOB).ok());
        answers.find(|answer| matches!(answer, Answer::Found { .. }))
    }))
}

/// `MPI_Unpublish_name`. Errors: `MPI_ERR_SERVICE` if the name is not published, or is published for another port.
pub fn unpublish(p: &Process, service: &[u8], port: &[u8]) -> Result {
    let request = Request::Unpublish { service: service.to_vec(), port: port.to_vec() };
    let here = |names: &mut ServiceNames| names.unpublish(service, port).map(|()| Answer::Done);
    settle(p, request, here).map(|_| ())
}
