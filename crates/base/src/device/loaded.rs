//! Drivers that the process has loaded.
#![allow(unsafe_code)]

use super::cuda::Driver;
use crate::sync::{StaticOrdering, StaticUsize};
use std::ffi::{CStr, c_int, c_void};
use std::path::Path;
use std::sync::Mutex;

/// When the library expects pointers to device memory (`FASTPATH_GPU`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// If the process has loaded a driver, or may load one later.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Device files of NVIDIA's kernel drivers. Without one of them no device memory can be allocated.
const DEVICE_FILES: [&str; 4] = ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvhost-ctrl", "/dev/dxg"];

/// File names of the drivers that are recognised only to refuse their memory.
const REFUSED: [(&[u8], &str); 2] = [
    (b"libamdhip64.so", "HIP (libamdhip64.so)"),
    (b"libze_loader.so", "Level Zero (libze_loader.so)"),
];

/// Drivers of the process.
#[derive(Clone, Copy)]
pub(super) struct Drivers {
    pub cuda: Option<&'static Driver>,
    /// Name of a loaded driver that is not supported.
    pub other: Option<&'static str>,
}

/// 1 if pointers to device memory may appear.
static MAY_APPEAR: StaticUsize = StaticUsize::new(0);

/// Drivers found so far, and the number of objects that the process had loaded by then.
static FOUND: Mutex<(Drivers, u64)> = Mutex::new((Drivers { cuda: None, other: None }, 0));

/// Returns whether pointers to device memory may appear. The value is that of the last [`start`].
#[inline]
pub fn may_appear() -> bool {
    MAY_APPEAR.load(StaticOrdering::Relaxed) != 0
}

/// Decides at initialisation whether pointers to device memory may appear, and returns the decision. In such a process
/// no call may take the immediate path, which cannot recognise device memory.
///
/// [`Setting::Auto`] expects device memory if a driver is loaded. It also does if the host has a device file and the
/// program can load a driver later, because an object of the program calls `dlopen`.
pub fn start(setting: Setting) -> bool {
    let expected = match setting {
        Setting::On => true,
        Setting::Off => false,
        Setting::Auto => {
            let Drivers { cuda, other } = drivers();
            cuda.is_some()
                || other.is_some()
                || (DEVICE_FILES.iter().any(|file| Path::new(file).exists())
                    && Objects::list().can_load)
        }
    };
    MAY_APPEAR.store(usize::from(expected), StaticOrdering::Relaxed);
    expected
}

/// Returns the drivers of the process. Looks for them again whenever the process has loaded an object since.
pub(super) fn drivers() -> Drivers {
    let Ok(mut found) = FOUND.lock() else { return Drivers { cuda: None, other: None } };
    if found.0.cuda.is_some() {
        return found.0;
    }
    let loads = count_loads();
    if loads != found.1 {
        // `dlopen` takes the linker's lock, which `dl_iterate_phdr` holds during its callback.
        *found = (Drivers { cuda: Driver::loaded(), other: Objects::list().refused }, loads);
    }
    found.0
}

/// Returns how many objects the process has loaded in all.
fn count_loads() -> u64 {
    unsafe extern "C" fn read(
        object: *mut libc::dl_phdr_info, _: usize, loads: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker passes an object that is valid during the call; `count_loads` passes a number.
        unsafe { *loads.cast::<u64>() = (*object).dlpi_adds };
        1
    }
    let mut loads = 0_u64;
    // SAFETY: `read` has the required type, and `loads` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(read), (&raw mut loads).cast()) };
    loads
}

/// Facts about the loaded objects.
#[derive(Default)]
struct Objects {
    refused: Option<&'static str>,
    /// Whether an object other than this library and the C library calls `dlopen`.
    can_load: bool,
}

impl Objects {
    fn list() -> Objects {
        let mut objects = Objects::default();
        // SAFETY: `visit_object` has the required type, and `objects` outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(visit_object), (&raw mut objects).cast()) };
        objects
    }
}

unsafe extern "C" fn visit_object(
    object: *mut libc::dl_phdr_info, _: usize, objects: *mut c_void,
) -> c_int {
    // SAFETY: the linker passes an object that is valid during the call; `Objects::list` passes its facts.
    unsafe {
        let (object, objects) = (&*object, &mut *objects.cast::<Objects>());
        let path = match object.dlpi_name.is_null() {
            true => c"",
            false => CStr::from_ptr(object.dlpi_name),
        };
        let path = path.to_bytes();
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        for (file, vendor) in REFUSED {
            if name.starts_with(file) {
                objects.refused = Some(vendor);
            }
        }
        let own: *const u8 = (may_appear as fn() -> bool as *const ()).cast();
        let is_system = name.starts_with(b"libc.so") || name.starts_with(b"ld-linux");
        if !is_system && !holds(object, own) {
            objects.can_load |= calls_dlopen(object);
        }
    }
    0
}

/// Returns the program headers of an object. Safety: the linker passed the object.
unsafe fn headers(object: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    // SAFETY: the object has that many headers.
    unsafe { std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) }
}

/// Returns whether an address is in a segment of an object. Safety: the linker passed the object.
unsafe fn holds(object: &libc::dl_phdr_info, address: *const u8) -> bool {
    let at = (address.addr() as u64).wrapping_sub(object.dlpi_addr);
    // SAFETY: this function's contract.
    let mut segments = unsafe { headers(object) }.iter().filter(|h| h.p_type == libc::PT_LOAD);
    segments.any(|h| (h.p_vaddr..h.p_vaddr.saturating_add(h.p_memsz)).contains(&at))
}

/// Entries of a dynamic section (System V ABI, chapter 5).
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_PLTRELSZ: u64 = 2;
const DT_JMPREL: u64 = 23;

/// Relocation of an object: place, symbol and type, addend.
#[repr(C)]
struct Rela {
    offset: u64,
    info: u64,
    addend: i64,
}

/// Returns whether a relocation of an object names `dlopen` or `dlmopen`. Safety: the linker passed the object.
unsafe fn calls_dlopen(object: &libc::dl_phdr_info) -> bool {
    // SAFETY: the linker has mapped the object's dynamic section and the tables that it names.
    unsafe {
        let dynamic = headers(object).iter().find(|h| h.p_type == libc::PT_DYNAMIC);
        let Some(dynamic) = dynamic else { return false };
        // glibc relocates the addresses in the section, except in the vDSO, and musl does not.
        let place = |at: u64| match at < object.dlpi_addr {
            true => object.dlpi_addr.wrapping_add(at),
            false => at,
        };
        let start = object.dlpi_addr.wrapping_add(dynamic.p_vaddr);
        let mut entry = std::ptr::with_exposed_provenance::<[u64; 2]>(start as usize);
        let mut values = [0_u64; 24];
        while (*entry)[0] != 0 {
            if let Some(value) = values.get_mut((*entry)[0] as usize) {
                *value = (*entry)[1];
            }
            entry = entry.add(1);
        }
        let value = |tag: u64| values[tag as usize];
        if value(DT_STRTAB) == 0 || value(DT_SYMTAB) == 0 {
            return false;
        }
        let strings = std::ptr::with_exposed_provenance::<u8>(place(value(DT_STRTAB)) as usize);
        let symbols =
            std::ptr::with_exposed_provenance::<libc::Elf64_Sym>(place(value(DT_SYMTAB)) as usize);
        let tables = [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)];
        tables.into_iter().any(|(table, bytes)| {
            if value(table) == 0 {
                return false;
            }
            let first = std::ptr::with_exposed_provenance::<Rela>(place(value(table)) as usize);
            let count = value(bytes) as usize / size_of::<Rela>();
            std::slice::from_raw_parts(first, count).iter().any(|relocation| {
                let symbol = &*symbols.add((relocation.info >> 32) as usize);
                let name = CStr::from_ptr(strings.add(symbol.st_name as usize).cast());
                symbol.st_name != 0 && [c"dlopen", c"dlmopen"].contains(&name)
            })
        })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Passes the file name of each loaded object to the list, whether it is the test's, and whether it calls `dlopen`.
    unsafe extern "C" fn list_callers(
        object: *mut libc::dl_phdr_info, _: usize, found: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker passes an object that is valid during the call; the test passes a list.
        unsafe {
            let (object, found) = (&*object, &mut *found.cast::<Vec<(String, bool, bool)>>());
            let name = CStr::from_ptr(object.dlpi_name).to_string_lossy().into_owned();
            let own: *const u8 = (may_appear as fn() -> bool as *const ()).cast();
            found.push((name, holds(object, own), calls_dlopen(object)));
        }
        0
    }

    #[test]
    fn object__calls_dlopen__is_read_from_its_relocations() {
        let mut found: Vec<(String, bool, bool)> = Vec::new();
        // SAFETY: `list_callers` has the required type, and the list outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(list_callers), (&raw mut found).cast()) };
        // The test's own object calls `dlopen` to find the driver. The compiler's library does not.
        assert!(found.iter().any(|(_, own, calls)| *own && *calls), "{found:?}");
        assert!(!found.iter().any(|(name, _, calls)| name.contains("libgcc_s") && *calls));
    }
}
