#![allow(unsafe_code)]
//! PMIx, by its library: PRRTE (`prterun`, Open MPI's `mpirun`), Slurm (`--mpi=pmix`), Flux with its plugin.
//!
//! Only what all releases have as functions is called; the rest of the interface is macros in old ones.

mod library;

use super::{About, EngineError};
use crate::control::Program;
use crate::job::PARENT_VARIABLE;
use fastpath_base::config::{VARIABLES, shorten};
use fastpath_base::thread::without_signals;
use library::{App, DUPLICATE_KEY, GLOBAL, Info, KEY_BYTES, Library, NOT_FOUND, NOT_SUPPORTED};
use library::{Proc, Published, Query, SUCCESS, Value, WILDCARD};
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::raw::c_int;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// Where spawned processes may run: also where no slot is left, as under our own launcher.
const MAP_BY: &CStr = c":OVERSUBSCRIBE";
/// Their processors: the launcher counts those of the first job as taken, and would refuse to bind to them.
const BIND_TO: &CStr = c"none";
/// Before the name of a service.
const SERVICE: &[u8] = b"fastpath.service.";

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

    /// What the engine says about this process.
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
        let mut value = Value::of_bytes(value);
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
        let found = self.fetch(&peer, key, Value::read_bytes)?;
        match found {
            Some(None) => Err(EngineError::Answer {
                step: "PMIx_Get",
                said: "a value of another type".into(),
            }),
            found => Ok(found.flatten()),
        }
    }

    /// A number that the engine gives for a process or, by the wildcard, for the job.
    fn get_number(&self, of: &Proc, key: &'static str) -> Option<usize> {
        let name = CString::new(key).ok()?;
        let found = self.fetch_named(of, &name, Value::number);
        found.ok()??.and_then(|number| usize::try_from(number).ok())
    }

    fn fetch<T>(
        &self, of: &Proc, key: &str, read: impl Fn(&Value) -> T,
    ) -> Result<Option<T>, EngineError> {
        self.fetch_named(of, &name_key(key), read)
    }

    /// Reads a value; None if it is not there.
    fn fetch_named<T>(
        &self, of: &Proc, key: &CStr, read: impl Fn(&Value) -> T,
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

    /// As [`super::Engine::is_spawned`].
    pub fn is_spawned(&self) -> bool {
        let told = std::env::var(PARENT_VARIABLE);
        told.is_ok_and(|told| is_told_of_parent(&told, &self.about.job))
    }

    /// As [`super::Engine::runs`].
    pub fn runs(&self, job: &str) -> bool {
        let jobs = self.ask(c"pmix.qry.ns", &[], Value::read_text);
        jobs.iter().all(|jobs| is_listed(jobs, job))
    }

    /// As [`super::Engine::process_sets`].
    pub fn process_sets(&self) -> Vec<(String, Vec<usize>)> {
        let names = self.ask(c"pmix.qry.psets", &[], Value::read_text).join(",");
        let names = names.split(',').filter(|name| !name.is_empty());
        let own = self.own.namespace();
        let members = |name: &str| {
            let text = CString::new(name).ok()?;
            let of = [Info::text("pmix.pset.nm", &text)];
            let listed = self.ask(c"pmix.qry.pmems", &of, Value::processes);
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

    /// What the engine answers to a question, as far as `read` understands it; nothing where it does not answer.
    fn ask<T>(
        &self, key: &CStr, qualifiers: &[Info], read: impl Fn(&Value) -> Option<T>,
    ) -> Vec<T> {
        let Some(query) = self.pmix.query else {
            return Vec::new();
        };
        let keys = [key.as_ptr(), std::ptr::null()];
        let wanted = Query::of(&keys, qualifiers);
        let (mut found, mut count) = (std::ptr::null_mut(), 0);
        // SAFETY: one question with its qualifiers, and the places for the answer, which live for the call.
        let status = unsafe { query(&wanted, 1, &mut found, &mut count) };
        if found.is_null() {
            return Vec::new();
        }
        let mut answers = Vec::new();
        // SAFETY: so many answers that the library has made for this call, on C's heap; they are read before they are
        // given back.
        unsafe {
            for info in std::slice::from_raw_parts_mut(found, count) {
                answers.extend(Some(&info.value).filter(|_| status == SUCCESS).and_then(&read));
                (self.pmix.value_destruct)(&mut info.value);
            }
            libc::free(found.cast());
        }
        answers
    }

    /// As [`super::Engine::find_parent`]: if one of our jobs has started this one, it says so in the environment. A
    /// launcher started by a process of such a job passes that on to jobs that were not spawned.
    ///
    /// # Errors
    /// As there.
    pub fn find_parent(&self) -> Result<Option<String>, EngineError> {
        let told = std::env::var(PARENT_VARIABLE).ok();
        let Some((parent, port)) = told.as_deref().and_then(read_parent) else {
            return Ok(None);
        };
        let found = self.fetch_named(&self.own, c"pmix.parent", Value::process)?;
        let is_it = found.flatten().is_some_and(|found| {
            let (namespace, rank) = parent;
            found.namespace() == namespace && found.rank == rank
        });
        Ok(is_it.then(|| port.to_owned()))
    }

    /// As [`super::Engine::spawn`].
    ///
    /// # Errors
    /// As there.
    pub fn spawn(&mut self, programs: &[Program], port: &str) -> Result<String, EngineError> {
        let told = tell_parent(&self.own, port);
        let mut variables = vec![c_string("a variable", told.as_bytes())?];
        variables.extend(list_settings());
        let hosts = programs.iter().map(|program| {
            let host = program.host.as_ref();
            host.map(|host| c_string("host", host)).transpose()
        });
        let hosts: Vec<Option<CString>> = hosts.collect::<Result<_, _>>()?;
        let infos = hosts.iter().map(|host| {
            let host = host.as_ref().map(|host| Info::text("pmix.host", host));
            host.into_iter().collect()
        });
        let infos: Vec<Vec<Info>> = infos.collect();
        let apps = programs.iter().zip(&infos).map(|(program, infos)| {
            let words = program.argv.iter().map(|word| c_string("a word", word));
            let words: Vec<CString> = words.collect::<Result<_, _>>()?;
            let folder = program.wdir.as_ref();
            let folder = folder.map(|folder| c_string("wdir", folder)).transpose()?;
            let most = program.counts.first().copied().unwrap_or(1) as c_int;
            Ok(App::new(&words, &variables, folder.as_deref(), most, infos))
        });
        let mut apps: Vec<App> = apps.collect::<Result<_, EngineError>>()?;
        let of_job = [Info::text("pmix.mapby", MAP_BY), Info::text("pmix.bindto", BIND_TO)];
        let mut spawned = Proc::empty();
        // SAFETY: lists of those lengths and room for a namespace, which live for the call; the apps' lists are on C's
        // heap, as the library may extend them.
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

    /// As [`super::Engine::publish`].
    ///
    /// # Errors
    /// As there.
    pub fn publish(&mut self, service: &[u8], port: &[u8]) -> Result<bool, EngineError> {
        let key = name_service(service)?;
        // PRRTE takes a name twice without a word.
        if self.look_up(service)?.is_some() {
            return Ok(false);
        }
        let info = Info::bytes(&key, port);
        // SAFETY: the information lives for the call, which copies it.
        match unsafe { (self.pmix.publish)(&info, 1) } {
            DUPLICATE_KEY => Ok(false),
            status => self.check_names("PMIx_Publish", status).map(|()| true),
        }
    }

    /// As [`super::Engine::look_up`].
    ///
    /// # Errors
    /// As there.
    pub fn look_up(&mut self, service: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let mut wanted = Published::wanted(&name_service(service)?);
        // SAFETY: room for one answer, which lives for the call.
        let status = unsafe { (self.pmix.look_up)(&mut wanted, 1, std::ptr::null(), 0) };
        if status == NOT_FOUND {
            return Ok(None);
        }
        self.check_names("PMIx_Lookup", status)?;
        let found = wanted.value.read_bytes();
        // SAFETY: what the library has put there; it is not read again.
        unsafe { (self.pmix.value_destruct)(&mut wanted.value) };
        Ok(found)
    }

    /// As [`super::Engine::unpublish`].
    ///
    /// # Errors
    /// As there, and this process has not published it.
    pub fn unpublish(&mut self, service: &[u8]) -> Result<bool, EngineError> {
        let step = "PMIx_Unpublish";
        let key = c_string("a name", &name_service(service)?)?;
        let keys = [key.as_ptr(), std::ptr::null()];
        // SAFETY: a list that ends in null, which lives for the call.
        let status = unsafe { (self.pmix.unpublish)(keys.as_ptr(), std::ptr::null(), 0) };
        if status == NOT_FOUND {
            return Ok(false);
        }
        self.check_names(step, status)?;
        // Nothing is said where the name is another process's; it stays.
        match self.look_up(service)? {
            None => Ok(true),
            Some(_) => Err(EngineError::Answer {
                step,
                said: "only the process that has published a name can take it back".into(),
            }),
        }
    }

    fn check_names(&self, step: &'static str, status: c_int) -> Result<(), EngineError> {
        match status {
            NOT_SUPPORTED => Err(EngineError::Lacks("names of services")),
            status => check(self.pmix, step, status),
        }
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

/// Prefix of the value for a process spawned by PMIx: its parent, and the parent's port.
const BY_PMIX: &str = "pmix ";

/// The variable, with its name, that tells processes which this one spawns where it waits for them.
fn tell_parent(own: &Proc, port: &str) -> String {
    let (rank, namespace) = (own.rank, own.namespace());
    format!("{PARENT_VARIABLE}={BY_PMIX}{rank} {port} {namespace}")
}

/// Namespace and rank of the process that has spawned this one, and its port.
fn read_parent(told: &str) -> Option<((&str, u32), &str)> {
    let mut fields = told.strip_prefix(BY_PMIX)?.splitn(3, ' ');
    let (rank, port, namespace) = (fields.next()?, fields.next()?, fields.next()?);
    Some(((namespace, rank.parse().ok()?), port))
}

/// Whether a process was spawned by PMIx from another namespace than its own, as far as the variable tells.
pub fn is_told_of_parent(told: &str, namespace: &str) -> bool {
    read_parent(told).is_some_and(|((parent, _), _)| parent != namespace)
}

/// Whether a list with commas has a name.
fn is_listed(list: &str, name: &str) -> bool {
    list.split(',').any(|listed| listed == name)
}

/// The settings of this process as `NAME=VALUE`, which spawned processes are to have too: what a launcher was asked to
/// set holds only for its first job.
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
        said: format!("{what} with a zero inside: {}", shorten(&String::from_utf8_lossy(bytes))),
    })
}

/// The key under which a service is published.
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
    fn parent__is_told_with_its_namespace() {
        let own = Proc::named("prterun-a@1", 3);
        let told = tell_parent(&own, "fastpath:1:0:1:key:5:10.0.0.1");
        let (name, told) = told.split_once('=').unwrap();
        assert_eq!(name, PARENT_VARIABLE);
        let read = Some((("prterun-a@1", 3), "fastpath:1:0:1:key:5:10.0.0.1"));
        assert_eq!(read_parent(told), read);
        assert!(is_told_of_parent(told, "prterun-a@2"));
        assert!(!is_told_of_parent(told, "prterun-a@1"));
        for wrong in ["", "pmix ", "pmix 3 port", "pmix x port a@1", "0000 port", "spawn port"] {
            assert_eq!(read_parent(wrong), None, "{wrong}");
        }
    }

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
