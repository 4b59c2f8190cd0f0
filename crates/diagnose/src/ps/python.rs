//! Frames of CPython 3.9 to 3.14 in another process, read from the interpreter's structures.
//!
//! From 3.13 on the interpreter publishes the offsets of its fields (`_Py_DebugOffsets`). Those of earlier versions are
//! fixed since their first release, and come from their headers. Values that are read are not trusted.

mod layout;
mod lines;

use super::memory::{read_memory, read_words};
use layout::Layout;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol};
use std::fs;
use std::path::Path;

/// Largest number of frames, threads and interpreters that are read.
const MOST: usize = 256;
/// File name of the code by which C calls Python (3.12 and later).
const SHIM: &str = "<shim>";
/// Largest length of a text, in characters.
const TEXT_MOST: u64 = 4096;

/// A call of a Python function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PythonFrame {
    function: String,
    file: String,
    line: Option<u32>,
}

impl PythonFrame {
    fn describe(&self) -> String {
        let PythonFrame { function, file, line } = self;
        match line {
            Some(line) => format!("{function} ({file}:{line})"),
            None => format!("{function} ({file})"),
        }
    }
}

/// Describes frames, the innermost first.
pub(super) fn describe_frames(frames: &[PythonFrame]) -> String {
    const NAMED_MOST: usize = 6;
    let named: Vec<String> = frames.iter().take(NAMED_MOST).map(PythonFrame::describe).collect();
    let more = match frames.len().saturating_sub(NAMED_MOST) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    named.join(", called by ") + &more
}

/// The interpreter in a process.
pub(super) struct Interpreter {
    /// Address of `_PyRuntime`.
    runtime: u64,
    /// Version 3.`minor`.
    minor: u32,
}

/// Finds the interpreter of a process; `None` if it runs no Python.
pub(super) fn find_interpreter(pid: i32) -> Option<Interpreter> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let mut tried = Vec::new();
    for line in maps.lines() {
        let Some(path) = line.find('/').and_then(|at| line.get(at..)) else { continue };
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
        // Extension modules have names such as `_ctypes.cpython-311-x86_64-linux-gnu.so`.
        if !name.contains("python") || name.contains(".cpython-") || tried.contains(&path) {
            continue;
        }
        tried.push(path);
        let start = line.split('-').next().and_then(|hex| u64::from_str_radix(hex, 16).ok());
        if let Some(found) = start.and_then(|start| find_runtime(pid, path, &name, start)) {
            return Some(found);
        }
    }
    None
}

/// Finds the interpreter in a file whose first byte is mapped at `start`.
fn find_runtime(pid: i32, path: &str, name: &str, start: u64) -> Option<Interpreter> {
    let bytes = fs::read(path).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    let first = file.segments().find(|segment| segment.file_range().0 == 0)?.address();
    let place = |address: u64| start.wrapping_sub(first).wrapping_add(address);
    let symbol = |wanted: &str| {
        let mut all = file.dynamic_symbols().chain(file.symbols());
        let found = all.find(|s| s.name() == Ok(wanted) && s.is_definition());
        found.map(|symbol| place(symbol.address()))
    };
    let section = || file.section_by_name(".PyRuntime").map(|section| place(section.address()));
    let runtime = symbol("_PyRuntime").or_else(section)?;
    let version = symbol("Py_Version").and_then(|at| read_word(pid, at));
    let minor = version.map(|version| (version >> 16) as u32 & 0xff).or_else(|| {
        let digits = name.split_once("python3.")?.1;
        digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    });
    Some(Interpreter { runtime, minor: minor? })
}

impl Interpreter {
    /// Reads the frames of the process's first thread, the innermost first. The process should be stopped or asleep.
    ///
    /// # Errors
    /// The version is unknown, or the thread has no frame that can be read.
    pub fn read_frames(&self, pid: i32) -> Result<Vec<PythonFrame>, String> {
        let layout = Layout::of(self.minor, |words| read_words(pid, self.runtime, words))?;
        let frames = read_first_thread(pid, self.runtime, &layout);
        frames
            .filter(|frames| !frames.is_empty())
            .ok_or_else(|| format!("no frame of Python 3.{} can be read", self.minor))
    }
}

fn read_first_thread(pid: i32, runtime: u64, layout: &Layout) -> Option<Vec<PythonFrame>> {
    let mut interpreter = read_word(pid, runtime.wrapping_add(layout.interpreters))?;
    let mut oldest = None;
    for _ in 0..MOST {
        if interpreter == 0 {
            break;
        }
        let mut thread = read_word(pid, interpreter.wrapping_add(layout.threads))?;
        for _ in 0..MOST {
            if thread == 0 {
                break;
            }
            // Threads are added in front, so the last one is the first thread.
            oldest = Some(thread);
            let id = layout.native_id.and_then(|at| read_word(pid, thread.wrapping_add(at)));
            if id.is_some_and(|id| id as i32 == pid) {
                return Some(read_thread(pid, thread, layout));
            }
            thread = read_word(pid, thread.wrapping_add(layout.thread_next))?;
        }
        interpreter = read_word(pid, interpreter.wrapping_add(layout.interpreter_next))?;
    }
    oldest.map(|thread| read_thread(pid, thread, layout))
}

fn read_thread(pid: i32, thread: u64, layout: &Layout) -> Vec<PythonFrame> {
    let read = |at: u64, offset: u64| read_word(pid, at.wrapping_add(offset)).unwrap_or(0);
    let holder = layout.frame_holder.map_or(thread, |offset| read(thread, offset));
    let mut at = read(holder, layout.current_frame);
    let mut frames = Vec::new();
    for _ in 0..MOST {
        if at == 0 {
            break;
        }
        frames.extend(read_frame(pid, at, layout));
        at = read(at, layout.previous);
    }
    frames
}

/// Reads a frame; `None` if it is an entry of the interpreter without code.
fn read_frame(pid: i32, frame: u64, layout: &Layout) -> Option<PythonFrame> {
    // References may have tags in their low bits.
    let code = read_word(pid, frame.wrapping_add(layout.code))? & !7;
    if !is_code(pid, code) {
        return None;
    }
    let text = |offset: u64| {
        let at = read_word(pid, code.wrapping_add(offset))?;
        read_text(pid, at, layout)
    };
    let instruction = read_word(pid, frame.wrapping_add(layout.instruction))?;
    let first = read_word(pid, code.wrapping_add(layout.first_line))? as u32;
    let table = read_word(pid, code.wrapping_add(layout.line_table))?;
    let line = read_bytes_object(pid, table).and_then(|table| {
        let offset = match layout.code_start {
            Some(start) => instruction.checked_sub(code.wrapping_add(start))?,
            // The index of the last instruction, an `int`; -1 before the first one.
            None => u64::from((instruction as i32).max(0) as u32),
        };
        layout.lines.find(&table, first, offset)
    });
    let (function, file) = (text(layout.function)?, text(layout.file)?);
    (file != SHIM).then_some(PythonFrame { function, file, line })
}

/// Whether an object is a code object: the name of its type is "code".
fn is_code(pid: i32, object: u64) -> bool {
    let name = read_word(pid, object.wrapping_add(layout::OBJECT_TYPE))
        .and_then(|of| read_word(pid, of.wrapping_add(layout::TYPE_NAME)));
    name.is_some_and(|name| read_memory(pid, name, 5) == b"code\0")
}

/// Reads a `str`.
fn read_text(pid: i32, object: u64, layout: &Layout) -> Option<String> {
    let length = read_word(pid, object.wrapping_add(layout::TEXT_LENGTH))?.min(TEXT_MOST) as usize;
    let state = read_word(pid, object.wrapping_add(layout::TEXT_STATE))?;
    let (kind, is_compact, is_ascii) = (state as usize >> 2 & 7, state >> 5 & 1, state >> 6 & 1);
    if is_compact == 0 || ![1, 2, 4].contains(&kind) {
        return None;
    }
    let header = if is_ascii == 1 { layout.ascii_bytes } else { layout.compact_bytes };
    let bytes = read_memory(pid, object.wrapping_add(header), kind * length);
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, &b| sum << 8 | u32::from(b));
    let letter = |bytes: &[u8]| char::from_u32(number(bytes)).unwrap_or('\u{fffd}');
    let text: String = bytes.chunks_exact(kind).map(letter).collect();
    (bytes.len() == kind * length).then(|| fastpath_base::tell::escape(&text).into_owned())
}

fn read_bytes_object(pid: i32, object: u64) -> Option<Vec<u8>> {
    let length = read_word(pid, object.wrapping_add(layout::BYTES_LENGTH))?;
    let length = usize::try_from(length).ok().filter(|&length| length < 1 << 20)?;
    let bytes = read_memory(pid, object.wrapping_add(layout::BYTES_DATA), length);
    (bytes.len() == length).then_some(bytes)
}

fn read_word(pid: i32, at: u64) -> Option<u64> {
    read_words(pid, at, 1)?.first().copied()
}

#[cfg(test)]
mod tests;
