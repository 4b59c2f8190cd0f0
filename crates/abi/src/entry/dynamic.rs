//! Processes and connections created while a job runs (MPI 5.0, section 11.8 to 11.10).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::{null_result, read_array, read_bytes, read_text, store, store_text};
use core::ffi::{c_char, c_int};
use fastpath_mpi::common::consts::*;
use fastpath_mpi::dynamic::{self, SpawnRequest, SpawnResult, Timeout};
use fastpath_mpi::objects::info::find_hints;
use fastpath_mpi::{Error, Process, Result};

/// Returns the strings of a null-terminated array; none for a null pointer (`MPI_ARGV_NULL`).
///
/// # Safety
/// `argv` is null or an array of strings that ends in null.
unsafe fn read_words(argv: *const *mut c_char) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    if argv.is_null() {
        return words;
    }
    // SAFETY: ARGUMENTS: all entries up to the null are strings.
    unsafe {
        while let Some(word) = read_bytes(*argv.add(words.len())) {
            words.push(word.to_vec());
        }
    }
    words
}

/// Returns a requested program with its arguments.
///
/// # Safety
/// `command` is null or a string; `argv` has the contract of [`read_words`].
unsafe fn read_asked(
    command: *const c_char, argv: *const *mut c_char, most: c_int, info: usize,
) -> Result<SpawnRequest> {
    // SAFETY: ARGUMENTS.
    let (command, words) = unsafe { (read_bytes(command), read_words(argv)) };
    let command = command.ok_or_else(|| {
        Error::new(MPI_ERR_ARG, "the command is NULL: pass the name of a program")
    })?;
    let mut argv = vec![command.to_vec()];
    argv.extend(words);
    Ok(SpawnRequest { argv, most, info })
}

/// Stores the results of a spawn.
///
/// # Safety
/// `codes` is null (`MPI_ERRCODES_IGNORE`) or has room for one code of each requested process; `comm` is null or a
/// variable.
unsafe fn store_outcome(outcome: SpawnResult, comm: *mut usize, codes: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        if !codes.is_null() {
            for (at, &code) in outcome.codes.iter().enumerate() {
                codes.add(at).write(code);
            }
        }
        store(comm, outcome.comm?)
    }
}

/// # Safety
/// At the root `command` is a string and `argv` null or an array of strings that ends in null; `intercomm` is null or a
/// variable; `array_of_errcodes` is null or has room for `maxprocs` of the root.
pub unsafe fn comm_spawn(
    p: &Process, command: *const c_char, argv: *mut *mut c_char, maxprocs: c_int, info: usize,
    root: c_int, comm: usize, intercomm: *mut usize, array_of_errcodes: *mut c_int,
) -> Result<()> {
    if intercomm.is_null() {
        return Err(null_result());
    }
    let comm = p.comm(comm)?;
    // SAFETY: ARGUMENTS; the closure is called only at the root.
    let asked = || unsafe { Ok(vec![read_asked(command, argv, maxprocs, info)?]) };
    let outcome = dynamic::spawn(p, &comm, root, asked);
    // SAFETY: ARGUMENTS.
    unsafe { store_outcome(outcome, intercomm, array_of_errcodes) }
}

/// # Safety
/// At the root all arrays have `count` entries, and `array_of_argv` may be null. The rest is the contract of
/// [`comm_spawn`].
pub unsafe fn comm_spawn_multiple(
    p: &Process, count: c_int, array_of_commands: *mut *mut c_char,
    array_of_argv: *mut *mut *mut c_char, array_of_maxprocs: *const c_int,
    array_of_info: *const usize, root: c_int, comm: usize, intercomm: *mut usize,
    array_of_errcodes: *mut c_int,
) -> Result<()> {
    if intercomm.is_null() {
        return Err(null_result());
    }
    let comm = p.comm(comm)?;
    let asked = || {
        if count < 1 {
            let text = format!("count is {count}: pass 1 or more programs");
            return Err(Error::new(MPI_ERR_ARG, text));
        }
        // SAFETY: ARGUMENTS; the closure is called only at the root.
        unsafe {
            let commands = read_array(array_of_commands, count)?;
            let most = read_array(array_of_maxprocs, count)?;
            let infos = read_array(array_of_info, count)?;
            let argvs = match array_of_argv.is_null() {
                true => &[][..],
                false => read_array(array_of_argv, count)?,
            };
            let one = |at: usize| {
                let argv = argvs.get(at).copied().unwrap_or(core::ptr::null_mut());
                read_asked(commands[at], argv, most[at], infos[at])
            };
            (0..count as usize).map(one).collect()
        }
    };
    let outcome = dynamic::spawn(p, &comm, root, asked);
    // SAFETY: ARGUMENTS.
    unsafe { store_outcome(outcome, intercomm, array_of_errcodes) }
}

pub fn comm_get_parent(p: &Process) -> Result<usize> {
    Ok(dynamic::get_parent(p))
}

pub unsafe fn open_port(p: &Process, info: usize, port_name: *mut c_char) -> Result<()> {
    find_hints(&p.infos, info)?;
    if port_name.is_null() {
        return Err(null_result());
    }
    // SAFETY: ARGUMENTS.
    unsafe { store_port(&dynamic::open(p)?, port_name) }
}

unsafe fn store_port(name: &str, to: *mut c_char) -> Result<()> {
    let mut length = 0;
    // SAFETY: ARGUMENTS.
    unsafe { store_text(name, to, MPI_MAX_PORT_NAME as usize, &mut length) }
}

unsafe fn read_port(name: *const c_char) -> Result<String> {
    // SAFETY: ARGUMENTS.
    unsafe { read_text("port_name", name, MPI_MAX_PORT_NAME as usize) }
}

pub unsafe fn close_port(p: &Process, port_name: *const c_char) -> Result<()> {
    // SAFETY: ARGUMENTS.
    dynamic::close(p, &unsafe { read_port(port_name) }?)
}

/// Returns the root's port name and timeout. `connects` is true for `MPI_Comm_connect` and false for `MPI_Comm_accept`.
unsafe fn read_root_port(
    p: &Process, port_name: *const c_char, info: usize, connects: bool,
) -> Result<(String, Timeout)> {
    let hints = find_hints(&p.infos, info)?;
    let timeout = match connects {
        true => Timeout::read_for_connect(p, &hints)?,
        false => Timeout::read(&hints)?,
    };
    // SAFETY: ARGUMENTS.
    Ok((unsafe { read_port(port_name) }?, timeout))
}

pub unsafe fn comm_accept(
    p: &Process, port_name: *const c_char, info: usize, root: c_int, comm: usize,
) -> Result<usize> {
    // SAFETY: ARGUMENTS.
    let name = || unsafe { read_root_port(p, port_name, info, false) };
    dynamic::accept(p, name, root, &*p.comm(comm)?)
}

pub unsafe fn comm_connect(
    p: &Process, port_name: *const c_char, info: usize, root: c_int, comm: usize,
) -> Result<usize> {
    // SAFETY: ARGUMENTS.
    let name = || unsafe { read_root_port(p, port_name, info, true) };
    dynamic::connect(p, name, root, &*p.comm(comm)?)
}

pub fn comm_join(p: &Process, fd: c_int) -> Result<usize> {
    dynamic::join(p, fd)
}

/// Returns the name of a service.
///
/// # Safety
/// `name` is null or a string that does not change while the result lives.
unsafe fn read_service<'a>(name: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: ARGUMENTS.
    let name = unsafe { read_bytes(name) };
    name.ok_or_else(|| Error::new(MPI_ERR_ARG, "service_name is NULL: pass the name of a service"))
}

pub unsafe fn publish_name(
    p: &Process, service_name: *const c_char, info: usize, port_name: *const c_char,
) -> Result<()> {
    find_hints(&p.infos, info)?;
    // SAFETY: ARGUMENTS.
    let (service, port) = unsafe { (read_service(service_name)?, read_port(port_name)?) };
    dynamic::publish_name(p, service, port.as_bytes())
}

pub unsafe fn lookup_name(
    p: &Process, service_name: *const c_char, info: usize, port_name: *mut c_char,
) -> Result<()> {
    find_hints(&p.infos, info)?;
    if port_name.is_null() {
        return Err(null_result());
    }
    // SAFETY: ARGUMENTS.
    let found = dynamic::look_up(p, unsafe { read_service(service_name)? })?;
    // SAFETY: ARGUMENTS.
    unsafe { store_port(&String::from_utf8_lossy(&found), port_name) }
}

pub unsafe fn unpublish_name(
    p: &Process, service_name: *const c_char, info: usize, port_name: *const c_char,
) -> Result<()> {
    find_hints(&p.infos, info)?;
    // SAFETY: ARGUMENTS.
    let (service, port) = unsafe { (read_service(service_name)?, read_port(port_name)?) };
    dynamic::unpublish(p, service, port.as_bytes())
}
