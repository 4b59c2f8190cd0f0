//! Checks of the arguments of sends, receives and probes.

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::arguments::{Args, CheckedArguments};
use crate::objects::comm::Comm;
use crate::p2p::staged::stage;
use crate::process::Process;
use fastpath_protocol::buffer::Buffer;

pub(super) fn check(p: &Process, args: &Args) -> Result<CheckedArguments> {
    let comm = p.comm(args.comm)?;
    if args.count < 0 {
        return Err(Error::new(MPI_ERR_COUNT, format!("the count {} is negative", args.count)));
    }
    if args.datatype == MPI_DATATYPE_NULL && args.peer == MPI_PROC_NULL {
        // A message to or from `MPI_PROC_NULL` moves no data, so it needs no datatype.
        let buffer = Buffer::contiguous(args.buf, 0);
        return Ok(CheckedArguments { comm, buffer, staging: None, datatype: None });
    }
    let datatype = p.datatype(args.datatype)?;
    if !datatype.is_supported() {
        return Err(Error::new(
            MPI_ERR_TYPE,
            format!("the datatype {} is not supported by this library", datatype.name()),
        ));
    }
    if !datatype.is_committed() {
        return Err(Error::new(
            MPI_ERR_TYPE,
            "the datatype is not committed: call MPI_Type_commit first",
        ));
    }
    let buffer = datatype.buffer(args.buf, args.count as u64).ok_or_else(|| {
        Error::new(MPI_ERR_COUNT, "the count times the datatype's size does not fit 64 bits")
    })?;
    datatype.check_address(args.buf, buffer.bytes)?;
    let (buffer, staging) = stage(p, buffer)?;
    Ok(CheckedArguments { comm, buffer, staging, datatype: Some(datatype) })
}

/// Checks a send. `None` means `MPI_PROC_NULL`.
pub(crate) fn check_send(p: &Process, args: &Args) -> Result<Option<CheckedArguments>> {
    inspect_send(p, args).map_err(|error| name_message(p, args, error))
}

/// Checks a receive or probe. `None` means `MPI_PROC_NULL`.
pub(crate) fn check_recv(p: &Process, args: &Args) -> Result<Option<CheckedArguments>> {
    inspect_recv(p, args).map_err(|error| name_message(p, args, error))
}

/// Checks the receive of a message that a matched probe has removed from matching.
pub(crate) fn check_matched(p: &Process, args: &Args) -> Result<CheckedArguments> {
    check(p, args).map_err(|error| name_message(p, args, error))
}

#[cold]
fn name_message(p: &Process, args: &Args, error: Error) -> Error {
    let size = p.types.get(args.datatype).map_or(0, |datatype| datatype.layout().size());
    error.about_message(args.peer, args.tag, size.saturating_mul(args.count.max(0) as u64))
}

fn inspect_send(p: &Process, args: &Args) -> Result<Option<CheckedArguments>> {
    let checked = check(p, args)?;
    if args.tag < 0 {
        return Err(Error::new(MPI_ERR_TAG, format!("the tag {} is negative", args.tag)));
    }
    if args.peer == MPI_PROC_NULL {
        return Ok(None);
    }
    check_rank(&checked.comm, args.peer)?;
    Ok(Some(checked))
}

fn inspect_recv(p: &Process, args: &Args) -> Result<Option<CheckedArguments>> {
    let checked = check(p, args)?;
    if args.tag < 0 && args.tag != MPI_ANY_TAG {
        return Err(Error::new(
            MPI_ERR_TAG,
            format!("the tag {} is negative and not MPI_ANY_TAG", args.tag),
        ));
    }
    if args.peer == MPI_PROC_NULL {
        return Ok(None);
    }
    if args.peer != MPI_ANY_SOURCE {
        check_rank(&checked.comm, args.peer)?;
    }
    Ok(Some(checked))
}

fn check_rank(comm: &Comm, rank: i32) -> Result {
    if rank >= 0 && (rank as u32) < comm.peer_count() {
        return Ok(());
    }
    let last = comm.peer_count() as i64 - 1;
    let title = comm.title();
    Err(Error::new(
        MPI_ERR_RANK,
        format!("rank {rank} is not in the communicator {title}: ranks go from 0 to {last}"),
    )
    .with_advice(Some("pass a rank of the communicator, or MPI_PROC_NULL for no message")))
}
