#![allow(unsafe_code)]
//! libpmix, loaded at run time, because most machines do not need it. Structures and functions are those of
//! pmix_common.h and pmix.h (PMIx standard 4, chapters 3 to 5). Their sizes are equal in releases 3.2 to 6.

use crate::detect::find_engine_process;
use crate::engine::error::EngineError;
use libc::{c_char, c_int, c_void, size_t};
use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};

const SONAME: &str = "libpmix.so.2";

/// Bytes of a namespace, including its final zero.
pub const NAMESPACE_BYTES: usize = 256;

/// Bytes of a key, including its final zero.
pub const KEY_BYTES: usize = 512;

/// Rank number that stands for all ranks (`PMIX_RANK_WILDCARD`).
pub const WILDCARD: u32 = 0xffff_fffe;

/// Scope of values for all processes (`PMIX_GLOBAL`).
pub const GLOBAL: u8 = 3;

/// `pmix_proc_t`: a process, named by namespace and rank.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Proc {
    namespace: [u8; NAMESPACE_BYTES],
    pub rank: u32,
}

impl Proc {
    pub const fn empty() -> Proc {
        Proc { namespace: [0; NAMESPACE_BYTES], rank: 0 }
    }

    pub fn with_rank(&self, rank: u32) -> Proc {
        Proc { rank, ..*self }
    }

    /// Makes a process of that namespace; a long name is cut.
    #[cfg(test)]
    pub fn named(namespace: &str, rank: u32) -> Proc {
        let mut proc = Proc { rank, ..Proc::empty() };
        let bytes = namespace.bytes().take(NAMESPACE_BYTES - 1);
        let places = proc.namespace.iter_mut();
        places.zip(bytes).for_each(|(to, from)| *to = from);
        proc
    }

    pub fn room_for_namespace(&mut self) -> *mut c_char {
        self.namespace.as_mut_ptr().cast()
    }

    /// Returns the namespace: the engine's name of the job.
    pub fn namespace(&self) -> String {
        let name = CStr::from_bytes_until_nul(&self.namespace).unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// `pmix_byte_object_t`: an array of bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ByteObject {
    pub data: *mut c_void,
    pub size: size_t,
}

/// Content of a value, for the types used here.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Data {
    pub number: u64,
    pub text: *const c_char,
    pub process: *const Proc,
    pub array: *const DataArray,
    pub bytes: ByteObject,
    room: [u64; 3],
}

/// `pmix_value_t`: a value with its type.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PmixValue {
    pub kind: u16,
    pub data: Data,
}

/// `pmix_info_t`: an attribute, which is a key with a value.
#[repr(C)]
pub struct PmixInfo {
    key: [u8; KEY_BYTES],
    flags: u32,
    /// Value passed or found.
    pub value: PmixValue,
}

impl PmixInfo {
    fn new(key: &[u8], value: PmixValue) -> PmixInfo {
        PmixInfo { key: to_key(key), flags: 0, value }
    }

    pub fn flag(key: &str) -> PmixInfo {
        let data = Data { number: 1 };
        PmixInfo::new(key.as_bytes(), PmixValue { kind: BOOL, data })
    }

    /// Makes an attribute whose value is `text`. It stores only a pointer, so `text` must outlive the result.
    pub fn text(key: &str, text: &CStr) -> PmixInfo {
        let data = Data { text: text.as_ptr() };
        PmixInfo::new(key.as_bytes(), PmixValue { kind: STRING, data })
    }

    /// Makes an attribute whose value is `bytes`. It stores only a pointer, so `bytes` must outlive the result.
    pub fn bytes(key: &[u8], bytes: &[u8]) -> PmixInfo {
        PmixInfo::new(key, PmixValue::of_bytes(bytes))
    }
}

/// Makes a key; a long one is cut.
fn to_key(key: &[u8]) -> [u8; KEY_BYTES] {
    let mut name = [0; KEY_BYTES];
    let bytes = key.iter().take(KEY_BYTES - 1);
    name.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
    name
}

/// `pmix_pdata_t`: a lookup.
#[repr(C)]
pub struct PmixLookup {
    owner: Proc,
    key: [u8; KEY_BYTES],
    /// Value found.
    pub value: PmixValue,
}

impl PmixLookup {
    pub fn wanted(key: &[u8]) -> PmixLookup {
        PmixLookup { owner: Proc::empty(), key: to_key(key), value: PmixValue::empty() }
    }
}

/// `pmix_query_t`: a query to the engine.
#[repr(C)]
pub struct Query {
    keys: *const *const c_char,
    qualifiers: *const PmixInfo,
    qualifier_count: size_t,
}

impl Query {
    /// Makes a query for these keys. The list ends in null, and both lists must outlive the result.
    pub fn of(keys: &[*const c_char], qualifiers: &[PmixInfo]) -> Query {
        let list = match qualifiers {
            [] => std::ptr::null(),
            some => some.as_ptr(),
        };
        Query { keys: keys.as_ptr(), qualifiers: list, qualifier_count: qualifiers.len() }
    }
}

/// `pmix_data_array_t`: an array with the type of its elements.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DataArray {
    kind: u16,
    size: size_t,
    array: *const c_void,
}

/// `pmix_app_t`: a program to start. The library may replace the lists, which are on C's heap and are freed when the
/// value is dropped.
#[repr(C)]
pub struct App {
    command: *mut c_char,
    arguments: *mut *mut c_char,
    variables: *mut *mut c_char,
    folder: *mut c_char,
    most: c_int,
    infos: *const PmixInfo,
    info_count: size_t,
}

impl App {
    /// Makes a program from its words, variables as `NAME=VALUE`, its folder, the number of processes, and further
    /// information, which must outlive the result.
    pub fn new(
        words: &[CString], variables: &[CString], folder: Option<&CStr>, most: c_int,
        infos: &[PmixInfo],
    ) -> App {
        let copy = |text: &CStr| {
            // SAFETY: the text is a C string.
            unsafe { libc::strdup(text.as_ptr()) }
        };
        App {
            command: words.first().map_or(std::ptr::null_mut(), |word| copy(word)),
            arguments: copy_list(words),
            variables: copy_list(variables),
            folder: folder.map_or(std::ptr::null_mut(), copy),
            most,
            // Some releases treat a list without a length as terminated, and search for its end.
            infos: match infos {
                [] => std::ptr::null(),
                infos => infos.as_ptr(),
            },
            info_count: infos.len(),
        }
    }
}

impl Drop for App {
    fn drop(&mut self) {
        for list in [self.arguments, self.variables] {
            let mut at = list;
            // SAFETY: the list is null, or an array of strings that ends in null. Array and strings are on C's heap.
            unsafe {
                while !at.is_null() && !(*at).is_null() {
                    libc::free((*at).cast());
                    at = at.add(1);
                }
                libc::free(list.cast());
            }
        }
        for text in [self.command, self.folder] {
            // SAFETY: `text` is null or a string on C's heap.
            unsafe { libc::free(text.cast()) };
        }
    }
}

/// Copies the strings to C's heap, as a list that ends in null. Returns null if memory is short.
fn copy_list(texts: &[CString]) -> *mut *mut c_char {
    // SAFETY: calloc fills the list with null pointers, so the list ends in null wherever copying stops.
    unsafe {
        let list: *mut *mut c_char = libc::calloc(texts.len() + 1, size_of::<*mut c_char>()).cast();
        if !list.is_null() {
            for (at, text) in texts.iter().enumerate() {
                *list.add(at) = libc::strdup(text.as_ptr());
            }
        }
        list
    }
}

const _: () = {
    assert!(size_of::<Proc>() == 260);
    assert!(size_of::<PmixValue>() == 32);
    assert!(size_of::<PmixInfo>() == 552);
    assert!(size_of::<App>() == 56);
    assert!(size_of::<PmixLookup>() == 808);
    assert!(size_of::<Query>() == 24);
    assert!(size_of::<DataArray>() == 24);
};

const BOOL: u16 = 1;
const STRING: u16 = 3;
const PROC: u16 = 22;
const DATA_ARRAY: u16 = 39;
/// Largest number of processes read from a set. A larger set is not one of a Fastpath job.
const PROCESSES_MOST: usize = 1 << 24;
/// `PMIX_BYTE_OBJECT`.
pub const BYTE_OBJECT: u16 = 27;
/// `PMIX_SUCCESS`.
pub const SUCCESS: c_int = 0;
/// `PMIX_ERR_NOT_FOUND`.
pub const NOT_FOUND: c_int = -46;
/// `PMIX_ERR_NOT_SUPPORTED`.
pub const NOT_SUPPORTED: c_int = -47;
/// `PMIX_ERR_DUPLICATE_KEY`.
pub const DUPLICATE_KEY: c_int = -53;

/// Largest value read, in bytes. A larger value is not Fastpath's.
const VALUE_MOST: usize = 16 << 20;

impl PmixValue {
    pub const fn empty() -> PmixValue {
        PmixValue { kind: 0, data: Data { room: [0; 3] } }
    }

    /// Makes a value of `bytes`. It stores only a pointer, so `bytes` must outlive the result.
    pub fn of_bytes(bytes: &[u8]) -> PmixValue {
        let bytes = ByteObject { data: bytes.as_ptr().cast_mut().cast(), size: bytes.len() };
        PmixValue { kind: BYTE_OBJECT, data: Data { bytes } }
    }

    /// Returns the bytes of a value made by the library; `None` for another type.
    pub fn read_bytes(&self) -> Option<Vec<u8>> {
        if self.kind != BYTE_OBJECT {
            return None;
        }
        // SAFETY: the kind shows that bytes were written.
        let ByteObject { data, size } = unsafe { self.data.bytes };
        match size {
            0 => Some(Vec::new()),
            1..=VALUE_MOST if !data.is_null() => {
                // SAFETY: the library's memory at `data` has `size` bytes, and is valid until the value is released.
                Some(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) }.to_vec())
            }
            _ => None,
        }
    }

    /// Returns the text of a value made by the library.
    pub fn read_text(&self) -> Option<String> {
        if self.kind != STRING {
            return None;
        }
        // SAFETY: the kind shows that a text was written.
        let text = unsafe { self.data.text };
        if text.is_null() {
            return None;
        }
        // SAFETY: `text` is a C string of the library, valid until the value is released.
        let text = unsafe { CStr::from_ptr(text) };
        Some(text.to_string_lossy().into_owned())
    }

    /// Returns the process named by a value of the library.
    pub fn process(&self) -> Option<Proc> {
        if self.kind != PROC {
            return None;
        }
        // SAFETY: the kind shows that a process of the library was written.
        unsafe { self.data.process.as_ref() }.copied()
    }

    /// Returns the processes listed by a value of the library.
    pub fn processes(&self) -> Option<Vec<Proc>> {
        if self.kind != DATA_ARRAY {
            return None;
        }
        // SAFETY: the kind shows that an array of the library was written.
        let list = unsafe { self.data.array.as_ref() }?;
        match (list.kind, list.size) {
            (_, 0) => Some(Vec::new()),
            (PROC, 1..=PROCESSES_MOST) if !list.array.is_null() => {
                // SAFETY: by its kind the array has `size` processes, valid until the value is released.
                Some(unsafe { std::slice::from_raw_parts(list.array.cast(), list.size) }.to_vec())
            }
            _ => None,
        }
    }

    /// Returns the value as a nonnegative number. Every integer type is accepted, because engines differ.
    pub fn number(&self) -> Option<u64> {
        // SAFETY: the kind shows which member was written, and only its bytes are used.
        let bits = unsafe { self.data.number };
        let bytes = match self.kind {
            // PMIX_BYTE, INT8, UINT8
            2 | 7 | 12 => 1,
            // PMIX_INT16, UINT16
            8 | 13 => 2,
            // PMIX_INT, INT32, UINT, UINT32, PROC_RANK
            6 | 9 | 11 | 14 | 40 => 4,
            // PMIX_SIZE, INT64, UINT64
            4 | 10 | 15 => 8,
            _ => return None,
        };
        let number = bits & (u64::MAX >> (64 - 8 * bytes));
        let is_signed = matches!(self.kind, 6..=10);
        let is_negative = is_signed && number >> (8 * bytes - 1) != 0;
        (!is_negative).then_some(number)
    }
}

type AskEngine =
    unsafe extern "C" fn(*const Query, size_t, *mut *mut PmixInfo, *mut size_t) -> c_int;

macro_rules! functions {
    ($($name:ident $symbol:literal ($($arg:ty),*) -> $ret:ty;)*) => {
        pub struct Library {
            $(pub $name: unsafe extern "C" fn($($arg),*) -> $ret,)*
            /// Queries the engine; `None` in releases before 4.
            pub query: Option<AskEngine>,
        }

        impl Library {
            fn resolve(loaded: &Loaded) -> Result<Library, EngineError> {
                Ok(Library {
                    $($name: find(loaded, $symbol)?,)*
                    query: find(loaded, "PMIx_Query_info").ok(),
                })
            }
        }
    };
}

functions! {
    init "PMIx_Init" (*mut Proc, *const PmixInfo, size_t) -> c_int;
    put "PMIx_Put" (u8, *const c_char, *mut PmixValue) -> c_int;
    commit "PMIx_Commit" () -> c_int;
    fence "PMIx_Fence" (*const Proc, size_t, *const PmixInfo, size_t) -> c_int;
    get "PMIx_Get"
       (*const Proc, *const c_char, *const PmixInfo, size_t, *mut *mut PmixValue) -> c_int;
    abort "PMIx_Abort" (c_int, *const c_char, *const Proc, size_t) -> c_int;
    finalize "PMIx_Finalize" (*const PmixInfo, size_t) -> c_int;
    spawn "PMIx_Spawn" (*const PmixInfo, size_t, *mut App, size_t, *mut c_char) -> c_int;
    publish "PMIx_Publish" (*const PmixInfo, size_t) -> c_int;
    look_up "PMIx_Lookup" (*mut PmixLookup, size_t, *const PmixInfo, size_t) -> c_int;
    unpublish "PMIx_Unpublish" (*const *const c_char, *const PmixInfo, size_t) -> c_int;
    value_destruct "PMIx_Value_destruct" (*mut PmixValue) -> ();
    error_string "PMIx_Error_string" (c_int) -> *const c_char;
}

fn find<T: Copy>(loaded: &Loaded, symbol: &str) -> Result<T, EngineError> {
    // SAFETY: the table's types are those of the header's declarations, and the library is never unloaded.
    let found = unsafe { loaded.get::<T>(symbol.as_bytes()) };
    let missing = |_| {
        EngineError::Library(format!("{SONAME} has no function {symbol}: install a newer PMIx"))
    };
    found.map(|symbol| *symbol).map_err(missing)
}

impl Library {
    /// Loads the library, by its name or from the launcher's file. Errors: the loader's error, and what to install.
    pub fn load() -> Result<Library, EngineError> {
        let mut said = String::new();
        for file in list_places() {
            // SAFETY: the library's initialisers only register its own components.
            match unsafe { Loaded::open(Some(&file), RTLD_NOW | RTLD_LOCAL) } {
                Ok(loaded) => {
                    let library = Library::resolve(&loaded)?;
                    // The library has threads and handlers, so it stays loaded.
                    std::mem::forget(loaded);
                    return Ok(library);
                }
                Err(error) => {
                    use std::error::Error;
                    let source = error.source().map(|source| source.to_string());
                    said = source.unwrap_or_else(|| error.to_string());
                }
            }
        }
        Err(EngineError::Library(format!(
            "PMIx's library cannot be loaded: {said}; install the library (Debian: libpmix2), or \
             add the folder that contains the library to LD_LIBRARY_PATH"
        )))
    }

    /// Returns the library's text of a status.
    pub fn describe(&self, status: c_int) -> String {
        // SAFETY: any status is allowed; the text is the library's.
        let text = unsafe { (self.error_string)(status) };
        if text.is_null() {
            return status.to_string();
        }
        // SAFETY: `text` is a C string that is valid as long as the library.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{} ({status})", text.to_string_lossy())
    }
}

/// Returns the possible paths of the library. First comes the file that the launcher's process uses, because releases
/// are not always compatible; then the launcher's prefix; then the loader's search path.
fn list_places() -> Vec<PathBuf> {
    let engine = find_engine_process().unwrap_or_else(std::os::unix::process::parent_id);
    let maps = std::fs::read_to_string(format!("/proc/{engine}/maps")).unwrap_or_default();
    let prefix = std::env::var_os("PMIX_PREFIX").map(PathBuf::from);
    let prefix = prefix.filter(|prefix| prefix.is_absolute());
    let moved = prefix.map(|prefix| prefix.join("lib").join(SONAME));
    let named = PathBuf::from(SONAME);
    find_mapped(&maps).into_iter().chain(moved).chain([named]).collect()
}

/// Finds the library among the files that a process has mapped (proc_pid_maps(5)).
fn find_mapped(maps: &str) -> Option<PathBuf> {
    let mut files = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
    let found = files.find(|file| {
        let name = Path::new(file).file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(SONAME))
    });
    found.map(PathBuf::from)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn number__is_read_by_its_type_and_never_negative() {
        let value = |kind, number| PmixValue { kind, data: Data { number } };
        assert_eq!(value(14, 0xffff_ffff_0000_0007).number(), Some(7));
        assert_eq!(value(6, 0xffff_0000_0000_0003).number(), Some(3));
        assert_eq!(value(6, u64::MAX).number(), None);
        assert_eq!(value(15, u64::MAX).number(), Some(u64::MAX));
        assert_eq!(value(13, 0x1_0005).number(), Some(5));
        assert_eq!(value(3, 5).number(), None);
    }

    #[test]
    fn value__is_read_as_what_it_is() {
        let bytes = PmixValue::of_bytes(b"abc");
        assert_eq!(bytes.read_bytes().unwrap(), b"abc");
        assert_eq!(PmixValue::of_bytes(b"").read_bytes().unwrap(), b"");
        assert_eq!(PmixValue::empty().read_bytes(), None);
        let procs = [Proc::named("a", 1), Proc::named("b", 2)];
        let list = DataArray { kind: PROC, size: procs.len(), array: procs.as_ptr().cast() };
        let listed = PmixValue { kind: DATA_ARRAY, data: Data { array: &list } };
        let ranks =
            |value: &PmixValue| value.processes().map(|all| all.iter().map(|p| p.rank).collect());
        assert_eq!(ranks(&listed), Some(vec![1, 2]));
        let odd = DataArray { kind: STRING, ..list };
        let listed = PmixValue { kind: DATA_ARRAY, data: Data { array: &odd } };
        assert_eq!((ranks(&listed), ranks(&PmixValue::empty())), (None, None));
        let text = PmixInfo::text("key", c"a@1,a@2").value;
        assert_eq!(text.read_text().unwrap(), "a@1,a@2");
        assert_eq!(bytes.read_text(), None);
        assert!(bytes.process().is_none());
        let parent = Proc::named("job@1", 7);
        let process = PmixValue { kind: PROC, data: Data { process: &parent } };
        assert_eq!(process.process().unwrap().rank, 7);
        assert_eq!(process.read_bytes(), None);
    }

    #[test]
    fn app__has_lists_of_its_own_that_end_in_null() {
        let words = [c"prog".to_owned(), c"two words".to_owned()];
        let app = App::new(&words, &[], Some(c"/tmp"), 2, &[]);
        // SAFETY: strings and lists are those that the constructor made.
        unsafe {
            assert_eq!(CStr::from_ptr(app.command), c"prog");
            assert_eq!(CStr::from_ptr(*app.arguments.add(1)), c"two words");
            assert!((*app.arguments.add(2)).is_null() && (*app.variables).is_null());
            assert_eq!(CStr::from_ptr(app.folder), c"/tmp");
        }
        let plain = App::new(&words, &words, None, 1, &[]);
        assert!(plain.folder.is_null() && plain.infos.is_null());
    }

    #[test]
    fn library__is_found_where_the_launcher_has_it() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 12   /usr/lib/libc.so.6\n\
                    7f02-7f03 r--p 00000000 08:01 13   /opt/a b/lib/libpmix.so.2.13.4\n";
        let found = find_mapped(maps);
        assert_eq!(found, Some("/opt/a b/lib/libpmix.so.2.13.4".into()));
        assert_eq!(find_mapped("7f00-7f01 rw-p 0 0:0 0 [heap]"), None);
        assert_eq!(list_places().last().unwrap(), Path::new(SONAME));
    }

    #[test]
    fn namespace__ends_at_its_zero() {
        assert_eq!(Proc::empty().namespace(), "");
        let mut proc = Proc::named("job@1", 0);
        assert_eq!(proc.with_rank(3).namespace(), "job@1");
        proc.namespace = [b'x'; NAMESPACE_BYTES];
        assert_eq!(proc.namespace(), "", "no zero is no text");
    }
}
