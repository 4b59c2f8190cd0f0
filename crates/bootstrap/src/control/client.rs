//! A rank's side of the launcher's socket.
#![allow(unsafe_code)]

use super::{Answer, Request, SOCKET_PREFIX, frame, socket_name, unframe};
use crate::job::send_all;
use socket2::{Domain, SockAddr, Socket, Type};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Asks the launcher of a job, and waits for its answer.
///
/// # Errors
/// It cannot be reached, is another user's process, or has not understood; in words.
pub fn ask(job_id: u64, request: &Request) -> Result<Answer, String> {
    ask_within(job_id, request, None)
}

/// As [`ask`]; it waits for each step of the launcher, which may be stopped, for `limit` at most.
///
/// # Errors
/// As there, and it does not answer in time.
pub fn ask_within(
    job_id: u64, request: &Request, limit: Option<Duration>,
) -> Result<Answer, String> {
    let talk = || -> io::Result<Answer> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // The connection itself waits where too many others do.
        socket.set_write_timeout(limit)?;
        socket.set_read_timeout(limit)?;
        let path = [b"\0", socket_name(job_id).as_bytes()].concat();
        socket.connect(&SockAddr::unix(OsStr::from_bytes(&path))?)?;
        let mut socket = UnixStream::from(OwnedFd::from(socket));
        if !is_own_user(socket.as_fd()) {
            return Err(io::Error::other("a process of another user has its socket's name"));
        }
        send_all(socket.as_fd(), &frame(&request.encode()))?;
        read_answer(&mut socket)
    };
    talk().map_err(|e| format!("mpiexec does not answer: {e}"))
}

/// The jobs on this host whose launchers can be asked, this user's and others', by the kernel's list of sockets; empty
/// if it lists none.
pub fn list_jobs() -> Vec<u64> {
    let text = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    read_jobs(&text)
}

/// The jobs among the sockets of `/proc/net/unix` (proc(5)), each once: their names are the last word of a line.
fn read_jobs(text: &str) -> Vec<u64> {
    let prefix = format!("@{SOCKET_PREFIX}");
    let words = text.lines().filter_map(|line| line.split(' ').next_back());
    let numbers = words.filter_map(|word| word.strip_prefix(&prefix));
    let mut jobs: Vec<u64> = numbers
        .filter(|number| number.len() == 16)
        .filter_map(|number| u64::from_str_radix(number, 16).ok())
        .collect();
    jobs.sort_unstable();
    jobs.dedup();
    jobs
}

fn read_answer(socket: &mut UnixStream) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let length = match socket.read(&mut piece) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        bytes.extend_from_slice(&piece[..length]);
        match unframe(&bytes) {
            Ok(Some(message)) => {
                let answer = Answer::decode(message);
                return answer.ok_or_else(|| io::Error::other("its answer makes no sense"));
            }
            Ok(None) if length != 0 => {}
            Ok(None) => return Err(io::Error::other("it has closed the connection")),
            Err(_) => return Err(io::Error::other("its answer is too long")),
        }
    }
}

/// Whether the process at the other end of a Unix socket is one of this process's user.
pub fn is_own_user(socket: BorrowedFd<'_>) -> bool {
    let mut peer = MaybeUninit::<libc::ucred>::zeroed();
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes; all zeros, or what it has written, is a valid ucred.
    let (rc, uid) = unsafe {
        let rc = libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            peer.as_mut_ptr().cast(),
            &mut bytes,
        );
        (rc, peer.assume_init().uid)
    };
    // SAFETY: no arguments.
    rc == 0 && uid == unsafe { libc::geteuid() }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::job::random_job_id;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    #[test]
    fn jobs__are_those_with_a_socket_of_that_name() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            00: 00000003 00000000 00000000 0001 03 17 @fastpath-00000000000000ab\n\
            00: 00000002 00000000 00010000 0001 01 18 @fastpath-00000000000000ab\n\
            00: 00000002 00000000 00010000 0001 01 19 @fastpath-0-00000000000000ac-2\n\
            00: 00000002 00000000 00010000 0001 01 20 /run/fastpath-00000000000000ad\n\
            00: 00000002 00000000 00010000 0001 01 21\n";
        assert_eq!(read_jobs(text), [0xab]);
        let job = random_job_id();
        let address = SocketAddr::from_abstract_name(socket_name(job)).unwrap();
        let _listener = UnixListener::bind_addr(&address).unwrap();
        assert!(list_jobs().contains(&job));
    }

    #[test]
    fn launcher__that_is_not_there_is_an_error() {
        let request = Request::Lookup { service: b"a".to_vec() };
        let error = ask(random_job_id(), &request).unwrap_err();
        assert!(error.contains("mpiexec does not answer"), "{error}");
    }

    #[test]
    fn launcher__that_is_stopped_is_not_waited_for() {
        let (job, request) = (random_job_id(), Request::Lookup { service: vec![1] });
        let address = SocketAddr::from_abstract_name(socket_name(job)).unwrap();
        let stopped = UnixListener::bind_addr(&address).unwrap();
        socket2::SockRef::from(&stopped).listen(1).unwrap();
        // Callers that have gone stay in its queue, until that is full.
        for _ in 0..5 {
            let limit = Some(Duration::from_millis(20));
            let error = ask_within(job, &request, limit).unwrap_err();
            assert!(error.contains("does not answer"), "{error}");
        }
    }

    #[test]
    fn answer__is_read_in_pieces_and_must_make_sense() {
        let request = Request::Lookup { service: b"a".to_vec() };
        let good = frame(&Answer::Done.encode());
        for (answer, expected) in [
            (good.clone(), Some(Answer::Done)),
            (good[..3].to_vec(), None),
            (frame(b"garbage"), None),
            (vec![0xff; 8], None),
        ] {
            let job_id = random_job_id();
            let address = SocketAddr::from_abstract_name(socket_name(job_id)).unwrap();
            let listener = UnixListener::bind_addr(&address).unwrap();
            let serve = || {
                let (mut socket, _) = listener.accept().unwrap();
                assert!(is_own_user(socket.as_fd()));
                let mut read = vec![0; frame(&request.encode()).len()];
                socket.read_exact(&mut read).unwrap();
                let message = unframe(&read).unwrap().unwrap();
                assert_eq!(Request::decode(message).as_ref(), Some(&request));
                for piece in answer.chunks(1) {
                    // Who has read enough of it has gone.
                    if socket.write_all(piece).is_err() {
                        return;
                    }
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(serve);
                assert_eq!(ask(job_id, &request).ok(), expected);
            });
        }
    }
}
