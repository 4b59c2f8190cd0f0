//! Sessions (MPI 5.0, section 11.3).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::group::insert_group;
use super::info::insert_info;
use super::p2p_immediate::choose_bodies;
use super::{load, read_bytes, read_text, store};
use core::ffi::{c_char, c_int};
use fastpath_mpi::common::consts::*;
use fastpath_mpi::lifecycle::session;
use fastpath_mpi::objects::info::find_hints;
use fastpath_mpi::process::errhandler::{
    HandlerKind, Scope, call_errhandler, get_errhandler, set_errhandler,
};
use fastpath_mpi::{Error, Process, Result, process};

pub fn session_init(info: usize, errhandler: usize) -> Result<usize> {
    let hints = process::enter("MPI_Session_init", true).and_then(|p| find_hints(&p.infos, info));
    let begun = session::init(hints, errhandler)?;
    choose_bodies();
    Ok(begun)
}

pub unsafe fn session_finalize(p: &Process, session: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        session::finalize(p, load(session)?)?;
        store(session, MPI_SESSION_NULL)
    }
}

pub fn session_get_num_psets(p: &Process, session: usize, info: usize) -> Result<c_int> {
    find_hints(&p.infos, info)?;
    session::count_sets(p, session)
}

/// Stores the name of a process set; if `*pset_len` is 0, only its length.
pub unsafe fn session_get_nth_pset(
    p: &Process, session: usize, info: usize, n: c_int, pset_len: *mut c_int,
    pset_name: *mut c_char,
) -> Result<()> {
    find_hints(&p.infos, info)?;
    let name = session::name_of_set(p, session, n)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let capacity = load(pset_len)?;
        if capacity > 0 {
            let mut length = 0;
            super::store_text(name, pset_name, capacity as usize, &mut length)?;
        }
        store(pset_len, name.len() as c_int + 1)
    }
}

unsafe fn read_name(name: *const c_char) -> Result<String> {
    // SAFETY: ARGUMENTS.
    unsafe { read_text("pset_name", name, MPI_MAX_PSET_NAME_LEN as usize) }
}

pub unsafe fn session_get_pset_info(
    p: &Process, session: usize, pset_name: *const c_char,
) -> Result<usize> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let described = session::describe_set(p, session, &read_name(pset_name)?)?;
        insert_info(p, described)
    }
}

pub fn session_get_info(p: &Process, session: usize) -> Result<usize> {
    insert_info(p, session::describe(p, session)?)
}

pub unsafe fn group_from_session_pset(
    p: &Process, session: usize, pset_name: *const c_char,
) -> Result<usize> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let group = session::group_of_set(p, session, &read_name(pset_name)?)?;
        insert_group(p, group)
    }
}

/// Returns the string that distinguishes a call from other calls of the same processes.
///
/// # Safety
/// `text` is null or a string that does not change while the result lives.
unsafe fn read_tag<'a>(text: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: ARGUMENTS.
    let text = unsafe { read_bytes(text) };
    let text = text.ok_or_else(|| Error::new(MPI_ERR_ARG, "stringtag is NULL: pass a string"))?;
    match text.len() < MPI_MAX_STRINGTAG_LEN as usize {
        true => Ok(text),
        false => Err(Error::new(
            MPI_ERR_ARG,
            format!("stringtag has {} bytes, which is too long: pass a shorter string", text.len()),
        )),
    }
}

pub unsafe fn comm_create_from_group(
    p: &Process, group: usize, stringtag: *const c_char, info: usize, errhandler: usize,
) -> Result<usize> {
    find_hints(&p.infos, info)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let text = read_tag(stringtag)?;
        let group = p.group(group)?;
        session::create_from_group(p, &group, text, errhandler)
    }
}

pub unsafe fn intercomm_create_from_groups(
    p: &Process, local_group: usize, local_leader: c_int, remote_group: usize,
    remote_leader: c_int, stringtag: *const c_char, info: usize, errhandler: usize,
) -> Result<usize> {
    find_hints(&p.infos, info)?;
    let group = p.group(local_group)?;
    let (local, remote) = ((&group, local_leader), (remote_group, remote_leader));
    // SAFETY: ARGUMENTS.
    unsafe {
        let text = read_tag(stringtag)?;
        session::create_inter_from_groups(p, local, remote, text, errhandler)
    }
}

pub fn session_set_errhandler(p: &Process, session: usize, errhandler: usize) -> Result<()> {
    let session = p.sessions.find(session)?;
    set_errhandler(p, HandlerKind::Session, &session.errhandler, errhandler)
}

pub fn session_get_errhandler(p: &Process, session: usize) -> Result<usize> {
    let session = p.sessions.find(session)?;
    Ok(get_errhandler(p, &session.errhandler))
}

pub fn session_call_errhandler(p: &Process, session: usize, errorcode: c_int) -> Result<()> {
    p.sessions.find(session)?;
    let scope = Scope::Session(session);
    call_errhandler(p, scope, "MPI_Session_call_errhandler", errorcode);
    Ok(())
}
