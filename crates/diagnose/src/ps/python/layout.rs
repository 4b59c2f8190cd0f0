//! Offsets of the interpreter's fields, for 64-bit builds.

use super::lines::LineTable;

// Equal in all versions.
pub const OBJECT_TYPE: u64 = 8;
pub const TYPE_NAME: u64 = 24;
pub const TEXT_LENGTH: u64 = 16;
pub const TEXT_STATE: u64 = 32;
pub const BYTES_LENGTH: u64 = 16;
pub const BYTES_DATA: u64 = 32;

/// Offsets of a version, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// `_PyRuntimeState.interpreters.head`.
    pub interpreters: u64,
    pub interpreter_next: u64,
    /// `PyInterpreterState.threads.head`.
    pub threads: u64,
    pub thread_next: u64,
    /// `PyThreadState.native_thread_id`; `None` before 3.11.
    pub native_id: Option<u64>,
    /// Pointer of a thread to the structure that has `current_frame`; `None` if the thread has it.
    pub frame_holder: Option<u64>,
    pub current_frame: u64,
    pub previous: u64,
    pub code: u64,
    pub instruction: u64,
    pub file: u64,
    /// Qualified name of the function; the plain name before 3.11.
    pub function: u64,
    pub first_line: u64,
    pub line_table: u64,
    /// First instruction in a code object; `None` if frames have an index.
    pub code_start: Option<u64>,
    pub lines: LineTable,
    /// Size of the header of a `str` with ASCII characters alone, and of another compact `str`.
    pub ascii_bytes: u64,
    pub compact_bytes: u64,
}

const V39: Layout = Layout {
    interpreters: 32,
    interpreter_next: 0,
    threads: 8,
    thread_next: 8,
    native_id: None,
    frame_holder: None,
    current_frame: 24,
    previous: 24,
    code: 32,
    instruction: 104,
    file: 104,
    function: 112,
    first_line: 40,
    line_table: 120,
    code_start: None,
    lines: LineTable::Bytes,
    ascii_bytes: 48,
    compact_bytes: 72,
};

const V310: Layout = Layout { instruction: 96, lines: LineTable::Ranges, ..V39 };

const V311: Layout = Layout {
    interpreters: 40,
    threads: 16,
    native_id: Some(160),
    frame_holder: Some(56),
    current_frame: 8,
    previous: 48,
    code: 32,
    instruction: 56,
    file: 112,
    function: 128,
    first_line: 72,
    line_table: 136,
    code_start: Some(184),
    lines: LineTable::Locations,
    ..V39
};

const V312: Layout = Layout {
    threads: 72,
    native_id: Some(144),
    current_frame: 0,
    previous: 8,
    code: 0,
    first_line: 68,
    code_start: Some(192),
    ascii_bytes: 40,
    compact_bytes: 56,
    ..V311
};

/// First word of `_Py_DebugOffsets`.
const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// Positions, in words, of fields in `_Py_DebugOffsets`.
struct PublishedOffsets {
    interpreter: usize,
    thread: usize,
    frame: usize,
    code: usize,
    words: usize,
}

/// The groups before `interpreter_frame` have 3, 3, 13 and 9 words.
const P313: PublishedOffsets =
    PublishedOffsets { interpreter: 6, thread: 19, frame: 28, code: 34, words: 44 };
/// 3.14 has 3 words more in `interpreter_state`, and 2 in `interpreter_frame`.
const P314: PublishedOffsets =
    PublishedOffsets { interpreter: 6, thread: 22, frame: 31, code: 39, words: 50 };

impl Layout {
    /// Returns the layout of version 3.`minor`. `read` returns the first words of `_PyRuntime`.
    ///
    /// # Errors
    /// The version is unknown, its offsets cannot be read, or the build is free-threaded.
    pub fn of(minor: u32, read: impl FnOnce(usize) -> Option<Vec<u64>>) -> Result<Layout, String> {
        let published = match minor {
            9 => return Ok(V39),
            10 => return Ok(V310),
            11 => return Ok(V311),
            12 => return Ok(V312),
            13 => P313,
            14 => P314,
            _ => return Err(format!("frames of Python 3.{minor} are not known, only 3.9 to 3.14")),
        };
        let words = read(published.words).ok_or("the memory of the process cannot be read")?;
        if words[0] != COOKIE || (words[1] >> 16) as u32 & 0xff != minor {
            return Err(format!("the offsets of Python 3.{minor} are not those of a release"));
        }
        if words[2] != 0 {
            return Err("frames of free-threaded Python cannot be read".to_owned());
        }
        let PublishedOffsets { interpreter, thread, frame, code, .. } = published;
        Ok(Layout {
            interpreters: words[5],
            interpreter_next: words[interpreter + 2],
            threads: words[interpreter + 3],
            thread_next: words[thread + 2],
            native_id: Some(words[thread + 6]),
            frame_holder: None,
            current_frame: words[thread + 4],
            previous: words[frame + 1],
            code: words[frame + 2],
            instruction: words[frame + 3],
            file: words[code + 1],
            function: words[code + 3],
            line_table: words[code + 4],
            first_line: words[code + 5],
            code_start: Some(words[code + 9]),
            ..V312
        })
    }
}
