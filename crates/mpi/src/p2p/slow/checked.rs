//! The checks of what a program passes to sends, receives and probes, and what they find.

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use crate::objects::arguments::{Args, Checked};
use crate::objects::comm::Comm;
use crate::process::Process;
use fastpath_protocol::buffer::Buffer;

/// Checks what sends and receives have in common.
pub(super) fn check(p: &Process, args: &Args) -> Result<Checked> {
    let comm = p.comm(args.comm)?;
    if args.count < 0 {
        return Err(Error::new(MPI_ERR_COUNT, format!("the count {} is negative", args.count)));
    }
    if args.datatype == MPI_DATATYPE_NULL && args.peer == MPI_PROC_NULL {
        // No data is moved, so that none needs a type.
        let buffer = Buffer::contiguous(args.buf, 0);
        return Ok(Checked { place: comm.place, comm, buffer, datatype: None });
    }
    let datatype = p.datatype(args.datatype)?;
    if !datatype.is_supported() {
        return Err(Error::new(MPI_ERR_TYPE, format!("{} is not supported here", datatype.name())));
    }
    if !datatype.is_committed() {
        return Err(Error::new(
            MPI_ERR_TYPE,
            "the datatype is not committed: call MPI_Type_commit first",
        ));
    }
    let buffer = datatype
        .buffer(args.buf, args.count as u64)
        .ok_or_else(|| Error::new(MPI_ERR_COUNT, "count times size does not fit 64 bits"))?;
    datatype.check_address(args.buf, buffer.bytes)?;
    Ok(Checked { place: comm.place, comm, buffer, datatype: Some(datatype) })
}

/// Checks a send. `None` means `MPI_PROC_NULL`.
pub(crate) fn check_send(p: &Process, args: &Args) -> Result<Option<Checked>> {
    inspect_send(p, args).map_err(|error| name_message(p, args, error))
}

/// Checks a receive or probe. `None` means `MPI_PROC_NULL`.
pub(crate) fn check_recv(p: &Process, args: &Args) -> Result<Option<Checked>> {
    inspect_recv(p, args).map_err(|error| name_message(p, args, error))
}

/// Checks the receive of a message that a probe has taken out.
pub(crate) fn check_matched(p: &Process, args: &Args) -> Result<Checked> {
    check(p, args).map_err(|error| name_message(p, args, error))
}

/// Adds to an error of the arguments which message they describe.
#[cold]
fn name_message(p: &Process, args: &Args, error: Error) -> Error {
    let size = p.types.get(args.datatype).map_or(0, |datatype| datatype.layout().size());
    error.about_message(args.peer, args.tag, size.saturating_mul(args.count.max(0) as u64))
}

fn inspect_send(p: &Process, args: &Args) -> Result<Option<Checked>> {
    let checked = check(p, args)?;
    if args.tag < 0 {
        return Err(Error::new(MPI_ERR_TAG, format!("the tag {} is negative", args.tag)));
    }
    if args.peer == MPI_PROC_NULL {
        return Ok(None);
    }
    check_rank(&checked.comm, args.peer)?;
    spread(checked, args)
}

/// Finds the worker of a message whose communicator spreads them.
fn spread(mut checked: Checked, args: &Args) -> Result<Option<Checked>> {
    if let Some(spread) = &checked.comm.spread {
        checked.place = spread.place(args.peer, args.tag)?;
    }
    Ok(Some(checked))
}

fn inspect_recv(p: &Process, args: &Args) -> Result<Option<Checked>> {
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
    spread(checked, args)
}

fn check_rank(comm: &Comm, rank: i32) -> Result {
    if rank >= 0 && (rank as u32) < comm.peer_count() {
        return Ok(());
    }
    let last = comm.peer_count() as i64 - 1;
    let name = comm.name.borrow();
    Err(Error::new(
        MPI_ERR_RANK,
        format!("rank {rank} is not in {name:?}: ranks go from 0 to {last}"),
    ))
}
