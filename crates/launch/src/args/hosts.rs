//! Host names on the command line, in host files and from the batch system, and the number of ranks of each host.

use super::parser_state::{HostSpec, Parser};
use super::spec::Node;
use super::values::{GivenOption, parse_ranks};
use super::{Surroundings, UsageError, wrong};
use crate::poll;
use fastpath_base::topology::{self, Level};
use fastpath_segment::MAX_JOB_RANKS;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Applies `--host NAME[:SLOTS],...`.
pub fn take_hosts(parser: &mut Parser<'_>, given: &GivenOption) -> Result<(), UsageError> {
    for item in given.text().split(',').filter(|i| !i.is_empty()) {
        let place = format!("{} {item}", given.name);
        let host = read_host(item, &place)?;
        parser.count.host_slots += host.slots.unwrap_or(1);
        parser.count.hosts.push(host);
    }
    Ok(())
}

/// Applies `--hostfile FILE`. A line of the file has a host, with `slots=` and `max_slots=` (Open MPI) or `:SLOTS`
/// (MPICH, Intel MPI).
pub fn take_hostfile(parser: &mut Parser<'_>, given: &GivenOption) -> Result<(), UsageError> {
    // An agent does not read the file. The launcher has counted the agent's ranks, and the file may exist only on the
    // launcher's host.
    if !parser.told_ranks.is_empty() {
        return Ok(());
    }
    let path = Path::new(given.value());
    let text = parser.here.read(path).or_else(|e| wrong(format!("{}: {e}", given.typed())))?;
    let hosts = read_hostfile(&String::from_utf8_lossy(&text), &given.text())?;
    if hosts.is_empty() {
        return wrong(format!(
            "{}: the file contains no host; write one host per line",
            given.typed()
        ));
    }
    let mut most = None;
    for host in hosts {
        parser.count.file_slots += host.slots.or(host.most).unwrap_or(1);
        if let Some(n) = host.most {
            most = Some(most.unwrap_or(0) + n);
        }
        parser.count.file_hosts.push(host);
    }
    if let Some(most) = most {
        parser.count.limit = Some((most, given.text().into_owned()));
    }
    Ok(())
}

/// Applies `--agent RANKS,...[/RANKS,...]`: numbers of ranks of the nodes and, after the slash, of the programs.
pub fn take_agent(parser: &mut Parser<'_>, given: &GivenOption) -> Result<(), UsageError> {
    let text = given.text();
    let (nodes, programs) = text.split_once('/').unwrap_or((&text, ""));
    let read = |list: &str| list.split(',').map(parse_ranks).collect::<Option<Vec<_>>>();
    let programs = match programs {
        "" => Some(Vec::new()),
        list => read(list),
    };
    let (Some(nodes), Some(programs)) = (read(nodes), programs) else {
        return wrong(format!(
            "{}: the value must list the number of ranks of each host and, after a slash, of each \
             program, such as 2,2/1,3",
            given.typed()
        ));
    };
    (parser.agent, parser.told_ranks) = (Some(nodes), programs);
    Ok(())
}

/// Encodes a command line for an agent. Engines would treat the word `:` as the start of another program. A word of
/// only colons therefore gets one more colon.
pub fn write_agent_words(words: &[OsString]) -> impl Iterator<Item = OsString> {
    let add = |word: &OsString| match is_colons(word) {
        true => [word.as_os_str(), OsStr::new(":")].into_iter().collect(),
        false => word.clone(),
    };
    words.iter().map(add)
}

/// Reverses [`write_agent_words`].
pub fn read_agent_words(words: Vec<OsString>) -> Vec<OsString> {
    let take = |word: OsString| match is_colons(&word) {
        true => ":".repeat(word.len().saturating_sub(1)).into(),
        false => word,
    };
    words.into_iter().map(take).collect()
}

fn is_colons(word: &OsStr) -> bool {
    !word.is_empty() && word.as_encoded_bytes().iter().all(|&byte| byte == b':')
}

fn read_hostfile(text: &str, file: &str) -> Result<Vec<HostSpec>, UsageError> {
    let mut hosts = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("");
        // Open MPI accepts blanks around `=`, as in `slots = 4`, so remove them.
        let line = line.replace(" =", "=").replace("= ", "=");
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        let place = format!("{file} line {}", at + 1);
        let mut host = read_host(name, &place)?;
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let field = match key.replace('-', "_").as_str() {
                "slots" | "cpus" | "count" => &mut host.slots,
                "max_slots" | "slots_max" => &mut host.most,
                // Ignore user names, interfaces, bindings and similar keys: they matter only for remote hosts.
                _ if word.contains('=') => continue,
                _ => {
                    return wrong(format!(
                        "{place}: {word:?} is unknown; write lines of the form NAME [slots=N] \
                         [max_slots=N] or NAME:N"
                    ));
                }
            };
            *field = Some(parse_ranks(value).map_or_else(|| bad_slots(&place, value), Ok)?);
        }
        hosts.push(host);
    }
    Ok(hosts)
}

/// Reads `NAME`, `NAME:SLOTS`, `USER@NAME` or `[ADDRESS]:SLOTS`. An IPv6 address without slots needs no brackets.
fn read_host(item: &str, place: &str) -> Result<HostSpec, UsageError> {
    let (name, slots) = match item.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, rest)) => (name, rest.strip_prefix(':')),
        None if item.parse::<IpAddr>().is_ok() => (item, None),
        None => item.split_once(':').map_or((item, None), |(name, slots)| (name, Some(slots))),
    };
    let slots = match slots {
        // Intel MPI and MVAPICH write more after a second colon; ignore it.
        Some(text) => {
            let number = text.split(':').next().unwrap_or(text);
            Some(parse_ranks(number).map_or_else(|| bad_slots(place, number), Ok)?)
        }
        None => None,
    };
    let name = name.rsplit('@').next().unwrap_or(name).to_owned();
    Ok(HostSpec { name, slots, most: None })
}

fn bad_slots<T>(place: &str, text: &str) -> Result<T, UsageError> {
    wrong(format!("{place}: {text:?} is not a number of ranks from 1 to {MAX_JOB_RANKS}"))
}

/// Adds the hosts of one program to those of the job, each once. Slots of a host that the program repeats add up. Of
/// several programs, the largest number of slots counts.
pub fn add_hosts(nodes: &mut Vec<Node>, hosts: &[HostSpec]) {
    let mut own: Vec<Node> = Vec::new();
    for host in hosts {
        let slots = host.slots.or(host.most).unwrap_or(1);
        match own.iter_mut().find(|node| node.name == host.name) {
            Some(node) => node.ranks += slots,
            None => own.push(Node { name: host.name.clone(), ranks: slots }),
        }
    }
    for node in own {
        match nodes.iter_mut().find(|other| other.name == node.name) {
            Some(other) => other.ranks = other.ranks.max(node.ranks),
            None => nodes.push(node),
        }
    }
}

/// Distributes `total` ranks over the nodes in rounds. In each round a node gets as many ranks as it has slots, or
/// `per_node` if given. Nodes without ranks are removed.
pub fn deal_ranks(mut nodes: Vec<Node>, total: usize, per_node: Option<usize>) -> Vec<Node> {
    let turns: Vec<usize> =
        nodes.iter().map(|node| per_node.unwrap_or(node.ranks).max(1)).collect();
    let round: usize = turns.iter().sum();
    let mut left = total % round.max(1);
    for (node, turn) in nodes.iter_mut().zip(turns) {
        let last = left.min(turn);
        node.ranks = total / round.max(1) * turn + last;
        left -= last;
    }
    nodes.retain(|node| node.ranks != 0);
    nodes
}

/// Reads the nodes of a Slurm allocation from `SLURM_TASKS_PER_NODE`, such as `2(x3),1`. The nodes are unnamed, because
/// `srun` knows their names. None if the text is invalid.
pub fn read_tasks(text: &str) -> Option<Vec<Node>> {
    let mut nodes = Vec::new();
    for item in text.split(',') {
        let (ranks, times) = match item.split_once("(x") {
            Some((ranks, times)) => (ranks, times.strip_suffix(')')?.parse().ok()?),
            None => (item, 1),
        };
        let node =
            Node { name: String::new(), ranks: ranks.trim().parse().ok().filter(|&n| n > 0)? };
        if nodes.len() + times > MAX_JOB_RANKS {
            return None;
        }
        nodes.extend(std::iter::repeat_n(node, times));
    }
    Some(nodes)
}

/// The machine that the launcher runs on.
#[derive(Debug)]
pub struct ThisNode {
    host: String,
}

impl ThisNode {
    pub fn new(host: String) -> ThisNode {
        ThisNode { host }
    }
}

impl Surroundings for ThisNode {
    fn is_here(&self, name: &str) -> bool {
        let aliases = || std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        is_own_name(name, &self.host, &aliases, &is_own_address)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // Open without blocking: the open of a named pipe without a writer would not return.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        read_text(&file, WRITER_WAIT_MS)
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|text| !text.is_empty())
    }

    fn count(&self, level: Level) -> usize {
        let allowed = topology::affinity();
        let places = || topology::list_places(level, &allowed, &topology::read_system);
        match level {
            Level::Thread => topology::usable_processors(),
            _ => places().map_or(1, |p| p.len()).max(1),
        }
    }
}

/// Longest wait for the first writer of a named pipe, in milliseconds.
const WRITER_WAIT_MS: u64 = 5000;
/// Largest list of hosts or programs, in bytes.
const LONGEST: usize = 16 << 20;

/// Reads a file that was opened without blocking. A pipe is read until all writers have closed it. The first writer
/// must open it within `writer_wait_ms`.
fn read_text(file: &File, writer_wait_ms: u64) -> io::Result<Vec<u8>> {
    let mut awaits_writer = file.metadata()?.file_type().is_fifo();
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    while text.len() <= LONGEST {
        match poll::read(file.as_fd(), &mut piece) {
            Ok(0) if awaits_writer => {
                awaits_writer = false;
                if !poll::wait_readable(file.as_fd(), Some(writer_wait_ms)) {
                    return Err(io::Error::other(
                        "the file is a pipe to which no process writes; start the writer first",
                    ));
                }
            }
            Ok(0) => return Ok(text),
            Ok(length) => {
                awaits_writer = false;
                text.extend_from_slice(&piece[..length]);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                awaits_writer = false;
                poll::wait_readable(file.as_fd(), None);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other(
        "the file is longer than 16 MiB; pass a file that lists hosts or programs",
    ))
}

/// Whether `name` is a name of the node called `host`. Does not use the network: `aliases` is the text of /etc/hosts.
fn is_own_name(
    name: &str, host: &str, aliases: &dyn Fn() -> String, is_own: &dyn Fn(IpAddr) -> bool,
) -> bool {
    if let Ok(address) = name.parse::<IpAddr>() {
        return is_own(address);
    }
    let first = |name: &str| name.split('.').next().unwrap_or("").to_ascii_lowercase();
    let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    if same(name, "localhost") || same(name, host) {
        return true;
    }
    // A short name matches the full name.
    if first(name) == first(host) && !(name.contains('.') && host.contains('.')) {
        return !name.is_empty();
    }
    aliases().lines().any(|line| {
        let line = line.split('#').next().unwrap_or("");
        let mut words = line.split_whitespace();
        let address = words.next().and_then(|a| a.parse::<IpAddr>().ok());
        address.is_some_and(|a| words.any(|w| same(w, name)) && is_own(a))
    })
}

/// Whether the address belongs to this node: a socket can be bound only to such an address. Sends nothing.
fn is_own_address(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(a) if a.is_broadcast());
    !address.is_unspecified()
        && !address.is_multicast()
        && !broadcast
        && UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::io::Write;

    const ALIASES: &str =
        "127.0.0.1 localhost\n127.0.1.1 box.lab box # me\n10.0.0.9 far db\nbad line\n";

    fn own(name: &str, host: &str) -> bool {
        let is_own = |a: IpAddr| a.is_loopback() || a.to_string() == "10.0.0.5";
        is_own_name(name, host, &|| ALIASES.to_owned(), &is_own)
    }

    #[test]
    fn pipe__is_read_to_its_end_and_refused_where_no_process_writes() {
        let path = std::env::temp_dir().join(format!("fastpath-hosts-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let open =
            || OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        let refused = read_text(&open(), 0).unwrap_err();
        assert!(refused.to_string().contains("no process writes"), "{refused}");
        let reader = open();
        let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
        let text = "host\n".repeat(5000);
        let written = text.clone();
        let feed = std::thread::spawn(move || writer.write_all(written.as_bytes()).unwrap());
        assert_eq!(read_text(&reader, 0).unwrap(), text.as_bytes());
        feed.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn file__without_an_end__is_refused() {
        let refused = read_text(&File::open("/dev/zero").unwrap(), 0).unwrap_err();
        assert!(refused.to_string().contains("longer than 16 MiB"), "{refused}");
    }

    #[test]
    fn names__of_this_node() {
        for name in ["localhost", "LOCALHOST", "127.0.0.1", "::1", "10.0.0.5", "node7", "box.lab"] {
            assert!(own(name, "node7"), "{name}");
        }
        assert!(own("node7.lab", "node7") && own("Node7", "node7.lab"));
        for name in ["node8", "", "far", "10.0.0.6", "0.0.0.0", "node7-ib", "+n0"] {
            assert!(!own(name, "node7"), "{name:?}");
        }
        assert!(!own("node7.lab", "node7.other"));
    }

    #[test]
    fn addresses__are_own_where_a_socket_can_have_them() {
        assert!(is_own_address("127.0.0.1".parse().unwrap()));
        // These are a documentation address, wildcards, broadcast and a multicast group.
        for other in ["198.51.100.77", "0.0.0.0", "255.255.255.255", "224.0.0.1", "::"] {
            assert!(!is_own_address(other.parse().unwrap()), "{other}");
        }
    }

    fn host(name: &str, slots: Option<usize>, most: Option<usize>) -> HostSpec {
        HostSpec { name: name.into(), slots, most }
    }

    #[test]
    fn hostfile__of_each_dialect() {
        let text = "# a comment\n\na slots=4 max_slots=8\nb:3 # cores\nc\n  d  slots = 2\n\
                    e max-slots=5\nme@f:2 binding=user:0,1 \
                    ifname=eth0\n[::1]:6\n::1\ng:4:mlx5_0\nh cpu=2\n";
        let hosts = read_hostfile(text, "f").unwrap();
        assert_eq!(
            hosts,
            [
                host("a", Some(4), Some(8)),
                host("b", Some(3), None),
                host("c", None, None),
                host("d", Some(2), None),
                host("e", None, Some(5)),
                host("f", Some(2), None),
                host("::1", Some(6), None),
                host("::1", None, None),
                host("g", Some(4), None),
                host("h", None, None),
            ]
        );
    }

    #[test]
    fn hostfile__mistakes_name_the_line() {
        for (text, part) in [
            ("a\nb slots=0", "f line 2: \"0\" is not a number of ranks"),
            ("a four", "f line 1: \"four\" is unknown"),
            ("a:x", "f line 1: \"x\" is not a number"),
            ("a slots", "f line 1: \"\" is not a number"),
        ] {
            let error = read_hostfile(text, "f").unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
