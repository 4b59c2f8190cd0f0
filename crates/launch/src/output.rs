//! Output of the ranks: collected into lines, tagged, and written without blocking the main loop.

use crate::args::Output;
use crate::pattern::{Pattern, PatternRank};
use crate::poll::{self, Interest, Poller};
use fastpath_base::tell::{escape, escape_lines};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

const LONGEST_LINE: usize = 1 << 20;
/// Bytes queued for a sink above which the launcher does not read the ranks that write to it.
const QUEUE_HIGH: usize = 4 << 20;
/// Bytes queued for a sink below which reading resumes.
const QUEUE_LOW: usize = 1 << 20;
/// Bytes that a writable pipe takes without blocking (PIPE_BUF).
const WRITE_PIECE: usize = 4096;

/// Poller token of all output files. When one of them can be written, `settle` writes to it.
const FILES: u64 = 4;

/// Converts the bytes of one stream to whole lines with tags.
#[derive(Debug)]
pub struct LineBuffer {
    tag: Pattern,
    partial: Vec<u8>,
    /// Whether the last output was part of a line.
    inside_line: bool,
}

impl LineBuffer {
    /// Makes a buffer that puts `tag` before each line. An empty `tag` puts nothing.
    pub fn new(tag: Pattern) -> LineBuffer {
        LineBuffer { tag, partial: Vec::new(), inside_line: false }
    }

    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let Some(last) = bytes.iter().rposition(|&b| b == b'\n') else {
            self.partial.extend_from_slice(bytes);
            if self.partial.len() > LONGEST_LINE {
                self.flush_partial(out);
            }
            return;
        };
        let (lines, rest) = bytes.split_at(last + 1);
        if self.tag.is_empty() {
            out.append(&mut self.partial);
            out.extend_from_slice(lines);
        } else {
            for line in lines.split_inclusive(|&b| b == b'\n') {
                self.begin_line(out);
                out.append(&mut self.partial);
                out.extend_from_slice(line);
                self.inside_line = false;
            }
        }
        self.inside_line = false;
        self.partial.extend_from_slice(rest);
    }

    pub fn flush_partial(&mut self, out: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            self.begin_line(out);
            out.append(&mut self.partial);
            self.inside_line = true;
        }
    }

    /// Ends the stream. With tags the last line is completed, so that no two ranks share a line. Without tags the bytes
    /// stay as the program wrote them.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.flush_partial(out);
        if self.inside_line && !self.tag.is_empty() {
            out.push(b'\n');
            self.inside_line = false;
        }
    }

    pub fn has_partial(&self) -> bool {
        !self.partial.is_empty()
    }

    fn begin_line(&self, out: &mut Vec<u8>) {
        if !self.inside_line {
            self.tag.write(out);
        }
    }
}

/// Destination of output: one of the launcher's own outputs, or a file.
#[derive(Debug)]
struct Sink {
    fd: SinkFd,
    name: String,
    token: u64,
    queue: Vec<u8>,
    written: usize,
    regular: bool,
    /// Whether the sink has lost its reader, or a write to it has failed.
    broken: bool,
    /// Error of a failed write. None if the sink has only lost its reader, which is not the launcher's failure.
    failure: Option<io::Error>,
    watched: bool,
}

#[derive(Debug)]
enum SinkFd {
    Standard(BorrowedFd<'static>),
    File(OwnedFd),
}

impl AsFd for SinkFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            SinkFd::Standard(fd) => *fd,
            SinkFd::File(fd) => fd.as_fd(),
        }
    }
}

impl Sink {
    fn new(fd: SinkFd, name: &str, token: u64) -> Sink {
        Sink {
            regular: poll::is_regular(fd.as_fd()),
            fd,
            name: name.to_owned(),
            token,
            queue: Vec::new(),
            written: 0,
            broken: false,
            failure: None,
            watched: false,
        }
    }

    fn pending(&self) -> usize {
        self.queue.len() - self.written
    }

    /// Writes as much as is possible without blocking.
    fn write_ready(&mut self) {
        while self.pending() > 0 {
            let rest = &self.queue[self.written..];
            let piece = if self.regular { rest } else { &rest[..rest.len().min(WRITE_PIECE)] };
            if !self.regular && !poll::is_writable(self.fd.as_fd()) {
                break;
            }
            match poll::write(self.fd.as_fd(), piece) {
                Ok(n) => self.written += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => {
                    self.broken = true;
                    self.written = self.queue.len();
                    if e.kind() != io::ErrorKind::BrokenPipe {
                        self.failure.get_or_insert(e);
                    }
                }
            }
        }
        if self.written == self.queue.len() {
            self.queue.clear();
            self.written = 0;
        } else if self.written > QUEUE_LOW {
            self.queue.drain(..self.written);
            self.written = 0;
        }
    }

    fn watch(&mut self, poller: &Poller) {
        let want = self.pending() > 0 && !self.regular;
        if want != self.watched {
            let interest = if want { Interest::Write } else { Interest::Nothing };
            poller.change(self.fd.as_fd(), self.token, interest);
            self.watched = want;
        }
    }
}

#[derive(Debug)]
struct Stream {
    fd: Option<OwnedFd>,
    sink: usize,
    copy: Option<usize>,
    lines: LineBuffer,
    /// Whether the stream is not read, because its sink is full.
    paused: bool,
    /// Time of the last data, while an unfinished line waits; otherwise None.
    touched: Option<Instant>,
}

impl Stream {
    fn close(&mut self, poller: &Poller) {
        if let Some(fd) = self.fd.take() {
            poller.change(fd.as_fd(), 0, Interest::Nothing);
        }
    }
}

type Destination = (usize, Option<usize>);

#[derive(Debug)]
pub struct Outputs<'a> {
    streams: Vec<Stream>,
    sinks: Vec<Sink>,
    /// Sinks of standard output and standard error; one sink if they are one file, so that lines stay whole.
    sink_of: [usize; 2],
    what: &'a Output,
    who: PatternRank<'a>,
    /// Sinks of each rank's streams; empty if all go to the launcher's own outputs.
    files: Vec<[Destination; 2]>,
    opened: HashMap<PathBuf, usize>,
    terminal: bool,
    buffer: Vec<u8>,
}

/// Time, in milliseconds, after which an unfinished line is written: first for a terminal, then for a pipe or a file.
/// On a terminal, a late prompt is worse than a line shared by two ranks.
const PROMPT_MS: [u64; 2] = [50, 200];

impl<'a> Outputs<'a> {
    /// Makes the outputs of `ranks` ranks on `host`. `what` holds the options for output, and `tokens` the poller's
    /// tokens of the launcher's two sinks.
    pub fn new(what: &'a Output, host: &'a str, ranks: usize, tokens: [u64; 2]) -> Outputs<'a> {
        use std::io::IsTerminal;
        let own = |fd, name, token| Sink::new(SinkFd::Standard(poll::standard(fd)), name, token);
        let sinks = match poll::is_same_file(poll::standard(1), poll::standard(2)) {
            true => vec![own(1, "standard output and error", tokens[0])],
            false => {
                vec![own(1, "standard output", tokens[0]), own(2, "standard error", tokens[1])]
            }
        };
        Outputs {
            streams: Vec::new(),
            sink_of: [0, sinks.len() - 1],
            sinks,
            what,
            who: PatternRank { rank: 0, ranks, host },
            files: Vec::new(),
            opened: HashMap::new(),
            terminal: io::stdout().is_terminal(),
            buffer: vec![0; 64 * 1024],
        }
    }

    /// Opens the output files, if any, of further ranks that are local.
    pub fn open_files(
        &mut self, ranks: Range<usize>, is_local: impl Fn(usize) -> bool,
    ) -> Result<(), String> {
        self.files.truncate(ranks.start);
        for rank in ranks {
            let who = PatternRank { rank, ..self.who };
            let mut both = self.sink_of.map(|sink| (sink, None));
            for (which, place) in both.iter_mut().enumerate() {
                let which = if self.what.merge { 0 } else { which };
                place.0 = self.sink_of[which];
                let name = self.what.files[which].as_ref();
                let Some(name) = name.filter(|_| is_local(rank)) else {
                    continue;
                };
                let mut path = Vec::new();
                Pattern::new(name, who).write(&mut path);
                let path = PathBuf::from(OsStr::from_bytes(&path));
                let sink = match self.opened.get(&path) {
                    Some(&sink) => sink,
                    None => {
                        self.sinks.push(open_file(&path)?);
                        self.sinks.len() - 1
                    }
                };
                self.opened.insert(path, sink);
                *place = match self.what.copy {
                    true => (place.0, Some(sink)),
                    false => (sink, None),
                };
            }
            self.files.push(both);
        }
        Ok(())
    }

    /// Polls a rank's output (`which` 0) or error (1). Streams are numbered in the order of these calls. A stream's
    /// token is `first_token` plus its number.
    pub fn add_stream(
        &mut self, poller: &Poller, first_token: u64, rank: usize, which: usize, fd: OwnedFd,
    ) {
        let token = first_token + self.streams.len() as u64;
        poller.change(fd.as_fd(), token, Interest::Read);
        let (sink, copy) = self.files[rank][which];
        let who = PatternRank { rank, ..self.who };
        self.streams.push(Stream {
            fd: Some(fd),
            sink,
            copy,
            lines: LineBuffer::new(Pattern::new(&self.what.prefix, who)),
            paused: false,
            touched: None,
        });
    }

    pub fn read_stream(&mut self, poller: &Poller, index: usize) {
        let Some(stream) = self.streams.get_mut(index) else {
            return;
        };
        let Some(fd) = &stream.fd else { return };
        let sink = &mut self.sinks[stream.sink];
        let before = sink.queue.len();
        let ended = match poll::read(fd.as_fd(), &mut self.buffer) {
            Ok(0) => true,
            Ok(n) => {
                stream.lines.push(&self.buffer[..n], &mut sink.queue);
                stream.touched = stream.lines.has_partial().then(Instant::now);
                false
            }
            Err(e) => !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
        };
        if ended {
            stream.lines.finish(&mut sink.queue);
            stream.touched = None;
            stream.close(poller);
        }
        self.pass_on(poller, index, before);
    }

    /// Writes the bytes that a stream has added to its sink's queue, which held `before` bytes before. Copies these
    /// bytes to the stream's second sink, if there is one.
    fn pass_on(&mut self, poller: &Poller, index: usize, before: usize) {
        let stream = &mut self.streams[index];
        if let Some(copy) = stream.copy {
            let new = self.sinks[stream.sink].queue[before..].to_vec();
            self.sinks[copy].queue.extend_from_slice(&new);
            self.sinks[copy].write_ready();
        }
        let sink = &mut self.sinks[stream.sink];
        sink.write_ready();
        if sink.broken {
            // Close the pipe: the rank then gets SIGPIPE, as if it wrote to the broken output itself.
            stream.close(poller);
        }
    }

    /// Writes waiting data, and decides which streams may be read. Must be called after each round of the main loop.
    pub fn settle(&mut self, poller: &Poller, first_token: u64) {
        for sink in &mut self.sinks {
            sink.write_ready();
            sink.watch(poller);
        }
        for (index, stream) in self.streams.iter_mut().enumerate() {
            let pending = self.sinks[stream.sink].pending();
            let pause = if stream.paused { pending > QUEUE_LOW } else { pending > QUEUE_HIGH };
            if pause != stream.paused {
                stream.paused = pause;
                if let Some(fd) = &stream.fd {
                    let interest = if pause { Interest::Nothing } else { Interest::Read };
                    poller.change(fd.as_fd(), first_token + index as u64, interest);
                }
            }
        }
    }

    /// Unless lines are tagged, writes unfinished lines, such as prompts, that have waited for their limit
    /// ([`PROMPT_MS`]). Returns the time until the next unfinished line is due, in milliseconds.
    pub fn show_prompts(&mut self, poller: &Poller) -> Option<u64> {
        if !self.what.prefix.is_empty() {
            return None;
        }
        let limit = PROMPT_MS[usize::from(!self.terminal)];
        let mut next = None;
        for index in 0..self.streams.len() {
            let stream = &mut self.streams[index];
            let Some(touched) = stream.touched else {
                continue;
            };
            let age = touched.elapsed().as_millis() as u64;
            if age >= limit {
                let queue = &mut self.sinks[stream.sink].queue;
                let before = queue.len();
                stream.lines.flush_partial(queue);
                stream.touched = None;
                self.pass_on(poller, index, before);
            } else {
                let left = limit - age;
                next = Some(next.map_or(left, |n: u64| n.min(left)));
            }
        }
        next
    }

    /// Reads what the pipes hold after the ranks have ended. A process that left the job may keep a pipe open.
    pub fn drain(&mut self, poller: &Poller) {
        for index in 0..self.streams.len() {
            self.drain_stream(poller, index);
        }
    }

    pub fn catch_up(&mut self, poller: &Poller) {
        for index in 0..self.streams.len() {
            self.read_all(poller, index);
        }
    }

    fn read_all(&mut self, poller: &Poller, index: usize) {
        // By default a pipe holds at most a mebibyte. A process that writes forever must not block this loop.
        for _ in 0..1024 {
            let open = self.streams[index].fd.as_ref();
            if !open.is_some_and(|fd| poll::is_readable(fd.as_fd())) {
                return;
            }
            self.read_stream(poller, index);
        }
    }

    fn drain_stream(&mut self, poller: &Poller, index: usize) {
        self.read_all(poller, index);
        let stream = &mut self.streams[index];
        if stream.fd.is_none() {
            return;
        }
        stream.close(poller);
        let queue = &mut self.sinks[stream.sink].queue;
        let before = queue.len();
        stream.lines.finish(queue);
        self.pass_on(poller, index, before);
    }

    /// Writes all waiting data, as long as its sinks have readers and `go_on` returns true.
    pub fn flush(&mut self, mut go_on: impl FnMut() -> bool) {
        for sink in &mut self.sinks {
            sink.write_ready();
            while sink.pending() > 0 && go_on() {
                poll::wait_writable(sink.fd.as_fd(), 100);
                sink.write_ready();
            }
        }
    }

    pub fn describe_loss(&self) -> Option<String> {
        self.sinks.iter().find_map(|sink| {
            let e = sink.failure.as_ref()?;
            let name = escape(&sink.name);
            Some(format!("mpiexec: cannot write to {name}, and output is lost: {e}\n"))
        })
    }

    /// Prints lines of the launcher to standard error, between lines of the ranks. Control characters are escaped.
    pub fn say(&mut self, text: &str) {
        let sink = &mut self.sinks[self.sink_of[1]];
        sink.queue.extend_from_slice(escape_lines(text).as_bytes());
        sink.write_ready();
    }
}

fn open_file(path: &Path) -> Result<Sink, String> {
    let name = path.display().to_string();
    let folder = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    folder
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| File::create(path))
        .map(|file| Sink::new(SinkFd::File(file.into()), &name, FILES))
        .map_err(|e| format!("output file {name}: {e}; name a file that can be written"))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn tagged(tag: &str) -> LineBuffer {
        let who = PatternRank { rank: 0, ranks: 1, host: "" };
        LineBuffer::new(Pattern::new(tag.as_bytes(), who))
    }

    fn run(tag: &str, pieces: &[&str]) -> String {
        let mut buffer = tagged(tag);
        let mut out = Vec::new();
        pieces.iter().for_each(|p| buffer.push(p.as_bytes(), &mut out));
        buffer.finish(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines__are_tagged_once_each() {
        assert_eq!(run("[1] ", &["a\nb\n"]), "[1] a\n[1] b\n");
        assert_eq!(run("[1] ", &["a", "b\n", "\n", "c"]), "[1] ab\n[1] \n[1] c\n");
    }

    #[test]
    fn lines__without_tags_stay_byte_for_byte() {
        for pieces in [&["a\nb"][..], &["a", "b", "\n"], &["", "\n\n"], &["no end"]] {
            assert_eq!(run("", pieces), pieces.concat());
        }
    }

    #[test]
    fn lines__wait_for_their_end() {
        let mut buffer = tagged("");
        let mut out = Vec::new();
        buffer.push(b"half", &mut out);
        assert!(out.is_empty() && buffer.has_partial());
        buffer.push(b" line\nnext", &mut out);
        assert_eq!(out, b"half line\n");
    }

    #[test]
    fn lines__longer_than_the_bound_come_in_pieces_with_one_tag() {
        let mut buffer = tagged("[0] ");
        let mut out = Vec::new();
        let long = vec![b'x'; LONGEST_LINE + 1];
        buffer.push(&long, &mut out);
        assert_eq!(out.len(), LONGEST_LINE + 5);
        buffer.push(b"yy\nz\n", &mut out);
        assert!(out.ends_with(b"xyy\n[0] z\n"));
    }

    #[test]
    fn prompt__is_passed_on_and_the_line_goes_on_untagged() {
        let mut buffer = tagged("[0] ");
        let mut out = Vec::new();
        buffer.push(b"name? ", &mut out);
        buffer.flush_partial(&mut out);
        buffer.push(b"ok\n", &mut out);
        assert_eq!(out, b"[0] name? ok\n");
    }
}
