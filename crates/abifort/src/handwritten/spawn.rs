//! Spawning: arrays of strings, which are significant at the root only.
#![allow(unsafe_code)]

use crate::convert::{Handles, comm_from, comm_to, info_from, store_error};
use crate::ffi;
use crate::library::INFO_NULL;
use crate::special_addresses;
use crate::text;
use core::ffi::c_int;

/// Strings for C, and the array of their addresses with a null pointer at its end.
struct Strings {
    _texts: Vec<Vec<u8>>,
    addresses: Vec<*mut u8>,
}

impl Strings {
    fn new(texts: Vec<Vec<u8>>) -> Self {
        let mut texts = texts;
        let mut addresses: Vec<*mut u8> = texts.iter_mut().map(|text| text.as_mut_ptr()).collect();
        addresses.push(core::ptr::null_mut());
        Self { _texts: texts, addresses }
    }

    /// Reads arguments of a command up to a blank one. `step`: bytes from one to the next.
    unsafe fn arguments(start: *mut u8, length: usize, step: usize) -> Self {
        let mut texts = Vec::new();
        let mut at = start;
        // SAFETY: ARGUMENTS: the last argument is blank.
        unsafe {
            while length > 0 && !text::trim_end(text::bytes(at, length)).is_empty() {
                texts.push(text::to_c(at, length, true));
                at = at.add(step);
            }
        }
        Self::new(texts)
    }
}

/// Whether this process is the root. In an error MPI reports it, so that the arguments do not matter.
unsafe fn is_root(comm: c_int, root: c_int) -> bool {
    let mut rank = -1;
    // SAFETY: address of a local variable.
    unsafe { ffi::PMPI_Comm_rank(comm_from(comm), &mut rank) == 0 && rank == root }
}

#[allow(clippy::too_many_arguments)]
pub unsafe fn comm_spawn(
    call: ffi::MPI_Comm_spawn_fn, command: *mut u8, argv: *mut u8, maxprocs: *mut c_int,
    info: *mut c_int, root: *mut c_int, comm: *mut c_int, intercomm: *mut c_int, codes: *mut c_int,
    ierror: *mut c_int, command_length: usize, argv_length: usize,
) {
    let mut made = 0;
    // SAFETY: ARGUMENTS. Arguments for the root are read at the root only.
    unsafe {
        let codes = special_addresses::error_codes(codes);
        let (world, at) = (comm_from(*comm), *root);
        let code = if is_root(*comm, at) {
            let mut command = text::to_c(command, command_length, true);
            let mut arguments = match special_addresses::is_argv_null(argv) {
                true => Strings::new(Vec::new()),
                false => Strings::arguments(
                    argv,
                    argv_length as u32 as usize,
                    argv_length as u32 as usize,
                ),
            };
            let argv = arguments.addresses.as_mut_ptr();
            let info = info_from(*info);
            call(command.as_mut_ptr(), argv, *maxprocs, info, at, world, &mut made, codes)
        } else {
            let mut empty = [0_u8];
            let null = core::ptr::null_mut();
            call(empty.as_mut_ptr(), null, 0, INFO_NULL, at, world, &mut made, codes)
        };
        if made != 0 {
            *intercomm = comm_to(made);
        }
        store_error(ierror, code);
    }
}

#[allow(clippy::too_many_arguments)]
pub unsafe fn comm_spawn_multiple(
    call: ffi::MPI_Comm_spawn_multiple_fn, count: *mut c_int, commands: *mut u8, argvs: *mut u8,
    maxprocs: *mut c_int, infos: *mut c_int, root: *mut c_int, comm: *mut c_int,
    intercomm: *mut c_int, codes: *mut c_int, ierror: *mut c_int, command_length: usize,
    argv_length: usize,
) {
    let mut made = 0;
    // SAFETY: ARGUMENTS. Arguments for the root are read at the root only.
    unsafe {
        let codes = special_addresses::error_codes(codes);
        let (world, at) = (comm_from(*comm), *root);
        let code = if is_root(*comm, at) {
            let programs = usize::try_from(*count).unwrap_or(0);
            let (command_length, length) =
                (command_length as u32 as usize, argv_length as u32 as usize);
            let read =
                |i: usize| text::to_c(commands.add(i * command_length), command_length, true);
            let mut commands = Strings::new((0..programs).map(read).collect());
            // The arguments are in column order: those of one command are `count` strings apart.
            let mut lists: Vec<Strings> = match special_addresses::is_argv_null(argvs) {
                true => Vec::new(),
                false => (0..programs)
                    .map(|i| Strings::arguments(argvs.add(i * length), length, programs * length))
                    .collect(),
            };
            let mut addresses: Vec<*mut *mut u8> =
                lists.iter_mut().map(|list| list.addresses.as_mut_ptr()).collect();
            let argvs = match addresses.is_empty() {
                true => core::ptr::null_mut(),
                false => addresses.as_mut_ptr(),
            };
            let mut infos = Handles::read(infos, *count, info_from);
            let commands = commands.addresses.as_mut_ptr();
            let infos = infos.address();
            call(*count, commands, argvs, maxprocs, infos, at, world, &mut made, codes)
        } else {
            let null = core::ptr::null_mut();
            let (commands, infos) = (core::ptr::null_mut(), core::ptr::null_mut());
            call(0, commands, null, maxprocs, infos, at, world, &mut made, codes)
        };
        if made != 0 {
            *intercomm = comm_to(made);
        }
        store_error(ierror, code);
    }
}
