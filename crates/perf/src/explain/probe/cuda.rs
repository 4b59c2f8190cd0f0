#![allow(unsafe_code)]
//! The few calls of the CUDA driver that the probe needs, from `libcuda.so.1`, opened at run time.
//!
//! Names and types are those of the CUDA Driver API reference. Every call's result is checked; what was
//! made is given back in the reverse order.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

use fastpath_base::clock;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Why the driver did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum CudaError {
    /// There is no driver, or it lacks a call.
    #[error("no CUDA driver here ({0})")]
    Absent(String),
    /// There are so many GPUs, and another was asked for.
    #[error("no GPU {0}: the driver has {1}, counted from 0")]
    NoSuchGpu(u32, c_int),
    /// A call failed: which, with what.
    #[error("{0}: {1}")]
    Call(&'static str, String),
}

type Status = c_int;
type Device = c_int;
type Context = *mut c_void;
type Stream = *mut c_void;
type Module = *mut c_void;
type Kernel = *mut c_void;
type DeviceAddress = u64;

macro_rules! driver_calls {
    ($($field:ident = $name:literal: fn($($argument:ty),*);)*) => {
        /// The calls, by the names that the library exports.
        struct Calls {
            $($field: unsafe extern "C" fn($($argument),*) -> Status,)*
        }

        impl Calls {
            fn find(library: &Library) -> Result<Calls, CudaError> {
                Ok(Calls {
                    $($field: {
                        // SAFETY: the type is that which the driver's reference gives this function.
                        let found = unsafe { library.get($name.as_bytes()) };
                        *found.map_err(|_| CudaError::Absent(format!("it has no {}", $name)))?
                    },)*
                })
            }
        }
    };
}

driver_calls! {
    init = "cuInit": fn(c_uint);
    count = "cuDeviceGetCount": fn(*mut c_int);
    device = "cuDeviceGet": fn(*mut Device, c_int);
    name = "cuDeviceGetName": fn(*mut c_char, c_int, Device);
    address = "cuDeviceGetPCIBusId": fn(*mut c_char, c_int, Device);
    retain = "cuDevicePrimaryCtxRetain": fn(*mut Context, Device);
    release = "cuDevicePrimaryCtxRelease_v2": fn(Device);
    set_current = "cuCtxSetCurrent": fn(Context);
    synchronize = "cuCtxSynchronize": fn();
    allocate = "cuMemAlloc_v2": fn(*mut DeviceAddress, usize);
    free = "cuMemFree_v2": fn(DeviceAddress);
    pin = "cuMemHostAlloc": fn(*mut *mut c_void, usize, c_uint);
    unpin = "cuMemFreeHost": fn(*mut c_void);
    mapped = "cuMemHostGetDevicePointer_v2": fn(*mut DeviceAddress, *mut c_void, c_uint);
    to_device = "cuMemcpyHtoDAsync_v2": fn(DeviceAddress, *const c_void, usize, Stream);
    to_host = "cuMemcpyDtoHAsync_v2": fn(*mut c_void, DeviceAddress, usize, Stream);
    load = "cuModuleLoadData": fn(*mut Module, *const c_void);
    unload = "cuModuleUnload": fn(Module);
    kernel = "cuModuleGetFunction": fn(*mut Kernel, Module, *const c_char);
    launch = "cuLaunchKernel": fn(Kernel, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
        Stream, *mut *mut c_void, *mut *mut c_void);
    error_name = "cuGetErrorName": fn(Status, *mut *const c_char);
}

/// The driver.
pub struct Cuda {
    calls: Calls,
    /// Keeps the code behind the pointers mapped.
    _library: Library,
}

impl Cuda {
    /// Opens the driver's library and starts it.
    ///
    /// # Errors
    /// It is not there, or is not a driver's.
    pub fn open(path: &str) -> Result<Cuda, CudaError> {
        // SAFETY: opening runs the library's initialisers; the driver's is made to be loaded so.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|_| CudaError::Absent(format!("{path} cannot be opened")))?;
        let cuda = Cuda {
            calls: Calls::find(&library)?,
            _library: library,
        };
        // SAFETY: 0 is the one flag that there is.
        cuda.check("cuInit", unsafe { (cuda.calls.init)(0) })?;
        Ok(cuda)
    }

    fn check(&self, name: &'static str, status: Status) -> Result<(), CudaError> {
        if status == 0 {
            return Ok(());
        }
        let mut text: *const c_char = ptr::null();
        // SAFETY: the call writes a pointer to a text that lasts, or null for a number it does not know.
        let known = unsafe { (self.calls.error_name)(status, &mut text) };
        let why = if known == 0 && !text.is_null() {
            // SAFETY: not null, and ended by a zero.
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned()
        } else {
            format!("error {status}")
        };
        Err(CudaError::Call(name, why))
    }

    /// Makes a GPU the one that this thread works with.
    ///
    /// # Errors
    /// There is no such GPU, or a call fails.
    pub fn use_gpu(&self, index: u32) -> Result<Gpu<'_>, CudaError> {
        let calls = &self.calls;
        let mut count = 0;
        // SAFETY: the call writes an integer.
        self.check("cuDeviceGetCount", unsafe { (calls.count)(&mut count) })?;
        let ordinal = c_int::try_from(index).ok().filter(|i| *i < count);
        let ordinal = ordinal.ok_or(CudaError::NoSuchGpu(index, count))?;
        let mut device = 0;
        // SAFETY: the call writes an integer; the ordinal is below the count.
        self.check("cuDeviceGet", unsafe {
            (calls.device)(&mut device, ordinal)
        })?;
        let name = self.text("cuDeviceGetName", calls.name, device)?;
        let address = self.text("cuDeviceGetPCIBusId", calls.address, device)?;
        let mut context = ptr::null_mut();
        // SAFETY: the call writes a handle; it is released when the value is dropped.
        let status = unsafe { (calls.retain)(&mut context, device) };
        self.check("cuDevicePrimaryCtxRetain", status)?;
        let gpu = Gpu {
            cuda: self,
            device,
            name,
            address: address.to_lowercase(),
        };
        // SAFETY: the context is alive until `gpu` is dropped.
        self.check("cuCtxSetCurrent", unsafe { (calls.set_current)(context) })?;
        Ok(gpu)
    }

    fn text(
        &self,
        name: &'static str,
        call: unsafe extern "C" fn(*mut c_char, c_int, Device) -> Status,
        device: Device,
    ) -> Result<String, CudaError> {
        let mut bytes = [0u8; 128];
        // SAFETY: the buffer has the length that is told, and one byte more that stays zero.
        let status = unsafe { call(bytes.as_mut_ptr().cast(), 127, device) };
        self.check(name, status)?;
        let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
        let text = text.to_string_lossy();
        Ok(text.chars().filter(|c| !c.is_control()).collect())
    }
}

/// A GPU in use by this thread.
pub struct Gpu<'a> {
    cuda: &'a Cuda,
    device: Device,
    name: String,
    address: String,
}

impl Drop for Gpu<'_> {
    fn drop(&mut self) {
        // SAFETY: retained once, when the value was made. A failure at the end changes nothing.
        unsafe { (self.cuda.calls.release)(self.device) };
    }
}

impl Gpu<'_> {
    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address on the bus, as sysfs writes it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A buffer in pinned host memory and one on the GPU.
    ///
    /// # Errors
    /// There is no room, or a call fails.
    pub fn allocate(&self, bytes: usize) -> Result<Buffers<'_>, CudaError> {
        let host = Pinned::new(self.cuda, bytes)?;
        let mut device = 0;
        // SAFETY: the call writes an address; it is freed when the value is dropped.
        let status = unsafe { (self.cuda.calls.allocate)(&mut device, bytes) };
        self.cuda.check("cuMemAlloc", status)?;
        Ok(Buffers { host, device })
    }

    /// Nanoseconds of a kernel that reads `count` lines of 64 bytes of host memory, each at the address that the one
    /// before it held.
    ///
    /// # Errors
    /// A call fails, or the kernel did not end where the chain ends.
    pub fn time_reads(&self, count: u32) -> Result<u64, CudaError> {
        let calls = &self.cuda.calls;
        let check = |name, status| self.cuda.check(name, status);
        let chain = Chain::new(self.cuda)?;
        let module = LoadedModule::new(self.cuda)?;
        let mut kernel = ptr::null_mut();
        // SAFETY: the module is loaded, and the name ends with a zero.
        let status = unsafe { (calls.kernel)(&mut kernel, module.handle, c"chase".as_ptr()) };
        check("cuModuleGetFunction", status)?;
        let (mut start, mut reads) = (chain.start, count);
        let mut arguments: [*mut c_void; 2] = [
            ptr::from_mut(&mut start).cast(),
            ptr::from_mut(&mut reads).cast(),
        ];
        let from = clock::now_ns();
        // SAFETY: the kernel takes an address and a count, in this order and of these sizes; all it reads and writes
        // lies in the chain, which lives until the synchronisation below.
        let status = unsafe {
            let (one, lanes) = (1, LANES as c_uint);
            let (stream, none) = (ptr::null_mut(), ptr::null_mut());
            (calls.launch)(
                kernel,
                one,
                1,
                1,
                lanes,
                1,
                1,
                0,
                stream,
                arguments.as_mut_ptr(),
                none,
            )
        };
        check("cuLaunchKernel", status)?;
        // SAFETY: waits for what was launched.
        check("cuCtxSynchronize", unsafe { (calls.synchronize)() })?;
        let took = clock::now_ns() - from;
        chain.check_end(count)?;
        Ok(took)
    }
}

/// Pinned host memory, which the GPU can read too.
struct Pinned<'a> {
    cuda: &'a Cuda,
    at: *mut c_void,
}

impl<'a> Pinned<'a> {
    fn new(cuda: &'a Cuda, bytes: usize) -> Result<Pinned<'a>, CudaError> {
        const MAPPED: c_uint = 2;
        let mut at = ptr::null_mut();
        // SAFETY: the call writes an address; it is freed when the value is dropped.
        let status = unsafe { (cuda.calls.pin)(&mut at, bytes, MAPPED) };
        cuda.check("cuMemHostAlloc", status)?;
        // SAFETY: so many bytes were just given to us. Pages exist from here on.
        unsafe { ptr::write_bytes(at.cast::<u8>(), 1, bytes) };
        Ok(Pinned { cuda, at })
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // SAFETY: given by the same driver, and no copy is under way: each is waited for.
        unsafe { (self.cuda.calls.unpin)(self.at) };
    }
}

/// Memory on both sides of the bus, of one size.
pub struct Buffers<'a> {
    host: Pinned<'a>,
    device: DeviceAddress,
}

impl Drop for Buffers<'_> {
    fn drop(&mut self) {
        // SAFETY: given by the same driver, and no copy is under way: each is waited for.
        unsafe { (self.host.cuda.calls.free)(self.device) };
    }
}

/// Where to a buffer is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyWay {
    /// From the host's memory to the GPU's.
    ToDevice,
    /// From the GPU's memory to the host's.
    ToHost,
}

impl Buffers<'_> {
    /// Nanoseconds of `count` copies of `bytes`, one behind the other. `bytes` is at most the size of the buffers.
    ///
    /// # Errors
    /// A call fails.
    pub fn time_copies(&self, copy: CopyWay, bytes: usize, count: usize) -> Result<u64, CudaError> {
        let calls = &self.host.cuda.calls;
        let from = clock::now_ns();
        let mut failed = Ok(());
        for _ in 0..count {
            // SAFETY: both buffers have at least so many bytes and live until the synchronisation below; the null
            // stream is that of the current context.
            let status = unsafe {
                match copy {
                    CopyWay::ToDevice => {
                        (calls.to_device)(self.device, self.host.at, bytes, ptr::null_mut())
                    }
                    CopyWay::ToHost => {
                        (calls.to_host)(self.host.at, self.device, bytes, ptr::null_mut())
                    }
                }
            };
            failed = self.host.cuda.check("cuMemcpyAsync", status);
            if failed.is_err() {
                break;
            }
        }
        // SAFETY: waits for the copies; also after a failure, so that none outlives the buffers.
        let status = unsafe { (calls.synchronize)() };
        failed?;
        self.host.cuda.check("cuCtxSynchronize", status)?;
        Ok(clock::now_ns() - from)
    }
}

/// Threads of the kernel: each reads 8 bytes of a line of 64.
const LANES: usize = 8;
/// Lines of the chain: more than are read at once, so that none is read twice, and so far apart that none is fetched
/// with another.
const LINES: usize = 8192;
const STRIDE: usize = 512;

/// Lines in host memory: each holds, for every thread, the address of that thread's part of the next line. The last
/// leads to the first.
struct Chain<'a> {
    host: Pinned<'a>,
    start: DeviceAddress,
}

impl<'a> Chain<'a> {
    fn new(cuda: &'a Cuda) -> Result<Chain<'a>, CudaError> {
        let host = Pinned::new(cuda, (LINES + 1) * STRIDE)?;
        let mut start: DeviceAddress = 0;
        // SAFETY: the call writes the address by which the GPU knows memory that was pinned for it.
        let status = unsafe { (cuda.calls.mapped)(&mut start, host.at, 0) };
        cuda.check("cuMemHostGetDevicePointer", status)?;
        for line in 0..LINES {
            for lane in 0..LANES {
                let next = start + (((line + 1) % LINES) * STRIDE + lane * 8) as u64;
                // SAFETY: within the lines, 8 bytes at a multiple of 8.
                unsafe {
                    host.at
                        .byte_add(line * STRIDE + lane * 8)
                        .cast::<u64>()
                        .write(next)
                };
            }
        }
        Ok(Chain { host, start })
    }

    /// Whether the kernel wrote, behind the lines, the addresses that so many reads lead to.
    fn check_end(&self, count: u32) -> Result<(), CudaError> {
        for lane in 0..LANES {
            let at = LINES * STRIDE + lane * 8;
            // SAFETY: within the memory of the chain; the kernel has ended.
            let found = unsafe { self.host.at.byte_add(at).cast::<u64>().read_volatile() };
            let wanted = self.start + ((count as usize % LINES) * STRIDE + lane * 8) as u64;
            if found != wanted {
                let why = "the kernel did not follow the chain to its end".to_owned();
                return Err(CudaError::Call("chase", why));
            }
        }
        Ok(())
    }
}

/// The kernel: thread `i` begins at `start + 8 i`, reads `count` times where it is sent, and writes where it came to
/// behind the lines.
const CHASE: &CStr = c"
.version 6.3
.target sm_75
.address_size 64
.visible .entry chase(.param .u64 start, .param .u32 count)
{
    .reg .pred %more;
    .reg .u32 %left, %lane;
    .reg .u64 %at, %end, %part;
    ld.param.u64 %at, [start];
    ld.param.u32 %left, [count];
    mov.u32 %lane, %tid.x;
    mul.wide.u32 %part, %lane, 8;
    add.u64 %at, %at, %part;
    add.u64 %end, %at, 4194304;
again:
    ld.volatile.global.u64 %at, [%at];
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra again;
    st.volatile.global.u64 [%end], %at;
    ret;
}
";
const _: () = assert!(
    LINES * STRIDE == 4_194_304,
    "the kernel writes behind the lines"
);

/// The kernel, loaded.
struct LoadedModule<'a> {
    cuda: &'a Cuda,
    handle: Module,
}

impl<'a> LoadedModule<'a> {
    fn new(cuda: &'a Cuda) -> Result<LoadedModule<'a>, CudaError> {
        let mut handle = ptr::null_mut();
        // SAFETY: the text ends with a zero, as the driver wants it of a program in PTX.
        let status = unsafe { (cuda.calls.load)(&mut handle, CHASE.as_ptr().cast()) };
        cuda.check("cuModuleLoadData", status)?;
        Ok(LoadedModule { cuda, handle })
    }
}

impl Drop for LoadedModule<'_> {
    fn drop(&mut self) {
        // SAFETY: loaded by the same driver; its kernel has ended.
        unsafe { (self.cuda.calls.unload)(self.handle) };
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn refusal(path: &str) -> String {
        match Cuda::open(path) {
            Ok(_) => panic!("took {path} for a driver"),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn driver__that_is_not_there_is_said_to_be_missing() {
        let said = refusal("/nonexistent/libcuda.so.1");
        assert!(said.contains("no CUDA driver here"), "{said}");
        assert!(said.contains("/nonexistent/libcuda.so.1"), "{said}");
    }

    #[test]
    fn driver__that_is_none_names_the_missing_call() {
        let said = refusal("libc.so.6");
        assert!(said.contains("it has no cuInit"), "{said}");
    }
}
