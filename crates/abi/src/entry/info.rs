//! Info objects (MPI 5.0, chapter 10).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::{load, read_array, read_bytes, store};
use core::ffi::{c_char, c_int};
use fastpath_mpi::common::consts::{
    MPI_ERR_ARG, MPI_ERR_INFO_KEY, MPI_ERR_INFO_VALUE, MPI_INFO_NULL, MPI_MAX_INFO_KEY,
};
use fastpath_mpi::objects::info::{
    Info, describe_environment, find_info, find_mutable_info, free_info,
};
use fastpath_mpi::{Error, Process, Result};

pub fn info_create(p: &Process) -> Result<usize> {
    insert_info(p, Info::default())
}

pub unsafe fn info_create_env(
    p: &Process, argc: c_int, argv: *mut *mut c_char, info: *mut usize,
) -> Result<()> {
    let arguments = if argv.is_null() || argc <= 0 {
        None
    } else {
        // SAFETY: ARGUMENTS.
        let strings = unsafe { read_array(argv, argc) }?.iter();
        // SAFETY: by the contract, each entry is null or a string.
        Some(strings.map_while(|&text| unsafe { read_bytes(text) }.map(<[u8]>::to_vec)).collect())
    };
    // SAFETY: ARGUMENTS.
    unsafe { store(info, insert_info(p, describe_environment(arguments))?) }
}

pub fn info_dup(p: &Process, info: usize) -> Result<usize> {
    let copy = find_info(&p.infos, info)?.duplicate();
    insert_info(p, copy)
}

pub unsafe fn info_free(p: &Process, info: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        free_info(&p.infos, load(info)?)?;
        store(info, MPI_INFO_NULL)
    }
}

pub unsafe fn info_set(
    p: &Process, info: usize, key: *const c_char, value: *const c_char,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    let (key, value) = unsafe { (read_key(key)?, read_bytes(value)) };
    let value =
        value.ok_or_else(|| Error::new(MPI_ERR_INFO_VALUE, "the value is NULL: pass a string"));
    find_mutable_info(&p.infos, info)?.set(key, value?)
}

pub unsafe fn info_delete(p: &Process, info: usize, key: *const c_char) -> Result<()> {
    // SAFETY: ARGUMENTS.
    find_mutable_info(&p.infos, info)?.delete(unsafe { read_key(key) }?)
}

/// # Safety
/// `key` is null or a string, `value` is null or has room for `valuelen` + 1 bytes, `flag` is null or
/// a variable.
pub unsafe fn info_get(
    p: &Process, info: usize, key: *const c_char, valuelen: c_int, value: *mut c_char,
    flag: *mut c_int,
) -> Result<()> {
    if valuelen < 0 {
        return Err(Error::new(
            MPI_ERR_ARG,
            format!("the length of the value is {valuelen}: pass 0 or more"),
        ));
    }
    // SAFETY: ARGUMENTS.
    unsafe {
        let found = find_info(&p.infos, info)?.get(read_key(key)?)?;
        if let Some(found) = &found {
            copy_cut(found, value, valuelen as usize + 1)?;
        }
        store(flag, found.is_some().into())
    }
}

/// # Safety
/// `key` is null or a string, `buflen` and `flag` are null or variables, `value` is null or has room
/// for `*buflen` bytes.
pub unsafe fn info_get_string(
    p: &Process, info: usize, key: *const c_char, buflen: *mut c_int, value: *mut c_char,
    flag: *mut c_int,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let capacity = load(buflen)?;
        if capacity < 0 {
            let message = format!("the length of the buffer is {capacity}: pass 0 or more");
            return Err(Error::new(MPI_ERR_ARG, message));
        }
        let found = find_info(&p.infos, info)?.get(read_key(key)?)?;
        if let Some(found) = &found {
            if capacity > 0 {
                copy_cut(found, value, capacity as usize)?;
            }
            store(buflen, found.len() as c_int + 1)?;
        }
        store(flag, found.is_some().into())
    }
}

pub unsafe fn info_get_valuelen(
    p: &Process, info: usize, key: *const c_char, valuelen: *mut c_int, flag: *mut c_int,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let found = find_info(&p.infos, info)?.get(read_key(key)?)?;
        if let Some(found) = &found {
            store(valuelen, found.len() as c_int)?;
        }
        store(flag, found.is_some().into())
    }
}

pub fn info_get_nkeys(p: &Process, info: usize) -> Result<c_int> {
    Ok(find_info(&p.infos, info)?.key_count() as c_int)
}

pub unsafe fn info_get_nthkey(p: &Process, info: usize, n: c_int, key: *mut c_char) -> Result<()> {
    let found = find_info(&p.infos, info)?.key(n)?;
    // SAFETY: ARGUMENTS.
    unsafe { copy_cut(&found, key, MPI_MAX_INFO_KEY as usize) }
}

pub(crate) fn insert_info(p: &Process, info: Info) -> Result<usize> {
    p.infos.publish(info)
}

/// Returns the caller's key.
///
/// # Safety
/// `key` is null or a string that outlives the result.
unsafe fn read_key<'a>(key: *const c_char) -> Result<&'a [u8]> {
    // SAFETY: ARGUMENTS.
    unsafe { read_bytes(key) }
        .ok_or_else(|| Error::new(MPI_ERR_INFO_KEY, "the key is NULL: pass a string"))
}

/// Copies bytes and a NUL, cut to `capacity` bytes in all.
///
/// # Safety
/// `to` is null or has room for `capacity` bytes, at least 1.
unsafe fn copy_cut(bytes: &[u8], to: *mut c_char, capacity: usize) -> Result<()> {
    if to.is_null() {
        return Err(Error::new(MPI_ERR_ARG, "the buffer for the text is NULL: pass a buffer"));
    }
    let count = bytes.len().min(capacity - 1);
    // SAFETY: `to` is not null, and so has room for `count` bytes and the NUL by this function's contract.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), count);
        to.add(count).write(0);
    }
    Ok(())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use core::ffi::CStr;
    use core::ptr::{null, null_mut};

    fn info(p: &Process) -> usize {
        let info = info_create(p).unwrap();
        // SAFETY: the strings end in a NUL.
        unsafe { info_set(p, info, c"key".as_ptr(), c"value".as_ptr()) }.unwrap();
        info
    }

    #[test]
    fn get_string__tells_the_length_it_needs() {
        let p = Process::new();
        let info = info(&p);
        let mut buffer = [b'x' as c_char; 8];
        let (mut length, mut flag) = (0, -1);
        // SAFETY: the buffer has 8 bytes, the strings end in a NUL.
        unsafe {
            let key = c"key".as_ptr();
            info_get_string(&p, info, key, &mut length, null_mut(), &mut flag).unwrap();
            assert_eq!((length, flag), (6, 1));
            length = 4;
            info_get_string(&p, info, key, &mut length, buffer.as_mut_ptr(), &mut flag).unwrap();
            assert_eq!((CStr::from_ptr(buffer.as_ptr()), length, flag), (c"val", 6, 1));
            assert_eq!(buffer[4], b'x' as c_char);
            length = 8;
            info_get_string(
                &p,
                info,
                c"none".as_ptr(),
                &mut length,
                buffer.as_mut_ptr(),
                &mut flag,
            )
            .unwrap();
            assert_eq!((length, flag), (8, 0));
        }
    }

    #[test]
    fn get__cuts_at_the_length_without_the_nul() {
        let p = Process::new();
        let info = info(&p);
        let mut buffer = [b'x' as c_char; 8];
        let (mut length, mut flag) = (0, -1);
        // SAFETY: the buffer has 8 bytes, the strings end in a NUL.
        unsafe {
            info_get(&p, info, c"key".as_ptr(), 2, buffer.as_mut_ptr(), &mut flag).unwrap();
            assert_eq!((CStr::from_ptr(buffer.as_ptr()), flag), (c"va", 1));
            info_get_valuelen(&p, info, c"key".as_ptr(), &mut length, &mut flag).unwrap();
            assert_eq!((length, flag), (5, 1));
            info_get_nthkey(&p, info, 0, buffer.as_mut_ptr()).unwrap();
            assert_eq!(CStr::from_ptr(buffer.as_ptr()), c"key");
        }
    }

    #[test]
    fn null__is_refused_with_its_class() {
        let p = Process::new();
        let mut info = info(&p);
        // SAFETY: all pointers are null, or point to variables or strings.
        unsafe {
            let code = |result: Result<()>| result.unwrap_err().code();
            assert_eq!(code(info_set(&p, info, null(), c"v".as_ptr())), MPI_ERR_INFO_KEY);
            assert_eq!(code(info_set(&p, info, c"k".as_ptr(), null())), MPI_ERR_INFO_VALUE);
            assert_eq!(code(info_free(&p, null_mut())), MPI_ERR_ARG);
            info_free(&p, &mut info).unwrap();
            assert_eq!(info, MPI_INFO_NULL);
        }
    }
}
