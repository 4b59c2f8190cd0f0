//! The leader's side of the meeting: processes that connected before the first fence ended.

use super::card::Hello;
use super::channel::{FrameKind, receive, send};
use crate::engine::ProcessInfo;
use crate::poll::{poll_entry, poll_for};
use crate::socket::check_user;
use fastpath_base::fd::CheckedHandle;
use fastpath_base::tell::count;
use fastpath_base::thread::without_signals;
use fastpath_base::topology::CpuSet;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Purpose of the members' descriptors, for messages.
pub const MEMBERS: &str = "watching the other ranks of this host";

/// Pause after an accept that failed because no descriptor was free.
pub const PAUSE: Duration = Duration::from_millis(100);

/// A rank of this node, as its leader knows it.
#[derive(Debug)]
pub struct Member {
    pub rank: usize,
    /// Process number of the rank, in its own namespace.
    pub process: u32,
    /// Processors that the rank may use.
    pub processors: CpuSet,
    pub stream: CheckedHandle<UnixStream>,
}

impl Member {
    /// Sends a frame, with a file if one is given.
    pub fn send(
        &self, kind: FrameKind, body: &[u8], file: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        send(self.stream.get()?, kind, body, file)
    }
}

/// A thread that accepts connections while the leader waits in the fence. It is needed because more connections may
/// arrive than fit the kernel's queue of the listener.
#[derive(Debug)]
pub struct Gathering {
    thread: JoinHandle<io::Result<(UnixListener, Vec<UnixStream>)>>,
    /// End of a socket pair that is closed when the fence has ended, which tells the thread to end.
    fence: UnixStream,
}

impl Gathering {
    /// Starts to accept connections. Errors: no descriptor or no thread is left.
    pub fn begin(listener: UnixListener) -> io::Result<Gathering> {
        let (fence, over) = UnixStream::pair()?;
        listener.set_nonblocking(true)?;
        let thread = without_signals(|| {
            let builder = Builder::new().name("fastpath-join".to_owned()).stack_size(1 << 17);
            builder.spawn(move || take_all(listener, &over))
        })?;
        Ok(Gathering { thread, fence })
    }

    /// Ends the gathering after the fence, when every rank that can reach this process has connected. Errors: a caller
    /// cannot be accepted, because no descriptor is left.
    pub fn end(self) -> io::Result<(UnixListener, Vec<UnixStream>)> {
        drop(self.fence);
        self.thread.join().expect("the thread has no way to panic")
    }
}

/// Returns whether an accept failed because no connection waits, or because the peer has ended. Neither case requires a
/// pause before the next attempt.
pub fn is_for_now(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | Interrupted | WouldBlock)
}

/// Accepts connections until the fence has ended, and then the remaining ones.
fn take_all(
    listener: UnixListener, over: &UnixStream,
) -> io::Result<(UnixListener, Vec<UnixStream>)> {
    let mut streams = Vec::new();
    let mut pause = None;
    loop {
        let door = if pause.is_none() { listener.as_raw_fd() } else { -1 };
        let mut entries = [door, over.as_raw_fd()].map(|fd| poll_entry(fd, libc::POLLIN));
        poll_for(&mut entries, pause.take());
        let is_over = entries[1].revents != 0;
        loop {
            match listener.accept() {
                Ok((stream, _)) => streams.push(stream),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if is_for_now(&e) => {}
                Err(e) if is_over => return Err(e),
                // Pause before the next attempt, because descriptors may be closed before the fence ends.
                Err(_) => {
                    pause = Some(PAUSE);
                    break;
                }
            }
        }
        if is_over {
            return Ok((listener, streams));
        }
    }
}

/// Returns the ranks among the callers, in order, and refuses other callers. A rank sends its hello before the fence.
pub fn greet(streams: Vec<UnixStream>, about: &ProcessInfo) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    for stream in streams {
        match read_hello(&stream) {
            Ok(hello) => match find_fault(&hello, about, &members) {
                None => members.push(Member {
                    rank: hello.rank,
                    process: hello.process,
                    processors: hello.processors,
                    stream: CheckedHandle::keep(stream, MEMBERS),
                }),
                Some(why) => refuse(&stream, &why),
            },
            Err(e) => refuse(&stream, &e.to_string()),
        }
    }
    members.sort_by_key(|member| member.rank);
    members
}

fn read_hello(stream: &UnixStream) -> io::Result<Hello> {
    check_user(stream)?;
    stream.set_nonblocking(true)?;
    let frame = receive(stream)?;
    stream.set_nonblocking(false)?;
    let hello = Some(frame.body).filter(|_| frame.kind == FrameKind::Hello);
    let hello = hello.and_then(|body| Hello::decode(&body));
    hello.ok_or_else(|| io::Error::other("the process is not a rank of this job"))
}

/// Returns why a process cannot be the rank it claims.
fn find_fault(hello: &Hello, about: &ProcessInfo, members: &[Member]) -> Option<String> {
    let Hello { rank, size, .. } = *hello;
    if size != about.size || rank >= size {
        return Some(format!(
            "a process that is rank {rank} of {size} cannot join a job of {}",
            count(about.size as u64, "rank")
        ));
    }
    let own = (about.rank == rank).then(std::process::id);
    let taken = members.iter().find(|member| member.rank == rank);
    let owner = own.or(taken.map(|member| member.process))?;
    Some(format!(
        "process {owner} is rank {rank} already: each process that the launcher starts may run \
         one MPI program, once"
    ))
}

/// Refuses a process, with the reason. A process that has ended is ignored.
pub fn refuse(stream: &UnixStream, why: &str) {
    let _ = send(stream, FrameKind::Refusal, why.as_bytes(), None);
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::node::tests::{is_alone, take_descriptors};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    #[test]
    fn gather__takes_who_waits_as_soon_as_a_descriptor_is_left_or_says_that_none_is() {
        let name = "gather__takes_who_waits_as_soon_as_a_descriptor_is_left_or_says_that_none_is";
        if !is_alone(name) {
            return;
        }
        for is_freed in [true, false] {
            let name = format!("fastpath-test-{}-{is_freed}", std::process::id());
            let address = SocketAddr::from_abstract_name(name).unwrap();
            let listener = UnixListener::bind_addr(&address).unwrap();
            let caller = UnixStream::connect_addr(&address).unwrap();
            let mut taken = take_descriptors();
            // The two ends of the socket pair that signals the end of the fence need two descriptors.
            taken.truncate(taken.len() - 2);
            let gathering = Gathering::begin(listener).unwrap();
            if is_freed {
                taken.clear();
            }
            let met = gathering.end();
            taken.clear();
            match met {
                Ok((_, streams)) => assert!(is_freed && streams.len() == 1),
                Err(e) => assert!(!is_freed && e.raw_os_error() == Some(libc::EMFILE), "{e}"),
            }
            drop(caller);
        }
    }
}
