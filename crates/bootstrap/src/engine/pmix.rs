#![allow(unsafe_code)]
//! PMIx, by its library: PRRTE (`prterun`, Open MPI's `mpirun`), Slurm (`--mpi=pmix`), Flux with its plugin.
//!
//! Only what all releases have as functions is called; the rest of the interface is macros in old ones.

mod library;

use super::{About, EngineError};
use fastpath_base::thread::without_signals;
use library::{BYTE_OBJECT, Bytes, Data, GLOBAL, Info, Library, NOT_FOUND, Proc, SUCCESS};
use library::{Value, WILDCARD};
use std::ffi::CString;
use std::fmt;
use std::os::raw::c_int;
use std::sync::OnceLock;

/// Bytes of a value beyond which somebody else has put it.
const VALUE_MOST: usize = 16 << 20;

/// A rank's connection. The library has one for each process.
pub struct Pmix {
    pmix: &'static Library,
    own: Proc,
    about: About,
    threads: usize,
}

impl fmt::Debug for Pmix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pmix").field("about", &self.about).finish()
    }
}

impl Pmix {
    /// Loads the library and connects as the environment says.
    ///
    /// # Errors
    /// There is no library, or no server behind the variables.
    pub fn connect() -> Result<Pmix, EngineError> {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        let library = match LIBRARY.get() {
            Some(library) => library,
            None => {
                let loaded = Library::load()?;
                LIBRARY.get_or_init(|| loaded)
            }
        };
        let mut own = Proc::empty();
        let before = count_threads();
        // The library starts a thread, which is to take no signal of the program's.
        // SAFETY: room for one process, and no further information.
        let status = without_signals(|| unsafe { (library.init)(&mut own, std::ptr::null(), 0) });
        let threads = count_threads().saturating_sub(before);
        check(library, "PMIx_Init", status)?;
        let mut pmix = Pmix {
            pmix: library,
            own,
            about: About {
                rank: own.rank as usize,
                size: 1,
                job: own.namespace(),
                appnum: None,
                universe: None,
            },
            threads,
        };
        let all = own.with_rank(WILDCARD);
        let size = pmix.get_number(&all, "pmix.job.size");
        pmix.about.size = size.unwrap_or(0);
        if pmix.about.rank >= pmix.about.size {
            let (rank, size) = (pmix.about.rank, pmix.about.size);
            return Err(EngineError::Answer {
                step: "PMIx_Get (pmix.job.size)",
                said: format!("rank {rank} of {size}"),
            });
        }
        pmix.about.appnum = pmix.get_number(&own, "pmix.appnum");
        pmix.about.universe = pmix.get_number(&all, "pmix.univ.size").filter(|&n| n > 0);
        Ok(pmix)
    }

    /// What the engine tells of this process.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Threads that the library has started.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// As [`super::Engine::put`].
    ///
    /// # Errors
    /// As there.
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<(), EngineError> {
        let name = name_key(key);
        let mut value = Value {
            kind: BYTE_OBJECT,
            data: Data {
                bytes: Bytes {
                    data: value.as_ptr().cast_mut().cast(),
                    size: value.len(),
                },
            },
        };
        // SAFETY: key and value live for the call, which copies them.
        let status = unsafe { (self.pmix.put)(GLOBAL, name.as_ptr(), &mut value) };
        check(self.pmix, "PMIx_Put", status)?;
        // SAFETY: no argument.
        check(self.pmix, "PMIx_Commit", unsafe { (self.pmix.commit)() })
    }

    /// As [`super::Engine::fence`]. What was put comes with it to every node.
    ///
    /// # Errors
    /// As there.
    pub fn fence(&mut self) -> Result<(), EngineError> {
        let collect = Info::flag("pmix.collect");
        // SAFETY: no list of processes means all; the information lives for the call.
        let status = unsafe { (self.pmix.fence)(std::ptr::null(), 0, &collect, 1) };
        check(self.pmix, "PMIx_Fence", status)
    }

    /// As [`super::Engine::get`].
    ///
    /// # Errors
    /// As there.
    pub fn get(&mut self, rank: usize, key: &str) -> Result<Option<Vec<u8>>, EngineError> {
        let peer = self.own.with_rank(rank as u32);
        let found = self.fetch(&peer, key, |value| {
            if value.kind != BYTE_OBJECT {
                return None;
            }
            // SAFETY: the kind says that bytes were written.
            let Bytes { data, size } = unsafe { value.data.bytes };
            match size {
                0 => Some(Vec::new()),
                1..=VALUE_MOST if !data.is_null() => {
                    // SAFETY: the library's own memory, of that length, until the value is released.
                    Some(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) }.to_vec())
                }
                _ => None,
            }
        })?;
        match found {
            Some(None) => Err(EngineError::Answer {
                step: "PMIx_Get",
                said: "a value of another type".into(),
            }),
            found => Ok(found.flatten()),
        }
    }

    /// A number that the engine tells of a process or, by the wildcard, of the job.
    fn get_number(&self, of: &Proc, key: &'static str) -> Option<usize> {
        let name = CString::new(key).ok()?;
        let found = self.fetch_named(of, &name, Value::number);
        found.ok()??.and_then(|number| usize::try_from(number).ok())
    }

    fn fetch<T>(
        &self,
        of: &Proc,
        key: &str,
        read: impl Fn(&Value) -> T,
    ) -> Result<Option<T>, EngineError> {
        self.fetch_named(of, &name_key(key), read)
    }

    /// Reads a value; None where there is none.
    fn fetch_named<T>(
        &self,
        of: &Proc,
        key: &CString,
        read: impl Fn(&Value) -> T,
    ) -> Result<Option<T>, EngineError> {
        let mut value: *mut Value = std::ptr::null_mut();
        // SAFETY: process, key and the place for the answer live for the call.
        let status = unsafe { (self.pmix.get)(of, key.as_ptr(), std::ptr::null(), 0, &mut value) };
        if status == NOT_FOUND {
            return Ok(None);
        }
        check(self.pmix, "PMIx_Get", status)?;
        if value.is_null() {
            return Ok(None);
        }
        // SAFETY: a value that the library has made for this call, on C's heap; it is read before it is given back.
        let found = unsafe {
            let found = read(&*value);
            (self.pmix.value_destruct)(value);
            libc::free(value.cast());
            found
        };
        Ok(Some(found))
    }

    /// As [`super::Engine::aborter`].
    pub fn aborter(&self) -> Aborter {
        Aborter { pmix: self.pmix }
    }

    /// As [`super::Engine::finalize`].
    ///
    /// # Errors
    /// As there.
    pub fn finalize(&mut self) -> Result<(), EngineError> {
        // SAFETY: no information.
        let status = unsafe { (self.pmix.finalize)(std::ptr::null(), 0) };
        check(self.pmix, "PMIx_Finalize", status)
    }
}

/// Ends the job; the library may be called from any thread.
pub struct Aborter {
    pmix: &'static Library,
}

impl fmt::Debug for Aborter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Aborter")
    }
}

impl Aborter {
    /// As [`super::Aborter::abort`].
    pub fn abort(&self, code: i32) {
        // SAFETY: a text without end marks of its own, and no list of processes: all.
        unsafe { (self.pmix.abort)(code, c"Fastpath ends the job".as_ptr(), std::ptr::null(), 0) };
    }
}

fn count_threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

fn name_key(key: &str) -> CString {
    CString::new(format!("fastpath.{key}")).unwrap_or_default()
}

fn check(library: &Library, step: &'static str, status: c_int) -> Result<(), EngineError> {
    match status {
        SUCCESS => Ok(()),
        _ => Err(EngineError::Answer {
            step,
            said: library.describe(status),
        }),
    }
}
