//! Connections between two hosts: calls, the answering side, and measurements.
#![allow(unsafe_code)]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastpath_base::entropy::draw_random;
use fastpath_job::network::Listener;
use fastpath_job::network::ports::dial;
use fastpath_job::network::proof::{Pass, TAG};
use fastpath_report::statistics::{Summary, summarize};

use super::CallResult;

/// Purpose string in the authentication tags of these connections.
const PURPOSE: &[u8] = b"doctor";
const NONCE: usize = 16;
/// Time without an answer after which a call counts as silent.
const SILENT: Duration = Duration::from_secs(1);
/// Time limit of each later step.
const STEP: Duration = Duration::from_secs(5);
/// Largest number of connections served at the same time.
const ANSWERED_MOST: usize = 256;
/// Number of measured round trips, and of warm-up round trips.
const TRIPS: [usize; 2] = [2000, 200];
/// Size of one write of a stream, in bytes.
const PIECE: usize = 1 << 20;
/// Size of the trial stream, from which the size for [`STREAM`] is calculated, and the largest size, in bytes.
const STREAM_BYTES: [u64; 2] = [4 << 20, 1 << 30];
const STREAM: Duration = Duration::from_millis(200);

#[derive(Clone, Copy)]
enum ProbeRequest {
    /// Send each of the given number of eight-byte messages back.
    Echo = b'E' as isize,
    /// Receive the given number of bytes, then acknowledge.
    Take = b'T' as isize,
    /// Send the given number of bytes.
    Give = b'G' as isize,
}

pub fn serve(pass: Pass, own: u32, listener: Listener) {
    let sockets: Vec<OwnedFd> = listener.into();
    let slots = Arc::new(());
    for listener in sockets.into_iter().map(TcpListener::from) {
        let slots = slots.clone();
        std::thread::spawn(move || {
            if listener.set_nonblocking(false).is_err() {
                return;
            }
            for stream in listener.incoming() {
                let slot = slots.clone();
                match stream {
                    Ok(stream) if Arc::strong_count(&slot) <= ANSWERED_MOST => {
                        std::thread::spawn(move || {
                            let _ = answer(pass, own, stream);
                            drop(slot);
                        });
                    }
                    Ok(_) => {}
                    // Accepting failed, for instance because no descriptor is left: pause, and try again.
                    Err(_) => std::thread::park_timeout(Duration::from_millis(20)),
                }
            }
        });
    }
}

fn set_limits(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(STEP))?;
    stream.set_write_timeout(Some(STEP))
}

fn answer(pass: Pass, own: u32, mut stream: TcpStream) -> io::Result<()> {
    set_limits(&stream)?;
    let nonce: [u8; NONCE] = draw_random()?;
    stream.write_all(&nonce)?;
    let mut said = [0; 4 + TAG];
    stream.read_exact(&mut said)?;
    let (from, tag) = said.split_at(4);
    let from = u32::from_le_bytes(from.try_into().map_err(|_| ErrorKind::InvalidData)?);
    let tag: &[u8; TAG] = tag.try_into().map_err(|_| ErrorKind::InvalidData)?;
    if !pass.is_tag(tag, PURPOSE, &nonce, (from, own)) {
        return Err(ErrorKind::InvalidData.into());
    }
    stream.write_all(&pass.tag(PURPOSE, &nonce, own, from))?;
    // The connection may be idle until all hosts have tried all addresses.
    stream.set_read_timeout(None)?;
    let mut request = [0; 9];
    while stream.read_exact(&mut request).is_ok() {
        let (kind, count) = request.split_at(1);
        let count = u64::from_le_bytes(count.try_into().map_err(|_| ErrorKind::InvalidData)?);
        match kind[0] {
            b'E' => echo(&mut stream, count)?,
            b'T' => take(&mut stream, count).and_then(|()| stream.write_all(&[0]))?,
            b'G' => give(&mut stream, count)?,
            _ => return Err(ErrorKind::InvalidData.into()),
        }
    }
    Ok(())
}

fn echo(stream: &mut TcpStream, count: u64) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    let mut word = [0; 8];
    for _ in 0..count {
        spin_read(stream, &mut word)?;
        stream.write_all(&word)?;
    }
    stream.set_nonblocking(false)
}

/// Reads from a nonblocking socket without sleeping.
fn spin_read(stream: &mut TcpStream, to: &mut [u8]) -> io::Result<()> {
    let (mut got, since) = (0, Instant::now());
    for spins in 1_u32.. {
        match stream.read(&mut to[got..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => got += bytes,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        if got == to.len() {
            return Ok(());
        }
        if spins.is_multiple_of(1 << 12) {
            if since.elapsed() > STEP {
                return Err(ErrorKind::TimedOut.into());
            }
            std::thread::yield_now();
        }
    }
    Ok(())
}

fn take(stream: &mut TcpStream, bytes: u64) -> io::Result<()> {
    let mut left = bytes;
    let mut piece = vec![0; PIECE];
    while left > 0 {
        let most = left.min(PIECE as u64) as usize;
        match stream.read(&mut piece[..most])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            got => left -= got as u64,
        }
    }
    Ok(())
}

fn give(stream: &mut TcpStream, bytes: u64) -> io::Result<()> {
    let piece = vec![1; PIECE];
    let mut left = bytes;
    while left > 0 {
        let part = left.min(PIECE as u64) as usize;
        stream.write_all(&piece[..part])?;
        left -= part as u64;
    }
    Ok(())
}

pub struct IncomingConnection {
    stream: TcpStream,
    pub source: IpAddr,
}

pub fn call(
    pass: &Pass, (own, peer): (u32, u32), from: Option<IpAddr>, to: SocketAddr,
) -> (CallResult, Option<IncomingConnection>) {
    let since = Instant::now();
    let stream = match dial(to, from).and_then(|socket| await_connected(socket.into())) {
        Ok(stream) => stream,
        Err(e) => return (judge(&e), None),
    };
    let connect_us = since.elapsed().as_secs_f64() * 1e6;
    let source = stream.local_addr().map(|address| address.ip());
    match prove(pass, (own, peer), stream) {
        Ok(stream) => {
            let source = source.unwrap_or(to.ip());
            let outcome = CallResult::Reached { connect_us };
            (outcome, Some(IncomingConnection { stream, source }))
        }
        Err(_) => (CallResult::Stranger, None),
    }
}

fn await_connected(stream: TcpStream) -> io::Result<TcpStream> {
    let mut entry = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let since = Instant::now();
    while let Some(left) = SILENT.checked_sub(since.elapsed()) {
        // SAFETY: the array has the one entry that is passed.
        let count = unsafe { libc::poll(&raw mut entry, 1, left.as_millis() as i32 + 1) };
        if count == 1 {
            return match stream.take_error()? {
                None => Ok(stream),
                Some(error) => Err(error),
            };
        }
    }
    Err(ErrorKind::TimedOut.into())
}

fn judge(error: &io::Error) -> CallResult {
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => CallResult::Refused,
        ErrorKind::TimedOut => CallResult::Silent,
        _ => CallResult::Impossible { why: error.to_string() },
    }
}

fn prove(pass: &Pass, (own, peer): (u32, u32), mut stream: TcpStream) -> io::Result<TcpStream> {
    set_limits(&stream)?;
    let mut nonce = [0; NONCE];
    stream.read_exact(&mut nonce)?;
    let tag = pass.tag(PURPOSE, &nonce, own, peer);
    stream.write_all(&[&own.to_le_bytes()[..], &tag].concat())?;
    let mut answer = [0; TAG];
    stream.read_exact(&mut answer)?;
    match pass.is_tag(&answer, PURPOSE, &nonce, (peer, own)) {
        true => Ok(stream),
        false => Err(ErrorKind::InvalidData.into()),
    }
}

impl IncomingConnection {
    fn ask(&mut self, request: ProbeRequest, count: u64) -> io::Result<()> {
        let mut word = vec![request as u8];
        word.extend_from_slice(&count.to_le_bytes());
        self.stream.write_all(&word)
    }

    /// Measures half a round trip of eight bytes, in microseconds, with both sides spinning.
    pub fn time_trips(&mut self) -> io::Result<Summary> {
        let [trips, before] = TRIPS;
        self.ask(ProbeRequest::Echo, (trips + before) as u64)?;
        self.stream.set_nonblocking(true)?;
        let mut samples = Vec::with_capacity(trips);
        let mut word = [7; 8];
        for trip in 0..trips + before {
            let since = Instant::now();
            self.stream.write_all(&word)?;
            spin_read(&mut self.stream, &mut word)?;
            if trip >= before {
                samples.push(since.elapsed().as_secs_f64() * 1e6 / 2.0);
            }
        }
        self.stream.set_nonblocking(false)?;
        summarize(&samples).ok_or_else(|| ErrorKind::InvalidData.into())
    }

    pub fn measure_streams(&mut self) -> io::Result<[f64; 2]> {
        let mut rates = [0.0; 2];
        for (rate, from_here) in rates.iter_mut().zip([true, false]) {
            let [least, most] = STREAM_BYTES;
            let trial = self.time_stream(from_here, least)?;
            let fits = least as f64 * STREAM.as_secs_f64() / trial.as_secs_f64().max(1e-6);
            let bytes = (fits as u64).clamp(least, most);
            let time = self.time_stream(from_here, bytes)?;
            *rate = bytes as f64 / time.as_secs_f64().max(1e-9) / 1e6;
        }
        Ok(rates)
    }

    fn time_stream(&mut self, from_here: bool, bytes: u64) -> io::Result<Duration> {
        let since = Instant::now();
        if from_here {
            self.ask(ProbeRequest::Take, bytes)?;
            give(&mut self.stream, bytes)?;
            self.stream.read_exact(&mut [0])?;
        } else {
            self.ask(ProbeRequest::Give, bytes)?;
            take(&mut self.stream, bytes)?;
        }
        Ok(since.elapsed())
    }

    /// Path MTU in bytes, as far as the kernel knows.
    pub fn path_mtu(&self) -> Option<u32> {
        let (level, option) = match self.source {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        let (mut value, mut length) = (0_i32, size_of::<libc::c_int>() as libc::socklen_t);
        let fd = self.stream.as_raw_fd();
        // SAFETY: the buffer holds an integer, whose size is `length`.
        let answer = unsafe {
            let at = (&raw mut value).cast();
            libc::getsockopt(fd, level, option, at, &raw mut length)
        };
        u32::try_from(value).ok().filter(|_| answer == 0)
    }
}

pub fn read_mtu(interface: &str) -> Option<u32> {
    // SAFETY: all zeros is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").ok()?;
    // SAFETY: the request takes an ifreq, whose name ends with a zero byte.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    // SAFETY: zeroed and possibly filled by the kernel, the field is an integer.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).ok().filter(|_| answer == 0)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const PASS: Pass = Pass { job_id: 1, secret: [3; 32] };

    fn listen(only: &str) -> Listener {
        Listener::open(None, &[only.parse().unwrap()], 1).unwrap()
    }

    #[test]
    fn call__says_who_is_there() {
        let listener = listen("127.0.0.1");
        let to = SocketAddr::new([127, 0, 0, 1].into(), listener.port());
        serve(PASS, 2, listener);
        let other = Pass { secret: [4; 32], ..PASS };
        let from = Some([127, 0, 0, 3].into());
        let (outcome, made) = call(&PASS, (1, 2), from, to);
        assert!(matches!(outcome, CallResult::Reached { .. }));
        assert_eq!(made.map(|call| call.source), from);
        // A call that expects another rank, and a call with another secret.
        assert_eq!(call(&PASS, (1, 3), None, to).0, CallResult::Stranger);
        assert_eq!(call(&other, (1, 2), None, to).0, CallResult::Stranger);
        let closed = SocketAddr::new([127, 0, 0, 2].into(), to.port());
        assert_eq!(call(&PASS, (1, 2), None, closed).0, CallResult::Refused);
        let not_ours = Some([192, 0, 2, 1].into());
        let outcome = call(&PASS, (1, 2), not_ours, to).0;
        assert!(matches!(outcome, CallResult::Impossible { .. }), "{outcome:?}");
    }

    #[test]
    fn connection__is_measured() {
        let listener = listen("::1");
        let to = SocketAddr::new("::1".parse().unwrap(), listener.port());
        serve(PASS, 2, listener);
        let mut made = call(&PASS, (1, 2), None, to).1.unwrap();
        let trips = made.time_trips().unwrap();
        assert!(trips.min > 0.0 && trips.samples == TRIPS[0]);
        assert!(made.measure_streams().unwrap().iter().all(|rate| *rate > 0.0));
        assert_eq!(made.path_mtu(), read_mtu("lo"));
        assert_eq!(read_mtu("no such interface at all"), None);
    }
}
