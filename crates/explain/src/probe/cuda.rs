#![allow(unsafe_code)]
//! CUDA driver calls of the probe, from `libcuda.so.1`, opened at run time.
//!
//! Names and types are those of the CUDA Driver API reference. Every call's result is checked; objects are freed in the
//! reverse order of their creation.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr;

use anyhow::{Context as _, Result, anyhow, bail};
use fastpath_base::clock;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

type Status = c_int;
type Device = c_int;
type Context = *mut c_void;
type Stream = *mut c_void;
type Module = *mut c_void;
type Kernel = *mut c_void;
type DeviceAddress = u64;

macro_rules! driver_calls {
    ($($field:ident = $name:literal: fn($($argument:ty),*);)*) => {
        struct Calls {
            $($field: unsafe extern "C" fn($($argument),*) -> Status,)*
        }

        impl Calls {
            fn find(library: &Library) -> Result<Calls> {
                Ok(Calls {
                    $($field: {
                        // SAFETY: the type is that of this function in the driver's reference.
                        let found = unsafe { library.get($name.as_bytes()) };
                        *found.map_err(|_| {
                            anyhow!("no CUDA driver here (the library lacks {})", $name)
                        })?
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

pub struct Cuda {
    calls: Calls,
    /// Keeps the code behind the pointers mapped.
    _library: Library,
}

impl Cuda {
    /// Opens and initializes the driver's library.
    pub fn open(path: &str) -> Result<Cuda> {
        // SAFETY: opening runs the library's initialisers, and the driver's library is meant to be loaded at run time.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
        let library =
            library.map_err(|_| anyhow!("no CUDA driver here ({path} cannot be opened)"))?;
        let cuda = Cuda { calls: Calls::find(&library)?, _library: library };
        // SAFETY: 0 is the only allowed flag.
        cuda.check("cuInit", unsafe { (cuda.calls.init)(0) })?;
        Ok(cuda)
    }

    fn check(&self, name: &'static str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let mut text: *const c_char = ptr::null();
        // SAFETY: the call writes a pointer to a static text, or null for an unknown number.
        let known = unsafe { (self.calls.error_name)(status, &mut text) };
        let why = if known == 0 && !text.is_null() {
            // SAFETY: the text is not null, and ends with a zero byte.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        } else {
            format!("error {status}")
        };
        bail!("{name}: {why}")
    }

    /// Makes a GPU current for this thread.
    pub fn use_gpu(&self, index: u32) -> Result<Gpu<'_>> {
        let calls = &self.calls;
        // SAFETY: the call writes an integer.
        let count = self.ask("cuDeviceGetCount", 0, |n| unsafe { (calls.count)(n) })?;
        let ordinal = c_int::try_from(index).ok().filter(|i| *i < count);
        let ordinal = ordinal.with_context(|| {
            format!("there is no GPU {index}; the driver has {count}, numbered from 0")
        })?;
        // SAFETY: the call writes an integer; the ordinal is below the count.
        let device = self.ask("cuDeviceGet", 0, |d| unsafe { (calls.device)(d, ordinal) })?;
        let name = self.text("cuDeviceGetName", calls.name, device)?;
        let address = self.text("cuDeviceGetPCIBusId", calls.address, device)?;
        // SAFETY: the call writes a handle.
        let retain = |context: &mut Context| unsafe { (calls.retain)(context, device) };
        let context = self.ask("cuDevicePrimaryCtxRetain", ptr::null_mut(), retain)?;
        let device = self.hold(device, calls.release);
        // SAFETY: the context is alive until `device` is dropped.
        self.check("cuCtxSetCurrent", unsafe { (calls.set_current)(context) })?;
        Ok(Gpu { name, address: address.to_lowercase(), _device: device, cuda: self })
    }

    /// Returns the value that a call writes, if it succeeds.
    fn ask<T>(
        &self, name: &'static str, mut answer: T, call: impl FnOnce(&mut T) -> Status,
    ) -> Result<T> {
        let status = call(&mut answer);
        self.check(name, status).map(|()| answer)
    }

    /// Takes ownership of an object of the driver.
    fn hold<T: Copy>(&self, at: T, free: unsafe extern "C" fn(T) -> Status) -> DriverObject<'_, T> {
        let cuda = PhantomData;
        DriverObject { at, free, cuda }
    }

    /// Allocates pinned host memory that the GPU can read too.
    fn pin(&self, bytes: usize) -> Result<DriverObject<'_, *mut c_void>> {
        const MAPPED: c_uint = 2;
        // SAFETY: the call writes an address.
        let pin = |at: &mut *mut c_void| unsafe { (self.calls.pin)(at, bytes, MAPPED) };
        let at = self.ask("cuMemHostAlloc", ptr::null_mut(), pin)?;
        // SAFETY: the driver has just allocated `bytes` bytes. Touching them creates the pages.
        unsafe { ptr::write_bytes(at.cast::<u8>(), 1, bytes) };
        Ok(self.hold(at, self.calls.unpin))
    }

    fn text(
        &self, name: &'static str,
        call: unsafe extern "C" fn(*mut c_char, c_int, Device) -> Status, device: Device,
    ) -> Result<String> {
        let mut bytes = [0u8; 128];
        // SAFETY: the buffer has the passed length, and one byte more that stays zero.
        let status = unsafe { call(bytes.as_mut_ptr().cast(), 127, device) };
        self.check(name, status)?;
        let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
        let text = text.to_string_lossy();
        Ok(text.chars().filter(|c| !c.is_control()).collect())
    }
}

/// An object of the driver, freed on drop.
struct DriverObject<'a, T: Copy> {
    at: T,
    free: unsafe extern "C" fn(T) -> Status,
    cuda: PhantomData<&'a Cuda>,
}

impl<T: Copy> Drop for DriverObject<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the object was created by this driver and is freed once, after each copy and kernel was waited for. A
        // failure is ignored.
        unsafe { (self.free)(self.at) };
    }
}

pub struct Gpu<'a> {
    cuda: &'a Cuda,
    name: String,
    address: String,
    _device: DriverObject<'a, Device>,
}

impl Gpu<'_> {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// PCI address, as in sysfs.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Allocates a buffer in pinned host memory and one on the GPU.
    pub fn allocate(&self, bytes: usize) -> Result<Buffers<'_>> {
        let (cuda, calls) = (self.cuda, &self.cuda.calls);
        // SAFETY: the call writes an address.
        let allocate = |at: &mut DeviceAddress| unsafe { (calls.allocate)(at, bytes) };
        let device = cuda.hold(cuda.ask("cuMemAlloc", 0, allocate)?, calls.free);
        Ok(Buffers { cuda, host: cuda.pin(bytes)?, device })
    }

    /// Time of a kernel that reads `count` lines of 64 bytes of host memory, in nanoseconds. Each line holds the
    /// address of the next line.
    ///
    /// # Errors
    /// A call fails, or the kernel did not end at the end of the chain.
    pub fn time_reads(&self, count: u32) -> Result<u64> {
        let calls = &self.cuda.calls;
        let check = |name, status| self.cuda.check(name, status);
        let chain = Chain::new(self.cuda)?;
        // SAFETY: the text ends with a zero, as the driver requires of a program in PTX.
        let load = |module: &mut Module| unsafe { (calls.load)(module, CHASE.as_ptr().cast()) };
        let module = self.cuda.ask("cuModuleLoadData", ptr::null_mut(), load)?;
        let module = self.cuda.hold(module, calls.unload);
        // SAFETY: the module is loaded, and the name ends with a zero.
        let find = |k: &mut Kernel| unsafe { (calls.kernel)(k, module.at, c"chase".as_ptr()) };
        let kernel = self.cuda.ask("cuModuleGetFunction", ptr::null_mut(), find)?;
        let (mut start, mut reads) = (chain.start, count);
        let mut arguments: [*mut c_void; 2] =
            [ptr::from_mut(&mut start).cast(), ptr::from_mut(&mut reads).cast()];
        let from = clock::now_ns();
        // SAFETY: the kernel takes an address and a count, in this order and of these sizes. It reads and writes only
        // the chain, which lives until the synchronisation below.
        let status = unsafe {
            let (lanes, stream, none) = (LANES as c_uint, ptr::null_mut(), ptr::null_mut());
            let words = arguments.as_mut_ptr();
            (calls.launch)(kernel, 1, 1, 1, lanes, 1, 1, 0, stream, words, none)
        };
        check("cuLaunchKernel", status)?;
        // SAFETY: the call only waits for the launched kernel.
        check("cuCtxSynchronize", unsafe { (calls.synchronize)() })?;
        let took = clock::now_ns() - from;
        chain.check_end(count)?;
        Ok(took)
    }
}

/// Buffers of equal size on both sides of the bus.
pub struct Buffers<'a> {
    cuda: &'a Cuda,
    host: DriverObject<'a, *mut c_void>,
    device: DriverObject<'a, DeviceAddress>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyWay {
    /// Copy from the host's memory to the GPU's memory.
    ToDevice,
    ToHost,
}

impl Buffers<'_> {
    /// Time of `count` consecutive copies of `bytes` bytes, in nanoseconds. `bytes` is at most the size of the buffers.
    pub fn time_copies(&self, copy: CopyWay, bytes: usize, count: usize) -> Result<u64> {
        let (calls, null) = (&self.cuda.calls, ptr::null_mut());
        let (host, device) = (self.host.at, self.device.at);
        let from = clock::now_ns();
        let mut failed = Ok(());
        for _ in 0..count {
            // SAFETY: both buffers have at least `bytes` bytes and live until the synchronisation below; the null
            // stream is that of the current context.
            let status = unsafe {
                match copy {
                    CopyWay::ToDevice => (calls.to_device)(device, host, bytes, null),
                    CopyWay::ToHost => (calls.to_host)(host, device, bytes, null),
                }
            };
            failed = self.cuda.check("cuMemcpyAsync", status);
            if failed.is_err() {
                break;
            }
        }
        // SAFETY: the call only waits for the copies, also after a failure, so that none outlives the buffers.
        let status = unsafe { (calls.synchronize)() };
        failed?;
        self.cuda.check("cuCtxSynchronize", status)?;
        Ok(clock::now_ns() - from)
    }
}

/// Number of threads of the kernel: each reads 8 bytes of a 64-byte line.
const LANES: usize = 8;
/// Number and distance of lines in the chain. The chain has more lines than one run reads, so no line is read twice.
/// The lines are so far apart that no line is fetched with another.
const LINES: usize = 8192;
const STRIDE: usize = 512;

/// Lines in host memory. Each holds, for every thread, the address of that thread's part of the next line. The last
/// line leads to the first.
struct Chain<'a> {
    host: DriverObject<'a, *mut c_void>,
    start: DeviceAddress,
}

impl<'a> Chain<'a> {
    fn new(cuda: &'a Cuda) -> Result<Chain<'a>> {
        let host = cuda.pin((LINES + 1) * STRIDE)?;
        // SAFETY: the call writes the GPU's address of memory that was pinned for it.
        let find = |at: &mut DeviceAddress| unsafe { (cuda.calls.mapped)(at, host.at, 0) };
        let start = cuda.ask("cuMemHostGetDevicePointer", 0, find)?;
        for line in 0..LINES {
            for lane in 0..LANES {
                let next = start + (((line + 1) % LINES) * STRIDE + lane * 8) as u64;
                // SAFETY: the offset is within the lines, at a multiple of 8.
                let at = unsafe { host.at.byte_add(line * STRIDE + lane * 8) };
                // SAFETY: these are 8 aligned bytes within the lines, which only this process uses so far.
                unsafe { at.cast::<u64>().write(next) };
            }
        }
        Ok(Chain { host, start })
    }

    /// Checks that the kernel wrote, behind the lines, the addresses at which `count` reads end.
    fn check_end(&self, count: u32) -> Result<()> {
        for lane in 0..LANES {
            let at = LINES * STRIDE + lane * 8;
            // SAFETY: the address is within the memory of the chain, and the kernel has ended.
            let found = unsafe { self.host.at.byte_add(at).cast::<u64>().read_volatile() };
            let wanted = self.start + ((count as usize % LINES) * STRIDE + lane * 8) as u64;
            if found != wanted {
                bail!("wrong result: the GPU did not follow the chain of reads to its end");
            }
        }
        Ok(())
    }
}

/// PTX of the kernel, with the zero that the driver requires at its end. Thread `i` begins at `start + 8 i`, follows
/// `count` addresses, and writes the last one behind the lines.
const CHASE: &str = concat!(include_str!("../../data/chase.ptx"), "\0");
const _: () = assert!(LINES * STRIDE == 4_194_304, "the kernel writes behind the lines");

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
        let said = refusal("/proc/none/libcuda.so.1");
        assert!(said.contains("no CUDA driver here"), "{said}");
        assert!(said.contains("/proc/none/libcuda.so.1"), "{said}");
    }

    #[test]
    fn driver__that_is_none_names_the_missing_call() {
        let said = refusal("libc.so.6");
        assert!(said.contains("the library lacks cuInit"), "{said}");
    }
}
