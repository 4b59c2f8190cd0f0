#![allow(unsafe_code)]
//! Functions of the MPIR message queue interface 1.0, which defines their contracts.

use crate::interface::*;
use crate::process::ProcessQueues;
use fastpath_base::sync::{StaticOrdering, StaticPtr};
use std::ffi::{CStr, c_char, c_int};

/// The basic callbacks. A debugger sets them once, before any other call.
static BASIC: StaticPtr<BasicCallbacks> = StaticPtr::new(std::ptr::null_mut());

/// Image of a program, and the callbacks for it.
struct ImageInfo {
    callbacks: *const ImageCallbacks,
    /// Address of the table of queues, once found.
    table: Option<Address>,
}

/// Process of a rank, and the callbacks for it.
struct ProcessInfo {
    callbacks: *const ProcessCallbacks,
    queues: ProcessQueues,
}

fn basic() -> Option<&'static BasicCallbacks> {
    // SAFETY: the interface requires the debugger to keep the table of callbacks while the library is loaded.
    unsafe { BASIC.load(StaticOrdering::Relaxed).as_ref() }
}

/// Returns the state that the debugger stores for an image.
///
/// # Safety
/// The debugger has passed `image`, and uses this library in one thread.
unsafe fn image_info<'a>(image: *mut Image) -> Option<&'a mut ImageInfo> {
    // SAFETY: the pointer is the one that `mqs_setup_image` has stored, and no other reference to it lives.
    unsafe { (basic()?.get_image_info)(image).cast::<ImageInfo>().as_mut() }
}

/// Returns the state that the debugger stores for a process.
///
/// # Safety
/// The debugger has passed `process`, and uses this library in one thread.
unsafe fn process_info<'a>(process: *mut Process) -> Option<&'a mut ProcessInfo> {
    // SAFETY: the pointer is the one that `mqs_setup_process` has stored, and no other reference to it lives.
    unsafe { (basic()?.get_process_info)(process).cast::<ProcessInfo>().as_mut() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_setup_basic_callbacks(callbacks: *const BasicCallbacks) {
    BASIC.store(callbacks.cast_mut(), StaticOrdering::Relaxed);
}

#[unsafe(no_mangle)]
pub extern "C" fn mqs_version_string() -> *const c_char {
    concat!("Fastpath ", env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[unsafe(no_mangle)]
pub extern "C" fn mqs_version_compatibility() -> c_int {
    COMPATIBILITY
}

#[unsafe(no_mangle)]
pub extern "C" fn mqs_dll_taddr_width() -> c_int {
    size_of::<Address>() as c_int
}

#[unsafe(no_mangle)]
pub extern "C" fn mqs_dll_error_string(code: c_int) -> *const c_char {
    describe(code).as_ptr()
}

fn describe(code: c_int) -> &'static CStr {
    match code {
        OK => c"no error",
        NO_INFORMATION => c"no information",
        END_OF_LIST => c"end of list",
        NO_TABLE => c"the program has not loaded libmpi_abi of Fastpath",
        OTHER_BUILD => {
            c"libmpi_abi and libfastpath_dbg are of different builds; install both from one build"
        }
        UNREADABLE => c"the memory of the process cannot be read",
        NOT_RUNNING => c"the process is not between MPI_Init and MPI_Finalize",
        _ => c"unknown error",
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_setup_image(
    image: *mut Image, callbacks: *const ImageCallbacks,
) -> c_int {
    let Some(basic) = basic() else { return NO_INFORMATION };
    let info = Box::new(ImageInfo { callbacks, table: None });
    // SAFETY: the debugger has passed the image, and stores the pointer until it calls `mqs_destroy_image_info`.
    unsafe { (basic.put_image_info)(image, Box::into_raw(info).cast()) };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_image_has_queues(
    image: *mut Image, message: *mut *const c_char,
) -> c_int {
    // SAFETY: the debugger has passed the image, which it has set up, and a place for a text or null.
    unsafe {
        let Some(info) = image_info(image) else { return NO_INFORMATION };
        let mut address = 0;
        let find = (*info.callbacks).find_symbol;
        let found = find(image, TABLE_NAME.as_ptr().cast_mut(), &mut address);
        info.table = (found == OK && address != 0).then_some(address);
        let code = if info.table.is_some() { OK } else { NO_TABLE };
        tell(message, code)
    }
}

/// Stores the text of a code, or null for [`OK`]. Returns the code.
///
/// # Safety
/// `message` is null, or a place for a pointer.
unsafe fn tell(message: *mut *const c_char, code: c_int) -> c_int {
    // SAFETY: this function's contract.
    if let Some(message) = unsafe { message.as_mut() } {
        *message = if code == OK { std::ptr::null() } else { describe(code).as_ptr() };
    }
    code
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_setup_process(
    process: *mut Process, callbacks: *const ProcessCallbacks,
) -> c_int {
    let Some(basic) = basic() else { return NO_INFORMATION };
    let info = Box::new(ProcessInfo { callbacks, queues: ProcessQueues::default() });
    // SAFETY: the debugger has passed the process, and stores the pointer until it calls `mqs_destroy_process_info`.
    unsafe { (basic.put_process_info)(process, Box::into_raw(info).cast()) };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_process_has_queues(
    process: *mut Process, message: *mut *const c_char,
) -> c_int {
    // SAFETY: the debugger has passed the process, and a place for a text or null.
    unsafe {
        let code = mqs_update_communicator_list(process);
        // A process before `MPI_Init` has no queues yet; the debugger must ask again later.
        tell(message, if code == NOT_RUNNING { OK } else { code })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_destroy_image_info(info: *mut std::ffi::c_void) {
    // SAFETY: the debugger returns the pointer of `mqs_setup_image`.
    drop(unsafe { Box::from_raw(info.cast::<ImageInfo>()) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_destroy_process_info(info: *mut std::ffi::c_void) {
    // SAFETY: the debugger returns the pointer of `mqs_setup_process`.
    drop(unsafe { Box::from_raw(info.cast::<ProcessInfo>()) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_update_communicator_list(process: *mut Process) -> c_int {
    // SAFETY: the debugger has passed the process, which it has set up.
    unsafe {
        let Some(info) = process_info(process) else { return NO_INFORMATION };
        let callbacks = &*info.callbacks;
        let image = (callbacks.get_image)(process);
        let table = image_info(image).and_then(|image| image.table);
        let Some(table) = table else { return NO_TABLE };
        let read = |address: u64, words: usize| {
            let mut bytes = vec![0_u64; words];
            let size = c_int::try_from(8 * words).ok()?;
            let to = bytes.as_mut_ptr().cast();
            let code = (callbacks.fetch_data)(process, address, size, to);
            (code == OK).then_some(bytes)
        };
        info.queues.update(&read, table)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_setup_communicator_iterator(process: *mut Process) -> c_int {
    // SAFETY: the debugger has passed the process, which it has set up.
    let info = unsafe { process_info(process) };
    info.map_or(NO_INFORMATION, |info| info.queues.begin_communicators())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_get_communicator(
    process: *mut Process, communicator: *mut Communicator,
) -> c_int {
    // SAFETY: the debugger has passed the process, which it has set up, and a place for the answer.
    unsafe {
        let found = process_info(process).and_then(|info| info.queues.describe_communicator());
        answer(found, communicator, NO_INFORMATION)
    }
}

/// Stores `found` in a variable of the debugger and returns [`OK`]. Returns `none` if `found` is `None`.
///
/// # Safety
/// `to` may be written.
unsafe fn answer<T>(found: Option<T>, to: *mut T, none: c_int) -> c_int {
    let Some(found) = found else { return none };
    // SAFETY: this function's contract.
    unsafe { to.write(found) };
    OK
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_get_comm_group(process: *mut Process, group: *mut c_int) -> c_int {
    // SAFETY: the debugger has passed the process, and a place for as many numbers as the communicator has ranks.
    unsafe {
        match process_info(process).and_then(|info| info.queues.peers()) {
            Some(peers) => {
                peers.iter().enumerate().for_each(|(at, &rank)| group.add(at).write(rank as c_int));
                OK
            }
            None => NO_INFORMATION,
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_next_communicator(process: *mut Process) -> c_int {
    // SAFETY: the debugger has passed the process, which it has set up.
    let info = unsafe { process_info(process) };
    info.map_or(NO_INFORMATION, |info| info.queues.next_communicator())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_setup_operation_iterator(
    process: *mut Process, queue: c_int,
) -> c_int {
    // SAFETY: the debugger has passed the process, which it has set up.
    let info = unsafe { process_info(process) };
    info.map_or(NO_INFORMATION, |info| info.queues.begin_operations(queue))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mqs_next_operation(
    process: *mut Process, operation: *mut PendingOperation,
) -> c_int {
    // SAFETY: the debugger has passed the process, which it has set up, and a place for the answer.
    unsafe {
        let found = process_info(process).and_then(|info| info.queues.next_operation());
        answer(found, operation, END_OF_LIST)
    }
}
