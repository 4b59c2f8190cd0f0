#![allow(unsafe_code)]
//! The socket by which the ranks of a node meet: a name that only this host and this network namespace know, frames,
//! and the passing of a file.

use std::io::{self, ErrorKind, Read};
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// Says that a frame is one of this release.
const MAGIC: [u8; 4] = *b"FPN1";

/// Most bytes of a frame: the addresses of a node with more ranks than a job can have.
const BODY_MOST: usize = 4 << 20;

/// Tries to reach a leader that has its name and does not listen yet, or has just gone.
const TRIES: u32 = 2000;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// A member says who it is.
    Hello = 1,
    /// The leader hands over the memory.
    Welcome = 2,
    /// The leader has no place for this process, and says why.
    Refusal = 3,
    /// A member says how it is reached over the network.
    Card = 4,
    /// The leader has the card of the whole node put by the lowest rank.
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

/// What a rank is on its node.
#[derive(Debug)]
pub enum Role {
    /// The first one to come: others reach it.
    Leader(UnixListener),
    /// It has reached the leader.
    Member(UnixStream),
}

/// Takes the name, or connects to its owner. The processes of one network namespace agree on the owner; no others can
/// see the name.
///
/// # Errors
/// The kernel refuses, or the name belongs to another user.
pub fn meet(name: &str) -> io::Result<Role> {
    let address = SocketAddr::from_abstract_name(name)?;
    for _ in 0..TRIES {
        match UnixListener::bind_addr(&address) {
            Ok(listener) => return Ok(Role::Leader(listener)),
            Err(e) if e.kind() == ErrorKind::AddrInUse => {}
            Err(e) => return Err(e),
        }
        match UnixStream::connect_addr(&address) {
            Ok(stream) => {
                check_user(&stream)?;
                return Ok(Role::Member(stream));
            }
            // Not listening yet, or gone meanwhile.
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => {}
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        pause();
    }
    let why = "the first process of the job on this host has a name and does not listen to it";
    Err(io::Error::new(ErrorKind::TimedOut, why))
}

/// Lets a millisecond pass, or less if a signal comes: for changes that the kernel does not report.
pub fn pause() {
    // SAFETY: an empty set of descriptors.
    unsafe { libc::poll(std::ptr::null_mut(), 0, 1) };
}

/// Refuses a peer that belongs to another user.
///
/// # Errors
/// It does, or the kernel does not tell.
pub fn check_user(stream: &UnixStream) -> io::Result<()> {
    let mut peer = MaybeUninit::<libc::ucred>::zeroed();
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes.
    let rc = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            peer.as_mut_ptr().cast(),
            &mut bytes,
        )
    };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all zeros, or what the kernel has written, is a valid ucred.
    let user = unsafe { peer.assume_init() }.uid;
    let own = own_user();
    match user == own {
        true => Ok(()),
        false => {
            let why = format!("the process there belongs to user {user}, this one to {own}");
            Err(io::Error::new(ErrorKind::PermissionDenied, why))
        }
    }
}

/// The user that this process counts as.
pub fn own_user() -> u32 {
    // SAFETY: plain call.
    unsafe { libc::geteuid() }
}

/// Writes all of it, without a signal where the other end is gone: a program of C has none of Rust's precautions.
///
/// # Errors
/// The kernel's.
pub fn send_all(socket: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the bytes are readable for the length given.
        let sent = unsafe {
            let flags = libc::MSG_NOSIGNAL;
            libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags)
        };
        match usize::try_from(sent) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(_) => {
                let cause = io::Error::last_os_error();
                if cause.kind() != ErrorKind::Interrupted {
                    return Err(cause);
                }
            }
        }
    }
    Ok(())
}

/// Room for the header of one descriptor.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Sends a frame, and with it a file.
///
/// # Errors
/// The kernel's.
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
    // The file goes with the first byte, the rest follows.
    send_file(stream, frame[0], file)?;
    send_all(stream.as_fd(), &frame[1..])
}

fn send_file(stream: &UnixStream, mut byte: u8, file: BorrowedFd<'_>) -> io::Result<()> {
    let mut control = Control([0; 64]);
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all zeros is a valid msghdr.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    let bytes = size_of::<libc::c_int>() as u32;
    // SAFETY: plain arithmetic; the room is larger than one descriptor needs.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(bytes) } as _;
    // SAFETY: the control memory is aligned and has room for one header with a descriptor.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(bytes) as _;
        let data = libc::CMSG_DATA(header).cast::<libc::c_int>();
        data.write_unaligned(file.as_raw_fd());
    }
    loop {
        // SAFETY: message, part and control live and are as the call wants them.
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

/// A frame that has come.
#[derive(Debug)]
pub struct Frame {
    /// What it is.
    pub kind: FrameKind,
    /// What it says.
    pub body: Vec<u8>,
    /// The file that came with it.
    pub file: Option<OwnedFd>,
}

/// Receives a frame; as the stream is set, without waiting for it.
///
/// # Errors
/// The kernel's; `UnexpectedEof` where the other end is gone; `InvalidData` for what is no frame of this release.
pub fn receive(stream: &UnixStream) -> io::Result<Frame> {
    let invalid = |why: &str| io::Error::new(ErrorKind::InvalidData, why.to_owned());
    let (byte, file) = receive_file(stream)?;
    let mut header = [0; 12];
    header[0] = byte;
    let mut reader = stream;
    reader.read_exact(&mut header[1..])?;
    if header[..4] != MAGIC {
        return Err(invalid("it is not of this release of Fastpath"));
    }
    let kind = FrameKind::of(header[4]).ok_or_else(|| invalid("it is of no known kind"))?;
    let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
    if length > BODY_MOST {
        return Err(invalid("it is too long"));
    }
    let mut body = Vec::new();
    reader.take(length as u64).read_to_end(&mut body)?;
    match body.len() == length {
        true => Ok(Frame { kind, body, file }),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// The first byte of a frame, and the file that came with it.
fn receive_file(stream: &UnixStream) -> io::Result<(u8, Option<OwnedFd>)> {
    let (mut byte, mut control) = (0_u8, Control([0; 64]));
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all zeros is a valid msghdr.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    // SAFETY: plain arithmetic. More descriptors than one do not fit, and the kernel closes them.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<libc::c_int>() as u32) } as _;
    let got = loop {
        let flags = libc::MSG_CMSG_CLOEXEC;
        // SAFETY: message, part and control live and are writable for their lengths.
        let got = unsafe { libc::recvmsg(stream.as_raw_fd(), &mut message, flags) };
        let cause = io::Error::last_os_error();
        match got {
            0.. => break got,
            _ if cause.kind() == ErrorKind::Interrupted => {}
            _ => return Err(cause),
        }
    };
    // SAFETY: the kernel has filled in the headers that it counts in `msg_controllen`; a descriptor in them is new, and
    // nobody else's. Two fit at most, where the room is padded; both are taken.
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
        let mut file = File::from(crate::segment::open_nameless().unwrap());
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
        let roles: Vec<Role> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| meet(&name).unwrap())).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let leaders = roles.iter().filter(|role| matches!(role, Role::Leader(_)));
        assert_eq!(leaders.count(), 1);
        for role in &roles {
            if let Role::Leader(listener) = role {
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
