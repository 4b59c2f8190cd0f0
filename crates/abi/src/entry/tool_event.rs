//! Events of the tool interface, and their source (MPI 5.0, section 15.3.8).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::tool::{tell, tell_text, text_of};
use core::ffi::{c_char, c_int, c_void};
use core::mem::transmute;
use fastpath_base::clock::now_ns;
use fastpath_mpi::common::consts::*;
use fastpath_mpi::objects::info::Info;
use fastpath_mpi::tool;
use fastpath_mpi::tool::event::{self, Callback, DroppedCallback, FreeCallback, Instance};
use fastpath_mpi::{Error, Process, Result};

pub unsafe fn t_event_get_index(name: *const c_char, event_index: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { tell(event_index, event::index_of(text_of(name)?)? as c_int) };
    Ok(())
}

/// # Safety
/// The pointers are null or variables; each text has room for its length, the arrays for `*num_elements`.
pub unsafe fn t_event_get_info(
    p: &Process, event_index: c_int, name: *mut c_char, name_len: *mut c_int,
    verbosity: *mut c_int, array_of_datatypes: *mut usize, array_of_displacements: *mut isize,
    num_elements: *mut c_int, enumtype: *mut usize, info: *mut usize, desc: *mut c_char,
    desc_len: *mut c_int, bind: *mut c_int,
) -> Result<()> {
    let point = event::find(event_index)?;
    let elements = event::elements(point);
    // SAFETY: ARGUMENTS.
    unsafe {
        tell_text(name, name_len, &event::name_of(point));
        tell_text(desc, desc_len, &event::describe(point));
        tell(verbosity, MPI_T_VERBOSITY_MPIDEV_DETAIL);
        if !num_elements.is_null() {
            let room = usize::try_from(*num_elements).unwrap_or(0);
            for (at, (datatype, displacement)) in layout(&elements).enumerate().take(room) {
                if !array_of_datatypes.is_null() {
                    array_of_datatypes.add(at).write(datatype);
                }
                if !array_of_displacements.is_null() {
                    array_of_displacements.add(at).write(displacement);
                }
            }
            *num_elements = elements.len() as c_int;
        }
        tell(enumtype, MPI_T_ENUM_NULL);
        tell_info(p, info)?;
        tell(bind, MPI_T_BIND_NO_OBJECT);
    }
    Ok(())
}

/// Returns the datatype of each element, and its offset in a copied event.
fn layout(elements: &[event::Element]) -> impl Iterator<Item = (usize, isize)> {
    elements.iter().scan(0_usize, |end, element| {
        let (datatype, bytes) = element.datatype();
        let at = end.next_multiple_of(bytes);
        *end = at + bytes;
        Some((datatype, at as isize))
    })
}

/// Stores a new, empty info object.
unsafe fn tell_info(p: &Process, info: *mut usize) -> Result<()> {
    if !info.is_null() {
        // SAFETY: ARGUMENTS.
        unsafe { tell(info, p.infos.publish(Info::default())?) };
    }
    Ok(())
}

pub unsafe fn t_event_handle_alloc(
    event_index: c_int, _obj_handle: *mut c_void, _info: usize, event_registration: *mut usize,
) -> Result<()> {
    let handle = event::open(event_index)?;
    // SAFETY: ARGUMENTS.
    unsafe { tell(event_registration, handle) };
    Ok(())
}

/// Checks the handle. No info key is known.
pub fn t_event_handle_set_info(event_registration: usize, _info: usize) -> Result<()> {
    event::check(event_registration, MPI_T_CB_REQUIRE_NONE)
}

pub unsafe fn t_event_handle_get_info(
    p: &Process, event_registration: usize, info_used: *mut usize,
) -> Result<()> {
    event::check(event_registration, MPI_T_CB_REQUIRE_NONE)?;
    // SAFETY: ARGUMENTS.
    unsafe { tell_info(p, info_used) }
}

/// # Safety
/// `event_cb_function` is null or an `MPI_T_event_cb_function`.
pub unsafe fn t_event_register_callback(
    event_registration: usize, cb_safety: c_int, _info: usize, user_data: *mut c_void,
    event_cb_function: usize,
) -> Result<()> {
    // SAFETY: the address is null, or that of a function of that type.
    let function = unsafe { transmute::<usize, Option<Callback>>(event_cb_function) };
    event::register(event_registration, cb_safety, user_data.addr(), function)
}

/// Checks the handle. No info key is known.
pub fn t_event_callback_set_info(
    event_registration: usize, cb_safety: c_int, _info: usize,
) -> Result<()> {
    event::check(event_registration, cb_safety)
}

pub unsafe fn t_event_callback_get_info(
    p: &Process, event_registration: usize, cb_safety: c_int, info_used: *mut usize,
) -> Result<()> {
    event::check(event_registration, cb_safety)?;
    // SAFETY: ARGUMENTS.
    unsafe { tell_info(p, info_used) }
}

/// # Safety
/// `free_cb_function` is null or an `MPI_T_event_free_cb_function`.
pub unsafe fn t_event_handle_free(
    event_registration: usize, user_data: *mut c_void, free_cb_function: usize,
) -> Result<()> {
    event::close(event_registration)?;
    // SAFETY: the caller passes null or the address of a `FreeCallback`, and expects that function to be called here.
    unsafe {
        if let Some(function) = transmute::<usize, Option<FreeCallback>>(free_cb_function) {
            function(event_registration, event::FREE_SAFETY, user_data);
        }
    }
    Ok(())
}

/// # Safety
/// `dropped_cb_function` is null or an `MPI_T_event_dropped_cb_function`.
pub unsafe fn t_event_set_dropped_handler(
    event_registration: usize, dropped_cb_function: usize,
) -> Result<()> {
    // SAFETY: the address is null, or that of a function of that type.
    let function = unsafe { transmute::<usize, Option<DroppedCallback>>(dropped_cb_function) };
    event::set_dropped_handler(event_registration, function)
}

/// Returns the event instance of a callback's handle.
///
/// # Safety
/// `handle` was passed to a callback that has not returned.
unsafe fn instance<'a>(handle: usize) -> Result<&'a Instance> {
    // SAFETY: ARGUMENTS.
    let found = unsafe { (handle as *const Instance).as_ref() };
    found.ok_or_else(|| Error::new(MPI_T_ERR_INVALID_HANDLE, "the event instance is null"))
}

/// # Safety
/// The instance is that of a running callback; `buffer` is null or has room for the element.
pub unsafe fn t_event_read(
    event_instance: usize, element_index: c_int, buffer: *mut c_void,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    let instance = unsafe { instance(event_instance)? };
    let index = usize::try_from(element_index).ok();
    let element = index.and_then(|index| instance.element(index));
    let (bytes, length) = element.ok_or_else(|| {
        Error::new(MPI_T_ERR_INVALID_INDEX, format!("the event has no element {element_index}"))
    })?;
    if buffer.is_null() {
        return Err(Error::new(MPI_T_ERR_INVALID, "the buffer is null"));
    }
    let from = match cfg!(target_endian = "big") {
        true => bytes.len() - length,
        false => 0,
    };
    // SAFETY: `length` is at most 8, and the buffer has room for the element.
    unsafe { buffer.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr().add(from), length) };
    Ok(())
}

/// Copies all elements, at the offsets of `MPI_T_event_get_info`.
///
/// # Safety
/// The contract is that of [`t_event_read`], with room for all elements.
pub unsafe fn t_event_copy(event_instance: usize, buffer: *mut c_void) -> Result<()> {
    // SAFETY: ARGUMENTS.
    let elements = unsafe { instance(event_instance)? }.elements();
    for (index, (_, at)) in layout(&elements).enumerate() {
        let to = match buffer.is_null() {
            true => buffer,
            // SAFETY: the offset is inside the room for all elements.
            false => unsafe { buffer.byte_offset(at) },
        };
        // SAFETY: ARGUMENTS.
        unsafe { t_event_read(event_instance, index as c_int, to)? };
    }
    Ok(())
}

/// # Safety
/// The instance is that of a running callback; `event_timestamp` is null or a variable.
pub unsafe fn t_event_get_timestamp(
    event_instance: usize, event_timestamp: *mut i64,
) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe { tell(event_timestamp, instance(event_instance)?.ns as i64) };
    Ok(())
}

/// # Safety
/// The instance is that of a running callback; `source_index` is null or a variable.
pub unsafe fn t_event_get_source(event_instance: usize, source_index: *mut c_int) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        instance(event_instance)?;
        tell(source_index, 0);
    }
    Ok(())
}

fn check_source(index: c_int) -> Result<()> {
    tool::check()?;
    match index {
        0 => Ok(()),
        _ => Err(Error::new(MPI_T_ERR_INVALID_INDEX, format!("there is no source {index}"))),
    }
}

pub unsafe fn t_source_get_info(
    p: &Process, source_index: c_int, name: *mut c_char, name_len: *mut c_int, desc: *mut c_char,
    desc_len: *mut c_int, ordering: *mut c_int, ticks_per_second: *mut i64, max_ticks: *mut i64,
    info: *mut usize,
) -> Result<()> {
    check_source(source_index)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        tell_text(name, name_len, "clock");
        tell_text(desc, desc_len, "nanoseconds of the monotonic clock");
        tell(ordering, MPI_T_SOURCE_UNORDERED);
        tell(ticks_per_second, event::TICKS_PER_SECOND);
        tell(max_ticks, i64::MAX);
        tell_info(p, info)
    }
}

pub unsafe fn t_source_get_timestamp(source_index: c_int, timestamp: *mut i64) -> Result<()> {
    check_source(source_index)?;
    // SAFETY: ARGUMENTS.
    unsafe { tell(timestamp, now_ns() as i64) };
    Ok(())
}
