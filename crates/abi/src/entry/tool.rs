//! Tool interface: initialisation, control variables, enumerations, categories (MPI 5.0, chapter 15).
//!
//! A tool may pass null for every result that it does not need.
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::{load, read_bytes};
use core::ffi::{c_char, c_int, c_void};
use fastpath_mpi::common::consts::*;
use fastpath_mpi::tool::cvar::{self, Content, Shape};
use fastpath_mpi::tool::{self, event, find_category, pvar};
use fastpath_mpi::{Error, Result};

/// Stores a result, unless the tool passes null for it.
///
/// # Safety
/// `to` is null or a variable.
pub(super) unsafe fn tell<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: `to` is not null, and so points to a variable by this function's contract.
        unsafe { to.write(value) };
    }
}

/// Stores a text and its NUL, cut to `*length` characters. Stores the full size in `length` (MPI 5.0, section 15.3.3).
///
/// # Safety
/// `to` is null or has room for `*length` characters; `length` is null or a variable.
pub(super) unsafe fn tell_text(to: *mut c_char, length: *mut c_int, text: &str) {
    if length.is_null() {
        return;
    }
    // SAFETY: ARGUMENTS.
    unsafe {
        let room = usize::try_from(*length).unwrap_or(0);
        if !to.is_null() && room > 0 {
            let shown = text.len().min(room - 1);
            to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), shown);
            to.add(shown).write(0);
        }
        *length = text.len() as c_int + 1;
    }
}

/// Returns the text at a pointer. Errors: `MPI_T_ERR_INVALID` if the pointer is null or the text is not UTF-8.
///
/// # Safety
/// `text` is null or a string.
pub(super) unsafe fn text_of<'a>(text: *const c_char) -> Result<&'a str> {
    // SAFETY: ARGUMENTS.
    let bytes = unsafe { read_bytes(text) };
    bytes.and_then(|bytes| core::str::from_utf8(bytes).ok()).ok_or_else(|| {
        Error::new(
            MPI_T_ERR_INVALID,
            "the name is NULL or not UTF-8 text: pass a name that the tool interface lists",
        )
    })
}

/// Checks that the tool interface is initialised, and stores a count.
///
/// # Safety
/// `to` is null or a variable.
unsafe fn tell_count(to: *mut c_int, count: usize) -> Result<()> {
    tool::check()?;
    // SAFETY: ARGUMENTS.
    unsafe { tell(to, count as c_int) };
    Ok(())
}

pub unsafe fn t_init_thread(required: c_int, provided: *mut c_int) -> Result<()> {
    let level = tool::init(required)?;
    // SAFETY: ARGUMENTS.
    unsafe { tell(provided, level) };
    Ok(())
}

pub fn t_finalize() -> Result<()> {
    tool::finalize()
}

pub unsafe fn t_cvar_get_num(num_cvar: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { tell_count(num_cvar, cvar::count()) }
}

pub unsafe fn t_cvar_get_info(
    cvar_index: c_int, name: *mut c_char, name_len: *mut c_int, verbosity: *mut c_int,
    datatype: *mut usize, enumtype: *mut usize, desc: *mut c_char, desc_len: *mut c_int,
    bind: *mut c_int, scope: *mut c_int,
) -> Result<()> {
    let (variable, shape) = cvar::find(cvar_index)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        tell_text(name, name_len, variable.name);
        tell_text(desc, desc_len, variable.meaning);
        tell(verbosity, MPI_T_VERBOSITY_USER_BASIC);
        tell(
            datatype,
            match shape {
                Shape::Text => MPI_CHAR,
                _ => MPI_INT,
            },
        );
        tell(enumtype, cvar::enum_of(cvar_index as usize, shape));
        tell(bind, MPI_T_BIND_NO_OBJECT);
        tell(scope, MPI_T_SCOPE_ALL);
    }
    Ok(())
}

pub unsafe fn t_cvar_get_index(name: *const c_char, cvar_index: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { tell(cvar_index, cvar::index_of(text_of(name)?)? as c_int) };
    Ok(())
}

pub unsafe fn t_cvar_handle_alloc(
    cvar_index: c_int, _obj_handle: *mut c_void, handle: *mut usize, count: *mut c_int,
) -> Result<()> {
    let (opened, elements) = cvar::open(cvar_index)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        tell(handle, opened);
        tell(count, elements as c_int);
    }
    Ok(())
}

pub unsafe fn t_cvar_handle_free(handle: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        cvar::close(load(handle)?)?;
        tell(handle, MPI_T_CVAR_HANDLE_NULL);
    }
    Ok(())
}

fn null_buffer() -> Error {
    Error::new(MPI_T_ERR_INVALID, "the buffer is null")
}

/// # Safety
/// `buf` is null or has room for the variable.
pub unsafe fn t_cvar_read(handle: usize, buf: *mut c_void) -> Result<()> {
    let content = cvar::read(handle)?;
    if buf.is_null() {
        return Err(null_buffer());
    }
    // SAFETY: `buf` has room for an `int`, or for as many characters as the handle's count.
    unsafe {
        match content {
            Content::Int(number) => buf.cast::<c_int>().write_unaligned(number),
            Content::Text(text) => {
                let mut length = cvar::TEXT_MAX as c_int;
                tell_text(buf.cast(), &mut length, &text);
            }
        }
    }
    Ok(())
}

/// # Safety
/// `buf` is null or has the variable's value.
pub unsafe fn t_cvar_write(handle: usize, buf: *const c_void) -> Result<()> {
    let (_, shape) = cvar::behind(handle)?;
    if buf.is_null() {
        return Err(null_buffer());
    }
    // SAFETY: `buf` has an `int`, or characters up to a NUL or the handle's count.
    let content = unsafe {
        match shape {
            Shape::Text => {
                let all = buf.cast::<u8>();
                let length = (0..cvar::TEXT_MAX).take_while(|&i| *all.add(i) != 0).count();
                let bytes = core::slice::from_raw_parts(all, length);
                Content::Text(String::from_utf8_lossy(bytes).into_owned())
            }
            _ => Content::Int(buf.cast::<c_int>().read_unaligned()),
        }
    };
    cvar::write(handle, content)
}

pub unsafe fn t_enum_get_info(
    enumtype: usize, num: *mut c_int, name: *mut c_char, name_len: *mut c_int,
) -> Result<()> {
    let (variable, words) = cvar::find_enum(enumtype)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        tell(num, words.len() as c_int);
        tell_text(name, name_len, variable);
    }
    Ok(())
}

pub unsafe fn t_enum_get_item(
    enumtype: usize, indx: c_int, value: *mut c_int, name: *mut c_char, name_len: *mut c_int,
) -> Result<()> {
    let (variable, words) = cvar::find_enum(enumtype)?;
    let word = usize::try_from(indx).ok().and_then(|index| words.get(index));
    let word = word.ok_or_else(|| {
        Error::new(MPI_T_ERR_INVALID_ITEM, format!("{variable} has no item {indx}"))
    })?;
    // SAFETY: ARGUMENTS.
    unsafe {
        tell(value, indx);
        tell_text(name, name_len, word);
    }
    Ok(())
}

pub unsafe fn t_category_get_num(num_cat: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { tell_count(num_cat, tool::categories().len()) }
}

pub unsafe fn t_category_get_info(
    cat_index: c_int, name: *mut c_char, name_len: *mut c_int, desc: *mut c_char,
    desc_len: *mut c_int, num_cvars: *mut c_int, num_pvars: *mut c_int, num_categories: *mut c_int,
) -> Result<()> {
    let category = find_category(cat_index)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        tell_text(name, name_len, category.name);
        tell_text(desc, desc_len, category.meaning);
        tell(num_cvars, category.counts[0] as c_int);
        tell(num_pvars, category.counts[1] as c_int);
        tell(num_categories, 0);
    }
    Ok(())
}

pub unsafe fn t_category_get_num_events(cat_index: c_int, num_events: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { tell(num_events, find_category(cat_index)?.counts[2] as c_int) };
    Ok(())
}

pub unsafe fn t_category_get_index(name: *const c_char, cat_index: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { tell(cat_index, tool::category_index(text_of(name)?)? as c_int) };
    Ok(())
}

/// Stores the indices of a category's members of one kind. A category contains all members of a kind, or none.
unsafe fn tell_indices(
    cat_index: c_int, kind: usize, len: c_int, indices: *mut c_int,
) -> Result<()> {
    let count = find_category(cat_index)?.counts[kind];
    for index in 0..count.min(usize::try_from(len).unwrap_or(0)) {
        if !indices.is_null() {
            // SAFETY: the index is below `len`.
            unsafe { indices.add(index).write(index as c_int) };
        }
    }
    Ok(())
}

pub unsafe fn t_category_get_cvars(
    cat_index: c_int, len: c_int, indices: *mut c_int,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { tell_indices(cat_index, 0, len, indices) }
}

pub unsafe fn t_category_get_pvars(
    cat_index: c_int, len: c_int, indices: *mut c_int,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { tell_indices(cat_index, 1, len, indices) }
}

pub unsafe fn t_category_get_events(
    cat_index: c_int, len: c_int, indices: *mut c_int,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { tell_indices(cat_index, 2, len, indices) }
}

/// Checks the category. Categories have no subcategories.
pub fn t_category_get_categories(
    cat_index: c_int, _len: c_int, _indices: *mut c_int,
) -> Result<()> {
    find_category(cat_index).map(drop)
}

/// Stores 0: categories never change.
pub unsafe fn t_category_changed(update_number: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { tell_count(update_number, 0) }
}

pub unsafe fn t_pvar_get_num(num_pvar: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { tell_count(num_pvar, pvar::VARIABLES.len()) }
}

pub unsafe fn t_event_get_num(num_events: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { tell_count(num_events, event::count()) }
}

/// Stores 1: the clock is the only source of events.
pub unsafe fn t_source_get_num(num_sources: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { tell_count(num_sources, 1) }
}
