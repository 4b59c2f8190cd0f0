#![allow(unsafe_code)]
//! PMIx, by its library: PRRTE (`prterun`, Open MPI's `mpirun`), Slurm (`--mpi=pmix`), Flux with its plugin. The code
//! calls only functions that all releases export. Older releases have the rest of the interface as macros.

mod library;

use super::about::ProcessInfo;
use super::error::EngineError;
use crate::control::Program;
use crate::parent::{self, PARENT_VARIABLE};
use fastpath_base::config::{VARIABLES, shorten};
use fastpath_base::thread::without_signals;
use library::{App, DUPLICATE_KEY, GLOBAL, KEY_BYTES, Library, NOT_FOUND, NOT_SUPPORTED, PmixInfo};
use library::{PmixLookup, PmixValue, Proc, Query, SUCCESS, WILDCARD};
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::c_int;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// Mapping of spawned processes. It permits processes without a free slot, as our own launcher does.
const MAP_BY: &CStr = c":OVERSUBSCRIBE";
/// Binding of spawned processes. The launcher counts the processors of the first job as taken, and would refuse to bind
/// other processes to them.
const BIND_TO: &CStr = c"none";
const SERVICE: &[u8] = b"fastpath.service.";

/// Connection of a rank, one for each process. The functions of this type implement those of [`super::Engine`].
pub struct Pmix {
    pmix: &'static Library,
    own: Proc,
    about: ProcessInfo,
    threads: usize,
}

impl fmt::Debug for Pmix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pmix").field("about", &self.about).finish()
    }
}

impl Pmix {
    /// Loads the library and connects to the server that the environment names.
    ///
    /// # Errors
    /// The library is missing, or no server answers at the address in the environment.
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
        // The library starts a thread, which must not take the program's signals.
        // SAFETY: `own` has space for the process that the call stores, and no attributes are passed.
        let status = without_signals(|| unsafe { (library.init)(&mut own, std::ptr::null(), 0) });
        let threads = count_threads().saturating_sub(before);
        check(library, "PMIx_Init", status)?;
        let mut pmix = Pmix {
            pmix: library,
            own,
            about: ProcessInfo {
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

    /// Returns the engine's data on this process.
    pub fn about(&self) -> &ProcessInfo {
        &self.about
    }

    /// Returns the number of threads that the library has started.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// See [`super::Engine::put`].
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<(), EngineError> {
        let name = name_key(key);
        let mut value = PmixValue::of_bytes(value);
        // SAFETY: key and value live for the call, which copies them.
        let status = unsafe { (self.pmix.put)(GLOBAL, name.as_ptr(), &mut value) };
        check(self.pmix, "PMIx_Put", status)?;
        // SAFETY: the call has no argument.
        check(self.pmix, "PMIx_Commit", unsafe { (self.pmix.commit)() })
    }

    /// Fences, and distributes published values to every node.
    pub fn fence(&mut self) -> Result<(), EngineError> {
        let collect = PmixInfo::flag("pmix.collect");
        // SAFETY: an empty list of processes means all, and the attribute lives for the call.
        let status = unsafe { (self.pmix.fence)(std::ptr::null(), 0, &collect, 1) };
        check(self.pmix, "PMIx_Fence", status)
    }

    /// See [`super::Engine::get`].
    pub fn get(&mut self, rank: usize, key: &str) -> Result<Option<Vec<u8>>, EngineError> {
        let peer = self.own.with_rank(rank as u32);
        let found = self.fetch(&peer, key, PmixValue::read_bytes)?;
        match found {
            Some(None) => Err(EngineError::Answer {
                step: "PMIx_Get",
                said: "a value of another type".into(),
            }),
            found => Ok(found.flatten()),
        }
    }

    /// Returns a number that the engine has for a process or, with the wildcard rank, for the job.
    fn get_number(&self, of: &Proc, key: &'static str) -> Option<usize> {
        let name = CString::new(key).ok()?;
        let found = self.fetch_named(of, &name, PmixValue::number);
        found.ok()??.and_then(|number| usize::try_from(number).ok())
    }

    fn fetch<T>(
        &self, of: &Proc, key: &str, read: impl Fn(&PmixValue) -> T,
    ) -> Result<Option<T>, EngineError> {
        self.fetch_named(of, &name_key(key), read)
    }

    fn fetch_named<T>(
        &self, of: &Proc, key: &CStr, read: impl Fn(&PmixValue) -> T,
    ) -> Result<Option<T>, EngineError> {
        let mut value: *mut PmixValue = std::ptr::null_mut();
        // SAFETY: process, key and the space for the answer live for the call.
        let status = unsafe { (self.pmix.get)(of, key.as_ptr(), std::ptr::null(), 0, &mut value) };
        if status == NOT_FOUND {
            return Ok(None);
        }
        check(self.pmix, "PMIx_Get", status)?;
        if value.is_null() {
            return Ok(None);
        }
        // SAFETY: the library has made the value for this call, on C's heap; it is read before it is freed.
        let found = unsafe {
            let found = read(&*value);
            (self.pmix.value_destruct)(value);
            libc::free(value.cast());
            found
        };
        Ok(Some(found))
    }

    /// See [`super::Engine::is_spawned`].
    pub fn is_spawned(&self) -> bool {
        let told = std::env::var(PARENT_VARIABLE);
        told.is_ok_and(|told| parent::is_told_by_pmix(&told, &self.about.job))
    }

    /// See [`super::Engine::runs`].
    pub fn runs(&self, job: &str) -> bool {
        let jobs = self.ask(c"pmix.qry.ns", &[], PmixValue::read_text);
        jobs.iter().all(|jobs| is_listed(jobs, job))
    }

    /// See [`super::Engine::process_sets`].
    pub fn process_sets(&self) -> Vec<(String, Vec<usize>)> {
        let names = self.ask(c"pmix.qry.psets", &[], PmixValue::read_text).join(",");
        let names = names.split(',').filter(|name| !name.is_empty());
        let own = self.own.namespace();
        let members = |name: &str| {
            let text = CString::new(name).ok()?;
            let of = [PmixInfo::text("pmix.pset.nm", &text)];
            let listed = self.ask(c"pmix.qry.pmems", &of, PmixValue::processes);
            let mut ranks: Vec<usize> = Vec::new();
            for process in listed.iter().flatten().filter(|p| p.namespace() == own) {
                match process.rank {
                    WILDCARD => ranks.extend(0..self.about.size),
                    rank if (rank as usize) < self.about.size => ranks.push(rank as usize),
                    _ => return None,
                }
            }
            ranks.sort_unstable();
            ranks.dedup();
            (!ranks.is_empty()).then(|| (name.to_owned(), ranks))
        };
        names.filter_map(members).collect()
    }

    /// Returns the engine's answers to a query that `read` accepts; empty without an answer.
    fn ask<T>(
        &self, key: &CStr, qualifiers: &[PmixInfo], read: impl Fn(&PmixValue) -> Option<T>,
    ) -> Vec<T> {
        let Some(query) = self.pmix.query else {
            return Vec::new();
        };
        let keys = [key.as_ptr(), std::ptr::null()];
        let wanted = Query::of(&keys, qualifiers);
        let (mut found, mut count) = (std::ptr::null_mut(), 0);
        // SAFETY: the query, its qualifiers and the space for the answer live for the call.
        let status = unsafe { query(&wanted, 1, &mut found, &mut count) };
        if found.is_null() {
            return Vec::new();
        }
        let mut answers = Vec::new();
        // SAFETY: the library has made `count` answers for this call, on C's heap; they are read before they are freed.
        unsafe {
            for info in std::slice::from_raw_parts_mut(found, count) {
                answers.extend(Some(&info.value).filter(|_| status == SUCCESS).and_then(&read));
                (self.pmix.value_destruct)(&mut info.value);
            }
            libc::free(found.cast());
        }
        answers
    }

    /// Returns the port from the environment, if a job of Fastpath has started this job. A launcher started by a
    /// process of such a job passes the variable on to jobs that were not spawned. The port therefore counts only if
    /// the engine reports the parent that the variable names. See [`super::Engine::find_parent`].
    pub fn find_parent(&self) -> Result<Option<String>, EngineError> {
        let told = std::env::var(PARENT_VARIABLE).ok();
        let Some((parent, port)) = told.as_deref().and_then(parent::read_of_pmix) else {
            return Ok(None);
        };
        let found = self.fetch_named(&self.own, c"pmix.parent", PmixValue::process)?;
        let is_it = found.flatten().is_some_and(|found| {
            let (namespace, rank) = parent;
            found.namespace() == namespace && found.rank == rank
        });
        Ok(is_it.then(|| port.to_owned()))
    }

    /// See [`super::Engine::spawn`].
    pub fn spawn(&mut self, programs: &[Program], port: &str) -> Result<String, EngineError> {
        let told = parent::tell_by_pmix((&self.own.namespace(), self.own.rank), port);
        let told = format!("{PARENT_VARIABLE}={told}");
        let mut variables = vec![c_string("a variable", told.as_bytes())?];
        variables.extend(list_settings());
        let hosts = programs.iter().map(|program| {
            let host = program.host.as_ref();
            host.map(|host| c_string("host", host)).transpose()
        });
        let hosts: Vec<Option<CString>> = hosts.collect::<Result<_, _>>()?;
        let infos = hosts.iter().map(|host| {
            let host = host.as_ref().map(|host| PmixInfo::text("pmix.host", host));
            host.into_iter().collect()
        });
        let infos: Vec<Vec<PmixInfo>> = infos.collect();
        let apps = programs.iter().zip(&infos).map(|(program, infos)| {
            let words = program.argv.iter().map(|word| c_string("a word", word));
            let words: Vec<CString> = words.collect::<Result<_, _>>()?;
            let folder = program.wdir.as_ref();
            let folder = folder.map(|folder| c_string("wdir", folder)).transpose()?;
            let most = program.counts.first().copied().unwrap_or(1) as c_int;
            Ok(App::new(&words, &variables, folder.as_deref(), most, infos))
        });
        let mut apps: Vec<App> = apps.collect::<Result<_, EngineError>>()?;
        let of_job = [PmixInfo::text("pmix.mapby", MAP_BY), PmixInfo::text("pmix.bindto", BIND_TO)];
        let mut spawned = Proc::empty();
        // SAFETY: the lists have the passed lengths, `spawned` has space for a namespace, and all live for the call.
        // The lists in the apps are on C's heap, because the library may extend them.
        let status = unsafe {
            (self.pmix.spawn)(
                of_job.as_ptr(),
                of_job.len(),
                apps.as_mut_ptr(),
                apps.len(),
                spawned.room_for_namespace(),
            )
        };
        match status {
            NOT_SUPPORTED => Err(EngineError::Starts("by PMIx")),
            status => check(self.pmix, "PMIx_Spawn", status).map(|()| spawned.namespace()),
        }
    }

    /// See [`super::Engine::publish`].
    pub fn publish(&mut self, service: &[u8], port: &[u8]) -> Result<bool, EngineError> {
        let key = name_service(service)?;
        // PRRTE accepts a name twice without an error.
        if self.look_up(service)?.is_some() {
            return Ok(false);
        }
        let info = PmixInfo::bytes(&key, port);
        // SAFETY: the information lives for the call, which copies it.
        match unsafe { (self.pmix.publish)(&info, 1) } {
            DUPLICATE_KEY => Ok(false),
            status => self.check_names("PMIx_Publish", status).map(|()| true),
        }
    }

    /// See [`super::Engine::look_up`].
    pub fn look_up(&mut self, service: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let mut wanted = PmixLookup::wanted(&name_service(service)?);
        // SAFETY: `wanted` has space for one answer, and lives for the call.
        let status = unsafe { (self.pmix.look_up)(&mut wanted, 1, std::ptr::null(), 0) };
        if status == NOT_FOUND {
            return Ok(None);
        }
        self.check_names("PMIx_Lookup", status)?;
        let found = wanted.value.read_bytes();
        // SAFETY: the library has written the value; it is not read again.
        unsafe { (self.pmix.value_destruct)(&mut wanted.value) };
        Ok(found)
    }

    /// See [`super::Engine::unpublish`].
    ///
    /// # Errors
    /// The errors of [`super::Engine::unpublish`], and a name published by another process.
    pub fn unpublish(&mut self, service: &[u8]) -> Result<bool, EngineError> {
        let step = "PMIx_Unpublish";
        let key = c_string("a name", &name_service(service)?)?;
        let keys = [key.as_ptr(), std::ptr::null()];
        // SAFETY: the list ends in null and lives for the call.
        let status = unsafe { (self.pmix.unpublish)(keys.as_ptr(), std::ptr::null(), 0) };
        if status == NOT_FOUND {
            return Ok(false);
        }
        self.check_names(step, status)?;
        // If another process has published the name, the library reports no error, and the name stays published.
        match self.look_up(service)? {
            None => Ok(true),
            Some(_) => Err(EngineError::Answer {
                step,
                said: "only the process that published a name can unpublish it".into(),
            }),
        }
    }

    fn check_names(&self, step: &'static str, status: c_int) -> Result<(), EngineError> {
        match status {
            NOT_SUPPORTED => Err(EngineError::Lacks("names of services")),
            status => check(self.pmix, step, status),
        }
    }

    /// See [`super::Engine::aborter`].
    pub fn aborter(&self) -> Aborter {
        Aborter { pmix: self.pmix }
    }

    /// See [`super::Engine::finalize`].
    pub fn finalize(&mut self) -> Result<(), EngineError> {
        // SAFETY: no attributes are passed.
        let status = unsafe { (self.pmix.finalize)(std::ptr::null(), 0) };
        check(self.pmix, "PMIx_Finalize", status)
    }
}

/// Handle that ends the job. Any thread may call the library.
pub struct Aborter {
    pmix: &'static Library,
}

impl fmt::Debug for Aborter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Aborter")
    }
}

impl Aborter {
    /// See [`super::Aborter::abort`].
    pub fn abort(&self, code: i32) {
        // SAFETY: the message is a C string, and the list of processes is empty, which means all.
        unsafe { (self.pmix.abort)(code, c"Fastpath ends the job".as_ptr(), std::ptr::null(), 0) };
    }
}

fn count_threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

fn name_key(key: &str) -> CString {
    CString::new(format!("fastpath.{key}")).unwrap_or_default()
}

fn is_listed(list: &str, name: &str) -> bool {
    list.split(',').any(|listed| listed == name)
}

/// Returns the settings of this process as `NAME=VALUE`, for spawned processes. A launcher applies the settings that it
/// was given only to its first job.
fn list_settings() -> Vec<CString> {
    let shown = VARIABLES.iter().filter(|variable| !variable.internal);
    let set = shown.filter_map(|variable| {
        let value = std::env::var_os(variable.name)?;
        let pair = [variable.name.as_bytes(), b"=", value.as_bytes()].concat();
        CString::new(pair).ok()
    });
    set.collect()
}

fn c_string(what: &str, bytes: &[u8]) -> Result<CString, EngineError> {
    CString::new(bytes).map_err(|_| EngineError::Answer {
        step: "spawn",
        said: format!("{what} has a zero byte: {}", shorten(&String::from_utf8_lossy(bytes))),
    })
}

fn name_service(service: &[u8]) -> Result<Vec<u8>, EngineError> {
    match [SERVICE, service].concat() {
        key if key.len() < KEY_BYTES => Ok(key),
        key => Err(EngineError::TooLong { step: "the name of a service", bytes: key.len() }),
    }
}

fn check(library: &Library, step: &'static str, status: c_int) -> Result<(), EngineError> {
    match status {
        SUCCESS => Ok(()),
        _ => Err(EngineError::Answer { step, said: library.describe(status) }),
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn job__runs_where_it_is_listed_whole() {
        assert!(is_listed("prterun-a@1,prterun-a@2", "prterun-a@2"));
        assert!(!is_listed("prterun-a@1,prterun-a@22", "prterun-a@2"));
        assert!(!is_listed("", "prterun-a@2"));
    }

    #[test]
    fn service__has_room_in_a_key() {
        assert_eq!(name_service(b"a b").unwrap(), b"fastpath.service.a b");
        let most = KEY_BYTES - 1 - SERVICE.len();
        assert!(name_service(&vec![b'x'; most]).is_ok());
        let long = name_service(&vec![b'x'; most + 1]).unwrap_err();
        assert!(matches!(long, EngineError::TooLong { .. }));
    }
}
