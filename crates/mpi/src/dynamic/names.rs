//! Names of services (MPI-5.0 section 11.9.4): the launcher keeps them for all ranks of its job, a process without a
//! launcher for itself.

use super::ask;
use crate::consts::*;
use crate::error::{Error, Result};
use crate::process::Process;
use fastpath_bootstrap::control::{Answer, Cause, Names, Request};

/// The error of a refusal.
fn refuse(cause: Cause, text: String) -> Error {
    let class = match cause {
        Cause::Name => MPI_ERR_NAME,
        Cause::Service => MPI_ERR_SERVICE,
        Cause::Spawn | Cause::Malformed => MPI_ERR_OTHER,
    };
    Error::new(class, text)
}

/// Asks the launcher, or these names where there is none.
fn settle(
    p: &Process,
    request: Request,
    here: impl FnOnce(&mut Names) -> std::result::Result<Answer, (Cause, String)>,
) -> Result<Answer> {
    let answer = match p.running()?.job.launcher() {
        None => here(&mut p.names.borrow_mut()).map_err(|(cause, text)| refuse(cause, text))?,
        Some(_) => ask(p, MPI_ERR_OTHER, "keep the names of services", &request)?,
    };
    match answer {
        Answer::Refused { cause, text, .. } => Err(refuse(cause, text)),
        answer => Ok(answer),
    }
}

/// `MPI_Publish_name`.
///
/// # Errors
/// `MPI_ERR_SERVICE` where the name is taken.
pub fn publish(p: &Process, service: &[u8], port: &[u8]) -> Result {
    let owner = p.running()?.job.rank() as u32;
    let request = Request::Publish {
        owner,
        service: service.to_vec(),
        port: port.to_vec(),
    };
    let here = |names: &mut Names| names.publish(service, port, owner).map(|()| Answer::Done);
    settle(p, request, here).map(|_| ())
}

/// `MPI_Lookup_name`: the port's name.
///
/// # Errors
/// `MPI_ERR_NAME` where nobody has published it.
pub fn look_up(p: &Process, service: &[u8]) -> Result<Vec<u8>> {
    let request = Request::Lookup {
        service: service.to_vec(),
    };
    let here = |names: &mut Names| {
        let port = names.look_up(service)?.to_vec();
        Ok(Answer::Found { port })
    };
    match settle(p, request, here)? {
        Answer::Found { port } => Ok(port),
        _ => Err(Error::new(MPI_ERR_INTERN, "mpiexec answers something else")),
    }
}

/// `MPI_Unpublish_name`.
///
/// # Errors
/// `MPI_ERR_SERVICE` where it is not published, or with another port.
pub fn unpublish(p: &Process, service: &[u8], port: &[u8]) -> Result {
    let request = Request::Unpublish {
        service: service.to_vec(),
        port: port.to_vec(),
    };
    let here = |names: &mut Names| names.unpublish(service, port).map(|()| Answer::Done);
    settle(p, request, here).map(|_| ())
}
