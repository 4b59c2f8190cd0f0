//! Attributes (MPI 5.0, sections 7.7 and 19.3.7).
//!
//! MPI stores an address for each attribute. An attribute set in Fortran is an integer, so its address is that of a box
//! with the integer: C reads the integer through it, as the standard asks. Fortran reads a box's contents, and the
//! address itself of what C set.
#![allow(unsafe_code)]

use crate::convert::{
    comm_from, comm_to, datatype_from, datatype_to, store_error, win_from, win_to,
};
use crate::{ffi, library};
use core::ffi::{c_int, c_void};
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Addresses of the boxes that exist.
static BOXES: Mutex<Option<HashSet<usize>>> = Mutex::new(None);

fn with_boxes<R>(action: impl FnOnce(&mut HashSet<usize>) -> R) -> R {
    let mut boxes = BOXES.lock().unwrap_or_else(PoisonError::into_inner);
    action(boxes.get_or_insert_with(HashSet::new))
}

/// Puts a value into a new box.
fn store_value(value: i64) -> *mut c_void {
    let address = Box::into_raw(Box::new(value));
    with_boxes(|boxes| boxes.insert(address.addr()));
    address.cast()
}

/// Value of an attribute for Fortran.
fn load_value(address: *mut c_void) -> i64 {
    match with_boxes(|boxes| boxes.contains(&address.addr())) {
        // SAFETY: the address is that of a box, and only `free_value` removes boxes.
        true => unsafe { *address.cast::<i64>() },
        false => address.addr() as i64,
    }
}

/// Stores a copied value. An unchanged address that C set stays an attribute of C.
fn store_copy(copy: i64, original: *mut c_void) -> *mut c_void {
    let is_box = with_boxes(|boxes| boxes.contains(&original.addr()));
    if !is_box && copy == original.addr() as i64 { original } else { store_value(copy) }
}

fn free_value(address: *mut c_void) {
    if with_boxes(|boxes| boxes.remove(&address.addr())) {
        // SAFETY: the address was that of a box, which is in no set any more.
        drop(unsafe { Box::from_raw(address.cast::<i64>()) });
    }
}

/// Fortran callbacks of a key, and the extra state. It lives until the process ends, because attributes may outlive
/// their key.
struct Key {
    copy: *const c_void,
    delete: *const c_void,
    state: i64,
    /// Whether values and extra state are INTEGERs, as in MPI-1.
    is_old: bool,
}

/// Makes a key, and returns its address as the extra state for C.
fn make_key(copy: *const c_void, delete: *const c_void, state: i64, is_old: bool) -> *mut c_void {
    Box::into_raw(Box::new(Key { copy, delete, state, is_old })).cast()
}

/// Frees a key that MPI has not created.
///
/// # Safety
/// `key` is from [`make_key`], and `code` is the error code of the call that got it.
unsafe fn free_refused_key(key: *mut c_void, code: c_int) {
    if code != 0 {
        // SAFETY: by this function's contract; MPI does not use the extra state of a key that it has not created.
        drop(unsafe { Box::from_raw(key.cast::<Key>()) });
    }
}

type Copy<T> =
    unsafe extern "C" fn(*mut c_int, *mut c_int, *mut T, *mut T, *mut T, *mut c_int, *mut c_int);
type Delete<T> = unsafe extern "C" fn(*mut c_int, *mut c_int, *mut T, *mut T, *mut c_int);

/// Calls a copy callback. See [`Key::copy`].
///
/// # Safety
/// `function` is a [`Copy`] of values of type `T`.
unsafe fn call_copy<T: Default>(
    function: *const c_void, mut object: c_int, mut keyval: c_int, mut state: T, mut value: T,
) -> (c_int, Option<T>) {
    let (mut new, mut flag, mut code) = (T::default(), 0, 0);
    // SAFETY: by this function's contract.
    unsafe {
        let copy: Copy<T> = core::mem::transmute(function);
        copy(&mut object, &mut keyval, &mut state, &mut value, &mut new, &mut flag, &mut code);
    }
    (code, (flag & 1 != 0).then_some(new))
}

/// Calls a delete callback, and returns its error code.
///
/// # Safety
/// `function` is a [`Delete`] of values of type `T`.
unsafe fn call_delete<T>(
    function: *const c_void, mut object: c_int, mut keyval: c_int, mut state: T, mut value: T,
) -> c_int {
    let mut code = 0;
    // SAFETY: by this function's contract.
    unsafe {
        let delete: Delete<T> = core::mem::transmute(function);
        delete(&mut object, &mut keyval, &mut value, &mut state, &mut code);
    }
    code
}

impl Key {
    /// Calls the copy callback; returns its error code and, if the attribute is to be copied, the copy's value.
    unsafe fn copy(&self, object: c_int, keyval: c_int, value: i64) -> (c_int, Option<i64>) {
        // SAFETY: the callback has the interface of the procedure that it was passed to.
        unsafe {
            if self.is_old {
                let (state, value) = (self.state as c_int, value as c_int);
                let (code, copied) = call_copy(self.copy, object, keyval, state, value);
                (code, copied.map(i64::from))
            } else {
                call_copy(self.copy, object, keyval, self.state, value)
            }
        }
    }

    unsafe fn delete(&self, object: c_int, keyval: c_int, value: i64) -> c_int {
        // SAFETY: the callback has the interface of the procedure that it was passed to.
        unsafe {
            if self.is_old {
                let (state, value) = (self.state as c_int, value as c_int);
                call_delete(self.delete, object, keyval, state, value)
            } else {
                call_delete(self.delete, object, keyval, self.state, value)
            }
        }
    }
}

macro_rules! objects {
    ($($create:ident $set:ident $get:ident $from:ident $to:ident $copy:ident $delete:ident:
       $create_fn:ident $set_fn:ident $get_fn:ident;)*) => {
        $(
            unsafe extern "C" fn $copy(
                object: usize, keyval: c_int, key: *mut c_void, value: *mut c_void,
                new: *mut *mut c_void, flag: *mut c_int,
            ) -> c_int {
                // SAFETY: MPI passes the extra state of the key, which is a `Key`, and variables for the results.
                unsafe {
                    let key = &*key.cast::<Key>();
                    let (code, copied) = key.copy($to(object), keyval, load_value(value));
                    *flag = c_int::from(copied.is_some() && code == 0);
                    if let (Some(copy), 0) = (copied, code) {
                        *new = store_copy(copy, value);
                    }
                    code
                }
            }

            unsafe extern "C" fn $delete(
                object: usize, keyval: c_int, value: *mut c_void, key: *mut c_void,
            ) -> c_int {
                // SAFETY: MPI passes the extra state of the key, which is a `Key`.
                unsafe {
                    let key = &*key.cast::<Key>();
                    let code = key.delete($to(object), keyval, load_value(value));
                    if code == 0 {
                        free_value(value);
                    }
                    code
                }
            }

            pub unsafe fn $create(
                call: ffi::$create_fn, copy: *const c_void, delete: *const c_void,
                keyval: *mut c_int, state: *mut i64, ierror: *mut c_int,
            ) {
                let copier: *const c_void = $copy as *const c_void;
                // SAFETY: ARGUMENTS.
                unsafe {
                    let key = make_key(copy, delete, *state, false);
                    let code = call(copier, $delete as *const c_void, keyval, key);
                    free_refused_key(key, code);
                    store_error(ierror, code);
                }
            }

            pub unsafe fn $set(
                call: ffi::$set_fn, object: *mut c_int, keyval: *mut c_int, value: *mut i64,
                ierror: *mut c_int,
            ) {
                // SAFETY: ARGUMENTS.
                unsafe {
                    let value = store_value(*value);
                    let code = call($from(*object), *keyval, value);
                    if code != 0 {
                        free_value(value);
                    }
                    store_error(ierror, code);
                }
            }

            pub unsafe fn $get(
                call: ffi::$get_fn, object: *mut c_int, keyval: *mut c_int, value: *mut i64,
                flag: *mut c_int, ierror: *mut c_int,
            ) {
                // SAFETY: ARGUMENTS.
                unsafe {
                    let (code, found) = get(*keyval, |address, flag| {
                        call($from(*object), *keyval, address, flag)
                    });
                    if code == 0 {
                        *flag = c_int::from(found.is_some());
                        // MPICH and Open MPI store 0 for an attribute that is not set, and programs print it.
                        *value = found.unwrap_or(0);
                    }
                    store_error(ierror, code);
                }
            }
        )*
    };
}

objects! {
    comm_create_keyval comm_set_attr comm_get_attr comm_from comm_to copy_comm delete_comm:
        MPI_Comm_create_keyval_fn MPI_Comm_set_attr_fn MPI_Comm_get_attr_fn;
    type_create_keyval type_set_attr type_get_attr datatype_from datatype_to copy_type delete_type:
        MPI_Type_create_keyval_fn MPI_Type_set_attr_fn MPI_Type_get_attr_fn;
    win_create_keyval win_set_attr win_get_attr win_from win_to copy_win delete_win:
        MPI_Win_create_keyval_fn MPI_Win_set_attr_fn MPI_Win_get_attr_fn;
}

/// Predefined attributes of communicators and windows, by key; in C they are addresses of these values.
const INTS: [core::ops::RangeInclusive<c_int>; 3] = [501..=507, 602..=602, 604..=605];
const WIN_SIZE: c_int = 603;
/// Predefined attribute of Fastpath's C library only: whether the job tolerates failures.
const MPIX_FT: c_int = 16301;

/// Gets an attribute's value by the C function; `None`: it is not set.
unsafe fn get(
    keyval: c_int, call: impl FnOnce(*mut c_void, *mut c_int) -> c_int,
) -> (c_int, Option<i64>) {
    let (mut address, mut flag): (*mut c_void, c_int) = (core::ptr::null_mut(), 0);
    let code = call((&raw mut address).cast(), &mut flag);
    if code != 0 || flag == 0 {
        return (code, None);
    }
    // SAFETY: a predefined attribute of C is the address of a value of this type (MPI 5.0, section 19.3.7).
    let value = unsafe {
        match keyval {
            _ if address.is_null() => 0,
            _ if INTS.iter().any(|keys| keys.contains(&keyval)) => {
                i64::from(*address.cast::<c_int>())
            }
            MPIX_FT if library::is_ours() => i64::from(*address.cast::<c_int>()),
            WIN_SIZE => *address.cast::<i64>(),
            _ => load_value(address),
        }
    };
    (code, Some(value))
}

pub unsafe fn keyval_create(
    call: ffi::MPI_Keyval_create_fn, copy: *const c_void, delete: *const c_void,
    keyval: *mut c_int, state: *mut c_int, ierror: *mut c_int,
) {
    // SAFETY: ARGUMENTS.
    unsafe {
        let key = make_key(copy, delete, i64::from(*state), true);
        let code = call(copy_comm as *const c_void, delete_comm as *const c_void, keyval, key);
        free_refused_key(key, code);
        store_error(ierror, code);
    }
}

pub unsafe fn attr_put(
    call: ffi::MPI_Attr_put_fn, comm: *mut c_int, keyval: *mut c_int, value: *mut c_int,
    ierror: *mut c_int,
) {
    // SAFETY: ARGUMENTS.
    unsafe {
        let mut wide = i64::from(*value);
        comm_set_attr(call, comm, keyval, &mut wide, ierror);
    }
}

pub unsafe fn attr_get(
    call: ffi::MPI_Attr_get_fn, comm: *mut c_int, keyval: *mut c_int, value: *mut c_int,
    flag: *mut c_int, ierror: *mut c_int,
) {
    // SAFETY: ARGUMENTS.
    unsafe {
        let mut wide = i64::from(*value);
        comm_get_attr(call, comm, keyval, &mut wide, flag, ierror);
        *value = wide as c_int;
    }
}
