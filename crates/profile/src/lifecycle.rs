//! Start and end of a profile, in the functions that start and end MPI, and the collection of the ranks' records.
#![allow(unsafe_code, missing_docs, non_snake_case, non_upper_case_globals)]

use crate::bytes::{comm_rank, comm_size};
use crate::library::consts::{MPI_BYTE, MPI_COMM_NULL, MPI_COMM_WORLD, MPI_INT64_T};
use crate::library::{find_function, has_abi};
use crate::record::{set_recording, take_calls};
use crate::report::{RankCalls, RankProfile, Report};
use crate::site::locate;
use crate::{html, text};
use fastpath_base::clock::now_ns;
use fastpath_base::config::{Config, ProfileTarget};
use fastpath_base::tell;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::mem::transmute;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where the report goes.
#[derive(Debug, Clone)]
enum ReportTarget {
    /// Text on standard error (`FASTPATH_PROFILE=1`).
    StandardError,
    /// Files that begin with this path (`FASTPATH_PROFILE=PATH`).
    Files(PathBuf),
}

/// A profile that has begun and is not written yet.
#[derive(Debug)]
struct OpenProfile {
    target: ReportTarget,
    /// Time at which `MPI_Init` returned.
    start: u64,
}

/// Symbol by which the MPI library finds that this library is loaded.
#[unsafe(no_mangle)]
pub static fastpath_profile: u8 = 1;

static PROFILE: Mutex<Option<OpenProfile>> = Mutex::new(None);

fn take_profile() -> Option<OpenProfile> {
    PROFILE.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Begins the profile after a successful `MPI_Init`.
fn start() {
    // The MPI library has already rejected invalid settings.
    let Ok(config) = Config::from_env() else {
        return;
    };
    let target = match config.profile() {
        None => return,
        Some(ProfileTarget::StandardError) => ReportTarget::StandardError,
        Some(ProfileTarget::Files(path)) => {
            ReportTarget::Files(std::path::absolute(path).unwrap_or_else(|_| path.into()))
        }
    };
    if !has_abi() {
        tell!("fastpath: no profile is written: the program uses an MPI without the standard ABI");
        return;
    }
    let profile = OpenProfile { target, start: now_ns() };
    *PROFILE.lock().unwrap_or_else(PoisonError::into_inner) = Some(profile);
    set_recording(true);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn MPI_Init(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int {
    // SAFETY: the function of this name has this type; the caller passes its arguments.
    let code = unsafe {
        let real: unsafe extern "C" fn(*mut c_int, *mut *mut *mut c_char) -> c_int =
            transmute(find_function(c"PMPI_Init"));
        real(argc, argv)
    };
    if code == 0 {
        start();
    }
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn MPI_Init_thread(
    argc: *mut c_int, argv: *mut *mut *mut c_char, required: c_int, provided: *mut c_int,
) -> c_int {
    // SAFETY: the function of this name has this type; the caller passes its arguments.
    let code = unsafe {
        let real: unsafe extern "C" fn(
            *mut c_int,
            *mut *mut *mut c_char,
            c_int,
            *mut c_int,
        ) -> c_int = transmute(find_function(c"PMPI_Init_thread"));
        real(argc, argv, required, provided)
    };
    if code == 0 {
        start();
    }
    code
}

#[unsafe(no_mangle)]
unsafe extern "C" fn MPI_Finalize() -> c_int {
    set_recording(false);
    if let Some(profile) = take_profile() {
        let own = own_record(&profile);
        if let Some(ranks) = gather(&own) {
            write(&profile.target, ranks, None);
        }
    }
    // SAFETY: the function of this name has this type.
    unsafe {
        let real: unsafe extern "C" fn() -> c_int = transmute(find_function(c"PMPI_Finalize"));
        real()
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn MPI_Abort(comm: usize, errorcode: c_int) -> c_int {
    set_recording(false);
    if let Some(profile) = take_profile() {
        let own = own_record(&profile);
        let rank = own.rank;
        write(&profile.target, vec![own], Some(rank));
    }
    // SAFETY: the function of this name has this type.
    unsafe {
        let real: unsafe extern "C" fn(usize, c_int) -> c_int =
            transmute(find_function(c"PMPI_Abort"));
        real(comm, errorcode)
    }
}

/// Pauses the profile if `level` is 0, resumes it otherwise. C passes further arguments, which nothing reads.
#[unsafe(no_mangle)]
unsafe extern "C" fn MPI_Pcontrol(level: c_int) -> c_int {
    if PROFILE.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
        set_recording(level != 0);
    }
    // SAFETY: the function of this name has this type, apart from the arguments that nothing reads.
    unsafe {
        let real: unsafe extern "C" fn(c_int) -> c_int = transmute(find_function(c"PMPI_Pcontrol"));
        real(level)
    }
}

fn own_record(profile: &OpenProfile) -> RankProfile {
    let wall_nanoseconds = now_ns().saturating_sub(profile.start);
    let mut places = HashMap::new();
    let mut calls: Vec<RankCalls> = take_calls()
        .into_iter()
        .map(|calls| {
            let place = places.entry(calls.site).or_insert_with(|| locate(calls.site));
            RankCalls {
                function: calls.function.name().into(),
                kind: calls.function.kind,
                object: place.0.clone(),
                address: place.1,
                counters: calls.counters,
            }
        })
        .collect();
    calls.sort_by(|a, b| (&a.object, a.address).cmp(&(&b.object, b.address)));
    let mut rank = 0;
    // SAFETY: MPI is initialized, and the variable outlives the call.
    unsafe { comm_rank(MPI_COMM_WORLD, &mut rank) };
    let name = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let program = std::env::current_exe().unwrap_or_default();
    RankProfile {
        rank: rank.try_into().unwrap_or(0),
        host: name("/proc/sys/kernel/hostname"),
        program: program.to_string_lossy().into_owned(),
        wall_nanoseconds,
        calls,
    }
}

/// Collects the records of all ranks at rank 0. Other ranks return `None`.
fn gather(own: &RankProfile) -> Option<Vec<RankProfile>> {
    type Gather = unsafe extern "C" fn(
        *const c_void,
        c_int,
        usize,
        *mut c_void,
        c_int,
        usize,
        c_int,
        usize,
    ) -> c_int;
    type Gatherv = unsafe extern "C" fn(
        *const c_void,
        i64,
        usize,
        *mut c_void,
        *const i64,
        *const isize,
        usize,
        c_int,
        usize,
    ) -> c_int;
    let sent = serde_json::to_vec(own).unwrap_or_default();
    let length = sent.len() as i64;
    let is_root = own.rank == 0;
    let mut size = 0;
    // SAFETY: the functions of these names have these types; buffers have the sizes that the calls state.
    unsafe {
        comm_size(MPI_COMM_WORLD, &mut size);
        let count = if is_root { size as usize } else { 0 };
        let mut lengths = vec![0_i64; count];
        let real: Gather = transmute(find_function(c"PMPI_Gather"));
        let (from, to) = (&raw const length, lengths.as_mut_ptr());
        if real(from.cast(), 1, MPI_INT64_T, to.cast(), 1, MPI_INT64_T, 0, MPI_COMM_WORLD) != 0 {
            return None;
        }
        let mut sum = 0;
        let starts: Vec<isize> = lengths
            .iter()
            .map(|&length| {
                sum += length as isize;
                sum - length as isize
            })
            .collect();
        let mut all = vec![0_u8; sum as usize];
        let real: Gatherv = transmute(find_function(c"PMPI_Gatherv_c"));
        let code = real(
            sent.as_ptr().cast(),
            length,
            MPI_BYTE,
            all.as_mut_ptr().cast(),
            lengths.as_ptr(),
            starts.as_ptr(),
            MPI_BYTE,
            0,
            MPI_COMM_WORLD,
        );
        if code != 0 || !is_root {
            return None;
        }
        let part = |(&start, &length): (&isize, &i64)| {
            serde_json::from_slice(&all[start as usize..][..length as usize]).ok()
        };
        Some(starts.iter().zip(&lengths).filter_map(part).collect())
    }
}

/// Returns whether another job has spawned this one. The report of a spawned job has a separate name.
fn is_spawned() -> bool {
    let mut parent = MPI_COMM_NULL;
    // SAFETY: the function of this name has this type, and MPI is initialized.
    let code = unsafe {
        let real: unsafe extern "C" fn(*mut usize) -> c_int =
            transmute(find_function(c"PMPI_Comm_get_parent"));
        real(&mut parent)
    };
    code == 0 && parent != MPI_COMM_NULL
}

/// Writes the report of all ranks, or of the rank `aborting` alone.
fn write(target: &ReportTarget, ranks: Vec<RankProfile>, aborting: Option<u32>) {
    let report = Report::new(ranks, aborting);
    let ReportTarget::Files(prefix) = target else {
        tell::lines(&text::format(&report));
        return;
    };
    let mut prefix = prefix.clone().into_os_string();
    if is_spawned() {
        prefix.push(format!(".spawned-{}", std::process::id()));
    }
    if let Some(rank) = aborting {
        prefix.push(format!(".rank-{rank}"));
    }
    let prefix = Path::new(&prefix);
    match write_files(prefix, &report) {
        Ok(()) => tell!("fastpath: profile in {}.txt, .json and .html", prefix.display()),
        Err(e) => tell!("fastpath: the profile {}.* cannot be written: {e}", prefix.display()),
    }
}

fn write_files(prefix: &Path, report: &Report) -> io::Result<()> {
    let file = |suffix: &str| {
        let mut name = prefix.as_os_str().to_owned();
        name.push(suffix);
        name
    };
    std::fs::write(file(".txt"), text::format(report))?;
    std::fs::write(file(".json"), serde_json::to_string_pretty(report)? + "\n")?;
    std::fs::write(file(".html"), html::format(report))
}
