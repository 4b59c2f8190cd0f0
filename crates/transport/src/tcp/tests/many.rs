//! One process with many connections: cost of each connection, its cost to the other connections, and cost of a wait.
//! The jobs of all ends are mapped here, which limits their number. `cargo test --profile quick -p fastpath-transport
//! --lib many__ -- --nocapture` prints the figures. Bounds that hold on a busy machine are asserted.

use super::super::testing::{make_iface, make_jobs};
use super::super::{Settings, TcpEndpoint, TcpIface};
use super::{receive, send};
use crate::contract::Post;
use fastpath_base::clock;
use std::process::Command;
use std::time::Duration;

const INNER: &str = "FASTPATH_TEST_INNER";

const CONNECTIONS: usize = 250;
/// Number of descriptors. Each connection needs a listener, an epoll instance and a socket at its other end, and a
/// socket here.
const FILES: u64 = 4 * CONNECTIONS as u64 + 100;
const TRIPS: usize = 2000;

/// Raises the limit of open files to `files`; returns whether that succeeded.
fn allow_files(files: u64) -> bool {
    // SAFETY: the calls use a local structure.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_cur.max(files.min(limit.rlim_max));
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= files
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn processor_ns() -> u64 {
    // SAFETY: the call writes a local structure.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Median of round trips of 8 bytes, in nanoseconds, with both ends polled in turn.
fn measure_trip(ifaces: &mut [TcpIface], ends: &mut [TcpEndpoint; 2]) -> u64 {
    let mut times: Vec<u64> = (0..TRIPS)
        .map(|_| {
            let began = clock::now_ns();
            for from in 0..2 {
                assert_eq!(send(&mut ends[from], 1, &[0; 8]), Post::Done);
                while receive(&mut ends[1 - from]).is_none() {
                    ifaces[1 - from].progress();
                }
            }
            clock::now_ns() - began
        })
        .collect();
    times.sort_unstable();
    times[TRIPS / 2]
}

/// Run this in its own process, because files, memory and time are counted by process.
#[test]
fn many__connections_of_one_process_are_cheap() {
    if std::env::var_os(INNER).is_some() {
        return measure();
    }
    let mut inner = Command::new(std::env::current_exe().unwrap());
    inner.args(["many__connections_of_one_process_are_cheap", "--nocapture"]);
    let outcome = inner.env(INNER, "1").output().unwrap();
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let errors = String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success() && said.contains("1 passed"), "{said}{errors}");
    println!("{said}");
}

fn measure() {
    assert!(allow_files(FILES), "{FILES} files may not be open here");
    let jobs = make_jobs(CONNECTIONS + 1);
    let mut ifaces: Vec<TcpIface> =
        jobs.iter().map(|&job| make_iface(job, Settings::default())).collect();
    let connect = |ifaces: &mut [TcpIface], peer: usize| {
        let mut end = ifaces[0].endpoint(peer as u32);
        let other = ifaces[peer].endpoint(0);
        end.connect();
        while !end.link().is_up() || !other.link().is_up() {
            ifaces[0].progress();
            ifaces[peer].progress();
        }
        [end, other]
    };
    let mut pair = connect(&mut ifaces, 1);
    let alone_ns = measure_trip(&mut ifaces, &mut pair);
    let (before, began) = (resident(), clock::now_ns());
    let others: Vec<[TcpEndpoint; 2]> =
        (2..=CONNECTIONS).map(|peer| connect(&mut ifaces, peer)).collect();
    let took_ns = (clock::now_ns() - began) / others.len() as u64;
    let bytes = (resident() - before) / (2 * others.len());
    let among_ns = measure_trip(&mut ifaces, &mut pair);

    let (began, used) = (clock::now_ns(), processor_ns());
    let most = Duration::from_secs(1);
    loop {
        let slept = Duration::from_nanos(clock::now_ns() - began);
        let Some(left) = most.checked_sub(slept) else {
            break;
        };
        let nap = ifaces[0].arm(|| ());
        std::thread::park_timeout(nap.map_or(left, |nap| nap.min(left)));
    }
    let share = (processor_ns() - used) as f64 / (clock::now_ns() - began) as f64;
    println!(
        "{CONNECTIONS} connections: {:.1} us and {bytes} bytes each (both ends: {:.1} us); a trip of 8 bytes takes \
         {among_ns} ns, with one connection {alone_ns} ns; blocked {:.3} % of a processor",
        took_ns as f64 / 2e3,
        took_ns as f64 / 1e3,
        100.0 * share
    );
    assert!(bytes < 16 * 1024, "{bytes} bytes for each connection");
    assert!(share < 0.01, "blocked, it uses {share} of a processor");
}
