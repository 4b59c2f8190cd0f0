#![allow(unsafe_code)]
//! The socket by which the ranks of a node meet, its frames, and the passing of a file. The socket's name is known only
//! on this host and in this network namespace.

use crate::poll::pause;
use crate::socket::{check_user, send_all};
use std::io::{self, ErrorKind, Read};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// Mark of frames of this release.
const MAGIC: [u8; 4] = *b"FPN1";

/// Largest frame, in bytes. It is enough for the addresses of a node with more ranks than a job can have.
const BODY_MOST: usize = 4 << 20;

/// Number of attempts to reach a leader that has taken the name but does not listen yet, or that has just ended.
const TRIES: u32 = 2000;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// A member introduces itself.
    Hello = 1,
    /// The leader passes the memory on.
    Welcome = 2,
    /// The leader refuses this process, with a reason.
    Refusal = 3,
    /// A member reports its network address.
    Card = 4,
    /// The leader passes the card of the node to the lowest rank, which publishes it.
    Node = 5,
    /// All pages are filled.
    Go = 6,
    /// The sender has finalized MPI: its end is no failure.
    Bye = 7,
}

impl FrameKind {
    fn of(byte: u8) -> Option<FrameKind> {
        use FrameKind::*;
        let all = [Hello, Welcome, Refusal, Card, Node, Go, Bye];
        all.into_iter().find(|&kind| kind as u8 == byte)
    }
}

/// Role of a rank on its node.
#[derive(Debug)]
pub enum NodeRole {
    /// The first rank, to which the other ranks connect.
    Leader(UnixListener),
    /// A rank that has reached the leader.
    Member(UnixStream),
}

/// Binds the name, or connects to its owner. The processes of one network namespace agree on the owner; other processes
/// cannot see the name. Errors: the kernel refuses, or the name belongs to another user.
pub fn meet(name: &str) -> io::Result<NodeRole> {
    let address = SocketAddr::from_abstract_name(name)?;
    for _ in 0..TRIES {
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return Ok(NodeRole::Leader(listener)),
            Err(e) if e.kind() == ErrorKind::AddrInUse => {}
            Err(e) => return Err(e),
        }
        match UnixStream::connect_addr(&address) {
            Ok(stream) => {
                check_user(&stream)?;
                return Ok(NodeRole::Member(stream));
            }
            // The owner does not listen yet, or has ended meanwhile.
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => {}
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        pause();
    }
    let why = "the first process of the job on this host does not listen on its socket";
    Err(io::Error::new(ErrorKind::TimedOut, why))
}

/// Aligned space for the control message that passes one descriptor.
#[repr(C, align(8))]
struct ControlMessageSpace([u8; 64]);

/// Sends a frame, with a file if one is given.
pub fn send(
    stream: &UnixStream, kind: FrameKind, body: &[u8], file: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    use std::os::fd::AsFd;
    let mut frame = [&MAGIC[..], &[kind as u8, 0, 0, 0]].concat();
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    frame.extend_from_slice(body);
    let Some(file) = file else {
        return send_all(stream.as_fd(), &frame);
    };
    // The file is sent with the first byte.
    send_file(stream, frame[0], file)?;
    send_all(stream.as_fd(), &frame[1..])
}

fn send_file(stream: &UnixStream, mut byte: u8, file: BorrowedFd<'_>) -> io::Result<()> {
    let mut control = ControlMessageSpace([0; 64]);
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all zeros is a valid msghdr.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    let bytes = size_of::<libc::c_int>() as u32;
    // SAFETY: CMSG_SPACE only computes. The space is larger than one descriptor needs.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(bytes) } as _;
    // SAFETY: the control memory is aligned and has space for one header with a descriptor.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(bytes) as _;
        let data = libc::CMSG_DATA(header).cast::<libc::c_int>();
        data.write_unaligned(file.as_raw_fd());
    }
    loop {
        // SAFETY: message, part and control are alive and valid for the call.
        let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &message, libc::MSG_NOSIGNAL) };
        if sent == 1 {
            return Ok(());
        }
        let cause = io::Error::last_os_error();
        if cause.kind() != ErrorKind::Interrupted {
            return Err(cause);
        }
    }
}

#[derive(Debug)]
pub struct NodeFrame {
    pub kind: FrameKind,
    pub body: Vec<u8>,
    /// File that came with the frame.
    pub file: Option<OwnedFd>,
}

/// Receives a frame; waits only if the stream blocks. Errors: the kernel's error; `UnexpectedEof` if the other end has
/// ended; `InvalidData` if this is not a frame of this release.
pub fn receive(stream: &UnixStream) -> io::Result<NodeFrame> {
    let invalid = |why: &str| io::Error::new(ErrorKind::InvalidData, why.to_owned());
    let (byte, file) = receive_file(stream)?;
    let mut header = [0; 12];
    header[0] = byte;
    let mut reader = stream;
    reader.read_exact(&mut header[1..])?;
    if header[..4] != MAGIC {
        return Err(invalid("the message is not of this release of Fastpath"));
    }
    let kind =
        FrameKind::of(header[4]).ok_or_else(|| invalid("the message has an unknown kind"))?;
    let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
    if length > BODY_MOST {
        return Err(invalid("the message is too long"));
    }
    let mut body = Vec::new();
    reader.take(length as u64).read_to_end(&mut body)?;
    match body.len() == length {
        true => Ok(NodeFrame { kind, body, file }),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// Receives the first byte of a frame, and the file that came with it.
fn receive_file(stream: &UnixStream) -> io::Result<(u8, Option<OwnedFd>)> {
    let (mut byte, mut control) = (0_u8, ControlMessageSpace([0; 64]));
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all zeros is a valid msghdr.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    // SAFETY: CMSG_SPACE only computes. More than one descriptor does not fit, and the kernel closes the others.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<libc::c_int>() as u32) } as _;
    let got = loop {
        let flags = libc::MSG_CMSG_CLOEXEC;
        // SAFETY: message, part and control are alive and writable for their lengths.
        let got = unsafe { libc::recvmsg(stream.as_raw_fd(), &mut message, flags) };
        let cause = io::Error::last_os_error();
        match got {
            0.. => break got,
            _ if cause.kind() == ErrorKind::Interrupted => {}
            _ => return Err(cause),
        }
    };
    // SAFETY: the kernel has filled the headers counted in `msg_controllen`; a descriptor in them is new and has no
    // other owner. At most two fit, if the space is padded; both are taken.
    let file = unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        let is_file = !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS;
        let count = match is_file {
            true => ((*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / 4,
            false => 0,
        };
        let mut files = (0..count).map(|i| {
            let data = libc::CMSG_DATA(header).cast::<libc::c_int>();
            OwnedFd::from_raw_fd(data.add(i).read_unaligned())
        });
        files.by_ref().last()
    };
    match got {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok((byte, file)),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Seek, Write};
    use std::os::fd::AsFd;

    #[test]
    fn frames__carry_bytes_and_a_file() {
        let (a, b) = UnixStream::pair().unwrap();
        let mut file = File::from(fastpath_segment::open_nameless().unwrap());
        file.write_all(b"shared").unwrap();
        send(&a, FrameKind::Hello, b"", None).unwrap();
        send(&a, FrameKind::Welcome, &[7; 3000], Some(file.as_fd())).unwrap();
        let first = receive(&b).unwrap();
        assert_eq!((first.kind, first.body.len()), (FrameKind::Hello, 0));
        assert!(first.file.is_none());
        let second = receive(&b).unwrap();
        assert_eq!((second.kind, second.body), (FrameKind::Welcome, vec![7; 3000]));
        let mut copy = File::from(second.file.unwrap());
        copy.rewind().unwrap();
        let mut text = String::new();
        copy.read_to_string(&mut text).unwrap();
        assert_eq!(text, "shared");
        drop(a);
        let end = receive(&b).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::UnexpectedEof);
        assert!(send(&b, FrameKind::Bye, b"", None).is_err(), "and no signal");
    }

    #[test]
    fn meeting__has_one_leader_whom_all_others_reach() {
        let name = format!("fastpath-test-{}-meet", std::process::id());
        let roles: Vec<NodeRole> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| meet(&name).unwrap())).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let leaders = roles.iter().filter(|role| matches!(role, NodeRole::Leader(_)));
        assert_eq!(leaders.count(), 1);
        for role in &roles {
            if let NodeRole::Leader(listener) = role {
                for _ in 0..7 {
                    check_user(&listener.accept().unwrap().0).unwrap();
                }
            }
        }
    }

    #[test]
    fn fuzz__frames_are_understood_or_refused() {
        let frame = |kind: u8, body: &[u8]| {
            let head = [&MAGIC[..], &[kind, 0, 0, 0]].concat();
            [&head, &(body.len() as u32).to_le_bytes()[..], body].concat()
        };
        let texts = [frame(1, b"0 2 1 0-3"), frame(6, b""), frame(4, &[9; 40])];
        let corpus: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        crate::mutate::run(&corpus, |input| {
            let (a, b) = UnixStream::pair().unwrap();
            send_all(a.as_fd(), input).unwrap();
            drop(a);
            if let Ok(frame) = receive(&b) {
                assert!(frame.body.len() <= input.len() && frame.file.is_none());
            }
        });
    }
}
