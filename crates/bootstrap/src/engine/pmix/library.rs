#![allow(unsafe_code)]
//! libpmix, loaded at run time: a machine without it runs everything else. Structures and functions are those of
//! pmix_common.h and pmix.h (PMIx standard 4, chapters 3 to 5); their sizes have been the same from release 3.2 to 6.

use crate::engine::EngineError;
use crate::job::find_engine_process;
use libc::{c_char, c_int, c_void, size_t};
use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};

/// The name under which OpenPMIx installs the library, in all releases since 3.
const SONAME: &str = "libpmix.so.2";

/// Bytes of a namespace with the zero behind it.
pub const NAMESPACE_BYTES: usize = 256;

/// Bytes of a key with the zero behind it.
pub const KEY_BYTES: usize = 512;

/// Stands for all ranks.
pub const WILDCARD: u32 = 0xffff_fffe;

/// Everybody may read it (`PMIX_GLOBAL`).
pub const GLOBAL: u8 = 3;

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Proc {
    namespace: [u8; NAMESPACE_BYTES],
    /// The rank.
    pub rank: u32,
}

impl Proc {
    /// Room for one.
    pub const fn empty() -> Proc {
        Proc { namespace: [0; NAMESPACE_BYTES], rank: 0 }
    }

    /// Another rank of the same namespace.
    pub fn with_rank(&self, rank: u32) -> Proc {
        Proc { rank, ..*self }
    }

    /// A process of that name; what is too long is cut.
    #[cfg(test)]
    pub fn named(namespace: &str, rank: u32) -> Proc {
        let mut proc = Proc { rank, ..Proc::empty() };
        let bytes = namespace.bytes().take(NAMESPACE_BYTES - 1);
        let places = proc.namespace.iter_mut();
        places.zip(bytes).for_each(|(to, from)| *to = from);
        proc
    }

    /// Where the library writes a namespace.
    pub fn room_for_namespace(&mut self) -> *mut c_char {
        self.namespace.as_mut_ptr().cast()
    }

    /// The namespace: what the engine calls the job.
    pub fn namespace(&self) -> String {
        let name = CStr::from_bytes_until_nul(&self.namespace).unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// `pmix_byte_object_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bytes {
    pub data: *mut c_void,
    pub size: size_t,
}

/// What a value can be, of the types that are used here.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Data {
    pub number: u64,
    pub text: *const c_char,
    pub process: *const Proc,
    pub array: *const DataArray,
    pub bytes: Bytes,
    room: [u64; 3],
}

/// `pmix_value_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Value {
    pub kind: u16,
    pub data: Data,
}

/// `pmix_info_t`.
#[repr(C)]
pub struct Info {
    key: [u8; KEY_BYTES],
    flags: u32,
    /// What is said, or was found.
    pub value: Value,
}

impl Info {
    fn new(key: &[u8], value: Value) -> Info {
        Info { key: to_key(key), flags: 0, value }
    }

    /// A flag that is set.
    pub fn flag(key: &str) -> Info {
        let data = Data { number: 1 };
        Info::new(key.as_bytes(), Value { kind: BOOL, data })
    }

    /// A text, which must live as long as this.
    pub fn text(key: &str, text: &CStr) -> Info {
        let data = Data { text: text.as_ptr() };
        Info::new(key.as_bytes(), Value { kind: STRING, data })
    }

    /// Bytes, which must live as long as this.
    pub fn bytes(key: &[u8], bytes: &[u8]) -> Info {
        Info::new(key, Value::of_bytes(bytes))
    }
}

/// A key; what is too long is cut.
fn to_key(key: &[u8]) -> [u8; KEY_BYTES] {
    let mut name = [0; KEY_BYTES];
    let bytes = key.iter().take(KEY_BYTES - 1);
    name.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
    name
}

/// `pmix_pdata_t`: what is looked up.
#[repr(C)]
pub struct Published {
    owner: Proc,
    key: [u8; KEY_BYTES],
    /// What was found.
    pub value: Value,
}

impl Published {
    /// What is looked for.
    pub fn wanted(key: &[u8]) -> Published {
        Published { owner: Proc::empty(), key: to_key(key), value: Value::empty() }
    }
}

/// `pmix_query_t`: a question to the engine.
#[repr(C)]
pub struct Query {
    keys: *const *const c_char,
    qualifiers: *const Info,
    qualifier_count: size_t,
}

impl Query {
    /// The one about these keys; the list ends in null, and both lists must live as long as this.
    pub fn of(keys: &[*const c_char], qualifiers: &[Info]) -> Query {
        let list = match qualifiers {
            [] => std::ptr::null(),
            some => some.as_ptr(),
        };
        Query { keys: keys.as_ptr(), qualifiers: list, qualifier_count: qualifiers.len() }
    }
}

/// `pmix_data_array_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DataArray {
    kind: u16,
    size: size_t,
    array: *const c_void,
}

/// `pmix_app_t`: a program that is to be started. The library may put other lists of its own in place of these, so
/// they lie on C's heap, and what is there in the end is given back.
#[repr(C)]
pub struct App {
    command: *mut c_char,
    arguments: *mut *mut c_char,
    variables: *mut *mut c_char,
    folder: *mut c_char,
    most: c_int,
    infos: *const Info,
    info_count: size_t,
}

impl App {
    /// A program, its words, variables as `NAME=VALUE`, the folder that it starts in, how many processes, and further
    /// information, which must live as long as this.
    pub fn new(
        words: &[CString], variables: &[CString], folder: Option<&CStr>, most: c_int,
        infos: &[Info],
    ) -> App {
        let copy = |text: &CStr| {
            // SAFETY: a C string.
            unsafe { libc::strdup(text.as_ptr()) }
        };
        App {
            command: words.first().map_or(std::ptr::null_mut(), |word| copy(word)),
            arguments: copy_list(words),
            variables: copy_list(variables),
            folder: folder.map_or(std::ptr::null_mut(), copy),
            most,
            // Some releases look for an end behind a list without a length.
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
            // SAFETY: null, or an array on C's heap of strings on C's heap that ends in null.
            unsafe {
                while !at.is_null() && !(*at).is_null() {
                    libc::free((*at).cast());
                    at = at.add(1);
                }
                libc::free(list.cast());
            }
        }
        for text in [self.command, self.folder] {
            // SAFETY: null, or a string on C's heap.
            unsafe { libc::free(text.cast()) };
        }
    }
}

/// Copies of these strings on C's heap, with null behind them; null where there is no memory.
fn copy_list(texts: &[CString]) -> *mut *mut c_char {
    // SAFETY: zeros are null pointers, so that the list has its end wherever copying ends.
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
    assert!(size_of::<Value>() == 32);
    assert!(size_of::<Info>() == 552);
    assert!(size_of::<App>() == 56);
    assert!(size_of::<Published>() == 808);
    assert!(size_of::<Query>() == 24);
    assert!(size_of::<DataArray>() == 24);
};

/// `PMIX_BOOL`.
const BOOL: u16 = 1;
/// `PMIX_STRING`.
const STRING: u16 = 3;
/// `PMIX_PROC`.
const PROC: u16 = 22;
/// `PMIX_DATA_ARRAY`.
const DATA_ARRAY: u16 = 39;
/// Most processes of a set that is read: a larger one is not ours.
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

/// Most bytes of a value that is read: a larger one is not ours.
const VALUE_MOST: usize = 16 << 20;

impl Value {
    /// Room for one (`PMIX_UNDEF`).
    pub const fn empty() -> Value {
        Value { kind: 0, data: Data { room: [0; 3] } }
    }

    /// Bytes, which must live as long as this.
    pub fn of_bytes(bytes: &[u8]) -> Value {
        let bytes = Bytes { data: bytes.as_ptr().cast_mut().cast(), size: bytes.len() };
        Value { kind: BYTE_OBJECT, data: Data { bytes } }
    }

    /// The bytes of a value that the library has made; None where it is of another type.
    pub fn read_bytes(&self) -> Option<Vec<u8>> {
        if self.kind != BYTE_OBJECT {
            return None;
        }
        // SAFETY: the kind says that bytes were written.
        let Bytes { data, size } = unsafe { self.data.bytes };
        match size {
            0 => Some(Vec::new()),
            1..=VALUE_MOST if !data.is_null() => {
                // SAFETY: the library's own memory, of that length, until the value is released.
                Some(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) }.to_vec())
            }
            _ => None,
        }
    }

    /// The text of a value that the library has made.
    pub fn read_text(&self) -> Option<String> {
        if self.kind != STRING {
            return None;
        }
        // SAFETY: the kind says that a text was written.
        let text = unsafe { self.data.text };
        if text.is_null() {
            return None;
        }
        // SAFETY: a C string of the library's own, until the value is released.
        let text = unsafe { CStr::from_ptr(text) };
        Some(text.to_string_lossy().into_owned())
    }

    /// The process that a value of the library names.
    pub fn process(&self) -> Option<Proc> {
        if self.kind != PROC {
            return None;
        }
        // SAFETY: the kind says that a process was written, which is the library's own.
        unsafe { self.data.process.as_ref() }.copied()
    }

    /// The processes that a value of the library lists.
    pub fn processes(&self) -> Option<Vec<Proc>> {
        if self.kind != DATA_ARRAY {
            return None;
        }
        // SAFETY: the kind says that an array was written, which is the library's own.
        let list = unsafe { self.data.array.as_ref() }?;
        match (list.kind, list.size) {
            (_, 0) => Some(Vec::new()),
            (PROC, 1..=PROCESSES_MOST) if !list.array.is_null() => {
                // SAFETY: its kind says that so many processes lie there, until the value is released.
                Some(unsafe { std::slice::from_raw_parts(list.array.cast(), list.size) }.to_vec())
            }
            _ => None,
        }
    }

    /// As a number that is not negative, whatever the type: engines differ.
    pub fn number(&self) -> Option<u64> {
        // SAFETY: the kind says which member was written; each reading of it is of bytes that are there.
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

/// `PMIx_Query_info`.
type AskEngine = unsafe extern "C" fn(*const Query, size_t, *mut *mut Info, *mut size_t) -> c_int;

/// Defines the table of functions and its loading together.
macro_rules! functions {
    ($($name:ident $symbol:literal ($($arg:ty),*) -> $ret:ty;)*) => {
        /// The library's functions.
        pub struct Library {
            $(pub $name: unsafe extern "C" fn($($arg),*) -> $ret,)*
            /// Asks the engine something; None in releases before 4.
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
    init "PMIx_Init" (*mut Proc, *const Info, size_t) -> c_int;
    put "PMIx_Put" (u8, *const c_char, *mut Value) -> c_int;
    commit "PMIx_Commit" () -> c_int;
    fence "PMIx_Fence" (*const Proc, size_t, *const Info, size_t) -> c_int;
    get "PMIx_Get" (*const Proc, *const c_char, *const Info, size_t, *mut *mut Value) -> c_int;
    abort "PMIx_Abort" (c_int, *const c_char, *const Proc, size_t) -> c_int;
    finalize "PMIx_Finalize" (*const Info, size_t) -> c_int;
    spawn "PMIx_Spawn" (*const Info, size_t, *mut App, size_t, *mut c_char) -> c_int;
    publish "PMIx_Publish" (*const Info, size_t) -> c_int;
    look_up "PMIx_Lookup" (*mut Published, size_t, *const Info, size_t) -> c_int;
    unpublish "PMIx_Unpublish" (*const *const c_char, *const Info, size_t) -> c_int;
    value_destruct "PMIx_Value_destruct" (*mut Value) -> ();
    error_string "PMIx_Error_string" (c_int) -> *const c_char;
}

fn find<T: Copy>(loaded: &Loaded, symbol: &str) -> Result<T, EngineError> {
    // SAFETY: the types of the table are those of the header's declarations, and the library is never unloaded.
    let found = unsafe { loaded.get::<T>(symbol.as_bytes()) };
    let missing = |_| EngineError::Library(format!("{SONAME} has no {symbol}"));
    found.map(|symbol| *symbol).map_err(missing)
}

impl Library {
    /// Loads the library: by its name, or from where the launcher has its own.
    ///
    /// # Errors
    /// What the loader said, and what to install.
    pub fn load() -> Result<Library, EngineError> {
        let mut said = String::new();
        for file in list_places() {
            // SAFETY: the library's initialisers register its own components alone.
            match unsafe { Loaded::open(Some(&file), RTLD_NOW | RTLD_LOCAL) } {
                Ok(loaded) => {
                    let library = Library::resolve(&loaded)?;
                    // It has threads and handlers of its own: it stays.
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
            "PMIx's library cannot be loaded: {said}; install it (Debian: libpmix2) or name its \
             folder in LD_LIBRARY_PATH"
        )))
    }

    /// What the library calls a status.
    pub fn describe(&self, status: c_int) -> String {
        // SAFETY: any status may be asked about; the text is the library's own.
        let text = unsafe { (self.error_string)(status) };
        if text.is_null() {
            return status.to_string();
        }
        // SAFETY: a C string that lives as long as the library.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{} ({status})", text.to_string_lossy())
    }
}

/// Where the library may be, in this order: the file that the launcher's process uses itself, as releases do not always
/// understand each other in all they say; where the launcher says that it was moved to; where the loader finds it.
fn list_places() -> Vec<PathBuf> {
    let engine = find_engine_process().unwrap_or_else(std::os::unix::process::parent_id);
    let maps = std::fs::read_to_string(format!("/proc/{engine}/maps")).unwrap_or_default();
    let prefix = std::env::var_os("PMIX_PREFIX").map(PathBuf::from);
    let prefix = prefix.filter(|prefix| prefix.is_absolute());
    let moved = prefix.map(|prefix| prefix.join("lib").join(SONAME));
    let named = PathBuf::from(SONAME);
    find_mapped(&maps).into_iter().chain(moved).chain([named]).collect()
}

/// The library among the files that a process has mapped (proc_pid_maps(5)).
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
        let value = |kind, number| Value { kind, data: Data { number } };
        assert_eq!(value(14, 0xffff_ffff_0000_0007).number(), Some(7));
        assert_eq!(value(6, 0xffff_0000_0000_0003).number(), Some(3));
        assert_eq!(value(6, u64::MAX).number(), None);
        assert_eq!(value(15, u64::MAX).number(), Some(u64::MAX));
        assert_eq!(value(13, 0x1_0005).number(), Some(5));
        assert_eq!(value(3, 5).number(), None);
    }

    #[test]
    fn value__is_read_as_what_it_is() {
        let bytes = Value::of_bytes(b"abc");
        assert_eq!(bytes.read_bytes().unwrap(), b"abc");
        assert_eq!(Value::of_bytes(b"").read_bytes().unwrap(), b"");
        assert_eq!(Value::empty().read_bytes(), None);
        let procs = [Proc::named("a", 1), Proc::named("b", 2)];
        let list = DataArray { kind: PROC, size: procs.len(), array: procs.as_ptr().cast() };
        let listed = Value { kind: DATA_ARRAY, data: Data { array: &list } };
        let ranks =
            |value: &Value| value.processes().map(|all| all.iter().map(|p| p.rank).collect());
        assert_eq!(ranks(&listed), Some(vec![1, 2]));
        let odd = DataArray { kind: STRING, ..list };
        let listed = Value { kind: DATA_ARRAY, data: Data { array: &odd } };
        assert_eq!((ranks(&listed), ranks(&Value::empty())), (None, None));
        let text = Info::text("key", c"a@1,a@2").value;
        assert_eq!(text.read_text().unwrap(), "a@1,a@2");
        assert_eq!(bytes.read_text(), None);
        assert!(bytes.process().is_none());
        let parent = Proc::named("job@1", 7);
        let process = Value { kind: PROC, data: Data { process: &parent } };
        assert_eq!(process.process().unwrap().rank, 7);
        assert_eq!(process.read_bytes(), None);
    }

    #[test]
    fn app__has_lists_of_its_own_that_end_in_null() {
        let words = [c"prog".to_owned(), c"two words".to_owned()];
        let app = App::new(&words, &[], Some(c"/tmp"), 2, &[]);
        // SAFETY: strings and lists as the constructor makes them.
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
