//! Operators, error handlers, generalized requests and data representations.
//!
//! Over Fastpath's C library an operator or error handler written in Fortran goes to C as it is, because a C handle
//! begins with the INTEGER of Fortran. Other libraries call it through a slot that converts the handle.
#![allow(unsafe_code)]

use crate::convert::{
    comm_to, datatype_to, errhandler_to, file_to, op_to, session_to, store_error, win_to,
};
use crate::ffi;
use crate::library;
use crate::refusal::refuse_callback;
use crate::text;
use core::ffi::{c_int, c_void};
use fastpath_base::sync::{StaticOrdering as Ordering, StaticPtr};
use std::sync::{Mutex, PoisonError};

/// Operators or error handlers of one kind that a process can have over another C library.
const SLOTS: usize = 64;

/// Fortran functions, by slot. A slot is never freed: MPI does not tell when the last use of an operator ends. A
/// function that is registered again keeps its slot.
struct CallbackSlots {
    used: Mutex<usize>,
    functions: [StaticPtr<c_void>; SLOTS],
}

impl CallbackSlots {
    const fn new() -> Self {
        Self {
            used: Mutex::new(0),
            functions: [const { StaticPtr::new(core::ptr::null_mut()) }; SLOTS],
        }
    }

    /// Creates an operator or error handler for a Fortran `function`. Returns the C handle and the error code; the
    /// handle is 0 after an error. `create` calls the C function, whose type is `name`: MPI_X_fn. The C function gets
    /// `function` or, over another C library, one of `trampolines`. If all slots are used, an error is raised instead.
    fn create(
        &self, function: *const c_void, trampolines: &[*const c_void; SLOTS], name: &str,
        create: impl FnOnce(*const c_void, &mut usize) -> c_int,
    ) -> (usize, c_int) {
        let mut made = 0;
        let code = match self.function_for_c(function, trampolines) {
            Some(function) => create(function, &mut made),
            None => refuse_callback(name.trim_end_matches("_fn"), SLOTS),
        };
        (made, code)
    }

    /// Returns the function that C gets for a Fortran `function`; `None` if all slots are used.
    fn function_for_c(
        &self, function: *const c_void, trampolines: &[*const c_void; SLOTS],
    ) -> Option<*const c_void> {
        library::set_up();
        if library::is_ours() {
            return Some(function);
        }
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let found = (0..*used).find(|slot| self.get(*slot).cast_const() == function);
        let slot = found.unwrap_or(*used);
        // ORDERING: release, pairs with the load in `get`.
        self.functions.get(slot)?.store(function.cast_mut(), Ordering::Release);
        *used = (*used).max(slot + 1);
        trampolines.get(slot).copied()
    }

    fn get(&self, slot: usize) -> *mut c_void {
        // ORDERING: acquire, pairs with the store in `function_for_c`.
        self.functions[slot].load(Ordering::Acquire)
    }
}

macro_rules! trampoline_table {
    ($function:ident) => {
        trampoline_table!($function:
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
            32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60
            61 62 63)
    };
    ($function:ident: $($slot:literal)*) => { [$($function::<$slot> as *const c_void),*] };
}

macro_rules! operators {
    ($($create:ident $slots:ident $trampoline:ident $count:ty, $call:ident;)*) => {
        $(
            static $slots: CallbackSlots = CallbackSlots::new();

            unsafe extern "C" fn $trampoline<const SLOT: usize>(
                input: *mut c_void, output: *mut c_void, length: *mut $count, datatype: *mut usize,
            ) {
                // SAFETY: MPI passes the arguments of an operator, and the slot has an operator written in Fortran.
                unsafe {
                    let function: unsafe extern "C" fn(
                        *mut c_void, *mut c_void, *mut $count, *mut c_int,
                    ) = core::mem::transmute($slots.get(SLOT));
                    let mut datatype = datatype_to(*datatype);
                    function(input, output, length, &mut datatype);
                }
            }

            pub unsafe fn $create(
                call: ffi::$call, function: *const c_void, commute: *mut c_int, op: *mut c_int,
                ierror: *mut c_int,
            ) {
                let (trampolines, name) = (trampoline_table!($trampoline), stringify!($call));
                // SAFETY: ARGUMENTS.
                unsafe {
                    let (made, code) = $slots.create(function, &trampolines, name, |f, made| {
                        call(f, *commute & 1, made)
                    });
                    if made != 0 {
                        *op = op_to(made);
                    }
                    store_error(ierror, code);
                }
            }
        )*
    };
}

operators! {
    op_create OPERATORS run_operator c_int, MPI_Op_create_fn;
    op_create_c LARGE_OPERATORS run_large_operator i64, MPI_Op_create_c_fn;
}

macro_rules! error_handlers {
    ($($create:ident $slots:ident $trampoline:ident $to:ident $call:ident;)*) => {
        $(
            static $slots: CallbackSlots = CallbackSlots::new();

            /// The arguments beyond the second are for C alone.
            unsafe extern "C" fn $trampoline<const SLOT: usize>(
                object: *mut usize, code: *mut c_int,
            ) {
                // SAFETY: MPI passes the arguments of an error handler, and the slot has one written in Fortran.
                unsafe {
                    let function: unsafe extern "C" fn(*mut c_int, *mut c_int) =
                        core::mem::transmute($slots.get(SLOT));
                    let mut object = $to(*object);
                    function(&mut object, code);
                }
            }

            pub unsafe fn $create(
                call: ffi::$call, function: *const c_void, errhandler: *mut c_int,
                ierror: *mut c_int,
            ) {
                let (trampolines, name) = (trampoline_table!($trampoline), stringify!($call));
                // SAFETY: ARGUMENTS.
                unsafe {
                    let (made, code) =
                        $slots.create(function, &trampolines, name, |f, made| call(f, made));
                    if made != 0 {
                        *errhandler = errhandler_to(made);
                    }
                    store_error(ierror, code);
                }
            }
        )*
    };
}

error_handlers! {
    comm_create_errhandler COMM_HANDLERS handle_comm comm_to MPI_Comm_create_errhandler_fn;
    win_create_errhandler WIN_HANDLERS handle_win win_to MPI_Win_create_errhandler_fn;
    file_create_errhandler FILE_HANDLERS handle_file file_to MPI_File_create_errhandler_fn;
    session_create_errhandler SESSION_HANDLERS handle_session session_to
        MPI_Session_create_errhandler_fn;
}

type Query = unsafe extern "C" fn(*mut i64, *mut c_void, *mut c_int);
type Free = unsafe extern "C" fn(*mut i64, *mut c_int);
type Cancel = unsafe extern "C" fn(*mut i64, *mut c_int, *mut c_int);
type Extent = unsafe extern "C" fn(*mut c_int, *mut i64, *mut i64, *mut c_int);

/// Fortran callbacks of a generalized request. Threads may run callbacks at the same time, so no reference to it is
/// made.
struct GeneralizedRequest {
    query: Query,
    free: Free,
    cancel: Cancel,
    state: i64,
}

unsafe extern "C" fn query(request: *mut c_void, status: *mut c_void) -> c_int {
    let mut code = 0;
    // SAFETY: MPI passes the extra state, which is a `GeneralizedRequest`, and a status.
    unsafe {
        let request = request.cast::<GeneralizedRequest>();
        ((*request).query)(&raw mut (*request).state, status, &mut code);
    }
    code
}

unsafe extern "C" fn free(request: *mut c_void) -> c_int {
    let mut code = 0;
    // SAFETY: MPI passes the extra state, and uses it no more after this call.
    unsafe {
        let mut request = Box::from_raw(request.cast::<GeneralizedRequest>());
        (request.free)(&mut request.state, &mut code);
    }
    code
}

unsafe extern "C" fn cancel(request: *mut c_void, is_complete: c_int) -> c_int {
    let (mut is_complete, mut code) = (c_int::from(is_complete != 0), 0);
    // SAFETY: MPI passes the extra state, which is a `GeneralizedRequest`.
    unsafe {
        let request = request.cast::<GeneralizedRequest>();
        ((*request).cancel)(&raw mut (*request).state, &mut is_complete, &mut code);
    }
    code
}

pub unsafe fn grequest_start(
    call: ffi::MPI_Grequest_start_fn, query_fn: *const c_void, free_fn: *const c_void,
    cancel_fn: *const c_void, state: *mut i64, request: *mut c_int, ierror: *mut c_int,
) {
    // SAFETY: ARGUMENTS; the callbacks have the interfaces that the standard gives them.
    unsafe {
        let callbacks = Box::into_raw(Box::new(GeneralizedRequest {
            query: core::mem::transmute::<*const c_void, Query>(query_fn),
            free: core::mem::transmute::<*const c_void, Free>(free_fn),
            cancel: core::mem::transmute::<*const c_void, Cancel>(cancel_fn),
            state: *state,
        }));
        let mut made = 0;
        let (query, free) = (query as *const c_void, free as *const c_void);
        let code = call(query, free, cancel as *const c_void, callbacks.cast(), &mut made);
        if code != 0 {
            drop(Box::from_raw(callbacks));
        }
        if made != 0 {
            *request = crate::convert::request_to(made);
        }
        store_error(ierror, code);
    }
}

/// Fortran callbacks of a data representation, which exists until the process ends. Threads may run callbacks at the
/// same time, so no reference to it is made.
struct Representation {
    read: *const c_void,
    write: *const c_void,
    extent: Extent,
    state: i64,
}

unsafe extern "C" fn file_extent(datatype: usize, extent: *mut i64, state: *mut c_void) -> c_int {
    let (mut datatype, mut code) = (datatype_to(datatype), 0);
    // SAFETY: MPI passes the extra state, which is a `Representation`, and a variable for the extent.
    unsafe {
        let callbacks = state.cast::<Representation>();
        ((*callbacks).extent)(&mut datatype, extent, &raw mut (*callbacks).state, &mut code);
    }
    code
}

type Conversion<T> = unsafe extern "C" fn(
    *mut c_void,
    *mut c_int,
    *mut T,
    *mut c_void,
    *mut i64,
    *mut i64,
    *mut c_int,
);

/// Calls a conversion written in Fortran. `T`: the type of a count.
unsafe fn convert<T>(
    function: *const c_void, user: *mut c_void, datatype: usize, mut count: T, file: *mut c_void,
    mut position: i64, state: *mut i64,
) -> c_int {
    let (mut datatype, mut code) = (datatype_to(datatype), 0);
    // SAFETY: the function has the interface that the standard gives it.
    unsafe {
        let function: Conversion<T> = core::mem::transmute(function);
        function(user, &mut datatype, &mut count, file, &mut position, state, &mut code);
    }
    code
}

unsafe extern "C" fn read<T>(
    user: *mut c_void, datatype: usize, count: T, file: *mut c_void, position: i64,
    state: *mut c_void,
) -> c_int {
    // SAFETY: MPI passes the extra state, which is a `Representation`.
    unsafe {
        let callbacks = state.cast::<Representation>();
        let state = &raw mut (*callbacks).state;
        convert((*callbacks).read, user, datatype, count, file, position, state)
    }
}

unsafe extern "C" fn write<T>(
    user: *mut c_void, datatype: usize, count: T, file: *mut c_void, position: i64,
    state: *mut c_void,
) -> c_int {
    // SAFETY: MPI passes the extra state, which is a `Representation`.
    unsafe {
        let callbacks = state.cast::<Representation>();
        let state = &raw mut (*callbacks).state;
        convert((*callbacks).write, user, datatype, count, file, position, state)
    }
}

macro_rules! representations {
    ($($register:ident $count:ty, $null:ident $call:ident;)*) => {
        $(
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn $register(
                call: ffi::$call, name: *mut u8, read_fn: *const c_void, write_fn: *const c_void,
                extent_fn: *const c_void, state: *mut i64, ierror: *mut c_int, length: usize,
            ) {
                let nulls = super::extras::$null();
                let is_null = |function: *const c_void| nulls.contains(&function);
                // MPI_CONVERSION_FN_NULL is a null pointer in C.
                let convert = |function, trampoline: *const c_void| match is_null(function) {
                    true => core::ptr::null(),
                    false => trampoline,
                };
                // SAFETY: ARGUMENTS; the callbacks have the interfaces that the standard gives them.
                unsafe {
                    let callbacks = Box::into_raw(Box::new(Representation {
                        read: read_fn,
                        write: write_fn,
                        extent: core::mem::transmute::<*const c_void, Extent>(extent_fn),
                        state: *state,
                    }));
                    let mut name = text::to_c(name, length, false);
                    let code = call(
                        name.as_mut_ptr(),
                        convert(read_fn, read::<$count> as *const c_void),
                        convert(write_fn, write::<$count> as *const c_void),
                        file_extent as *const c_void,
                        callbacks.cast(),
                    );
                    if code != 0 {
                        drop(Box::from_raw(callbacks));
                    }
                    store_error(ierror, code);
                }
            }
        )*
    };
}

representations! {
    register_datarep c_int, null_conversions_of_int MPI_Register_datarep_fn;
    register_datarep_c i64, null_conversions_of_count MPI_Register_datarep_c_fn;
}
