//! A rank's side of the launcher's socket.

use super::{Answer, Request, SOCKET_PREFIX, frame, socket_name, unframe};
use crate::socket::{is_own_user, send_all};
use socket2::{Domain, SockAddr, Socket, Type};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Sends a request to the launcher of a job, and waits for the answer.
///
/// # Errors
/// A text for users: the launcher cannot be reached, is another user's process, or sent an invalid answer.
pub fn ask(job_id: u64, request: &Request) -> Result<Answer, String> {
    ask_within(job_id, request, None)
}

/// Sends a request like [`ask`], with a time limit for each system call (`None`: no limit): the launcher may be
/// stopped.
///
/// # Errors
/// The errors of [`ask`], and a timeout.
pub fn ask_within(
    job_id: u64, request: &Request, limit: Option<Duration>,
) -> Result<Answer, String> {
    let talk = || -> io::Result<Answer> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // The limit on writing also applies to `connect`, which waits while the queue of the socket is full.
        socket.set_write_timeout(limit)?;
        socket.set_read_timeout(limit)?;
        let path = [b"\0", socket_name(job_id).as_bytes()].concat();
        socket.connect(&SockAddr::unix(OsStr::from_bytes(&path))?)?;
        let mut socket = UnixStream::from(OwnedFd::from(socket));
        if !is_own_user(&socket) {
            return Err(io::Error::other(
                "another user's process uses the name of mpiexec's socket",
            ));
        }
        send_all(socket.as_fd(), &frame(&request.encode()))?;
        read_answer(&mut socket)
    };
    talk().map_err(|e| format!("no valid answer from mpiexec: {e}"))
}

/// Returns the numbers of all users' jobs on this host whose launchers accept requests. The source is the kernel's list
/// of sockets; the result is empty if the kernel has no such list.
pub fn list_jobs() -> Vec<u64> {
    let text = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    read_jobs(&text)
}

/// Returns the jobs among the sockets of `/proc/net/unix` (proc(5)), each once. A socket's name ends the line.
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
                return answer.ok_or_else(|| io::Error::other("the answer is invalid"));
            }
            Ok(None) if length != 0 => {}
            Ok(None) => return Err(io::Error::other("mpiexec has closed the connection")),
            Err(_) => return Err(io::Error::other("the answer is too long")),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::identity::random_job_id;
    use std::io::Write;
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
        assert!(error.contains("no valid answer from mpiexec"), "{error}");
    }

    #[test]
    fn launcher__that_is_stopped_is_not_waited_for() {
        let (job, request) = (random_job_id(), Request::Lookup { service: vec![1] });
        let address = SocketAddr::from_abstract_name(socket_name(job)).unwrap();
        let stopped = UnixListener::bind_addr(&address).unwrap();
        socket2::SockRef::from(&stopped).listen(1).unwrap();
        // The stopped launcher accepts no connection, so connections fill the queue of its socket.
        for _ in 0..5 {
            let limit = Some(Duration::from_millis(20));
            let error = ask_within(job, &request, limit).unwrap_err();
            assert!(error.contains("no valid answer from mpiexec"), "{error}");
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
                assert!(is_own_user(&socket));
                let mut read = vec![0; frame(&request.encode()).len()];
                socket.read_exact(&mut read).unwrap();
                let message = unframe(&read).unwrap().unwrap();
                assert_eq!(Request::decode(message).as_ref(), Some(&request));
                for piece in answer.chunks(1) {
                    // The reader ends once it has read enough.
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
