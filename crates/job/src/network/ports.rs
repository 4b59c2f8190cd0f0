//! Listening sockets of a rank, and their ports.
#![allow(unsafe_code)]

use fastpath_base::fd::{CheckedFd, CheckedHandle};
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Largest number of connections that wait to be accepted; the kernel may allow fewer.
const BACKLOG: libc::c_int = 4096;
/// Number of attempts to find a port that is free on all given addresses. In each attempt the kernel chooses a port for
/// the first address, and the other addresses then try the same port.
const CHOICES: u32 = 64;

/// Parses `FASTPATH_PORTS`, `lo-hi` or one port; `None` if the kernel chooses.
///
/// # Errors
/// The text is not a range.
pub fn parse_ports(text: &str) -> Result<Option<RangeInclusive<u16>>, String> {
    let text = text.trim();
    if text.is_empty() || text == "auto" {
        return Ok(None);
    }
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| text.trim().parse::<u16>().ok().filter(|&port| port != 0);
    match (port(low), port(high)) {
        (Some(low), Some(high)) if low <= high => Ok(Some(low..=high)),
        _ => Err(format!(
            "FASTPATH_PORTS={text:?} is not a range of ports: write a range such as 50000-50100, \
             of ports from 1 to 65535"
        )),
    }
}

/// Listening sockets of a rank, on one port: one socket for all addresses of its host, or one for each allowed address.
/// The sockets do not block, and close on exec.
#[derive(Debug)]
pub struct Listener {
    /// Listening sockets, at least one.
    sockets: Vec<CheckedFd>,
    port: u16,
}

impl Listener {
    /// Listens on a port of the range, or on any port, on the addresses of `only`. If `only` is empty, listens on all
    /// addresses of this host by both families. The error states `needed`, the number of ports that the job needs on
    /// this host.
    ///
    /// # Errors
    /// A text for users: all ports are in use, or the kernel's error.
    pub fn open(
        ports: Option<RangeInclusive<u16>>, only: &[IpAddr], needed: usize,
    ) -> Result<Listener, String> {
        let Some(ports) = ports else {
            return listen_anywhere(only).map_err(|e| format!("cannot listen on a port: {e}"));
        };
        for port in ports.clone() {
            match listen_at(only, port) {
                Ok(listener) => return Ok(listener),
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
                Err(e) => {
                    return Err(format!("cannot listen on port {port} of FASTPATH_PORTS: {e}"));
                }
            }
        }
        let (low, high) = (ports.start(), ports.end());
        let there = ports.clone().count();
        Err(format!(
            "FASTPATH_PORTS={low}-{high} has {there} port{}, and all are in use: widen the range \
             to {needed} ports for this job on this host, plus those of other jobs with the same \
             setting",
            if there == 1 { "" } else { "s" }
        ))
    }

    /// Takes over listening sockets by their numbers. `port` is their port, if it is known already.
    ///
    /// # Errors
    /// There is no socket, one of them is not a listening socket, or their ports differ from each other or from `port`.
    pub fn inherit(fds: &[RawFd], port: Option<u16>) -> io::Result<Listener> {
        let all: Vec<Listener> =
            fds.iter().map(|&fd| Listener::inherit_one(fd, port)).collect::<io::Result<_>>()?;
        Listener::join(all)
    }

    /// Joins several listeners of one port.
    fn join(all: Vec<Listener>) -> io::Result<Listener> {
        let port = all.first().map_or(0, |one| one.port);
        if port == 0 || all.iter().any(|one| one.port != port) {
            let why = "the sockets listen on different ports";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let sockets = all.into_iter().flat_map(|one| one.sockets).collect();
        Ok(Listener { sockets, port })
    }

    fn inherit_one(fd: RawFd, wanted: Option<u16>) -> io::Result<Listener> {
        let wrong = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        // SAFETY: plain fcntl, which fails on a closed descriptor.
        if fd < 3 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return wrong("the descriptor is not open");
        }
        // SAFETY: the call above has shown that the descriptor is open.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        let socket = SockRef::from(&borrowed);
        if !socket.is_listener().unwrap_or(false) {
            return wrong("the descriptor is not a listening socket");
        }
        let port = match read_port(&socket) {
            Ok(0) | Err(_) => return wrong("the socket has no port"),
            // The program has opened its own socket in place of the inherited one.
            Ok(port) if wanted.is_some_and(|wanted| wanted != port) => {
                return wrong("the socket listens on another port");
            }
            Ok(port) => port,
        };
        socket.set_cloexec(true)?;
        socket.set_nonblocking(true)?;
        // SAFETY: the descriptor is open, and was passed to this process for this purpose.
        let sockets = vec![keep(unsafe { OwnedFd::from_raw_fd(fd) })];
        Ok(Listener { sockets, port })
    }

    /// Returns the sockets, at least one.
    pub fn sockets(&self) -> &[CheckedFd] {
        &self.sockets
    }

    /// Returns the numbers of the sockets, at least one.
    pub fn fds(&self) -> Vec<RawFd> {
        self.sockets.iter().map(CheckedHandle::number_unchecked).collect()
    }

    /// Returns the port of all sockets.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets whether the sockets stay open in programs that this process starts.
    pub fn set_inherited(&self, stays: bool) {
        for socket in &self.sockets {
            // Changing the flag of an open descriptor does not fail.
            let _ = socket.get().map(|open| SockRef::from(open).set_cloexec(!stays));
        }
    }
}

impl From<Listener> for Vec<OwnedFd> {
    fn from(listener: Listener) -> Vec<OwnedFd> {
        listener.sockets.into_iter().filter_map(|one| one.take().ok()).collect()
    }
}

/// Listens on a port that the kernel chooses for the first address, and chooses again if another address has it in use.
fn listen_anywhere(only: &[IpAddr]) -> io::Result<Listener> {
    let mut refused = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..CHOICES {
        match listen_at(only, 0) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => refused = e,
            other => return other,
        }
    }
    Err(refused)
}

/// Listens on `port`, or on any port if `port` is 0.
fn listen_at(only: &[IpAddr], port: u16) -> io::Result<Listener> {
    if only.is_empty() {
        return match listen(Ipv6Addr::UNSPECIFIED.into(), port) {
            // The host may lack IPv6.
            Err(e) if e.raw_os_error() != Some(libc::EADDRINUSE) => {
                listen(Ipv4Addr::UNSPECIFIED.into(), port)
            }
            other => other,
        };
    }
    let (mut all, mut missing): (Vec<Listener>, _) = (Vec::new(), None);
    for &address in only {
        match listen(address, all.first().map_or(port, |one| one.port)) {
            Ok(one) => all.push(one),
            // The host lost the address, or cannot use it yet: the kernel first checks a new IPv6 address for
            // duplicates.
            Err(e) if e.kind() == io::ErrorKind::AddrNotAvailable => missing = Some(e),
            Err(e) => return Err(e),
        }
    }
    match missing {
        Some(e) if all.is_empty() => Err(e),
        _ => Listener::join(all),
    }
}

fn listen(address: IpAddr, port: u16) -> io::Result<Listener> {
    let socket = make_socket(address)?;
    // Connections of a job that has just ended do not block the port.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(!address.is_unspecified())?;
    }
    socket.bind(&SocketAddr::new(address, port).into())?;
    socket.listen(BACKLOG)?;
    let port = read_port(&socket)?;
    let sockets = vec![keep(socket.into())];
    Ok(Listener { sockets, port })
}

/// Starts to connect to an address, from the address `from` of this host, or from an address that the kernel chooses.
/// The socket does not block, and closes on exec.
pub fn dial(to: SocketAddr, from: Option<IpAddr>) -> io::Result<OwnedFd> {
    let socket = make_socket(to.ip())?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    match socket.connect(&to.into()) {
        Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(check_refusal(&socket, e)),
        _ => Ok(socket.into()),
    }
}

/// Offset in [`tcp_info`](https://man7.org/linux/man-pages/man7/tcp.7.html) of the number of received segments
/// (`tcpi_segs_in` of linux/tcp.h).
const SEGMENTS_IN: usize = 140;

/// Checks the error of a failed connection. The kind [`io::ErrorKind::ConnectionRefused`] is kept only if the host
/// itself has answered, by a TCP segment, that no process listens. An ICMP message of a firewall or router becomes
/// another error.
pub fn check_refusal(socket: &impl AsFd, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::ConnectionRefused {
        return error;
    }
    let mut info = [0_u8; 256];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: the buffer is as large as the length says.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut length,
        )
    };
    let known = answer == 0 && length as usize >= SEGMENTS_IN + 4;
    match known && info[SEGMENTS_IN..SEGMENTS_IN + 4] != [0; 4] {
        true => error,
        false => io::Error::other(format!(
            "{error} (a router or firewall sent this answer, not the peer's host)"
        )),
    }
}

fn keep(socket: OwnedFd) -> CheckedFd {
    CheckedFd::keep(socket, "listening for other ranks")
}

fn make_socket(address: IpAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(SocketAddr::new(address, 0));
    Socket::new_raw(domain, Type::STREAM.cloexec().nonblocking(), None)
}

fn read_port(socket: &Socket) -> io::Result<u16> {
    let address = socket.local_addr()?.as_socket();
    let address = address.ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT));
    address.map(|address| address.port())
}

/// Enables detection of a silent other end: after 10 s of silence, by three probes.
pub fn keep_alive(socket: &impl AsFd) -> io::Result<()> {
    let asks = TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(2))
        .with_retries(3);
    SockRef::from(socket).set_tcp_keepalive(&asks)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    const LOOPBACK: &[IpAddr] = &[IpAddr::V4(Ipv4Addr::LOCALHOST)];

    #[test]
    fn ports__are_a_range_or_refused() {
        assert_eq!(parse_ports(""), Ok(None));
        assert_eq!(parse_ports("auto"), Ok(None));
        assert_eq!(parse_ports("50000-50100"), Ok(Some(50_000..=50_100)));
        assert_eq!(parse_ports(" 7 "), Ok(Some(7..=7)));
        for text in ["0-5", "9-8", "70000", "5-", "-5", "a-b", "1-2-3"] {
            assert!(parse_ports(text).unwrap_err().contains("50000-50100"), "{text}");
        }
    }

    #[test]
    fn listener__is_reached_at_its_port() {
        let listener = Listener::open(None, LOOPBACK, 1).unwrap();
        TcpStream::connect(("127.0.0.1", listener.port())).unwrap();
        let open = Listener::open(None, &[], 1).unwrap();
        TcpStream::connect(("127.0.0.1", open.port())).unwrap();
    }

    #[test]
    fn listener__of_a_full_range_says_how_many_are_needed() {
        let first = Listener::open(None, LOOPBACK, 1).unwrap();
        let port = first.port();
        let why = Listener::open(Some(port..=port), LOOPBACK, 7).unwrap_err();
        assert!(why.contains("1 port,") && why.contains("widen the range to 7 ports"), "{why}");
    }

    #[test]
    fn inherit__takes_what_listens_and_nothing_else() {
        let listener = Listener::open(None, LOOPBACK, 1).unwrap();
        listener.set_inherited(true);
        let port = listener.port();
        let fds = listener.fds();
        std::mem::forget(listener);
        let again = Listener::inherit(&fds, None).unwrap();
        assert_eq!(again.port(), port);
        let peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert!(Listener::inherit(&[peer.as_raw_fd()], None).is_err());
        assert!(Listener::inherit(&[0], None).is_err());
        assert!(Listener::inherit(&[1_000_000], None).is_err());
        assert!(Listener::inherit(&[], None).is_err());
    }

    #[test]
    fn listener__of_some_addresses_is_reached_at_no_other() {
        let address = |last| IpAddr::from([127, 0, 0, last]);
        let listener = Listener::open(None, &[address(1), address(3)], 1).unwrap();
        let fds = listener.fds();
        assert_eq!(fds.len(), 2);
        let reach = |last| TcpStream::connect((address(last), listener.port()));
        assert!(reach(1).is_ok() && reach(3).is_ok());
        let refused = reach(2).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        // An address that the host lacks is omitted. If no other address is given, the call fails.
        let gone: IpAddr = [192, 0, 2, 1].into();
        let left = Listener::open(None, &[gone, address(1)], 1).unwrap();
        assert_eq!(left.fds().len(), 1);
        assert!(Listener::open(None, &[gone], 1).is_err());
        // Another listener avoids that port, and takes one that is free on all of its addresses.
        let port = listener.port();
        let why = Listener::open(Some(port..=port), &[address(2), address(3)], 1).unwrap_err();
        assert!(why.contains("in use"), "{why}");
        std::mem::forget(listener);
        assert!(Listener::inherit(&fds, Some(port ^ 1)).is_err(), "the port of another one");
        assert_eq!(Listener::inherit(&fds, Some(port)).unwrap().fds(), fds);
        let two = [1, 2].map(|last| Listener::open(None, &[address(last)], 1).unwrap());
        let numbers: Vec<RawFd> = two.iter().flat_map(Listener::fds).collect();
        std::mem::forget(two);
        assert!(Listener::inherit(&numbers, None).is_err(), "two ports");
    }
}
