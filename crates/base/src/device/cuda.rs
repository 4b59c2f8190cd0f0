//! Functions of the CUDA driver, and queries of pointers.
//!
//! Names without `_v2` are old interfaces where a `_v2` exists, so this file names each version.
#![allow(unsafe_code)]

use super::readable::is_readable;
use super::{DeviceError, DeviceMemory, MemoryKind, freed};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute_copy;
use std::sync::{Mutex, OnceLock};

/// `CUresult`.
pub(super) type Code = c_int;
pub(super) const SUCCESS: Code = 0;
const INVALID_VALUE: Code = 1;
const NOT_INITIALIZED: Code = 3;
const DEINITIALIZED: Code = 4;
const INVALID_CONTEXT: Code = 201;
const INVALID_HANDLE: Code = 400;
const DESTROYED: Code = 709;

/// Attributes of a pointer (`CUpointer_attribute`).
const CONTEXT: c_int = 1;
const MEMORY_TYPE: c_int = 2;
const BUFFER_ID: c_int = 7;
const IS_MANAGED: c_int = 8;
const DEVICE_ORDINAL: c_int = 9;
const RANGE_START: c_int = 11;
const RANGE_SIZE: c_int = 12;
const MEMPOOL_HANDLE: c_int = 17;

/// `CU_MEMORYTYPE_DEVICE`.
const DEVICE_TYPE: c_uint = 2;

/// `CU_STREAM_DEFAULT`: the stream has an implicit order with the default stream of its context.
const STREAM_DEFAULT: c_uint = 0;
/// `CU_MEMHOSTREGISTER_PORTABLE`: the memory is pinned for all contexts.
const REGISTER_PORTABLE: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`: an event without a time stamp.
const EVENT_DISABLE_TIMING: c_uint = 2;

/// Largest number of allocations whose properties are kept.
const KEPT_MAX: usize = 1024;

/// Argument of `cuMemcpy2DAsync`. With `CU_MEMORYTYPE_UNIFIED` on both sides, the driver infers the direction.
#[repr(C)]
#[derive(Default)]
pub(super) struct Rows {
    src_x: usize,
    src_y: usize,
    src_type: c_uint,
    src_host: usize,
    pub src: usize,
    src_array: usize,
    pub src_pitch: usize,
    dst_x: usize,
    dst_y: usize,
    dst_type: c_uint,
    dst_host: usize,
    pub dst: usize,
    dst_array: usize,
    pub dst_pitch: usize,
    pub width: usize,
    pub height: usize,
}

impl Rows {
    pub fn new() -> Rows {
        const UNIFIED: c_uint = 4;
        Rows { src_type: UNIFIED, dst_type: UNIFIED, ..Rows::default() }
    }
}

/// Direction of copies. Each direction has its own stream, so copies in both directions overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Direction {
    /// From device memory to host memory.
    In,
    /// From host memory to device memory.
    Out,
}

/// Functions of the driver that the process has loaded.
pub(super) struct Driver {
    pointer_attributes:
        unsafe extern "C" fn(c_uint, *const c_int, *const *mut c_void, usize) -> Code,
    context: unsafe extern "C" fn(*mut usize) -> Code,
    push_context: unsafe extern "C" fn(usize) -> Code,
    pop_context: unsafe extern "C" fn(*mut usize) -> Code,
    primary_state: unsafe extern "C" fn(c_int, *mut c_uint, *mut c_int) -> Code,
    retain_primary: unsafe extern "C" fn(*mut usize, c_int) -> Code,
    release_primary: unsafe extern "C" fn(c_int) -> Code,
    create_stream: unsafe extern "C" fn(*mut usize, c_uint) -> Code,
    synchronize: unsafe extern "C" fn(usize) -> Code,
    copy: unsafe extern "C" fn(usize, usize, usize, usize) -> Code,
    copy_rows: unsafe extern "C" fn(*const Rows, usize) -> Code,
    register: unsafe extern "C" fn(usize, usize, c_uint) -> Code,
    unregister: unsafe extern "C" fn(usize) -> Code,
    error_name: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
    create_event: unsafe extern "C" fn(*mut usize, c_uint) -> Code,
    record_event: unsafe extern "C" fn(usize, usize) -> Code,
    wait_event: unsafe extern "C" fn(usize) -> Code,
    destroy_event: unsafe extern "C" fn(usize) -> Code,
    /// Streams of the library in each context.
    streams: Mutex<HashMap<(usize, Direction), usize>>,
    /// Properties of allocations by number.
    allocations: Mutex<HashMap<u64, DeviceMemory>>,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// Returns the driver's name of an error.
pub(super) fn name_error(code: Code) -> String {
    let mut name = std::ptr::null();
    if let Some(driver) = DRIVER.get() {
        // SAFETY: the driver stores the address of a constant string, or null.
        unsafe { (driver.error_name)(code, &mut name) };
    }
    match name.is_null() {
        true => "unknown error".into(),
        // SAFETY: the driver's string ends in a NUL.
        false => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
    }
}

/// Returns an error of `call` unless it succeeded.
pub(super) fn check(call: &'static str, code: Code) -> Result<(), DeviceError> {
    match code {
        SUCCESS => Ok(()),
        code => Err(DeviceError::Failed(call, code)),
    }
}

/// Looks up a function. Safety: `F` must be the type of the function.
unsafe fn look_up<F: Copy>(library: *mut c_void, name: &CStr) -> Option<F> {
    // SAFETY: the name ends in a NUL.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: a function's address has the size of `F`, which is the type of a function by contract.
    (!found.is_null()).then(|| unsafe { transmute_copy::<*mut c_void, F>(&found) })
}

impl Driver {
    /// Returns the functions of `libcuda.so.1`, if the process has loaded the library.
    pub fn loaded() -> Option<&'static Driver> {
        if let Some(driver) = DRIVER.get() {
            return Some(driver);
        }
        let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
        // SAFETY: the name ends in a NUL, and the flag prevents a load. The handle is never closed, so that the
        // functions stay.
        let driver = unsafe {
            let library = libc::dlopen(c"libcuda.so.1".as_ptr(), flags);
            if library.is_null() {
                return None;
            }
            Driver {
                pointer_attributes: look_up(library, c"cuPointerGetAttributes")?,
                context: look_up(library, c"cuCtxGetCurrent")?,
                push_context: look_up(library, c"cuCtxPushCurrent_v2")?,
                pop_context: look_up(library, c"cuCtxPopCurrent_v2")?,
                primary_state: look_up(library, c"cuDevicePrimaryCtxGetState")?,
                retain_primary: look_up(library, c"cuDevicePrimaryCtxRetain")?,
                release_primary: look_up(library, c"cuDevicePrimaryCtxRelease_v2")?,
                create_stream: look_up(library, c"cuStreamCreate")?,
                synchronize: look_up(library, c"cuStreamSynchronize")?,
                copy: look_up(library, c"cuMemcpyAsync")?,
                copy_rows: look_up(library, c"cuMemcpy2DAsync_v2")?,
                register: look_up(library, c"cuMemHostRegister_v2")?,
                unregister: look_up(library, c"cuMemHostUnregister")?,
                error_name: look_up(library, c"cuGetErrorName")?,
                create_event: look_up(library, c"cuEventCreate")?,
                record_event: look_up(library, c"cuEventRecord")?,
                wait_event: look_up(library, c"cuEventSynchronize")?,
                destroy_event: look_up(library, c"cuEventDestroy_v2")?,
                streams: Mutex::default(),
                allocations: Mutex::default(),
            }
        };
        Some(DRIVER.get_or_init(|| driver))
    }

    /// Returns the device memory at an address; `None` for host memory.
    fn query(&self, address: *const u8) -> Result<Option<DeviceMemory>, Code> {
        let (mut memory_type, mut id) = (0_u32, 0_u64);
        let names = [MEMORY_TYPE, BUFFER_ID];
        self.ask(&names, &[(&raw mut memory_type).cast(), (&raw mut id).cast()], address)?;
        // Managed memory reports either type.
        if memory_type == 0 {
            return Ok(None);
        }
        if let Some(known) = self.allocations.lock().ok().and_then(|all| all.get(&id).copied()) {
            return Ok(Some(known));
        }
        let (mut managed, mut device, mut context, mut pool) = (0_u32, 0_i32, 0_usize, 0_usize);
        let names = [IS_MANAGED, DEVICE_ORDINAL, CONTEXT];
        let values =
            [(&raw mut managed).cast(), (&raw mut device).cast(), (&raw mut context).cast()];
        self.ask(&names, &values, address)?;
        if managed == 0 && memory_type != DEVICE_TYPE {
            return Ok(None);
        }
        // Drivers before 11.3 do not know pools.
        let _ = self.ask(&[MEMPOOL_HANDLE], &[(&raw mut pool).cast()], address);
        let kind = match (managed, pool, context) {
            (0, 0, 0) => MemoryKind::Mapped,
            (0, 0, _) => MemoryKind::Device,
            (0, ..) => MemoryKind::Pool,
            _ => MemoryKind::Managed,
        };
        let memory = DeviceMemory { kind, device, allocation: id, context };
        if let Ok(mut all) = self.allocations.lock() {
            if all.len() >= KEPT_MAX {
                all.clear();
            }
            all.insert(id, memory);
        }
        Ok(Some(memory))
    }

    fn ask(&self, names: &[c_int], values: &[*mut c_void], address: *const u8) -> Result<(), Code> {
        let count = names.len() as c_uint;
        // SAFETY: each name has a variable of its type.
        let code = unsafe {
            (self.pointer_attributes)(count, names.as_ptr(), values.as_ptr(), address.addr())
        };
        if code == SUCCESS { Ok(()) } else { Err(code) }
    }

    /// Returns the device memory at an address like [`Driver::query`]. An address that the driver does not
    /// answer for is host memory if the processor can read it: the driver may be uninitialised, or report an earlier
    /// error of the program.
    pub fn find(&self, address: *const u8) -> Result<Option<DeviceMemory>, DeviceError> {
        match self.query(address) {
            Ok(Some(memory)) => {
                if freed::is_on() {
                    self.note_range(address, &memory);
                }
                Ok(Some(memory))
            }
            Ok(None) if freed::is_on() => freed::check_unknown(address).map(|()| None),
            Ok(None) => Ok(None),
            Err(INVALID_VALUE | NOT_INITIALIZED | DEINITIALIZED) => Ok(None),
            Err(_) if is_readable(address) => Ok(None),
            Err(code) => Err(DeviceError::Failed("cuPointerGetAttributes", code)),
        }
    }

    /// Keeps the range of an allocation, to detect its use after it is freed.
    #[cold]
    fn note_range(&self, address: *const u8, memory: &DeviceMemory) {
        let (mut start, mut bytes) = (0_usize, 0_usize);
        let values = [(&raw mut start).cast(), (&raw mut bytes).cast()];
        if self.ask(&[RANGE_START, RANGE_SIZE], &values, address).is_ok() {
            freed::note(memory, start..start.saturating_add(bytes));
        }
    }

    /// Runs `run` like [`Driver::with_stream`]. Runs it once more if a stream's context no longer exists: the program
    /// may have destroyed the context, and made another one with its address.
    pub fn with_live_stream<R>(
        &self, memory: &DeviceMemory, direction: Direction,
        run: impl Fn(usize) -> Result<R, DeviceError>,
    ) -> Result<R, DeviceError> {
        match self.with_stream(memory, direction, &run) {
            Err(DeviceError::Failed(_, INVALID_CONTEXT | DESTROYED | INVALID_HANDLE)) => {
                self.forget_streams();
                self.with_stream(memory, direction, &run)
            }
            result => result,
        }
    }

    /// Runs `run` with a context of the memory's device, and passes it the library's stream of that context.
    pub fn with_stream<R>(
        &self, memory: &DeviceMemory, direction: Direction,
        run: impl FnOnce(usize) -> Result<R, DeviceError>,
    ) -> Result<R, DeviceError> {
        let mut current = 0;
        // SAFETY: the driver stores the context, or null.
        check("cuCtxGetCurrent", unsafe { (self.context)(&mut current) })?;
        let (mut wanted, mut retained) = (memory.context, false);
        if wanted == 0 {
            (wanted, retained) = self.primary(memory.device, current)?;
        }
        // SAFETY: the context belongs to a live allocation, or is retained here.
        let result = unsafe {
            check("cuCtxPushCurrent", (self.push_context)(wanted)).and_then(|()| {
                let result = self.stream(wanted, direction).and_then(run);
                (self.pop_context)(&mut current);
                result
            })
        };
        if retained {
            // SAFETY: `primary` has retained the context.
            unsafe { (self.release_primary)(memory.device) };
        }
        result
    }

    /// Returns the primary context of a device, retained, if it is active; otherwise `current`. A context is never
    /// made, because it takes memory of the device. Errors: there is no context.
    fn primary(&self, device: i32, current: usize) -> Result<(usize, bool), DeviceError> {
        let (mut flags, mut active, mut context) = (0, 0, 0);
        // SAFETY: the driver stores to these variables.
        unsafe {
            check(
                "cuDevicePrimaryCtxGetState",
                (self.primary_state)(device, &mut flags, &mut active),
            )?;
            if active != 0 {
                let retained = (self.retain_primary)(&mut context, device);
                check("cuDevicePrimaryCtxRetain", retained)?;
                return Ok((context, true));
            }
        }
        match current {
            0 => Err(DeviceError::Failed("cuCtxGetCurrent", INVALID_CONTEXT)),
            _ => Ok((current, false)),
        }
    }

    /// Returns the library's stream of the current context, which is `context`, for a direction.
    fn stream(&self, context: usize, direction: Direction) -> Result<usize, DeviceError> {
        let Ok(mut streams) = self.streams.lock() else {
            return Ok(0);
        };
        if let Some(&stream) = streams.get(&(context, direction)) {
            return Ok(stream);
        }
        let mut stream = 0;
        // SAFETY: the driver stores the stream.
        check("cuStreamCreate", unsafe { (self.create_stream)(&mut stream, STREAM_DEFAULT) })?;
        streams.insert((context, direction), stream);
        Ok(stream)
    }

    /// Forgets the streams of all contexts, because a context has been destroyed.
    fn forget_streams(&self) {
        if let Ok(mut streams) = self.streams.lock() {
            streams.clear();
        }
    }

    /// Begins to copy bytes between any two memories.
    ///
    /// # Safety
    /// Both sides must be valid for `bytes` until [`Driver::synchronize`] returns.
    pub unsafe fn copy(
        &self, to: usize, from: usize, bytes: usize, stream: usize,
    ) -> Result<(), DeviceError> {
        // SAFETY: this function's contract.
        check("cuMemcpyAsync", unsafe { (self.copy)(to, from, bytes, stream) })
    }

    /// Begins to copy rows of bytes between any two memories.
    ///
    /// # Safety
    /// See [`Driver::copy`].
    pub unsafe fn copy_rows(&self, rows: &Rows, stream: usize) -> Result<(), DeviceError> {
        // SAFETY: this function's contract.
        check("cuMemcpy2DAsync", unsafe { (self.copy_rows)(rows, stream) })
    }

    /// Waits for the copies of a stream.
    pub fn synchronize(&self, stream: usize) -> Result<(), DeviceError> {
        // SAFETY: the stream belongs to the current context.
        check("cuStreamSynchronize", unsafe { (self.synchronize)(stream) })
    }

    /// Makes an event of the current context.
    pub fn create_event(&self) -> Result<usize, DeviceError> {
        let mut event = 0;
        // SAFETY: the driver stores the event.
        let code = unsafe { (self.create_event)(&mut event, EVENT_DISABLE_TIMING) };
        check("cuEventCreate", code).map(|()| event)
    }

    /// Records an event behind the copies that a stream has so far. Both belong to the current context.
    pub fn record_event(&self, event: usize, stream: usize) -> Result<(), DeviceError> {
        // SAFETY: event and stream exist.
        check("cuEventRecord", unsafe { (self.record_event)(event, stream) })
    }

    /// Waits for the copies of an event.
    pub fn wait_event(&self, event: usize) -> Result<(), DeviceError> {
        // SAFETY: the event exists.
        check("cuEventSynchronize", unsafe { (self.wait_event)(event) })
    }

    /// Destroys an event.
    pub fn destroy_event(&self, event: usize) {
        // SAFETY: the event exists, and is not used again.
        unsafe { (self.destroy_event)(event) };
    }

    /// Pins host memory in all contexts. Returns whether it is pinned. Needs a current context.
    pub fn register(&self, address: usize, bytes: usize) -> bool {
        // SAFETY: the driver checks the range.
        unsafe { (self.register)(address, bytes, REGISTER_PORTABLE) == SUCCESS }
    }

    /// Unpins memory of [`Driver::register`].
    pub fn unregister(&self, address: usize) {
        // SAFETY: the driver checks the address.
        unsafe { (self.unregister)(address) };
    }
}
