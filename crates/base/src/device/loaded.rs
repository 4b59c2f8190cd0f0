//! Drivers that the process has loaded.
#![allow(unsafe_code)]

use super::cuda::Driver;
use crate::loaded_objects::{LoadedObject, visit_objects};
use crate::sync::{StaticOrdering, StaticUsize};
use std::ffi::CStr;
use std::ops::ControlFlow;
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
    let mut loads = 0;
    visit_objects(|object| {
        loads = object.loads();
        ControlFlow::Break(())
    });
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
        visit_objects(|object| {
            objects.add(object);
            ControlFlow::Continue(())
        });
        objects
    }

    fn add(&mut self, object: &LoadedObject<'_>) {
        let path = object.path();
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        for (file, vendor) in REFUSED {
            if name.starts_with(file) {
                self.refused = Some(vendor);
            }
        }
        let is_system = name.starts_with(b"libc.so") || name.starts_with(b"ld-linux");
        if !is_system && !object.holds(own_address()) {
            self.can_load |= calls_dlopen(object);
        }
    }
}

/// Returns an address of this library.
fn own_address() -> usize {
    own_address as *const () as usize
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

/// Returns whether a relocation of an object names `dlopen` or `dlmopen`.
fn calls_dlopen(object: &LoadedObject<'_>) -> bool {
    // SAFETY: the linker has mapped the object's dynamic section and the tables that it names.
    unsafe {
        let dynamic = object.headers().iter().find(|h| h.p_type == libc::PT_DYNAMIC);
        let Some(dynamic) = dynamic else { return false };
        // glibc relocates the addresses in the section, except in the vDSO, and musl does not.
        let place = |at: u64| match at < object.base() {
            true => object.base().wrapping_add(at),
            false => at,
        };
        let start = object.base().wrapping_add(dynamic.p_vaddr);
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

    #[test]
    fn object__calls_dlopen__is_read_from_its_relocations() {
        let mut found: Vec<(String, bool, bool)> = Vec::new();
        visit_objects(|object| {
            let name = String::from_utf8_lossy(object.path()).into_owned();
            found.push((name, object.holds(own_address()), calls_dlopen(object)));
            ControlFlow::Continue(())
        });
        // The test's own object calls `dlopen` to find the driver. The compiler's library does not.
        assert!(found.iter().any(|(_, own, calls)| *own && *calls), "{found:?}");
        assert!(!found.iter().any(|(name, _, calls)| name.contains("libgcc_s") && *calls));
    }
}
