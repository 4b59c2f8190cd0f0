//! `fastpath info --mpit`: what the installed library's tool interface lists (MPI 5.0, chapter 15).
#![allow(unsafe_code)]

use crate::document::{self, Document, Table};
use crate::library::{find, find_library, open_library};
use anyhow::Result;
use libloading::os::unix::Library;
use serde::Serialize;
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

/// Room for a name and for a description.
const NAME: usize = 128;
const MEANING: usize = 1024;

/// Everything that it lists.
#[derive(Debug, Default, Serialize)]
struct Listing {
    control_variables: Vec<Entry>,
    performance_variables: Vec<Entry>,
    events: Vec<Entry>,
}

/// A name and what it means.
#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    meaning: String,
}

// A text, an integer, a handle or a type that the functions write.
type T = *mut c_char;
type I = *mut c_int;
type H = *mut usize;
type Init = unsafe extern "C" fn(c_int, I) -> c_int;
type Number = unsafe extern "C" fn(I) -> c_int;
type CvarInfo = unsafe extern "C" fn(c_int, T, I, I, H, H, T, I, I, I) -> c_int;
type PvarInfo = unsafe extern "C" fn(c_int, T, I, I, I, H, H, T, I, I, I, I, I) -> c_int;
type EventInfo = unsafe extern "C" fn(c_int, T, I, I, H, H, I, H, H, T, I, I) -> c_int;

/// Prints it.
///
/// # Errors
/// The library cannot be opened, or the output takes no more.
pub fn print(as_json: bool) -> Result<()> {
    let listing = collect()?;
    Ok(document::write(as_json, &listing, || describe(&listing))?)
}

fn describe(listing: &Listing) -> Document {
    let mut said = Document::default();
    let parts = [
        ("control variables", &listing.control_variables),
        ("performance variables", &listing.performance_variables),
        ("events", &listing.events),
    ];
    for (head, entries) in parts {
        said.heading(head);
        let mut table = Table::of("<28|");
        for entry in entries {
            table.row([entry.name.as_str(), entry.meaning.as_str()]);
        }
        said.table(table);
    }
    said
}

fn collect() -> Result<Listing> {
    let path = find_library()?;
    // SAFETY: the installed MPI library, whose functions have the types that the standard gives them. Null is allowed
    // for what is not wanted; the texts have the room that is stated.
    unsafe {
        let library = open_library(&path)?;
        let init = find::<Init>(&library, "MPI_T_init_thread")?;
        init(0, null_mut());
        let cvar = find::<CvarInfo>(&library, "MPI_T_cvar_get_info")?;
        let pvar = find::<PvarInfo>(&library, "MPI_T_pvar_get_info")?;
        let event = find::<EventInfo>(&library, "MPI_T_event_get_info")?;
        // Not wanted.
        let (o, h) = (null_mut::<c_int>(), null_mut::<usize>());
        Ok(Listing {
            control_variables: list(&library, "MPI_T_cvar_get_num", |i, n, nl, d, dl| {
                cvar(i, n, nl, o, h, h, d, dl, o, o)
            })?,
            performance_variables: list(&library, "MPI_T_pvar_get_num", |i, n, nl, d, dl| {
                pvar(i, n, nl, o, o, h, h, d, dl, o, o, o, o)
            })?,
            events: list(&library, "MPI_T_event_get_num", |i, n, nl, d, dl| {
                event(i, n, nl, o, h, h, o, h, h, d, dl, o)
            })?,
        })
    }
}

/// Names and descriptions of all things of a kind.
///
/// # Safety
/// The library is an MPI library.
unsafe fn list(
    library: &Library, number: &str, ask: impl Fn(c_int, T, I, T, I) -> c_int,
) -> Result<Vec<Entry>> {
    let mut count = 0;
    // SAFETY: the type that the standard gives the function.
    unsafe { find::<Number>(library, number)?(&mut count) };
    let mut entries = Vec::new();
    for index in 0..count {
        let (mut name, mut meaning) = ([0_u8; NAME], [0_u8; MEANING]);
        let (mut name_room, mut meaning_room) = (NAME as c_int, MEANING as c_int);
        let code = ask(
            index,
            name.as_mut_ptr().cast(),
            &mut name_room,
            meaning.as_mut_ptr().cast(),
            &mut meaning_room,
        );
        if code == 0 {
            let (name, meaning) = (text(&name), text(&meaning));
            entries.push(Entry { name, meaning });
        }
    }
    Ok(entries)
}

/// A text up to its end.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
