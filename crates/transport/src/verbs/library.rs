//! libibverbs, loaded at run time, so that everything else works on a machine without it.
#![allow(unsafe_code)]

use super::abi::*;
use super::error::VerbsError;
use libc::{c_char, c_int, c_void, size_t, ssize_t};
use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};
use std::path::PathBuf;
use std::sync::OnceLock;

const SONAME: &str = "libibverbs.so.1";

macro_rules! functions {
    ($($name:ident $symbol:literal ($($arg:ty),*) -> $ret:ty;)*) => {
        /// Functions of the library, without posts and polls: those are the provider's functions, as in the header.
        pub struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) -> $ret,)*
            /// Rows of the GID table with their types; missing in old releases.
            pub(super) query_gid_ex: Option<QueryGidEx>,
            /// All filled rows of the GID table by one call; missing in old releases.
            pub(super) query_gid_table: Option<QueryGidTable>,
            /// Path of the loaded library.
            pub path: PathBuf,
        }

        impl Library {
            fn resolve(loaded: &Loaded, path: PathBuf) -> Result<Self, VerbsError> {
                Ok(Library {
                    $($name: find(loaded, $symbol)?,)*
                    query_gid_ex: find(loaded, "_ibv_query_gid_ex").ok(),
                    query_gid_table: find(loaded, "_ibv_query_gid_table").ok(),
                    path,
                })
            }
        }
    };
}

/// `_ibv_query_gid_ex`: context, port, index, entry, flags, size of the entry.
pub(super) type QueryGidEx =
    unsafe extern "C" fn(*mut Context, u32, u32, *mut GidEntry, u32, size_t) -> c_int;

/// `_ibv_query_gid_table`: context, entries, their number, flags, size of an entry; returns the filled ones.
pub(super) type QueryGidTable =
    unsafe extern "C" fn(*mut Context, *mut GidEntry, size_t, u32, size_t) -> ssize_t;

functions! {
    get_device_list "ibv_get_device_list" (*mut c_int) -> *mut *mut Device;
    free_device_list "ibv_free_device_list" (*mut *mut Device) -> ();
    open_device "ibv_open_device" (*mut Device) -> *mut Context;
    close_device "ibv_close_device" (*mut Context) -> c_int;
    query_device "ibv_query_device" (*mut Context, *mut DeviceAttr) -> c_int;
    query_port "ibv_query_port" (*mut Context, u8, *mut PortAttr) -> c_int;
    query_gid "ibv_query_gid" (*mut Context, u8, c_int, *mut Gid) -> c_int;
    alloc_pd "ibv_alloc_pd" (*mut Context) -> *mut Pd;
    dealloc_pd "ibv_dealloc_pd" (*mut Pd) -> c_int;
    reg_mr "ibv_reg_mr" (*mut Pd, *mut c_void, size_t, c_int) -> *mut Mr;
    dereg_mr "ibv_dereg_mr" (*mut Mr) -> c_int;
    create_comp_channel "ibv_create_comp_channel" (*mut Context) -> *mut CompChannel;
    destroy_comp_channel "ibv_destroy_comp_channel" (*mut CompChannel) -> c_int;
    create_cq "ibv_create_cq" (*mut Context, c_int, *mut c_void, *mut CompChannel,
        c_int) -> *mut Cq;
    destroy_cq "ibv_destroy_cq" (*mut Cq) -> c_int;
    get_cq_event "ibv_get_cq_event" (*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ack_cq_events "ibv_ack_cq_events" (*mut Cq, u32) -> ();
    create_srq "ibv_create_srq" (*mut Pd, *mut SrqInitAttr) -> *mut Srq;
    destroy_srq "ibv_destroy_srq" (*mut Srq) -> c_int;
    create_qp "ibv_create_qp" (*mut Pd, *mut QpInitAttr) -> *mut Qp;
    query_qp "ibv_query_qp" (*mut Qp, *mut QpAttr, c_int, *mut QpInitAttr) -> c_int;
    modify_qp "ibv_modify_qp" (*mut Qp, *mut QpAttr, c_int) -> c_int;
    destroy_qp "ibv_destroy_qp" (*mut Qp) -> c_int;
    create_ah "ibv_create_ah" (*mut Pd, *mut AhAttr) -> *mut Ah;
    destroy_ah "ibv_destroy_ah" (*mut Ah) -> c_int;
    get_async_event "ibv_get_async_event" (*mut Context, *mut AsyncEvent) -> c_int;
    ack_async_event "ibv_ack_async_event" (*mut AsyncEvent) -> ();
    wc_status_str "ibv_wc_status_str" (c_int) -> *const c_char;
}

fn find<T: Copy>(loaded: &Loaded, symbol: &str) -> Result<T, VerbsError> {
    // SAFETY: the types of the table are those of the header's declarations (`layout_tests` compares the structures),
    // and the library is never unloaded.
    let found = unsafe { loaded.get::<T>(symbol.as_bytes()) };
    found.map(|symbol| *symbol).map_err(|_| {
        VerbsError::NoLibrary(format!(
            "{SONAME} has no function {symbol}: install a newer rdma-core"
        ))
    })
}

impl Library {
    /// Library of this process, loaded by the first call.
    ///
    /// # Errors
    /// Message with the loader's error and the package to install.
    pub fn load() -> Result<&'static Library, VerbsError> {
        static LIBRARY: OnceLock<Result<Library, VerbsError>> = OnceLock::new();
        LIBRARY.get_or_init(|| Library::open(SONAME)).as_ref().map_err(Clone::clone)
    }

    fn open(name: &str) -> Result<Library, VerbsError> {
        // SAFETY: rdma-core's initializers only register providers.
        let loaded = unsafe { Loaded::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        let loaded = loaded.map_err(|error| {
            use std::error::Error;
            let said = error.source().map_or_else(|| error.to_string(), |s| s.to_string());
            VerbsError::NoLibrary(format!(
                "{said}; install rdma-core's libibverbs (Debian: libibverbs1, ibverbs-providers)"
            ))
        })?;
        let path = path_of(&loaded).unwrap_or_else(|| PathBuf::from(name));
        let library = Library::resolve(&loaded, path)?;
        // Never unload: providers have their own threads and tables.
        std::mem::forget(loaded);
        Ok(library)
    }
}

fn path_of(loaded: &Loaded) -> Option<PathBuf> {
    // SAFETY: only the symbol's address is used.
    let symbol = unsafe { loaded.get::<*const c_void>(b"ibv_open_device") }.ok()?;
    // SAFETY: all zeros is a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is writable; any address may be queried.
    if unsafe { libc::dladdr(*symbol, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the string belongs to the loader and lives as long as the library.
    let name = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(name.to_str().ok()?))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn open__of_a_library_that_is_not_there_says_what_to_install() {
        let error = Library::open("libibverbs-that-is-not-there.so.1").err().unwrap();
        let text = error.to_string();
        assert!(
            text.contains("libibverbs-that-is-not-there.so.1") && text.contains("install"),
            "{text}"
        );
    }

    #[test]
    fn open__of_another_library_names_what_it_lacks() {
        let error = Library::open("libc.so.6").err().unwrap().to_string();
        assert!(error.contains("ibv_get_device_list"), "{error}");
    }

    #[test]
    fn open__finds_the_path_of_the_installed_library() {
        // `tests/setup` installs the library, so the test requires it.
        let library = Library::load().map_err(|e| e.to_string()).unwrap();
        assert!(library.path.is_absolute(), "{}", library.path.display());
    }
}
