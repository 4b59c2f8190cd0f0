//! `fastpath info --mpit`: contents of the installed library's tool interface (MPI 5.0, chapter 15).
#![allow(unsafe_code)]

use fastpath_report::document::{self, Document, Table};

use crate::library::{find, find_library, open_library};
use anyhow::Result;
use libloading::os::unix::Library;
use serde::Serialize;
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;

/// Buffer sizes of a name and of a description.
const NAME: usize = 128;
const MEANING: usize = 1024;

#[derive(Debug, Default, Serialize)]
struct Listing {
    control_variables: Vec<ToolEntry>,
    performance_variables: Vec<ToolEntry>,
    events: Vec<ToolEntry>,
    categories: Vec<ToolEntry>,
    sources: Vec<ToolEntry>,
}

#[derive(Debug, Serialize)]
struct ToolEntry {
    name: String,
    /// Scope of a control variable, class of a performance variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    /// Object that it is bound to; None for a category or a source.
    #[serde(skip_serializing_if = "Option::is_none")]
    binding: Option<&'static str>,
    meaning: String,
}

/// When a control variable may change, and where it must be equal (section 15.3.6); the numbers begin at 1.
const SCOPES: [&str; 7] = ["constant", "readonly", "local", "group", "group_eq", "all", "all_eq"];

/// Classes of performance variables (section 15.3.7); the numbers begin at 1.
const CLASSES: [&str; 10] = [
    "state",
    "level",
    "size",
    "percentage",
    "highwatermark",
    "lowwatermark",
    "counter",
    "aggregate",
    "timer",
    "generic",
];

const BINDINGS: [&str; 12] = [
    "no_object",
    "comm",
    "datatype",
    "errhandler",
    "file",
    "group",
    "op",
    "request",
    "win",
    "message",
    "info",
    "session",
];

fn say(words: &[&'static str], number: c_int) -> &'static str {
    let index = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
    index.and_then(|index| words.get(index)).unwrap_or(&"unknown")
}

// Pointers through which the functions write a text, an integer, and a handle or type.
type T = *mut c_char;
type I = *mut c_int;
type H = *mut usize;
type Init = unsafe extern "C" fn(c_int, I) -> c_int;
type Number = unsafe extern "C" fn(I) -> c_int;
type CvarInfo = unsafe extern "C" fn(c_int, T, I, I, H, H, T, I, I, I) -> c_int;
type PvarInfo = unsafe extern "C" fn(c_int, T, I, I, I, H, H, T, I, I, I, I, I) -> c_int;
type CategoryInfo = unsafe extern "C" fn(c_int, T, I, T, I, I, I, I) -> c_int;
type SourceInfo = unsafe extern "C" fn(c_int, T, I, T, I, I, *mut i64, *mut i64, H) -> c_int;
type EventInfo = unsafe extern "C" fn(c_int, T, I, I, H, H, I, H, H, T, I, I) -> c_int;

/// Prints the lists.
pub fn print(as_json: bool) -> Result<()> {
    let listing = collect()?;
    Ok(document::write(as_json, &listing, || describe(&listing))?)
}

fn describe(listing: &Listing) -> Document {
    let mut said = Document::default();
    let parts = [
        ("control variables: scope, binding", &listing.control_variables),
        ("performance variables: class, binding", &listing.performance_variables),
        ("events: binding", &listing.events),
        ("categories", &listing.categories),
        ("sources of events", &listing.sources),
    ];
    for (head, entries) in parts {
        said.heading(head);
        let mut table = Table::of("<28|");
        for entry in entries {
            let words: Vec<&str> = entry.kind.into_iter().chain(entry.binding).collect();
            let meaning = match words.is_empty() {
                true => entry.meaning.clone(),
                false => format!("{}: {}", words.join(", "), entry.meaning),
            };
            table.row([entry.name.as_str(), &meaning]);
        }
        said.table(table);
    }
    said
}

fn collect() -> Result<Listing> {
    let path = find_library()?;
    // SAFETY: the installed MPI library has functions of the types in the standard. Null is allowed for unneeded
    // results; the buffers have the stated sizes.
    unsafe {
        let library = open_library(&path)?;
        let init = find::<Init>(&library, "MPI_T_init_thread")?;
        init(0, null_mut());
        let cvar = find::<CvarInfo>(&library, "MPI_T_cvar_get_info")?;
        let pvar = find::<PvarInfo>(&library, "MPI_T_pvar_get_info")?;
        let event = find::<EventInfo>(&library, "MPI_T_event_get_info")?;
        let category = find::<CategoryInfo>(&library, "MPI_T_category_get_info")?;
        let source = find::<SourceInfo>(&library, "MPI_T_source_get_info")?;
        let n = null_mut::<i64>();
        let (o, h) = (null_mut::<c_int>(), null_mut::<usize>());
        Ok(Listing {
            control_variables: list(&library, "MPI_T_cvar_get_num", &SCOPES, |i, a| {
                let (d, dl) = a.meaning;
                cvar(i, a.name.0, a.name.1, o, h, h, d, dl, a.binding, a.kind)
            })?,
            performance_variables: list(&library, "MPI_T_pvar_get_num", &CLASSES, |i, a| {
                let (d, dl) = a.meaning;
                pvar(i, a.name.0, a.name.1, o, a.kind, h, h, d, dl, a.binding, o, o, o)
            })?,
            events: list(&library, "MPI_T_event_get_num", &[], |i, a| {
                let (d, dl) = a.meaning;
                event(i, a.name.0, a.name.1, o, h, h, o, h, h, d, dl, a.binding)
            })?,
            categories: list(&library, "MPI_T_category_get_num", &[], |i, a| {
                let (d, dl) = a.meaning;
                category(i, a.name.0, a.name.1, d, dl, o, o, o)
            })?,
            sources: list(&library, "MPI_T_source_get_num", &[], |i, a| {
                let (d, dl) = a.meaning;
                source(i, a.name.0, a.name.1, d, dl, o, n, n, h)
            })?,
        })
    }
}

/// Buffers for a function's results, with their sizes.
struct ResultBuffers {
    name: (T, I),
    meaning: (T, I),
    kind: I,
    binding: I,
}

/// Lists all entries of a kind; `kinds` are the words for their classes.
///
/// # Safety
/// The library is an MPI library.
unsafe fn list(
    library: &Library, number: &str, kinds: &[&'static str],
    ask: impl Fn(c_int, &ResultBuffers) -> c_int,
) -> Result<Vec<ToolEntry>> {
    let mut count = 0;
    // SAFETY: the type is that of the function in the standard.
    unsafe { find::<Number>(library, number)?(&mut count) };
    let mut entries = Vec::new();
    for index in 0..count {
        let (mut name, mut meaning) = ([0_u8; NAME], [0_u8; MEANING]);
        let (mut name_room, mut meaning_room) = (NAME as c_int, MEANING as c_int);
        let (mut kind, mut binding) = (0, 0);
        let answer = ResultBuffers {
            name: (name.as_mut_ptr().cast(), &mut name_room),
            meaning: (meaning.as_mut_ptr().cast(), &mut meaning_room),
            kind: &mut kind,
            binding: &mut binding,
        };
        if ask(index, &answer) == 0 {
            entries.push(ToolEntry {
                name: text(&name),
                kind: (!kinds.is_empty()).then(|| say(kinds, kind)),
                binding: (binding != 0).then(|| say(&BINDINGS, binding)),
                meaning: text(&meaning),
            });
        }
    }
    Ok(entries)
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
