#![allow(unsafe_code)]
//! PMI-1, the text protocol of Hydra, Slurm (`--mpi=pmi2`), Flux and gforker over a descriptor (`PMI_FD`) or a
//! connection (`PMI_PORT`).

mod line;

use super::about::ProcessInfo;
use super::error::EngineError;
use crate::control::Program;
use crate::socket::send_all;
use fastpath_base::config::shorten;
use fastpath_base::fd::CheckedHandle;
use line::{ANSWER_MOST, LINE_MOST, PIECES_MOST, PmiLine, VALUE_MOST};
use line::{join_value, read_first, split_value};
use socket2::SockRef;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Name of the connection's descriptor in messages.
const ENGINE: &str = "the connection to the launcher";

/// Connection of a rank. The functions of this type implement those of [`super::Engine`].
#[derive(Debug)]
pub struct Pmi1 {
    stream: CheckedHandle<File>,
    ahead: Vec<u8>,
    about: ProcessInfo,
}

impl Pmi1 {
    /// Connects to the engine that the environment names.
    ///
    /// # Errors
    /// The variables are missing, or the engine cannot be reached.
    pub fn connect() -> Result<Pmi1, EngineError> {
        match read_variable("PMI_PORT") {
            Some(port) => Pmi1::over_port(&port, &read_variable("PMI_ID").unwrap_or_default()),
            None => {
                let number = |name| read_number(name, &read_variable(name).unwrap_or_default());
                let fd = number("PMI_FD")? as RawFd;
                let (rank, size) = (number("PMI_RANK")?, number("PMI_SIZE")?);
                Pmi1::over(take_inherited(fd)?, rank, size)
            }
        }
    }

    /// Connects over a descriptor that leads to an engine.
    ///
    /// # Errors
    /// The engine cannot be reached.
    pub fn over(stream: OwnedFd, rank: usize, size: usize) -> Result<Pmi1, EngineError> {
        let mut pmi = Pmi1::new(stream);
        pmi.start(rank, size)?;
        Ok(pmi)
    }

    fn over_port(port: &str, id: &str) -> Result<Pmi1, EngineError> {
        let id = read_number("PMI_ID", id)?;
        let stream = TcpStream::connect(port).map_err(|cause| EngineError::System {
            step: "connecting to the launcher (PMI_PORT)",
            cause,
        })?;
        // Each request is one line whose answer is awaited, so a delayed send would only add latency.
        let _ = stream.set_nodelay(true);
        let mut pmi = Pmi1::new(OwnedFd::from(stream));
        pmi.ask(&format!("cmd=initack pmiid={id}"), "initack")?;
        // The engine sends size, rank and a debug flag, at present in this order.
        let (mut rank, mut size) = (None, None);
        for _ in 0..3 {
            let line = pmi.read_line("initack")?.1;
            rank = rank.or(line.number("rank"));
            size = size.or(line.number("size"));
        }
        let (Some(rank), Some(size)) = (rank, size) else {
            return Err(EngineError::Answer { step: "initack", said: "no rank and size".into() });
        };
        pmi.start(rank, size)?;
        Ok(pmi)
    }

    fn new(stream: OwnedFd) -> Pmi1 {
        Pmi1 {
            // Keep the descriptor's number, because PMI_FD names it, and the launcher is detected by PMI_FD.
            stream: CheckedHandle::keep_in_place(stream, ENGINE),
            ahead: Vec::new(),
            about: ProcessInfo {
                rank: 0,
                size: 1,
                job: String::new(),
                appnum: None,
                universe: None,
            },
        }
    }

    /// Sends the rank, and requests the data of the job.
    fn start(&mut self, rank: usize, size: usize) -> Result<(), EngineError> {
        if rank >= size {
            let value = format!("rank {rank} of {size}");
            let name = "PMI_RANK";
            return Err(EngineError::Variable { name, value });
        }
        (self.about.rank, self.about.size) = (rank, size);
        self.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        let maxes = self.ask("cmd=get_maxes", "maxes")?;
        let name = self.ask("cmd=get_my_kvsname", "my_kvsname")?;
        let name = name.field("kvsname").unwrap_or_default().to_owned();
        let longest = maxes.number("kvsname_max").unwrap_or(256).min(256);
        if name.is_empty() || name.len() > longest {
            return Err(EngineError::Answer { step: "my_kvsname", said: shorten(&name) });
        }
        self.about.job = name;
        // The engine may omit these answers.
        let told = |line: Result<PmiLine, EngineError>, name| line.ok()?.number(name);
        self.about.appnum = told(self.ask("cmd=get_appnum", "appnum"), "appnum");
        let universe = self.ask("cmd=get_universe_size", "universe_size");
        self.about.universe = told(universe, "size").filter(|&n| n > 0);
        Ok(())
    }

    /// Returns the engine's data on this process.
    pub fn about(&self) -> &ProcessInfo {
        &self.about
    }

    /// See [`super::Engine::put`].
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<(), EngineError> {
        let pieces = split_value(value);
        if pieces.len() > PIECES_MOST {
            return Err(EngineError::TooLong { step: "put", bytes: value.len() });
        }
        for (number, piece) in pieces.iter().enumerate() {
            let key = name_key(self.about.rank, key, number);
            let line = format!("cmd=put kvsname={} key={key} value={piece}", self.about.job);
            self.ask(&line, "put_result")?;
        }
        Ok(())
    }

    /// See [`super::Engine::fence`].
    pub fn fence(&mut self) -> Result<(), EngineError> {
        self.ask("cmd=barrier_in", "barrier_out").map(|_| ())
    }

    /// See [`super::Engine::get`].
    pub fn get(&mut self, rank: usize, key: &str) -> Result<Option<Vec<u8>>, EngineError> {
        let Some(first) = self.get_piece(rank, key, 0)? else {
            return Ok(None);
        };
        let malformed = |said: &str| EngineError::Answer { step: "get", said: shorten(said) };
        let (count, text) = read_first(&first).ok_or_else(|| malformed(&first))?;
        let mut text = text.to_owned();
        for number in 1..count {
            let piece = self.get_piece(rank, key, number)?;
            text += &piece.ok_or_else(|| malformed(&first))?;
        }
        let value = join_value(&text).ok_or_else(|| malformed(&text))?;
        Ok(Some(value))
    }

    fn get_piece(
        &mut self, rank: usize, key: &str, number: usize,
    ) -> Result<Option<String>, EngineError> {
        let key = name_key(rank, key, number);
        self.send(&format!("cmd=get kvsname={} key={key}", self.about.job), "get")?;
        let (text, line) = self.read_line("get")?;
        if line.field("cmd") != Some("get_result") {
            return Err(EngineError::Answer { step: "get", said: shorten(&text) });
        }
        // Any answer other than success means that the key is missing. Engines differ in the error number.
        let found = line.answers("get_result").then(|| line.field("value"));
        Ok(found.flatten().map(str::to_owned))
    }

    /// See [`super::Engine::publish`].
    pub fn publish(&mut self, service: &[u8], port: &[u8]) -> Result<bool, EngineError> {
        let step = "publish_name";
        let (service, port) = (name_service(service, step)?, name_service(port, step)?);
        let line = format!("cmd=publish_name service={service} port={port}");
        let answer = self.ask_names(&line, "publish_result")?;
        Ok(answer.is_some())
    }

    /// See [`super::Engine::look_up`].
    pub fn look_up(&mut self, service: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        let service = name_service(service, "lookup_name")?;
        let line = format!("cmd=lookup_name service={service}");
        let answer = self.ask_names(&line, "lookup_result")?;
        let Some(port) = answer.as_ref().and_then(|line| line.field("port")) else {
            return Ok(None);
        };
        // Another MPI library may have published this name, with a port that lacks the prefix.
        let port = port.strip_prefix(SERVICE);
        Ok(port.and_then(read_first).and_then(|(_, text)| join_value(text)))
    }

    /// See [`super::Engine::unpublish`].
    pub fn unpublish(&mut self, service: &[u8]) -> Result<bool, EngineError> {
        let service = name_service(service, "unpublish_name")?;
        let line = format!("cmd=unpublish_name service={service}");
        let answer = self.ask_names(&line, "unpublish_result")?;
        Ok(answer.is_some())
    }

    /// Sends a request about names, and returns the answer; `None` if the engine refuses.
    fn ask_names(
        &mut self, line: &str, answer: &'static str,
    ) -> Result<Option<PmiLine>, EngineError> {
        self.send(line, answer)?;
        let (text, line) = self.read_line(answer)?;
        // An engine without such a command answers with another command, or repeats the request.
        if line.field("cmd") != Some(answer) {
            let said = shorten(&text);
            return Err(EngineError::Answer { step: answer, said });
        }
        // Slurm refuses with this field.
        let is_refused = !line.answers(answer) || line.field("info") == Some("fail");
        Ok((!is_refused).then_some(line))
    }

    /// See [`super::Engine::spawn`].
    pub fn spawn(
        &mut self, programs: &[Program], key: &str, value: &[u8],
    ) -> Result<(), EngineError> {
        let step = "spawn";
        let pieces = split_value(value);
        let [piece] = pieces.as_slice() else {
            let bytes = value.len();
            return Err(EngineError::TooLong { step, bytes });
        };
        let left = [
            "preput_num=1".to_owned(),
            format!("preput_key_0={}", name_key(0, key, 0)),
            format!("preput_val_0={piece}"),
        ];
        let mut lines = Vec::new();
        for (number, program) in programs.iter().enumerate() {
            lines.extend(describe_program(program, number, programs.len())?);
            lines.extend(left.clone());
            lines.extend(describe_hints(program));
            lines.push("endcmd".to_owned());
        }
        // The lines are sent only if all of them fit, because an engine waits for the rest of a request.
        if let Some(long) = lines.iter().find(|line| line.len() >= LINE_MOST) {
            let bytes = long.len();
            return Err(EngineError::TooLong { step, bytes });
        }
        // Hydra rejects an empty value, and some of its releases drop a backslash.
        let is_lost = |line: &String| line.contains(['\n', '\\']) || line.ends_with('=');
        if let Some(line) = lines.iter().find(|line| is_lost(line)) {
            return Err(EngineError::Unsayable(shorten(line)));
        }
        for line in &lines {
            self.send(line, step)?;
        }
        let answer = "spawn_result";
        let (text, line) = self.read_line(answer)?;
        match line.answers(answer) {
            true => Ok(()),
            false => Err(EngineError::Answer { step: answer, said: shorten(&text) }),
        }
    }

    /// See [`super::Engine::aborter`].
    pub fn aborter(&self) -> Result<Aborter, EngineError> {
        let stream = self.stream.get().map_err(io::Error::from).and_then(File::try_clone);
        let stream = stream.map_err(|cause| EngineError::System { step: "dup", cause })?;
        Ok(Aborter { stream: CheckedHandle::keep(stream, ENGINE) })
    }

    /// See [`super::Engine::finalize`].
    pub fn finalize(&mut self) -> Result<(), EngineError> {
        self.ask("cmd=finalize", "finalize_ack").map(|_| ())
    }

    fn ask(&mut self, command: &str, answer: &'static str) -> Result<PmiLine, EngineError> {
        self.send(command, answer)?;
        let (text, line) = self.read_line(answer)?;
        match line.answers(answer) {
            true => Ok(line),
            false => Err(EngineError::Answer { step: answer, said: shorten(&text) }),
        }
    }

    fn send(&mut self, command: &str, step: &'static str) -> Result<(), EngineError> {
        let bytes = command.len() + 1;
        if bytes > LINE_MOST {
            return Err(EngineError::TooLong { step, bytes });
        }
        let line = format!("{command}\n");
        let stream = self.stream.get().map_err(io::Error::from);
        let written = stream.and_then(|stream| send_all(stream.as_fd(), line.as_bytes()));
        written.map_err(|cause| match cause.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => EngineError::Closed(step),
            _ => EngineError::System { step, cause },
        })
    }

    fn read_line(&mut self, step: &'static str) -> Result<(String, PmiLine), EngineError> {
        loop {
            if let Some(end) = self.ahead.iter().position(|&b| b == b'\n') {
                let rest = self.ahead.split_off(end + 1);
                let line = std::mem::replace(&mut self.ahead, rest);
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                let line = PmiLine::parse(&text);
                return Ok((text, line));
            }
            if self.ahead.len() > ANSWER_MOST {
                return Err(EngineError::Answer {
                    step,
                    said: shorten(&String::from_utf8_lossy(&self.ahead)),
                });
            }
            let mut part = [0; 2048];
            let stream = self.stream.get().map_err(io::Error::from);
            match stream.and_then(|mut stream| stream.read(&mut part)) {
                Ok(0) => return Err(EngineError::Closed(step)),
                Ok(n) => self.ahead.extend_from_slice(&part[..n]),
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) if cause.kind() == ErrorKind::ConnectionReset => {
                    return Err(EngineError::Closed(step));
                }
                Err(cause) => return Err(EngineError::System { step, cause }),
            }
        }
    }
}

/// Ends the job over the same connection, from any thread.
#[derive(Debug)]
pub struct Aborter {
    stream: CheckedHandle<File>,
}

impl Aborter {
    /// See [`super::Aborter::abort`].
    pub fn abort(&self, code: i32) {
        // One short line in one write is not interleaved with another thread's line. A failed write cannot be reported.
        let line = format!("cmd=abort exitcode={code}\n");
        let _ = self.stream.get().map(|stream| send_all(stream.as_fd(), line.as_bytes()));
    }
}

/// Returns the lines of one program of a spawn (MPICH's `PMI_Spawn_multiple`, the multi-line form of the protocol).
fn describe_program(
    program: &Program, number: usize, of: usize,
) -> Result<Vec<String>, EngineError> {
    let words = program.argv.iter().map(|word| {
        let malformed = |_| EngineError::Answer {
            step: "spawn",
            said: "a word of the command is not UTF-8 text".into(),
        };
        String::from_utf8(word.clone()).map_err(malformed)
    });
    let words = words.collect::<Result<Vec<String>, _>>()?;
    let count = program.counts.first().copied().unwrap_or(1);
    let mut lines = vec![
        "mcmd=spawn".to_owned(),
        format!("nprocs={count}"),
        format!("execname={}", words.first().map_or("", String::as_str)),
        format!("totspawns={of}"),
        format!("spawnssofar={}", number + 1),
    ];
    let arguments = words.iter().skip(1).enumerate();
    lines.extend(arguments.map(|(at, word)| format!("arg{}={word}", at + 1)));
    lines.push(format!("argcnt={}", words.len().saturating_sub(1)));
    Ok(lines)
}

fn describe_hints(program: &Program) -> Vec<String> {
    let hints = [("wdir", &program.wdir), ("path", &program.path), ("host", &program.host)];
    let given = hints.iter().filter_map(|(key, value)| {
        let value = String::from_utf8(value.as_ref()?.clone()).ok()?;
        Some((key, value))
    });
    let given: Vec<_> = given.collect();
    let mut lines = vec![format!("info_num={}", given.len())];
    for (number, (key, value)) in given.iter().enumerate() {
        lines.push(format!("info_key_{number}={key}"));
        lines.push(format!("info_val_{number}={value}"));
    }
    lines
}

const SERVICE: &str = "fp-";

/// Encodes the name of a service or a port, in one piece.
fn name_service(name: &[u8], step: &'static str) -> Result<String, EngineError> {
    match split_value(name).as_slice() {
        // A line has space for two names.
        [piece] if piece.len() <= VALUE_MOST / 2 => Ok(format!("{SERVICE}{piece}")),
        _ => Err(EngineError::TooLong { step, bytes: name.len() }),
    }
}

/// Returns the key of a piece of a value, in the key space that all ranks share.
fn name_key(rank: usize, key: &str, number: usize) -> String {
    match number {
        0 => format!("fp-{key}-{rank}"),
        _ => format!("fp-{key}-{rank}-{number}"),
    }
}

fn read_variable(name: &str) -> Option<String> {
    let text = std::env::var_os(name)?.to_string_lossy().trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn read_number(name: &'static str, text: &str) -> Result<usize, EngineError> {
    let number = text.parse().ok().filter(|&n: &usize| n <= i32::MAX as usize);
    number.ok_or_else(|| EngineError::Variable { name, value: shorten(text) })
}

/// Takes over the inherited descriptor, and sets it to close on exec.
fn take_inherited(fd: RawFd) -> Result<OwnedFd, EngineError> {
    let wrong = |cause| EngineError::System { step: "the descriptor that PMI_FD names", cause };
    // A standard stream is not the engine's connection. Taking it over would close it for the program.
    if fd <= libc::STDERR_FILENO {
        let why = "the descriptor is standard input, output or error";
        return Err(wrong(io::Error::new(ErrorKind::InvalidInput, why)));
    }
    // SAFETY: the borrowed descriptor is only examined, and the first call fails if it is closed or no socket.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let socket = SockRef::from(&borrowed);
    socket.r#type().map_err(wrong)?;
    socket.set_cloexec(true).map_err(wrong)?;
    // SAFETY: the descriptor is open, and the launcher has made it only for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::super::fake::{ReplyStyle, Server};
    use super::*;
    use std::io::{BufRead, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn values__of_any_length_come_from_every_rank_after_a_fence() {
        for manner in [ReplyStyle::Hydra, ReplyStyle::Slurm] {
            let server = Server::new("kvs_1_0", 3, manner);
            let value = |rank: usize, length: usize| vec![rank as u8 + 1; length];
            let run = |rank: usize| {
                let mut pmi = server.connect(rank);
                for length in [0, 5, 3000] {
                    pmi.put(&format!("v{length}"), &value(rank, length)).unwrap();
                }
                pmi.fence().unwrap();
                for (peer, length) in (0..3).flat_map(|p| [0, 5, 3000].map(|n| (p, n))) {
                    let got = pmi.get(peer, &format!("v{length}")).unwrap();
                    assert_eq!(got, Some(value(peer, length)));
                }
                assert_eq!(pmi.get(1, "none").unwrap(), None);
                pmi.finalize().unwrap();
                pmi.about().clone()
            };
            let abouts: Vec<ProcessInfo> = std::thread::scope(|scope| {
                let ranks: Vec<_> = (0..3).map(|r| scope.spawn(move || run(r))).collect();
                ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
            });
            for (rank, about) in abouts.iter().enumerate() {
                assert_eq!((about.rank, about.size, about.appnum), (rank, 3, Some(3)));
                let told = (manner == ReplyStyle::Slurm).then_some(3);
                assert_eq!((about.universe, &*about.job), (told, "kvs_1_0"));
            }
            assert_eq!((server.fences(), server.finalized()), (1, 3));
        }
    }

    #[test]
    fn names__are_published_looked_up_and_taken_back() {
        for manner in [ReplyStyle::Hydra, ReplyStyle::Slurm] {
            let server = Server::new("kvs_3_0", 2, manner);
            let (mut one, mut other) = (server.connect(0), server.connect(1));
            let service = b"a b=c\n\xff";
            assert_eq!(other.look_up(service).unwrap(), None);
            assert!(!other.unpublish(service).unwrap());
            assert!(one.publish(service, b"port 1").unwrap());
            assert!(!other.publish(service, b"port 2").unwrap());
            assert_eq!(other.look_up(service).unwrap(), Some(b"port 1".to_vec()));
            assert!(one.unpublish(service).unwrap());
            assert_eq!(other.look_up(service).unwrap(), None);
            let long = one.publish(&[7; 1000], b"x").unwrap_err();
            assert!(matches!(long, EngineError::TooLong { .. }), "{long}");
        }
        // This server has no such command.
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&ours).write_all(b"cmd=publish_name rc=-1\n").unwrap();
        let refused = Pmi1::new(theirs.into()).publish(b"x", b"y").unwrap_err();
        assert!(matches!(refused, EngineError::Answer { .. }), "{refused}");
        drop(ours);
    }

    #[test]
    fn spawn__is_said_in_lines_and_refused_where_it_cannot_be() {
        let program = Program {
            argv: ["./child", "two words", "x=y"].map(Into::into).to_vec(),
            counts: vec![3, 1],
            wdir: Some(b"/tmp".to_vec()),
            path: None,
            host: None,
        };
        let spawn = |answer: &'static [u8], programs: &[Program]| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            (&ours).write_all(answer).unwrap();
            let outcome = Pmi1::new(theirs.into()).spawn(programs, "parent", b"a port");
            let lines = std::io::BufReader::new(ours).lines().map(Result::unwrap);
            (outcome, lines.collect::<Vec<String>>())
        };
        let both = [program.clone(), program.clone()];
        let (outcome, lines) = spawn(b"cmd=spawn_result rc=0 jobid=x nerrs=0\n", &both);
        outcome.unwrap();
        let left = format!("preput_val_0={}", split_value(b"a port")[0]);
        let expected = [
            "mcmd=spawn",
            "nprocs=3",
            "execname=./child",
            "totspawns=2",
            "spawnssofar=1",
            "arg1=two words",
            "arg2=x=y",
            "argcnt=2",
            "preput_num=1",
            "preput_key_0=fp-parent-0",
            &left,
            "info_num=1",
            "info_key_0=wdir",
            "info_val_0=/tmp",
            "endcmd",
        ];
        assert_eq!(lines[..expected.len()], expected);
        assert_eq!(lines.len(), 2 * expected.len());
        assert!(lines.contains(&"spawnssofar=2".to_owned()));
        let (refused, _) = spawn(b"cmd=spawn_result rc=-1\n", &both);
        assert!(matches!(refused, Err(EngineError::Answer { .. })));
        for word in [&b""[..], b"a\\b", b"a\nb"] {
            let mut odd = program.clone();
            odd.argv.push(word.to_vec());
            let (refused, lines) = spawn(b"", &[odd]);
            assert!(matches!(refused, Err(EngineError::Unsayable(_))), "{word:?}");
            // The request was not begun.
            assert!(lines.is_empty());
        }
    }

    #[test]
    fn abort__goes_out_while_a_fence_is_waited_for() {
        let server = Server::new("kvs_2_0", 2, ReplyStyle::Hydra);
        let mut first = server.connect(0);
        let aborter = first.aborter().unwrap();
        // The fence never ends, because the second rank does not enter it.
        std::thread::spawn(move || first.fence());
        // Abort over a separate connection, because this server does not read from a rank that waits.
        server.connect(1).aborter().unwrap().abort(7);
        assert_eq!(server.await_abort(), 7);
        drop(aborter);
    }

    /// Returns the result of a server that sends these answers, one for each request.
    fn ask_server(answers: &'static [&'static str]) -> Result<Pmi1, EngineError> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let mut reader = std::io::BufReader::new(ours.try_clone().unwrap());
            let mut ours = ours;
            for answer in answers {
                reader.read_line(&mut String::new()).unwrap();
                ours.write_all(answer.as_bytes()).unwrap();
            }
        });
        Pmi1::over(theirs.into(), 0, 2)
    }

    #[test]
    fn server__that_refuses_or_ends_or_talks_too_much_is_an_error() {
        let error = ask_server(&["cmd=response_to_init rc=-1\n"]).unwrap_err();
        assert!(matches!(error, EngineError::Answer { .. }), "{error}");
        assert!(error.to_string().contains("rc=-1"), "{error}");
        let error = ask_server(&[]).unwrap_err();
        assert!(matches!(error, EngineError::Closed(_)), "{error}");
        const LONG: &str = match std::str::from_utf8(&[b'x'; 2 * ANSWER_MOST]) {
            Ok(text) => text,
            Err(_) => "",
        };
        let error = ask_server(&[LONG]).unwrap_err();
        assert!(error.to_string().len() < 400, "{error}");
        let no_name = &["cmd=response_to_init\n", "cmd=maxes\n", "cmd=my_kvsname\n"];
        assert!(ask_server(no_name).is_err());
    }

    #[test]
    fn server__may_leave_out_what_is_not_needed() {
        let pmi = ask_server(&[
            "cmd=response_to_init\n",
            "cmd=maxes rc=0\n",
            "cmd=my_kvsname kvsname=a\n",
            "cmd=appnum rc=-1\n",
            "cmd=what\n",
        ]);
        let about = pmi.unwrap().about().clone();
        assert_eq!((about.appnum, about.universe, &*about.job), (None, None, "a"));
    }

    #[test]
    fn descriptor__that_is_no_socket_of_an_engine_is_refused() {
        use std::os::fd::AsRawFd;
        let file = File::open("/dev/null").unwrap();
        for fd in [-1, 0, 1, 2, file.as_raw_fd(), 1 << 20] {
            let error = take_inherited(fd).unwrap_err().to_string();
            assert!(error.contains("PMI_FD"), "{fd}: {error}");
        }
        assert!(file.metadata().is_ok(), "it is left open");
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let fd = ours.as_raw_fd();
        std::mem::forget(ours);
        take_inherited(fd).unwrap();
    }

    #[test]
    fn rank__outside_of_the_job_is_refused() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let error = Pmi1::over(ours.into(), 2, 2).unwrap_err();
        assert!(error.to_string().contains("rank 2 of 2"), "{error}");
    }
}
