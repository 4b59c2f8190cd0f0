//! Addresses of this host, and those published to peers.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Peers that must be able to reach a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Only ranks that share the rank's memory, all on this machine. No socket listens on a network.
    Node,
    /// Ranks of this host and of other hosts.
    Network,
}

/// An address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// Name of the interface.
    pub name: String,
    /// The address.
    pub address: IpAddr,
    /// Whether the interface connects to one other host, usually a tunnel.
    pub point_to_point: bool,
}

/// Lists the addresses of all interfaces that are up, in the kernel's order. Link-local addresses (`fe80::`) are
/// omitted, because they name no peer without an interface number.
pub fn list_addresses() -> io::Result<Vec<HostAddress>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the list is written to the pointer, and freed below.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: each entry is valid until the list is freed, and the last one has no next.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        let flags = entry.ifa_flags as libc::c_int;
        let up = libc::IFF_UP | libc::IFF_RUNNING;
        // SAFETY: `ifa_addr` is null, or points to an address of the family that it names.
        let address = unsafe { read_address(entry.ifa_addr) };
        if let Some(address) = address.filter(|_| flags & up == up) {
            // SAFETY: an entry's name is a C string.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            found.push(HostAddress {
                name: name.to_string_lossy().into_owned(),
                address,
                point_to_point: flags & libc::IFF_POINTOPOINT != 0,
            });
        }
    }
    // SAFETY: the list is that of getifaddrs, and is freed once.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// Safety: `address` is null, or has the length of its family.
unsafe fn read_address(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: every address begins with its family.
    match unsafe { (*address).sa_family } as libc::c_int {
        libc::AF_INET => {
            // SAFETY: the family is AF_INET, so this type's bytes are readable.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let address = Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr));
            Some(address.into()).filter(|_| !address.is_link_local() && !address.is_unspecified())
        }
        libc::AF_INET6 => {
            // SAFETY: the family is AF_INET6, so this type's bytes are readable.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let address = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(address.into()).filter(|_| !address.is_unicast_link_local())
        }
        _ => None,
    }
}

/// A word of `FASTPATH_INTERFACES`.
#[derive(Debug)]
enum Pattern<'a> {
    Name(&'a str),
    /// A network: all addresses with these first bits.
    Network(IpAddr, u32),
}

impl<'a> Pattern<'a> {
    fn parse(word: &'a str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "FASTPATH_INTERFACES has {word:?}, which is not a network: write a network as \
                 10.1.0.0/16 or fd00::/8"
            )
        };
        if let Some((address, bits)) = word.split_once('/') {
            let address: IpAddr = address.parse().map_err(|_| wrong())?;
            let bits = bits.parse().map_err(|_| wrong())?;
            return match bits <= address_bits(address) {
                true => Ok(Pattern::Network(address, bits)),
                false => Err(wrong()),
            };
        }
        Ok(match word.parse() {
            Ok(address) => Pattern::Network(address, address_bits(address)),
            Err(_) => Pattern::Name(word),
        })
    }

    fn matches(&self, found: &HostAddress) -> bool {
        match (self, found.address) {
            (Pattern::Name(name), _) => found.name == *name,
            (Pattern::Network(IpAddr::V4(network), bits), IpAddr::V4(address)) => {
                let differ = network.to_bits() ^ address.to_bits();
                *bits == 0 || differ >> (32 - bits) == 0
            }
            (Pattern::Network(IpAddr::V6(network), bits), IpAddr::V6(address)) => {
                let differ = network.to_bits() ^ address.to_bits();
                *bits == 0 || differ >> (128 - bits) == 0
            }
            _ => false,
        }
    }
}

fn address_bits(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// Returns the addresses published to peers, the best first. `asked` is `FASTPATH_INTERFACES`: names, addresses and
/// networks, separated by commas, in the order of preference. An item that begins with `^` is excluded. By default, all
/// addresses but loopback are published, point-to-point interfaces last. Within a node, only loopback addresses are
/// published.
///
/// # Errors
/// A word is malformed, or no address is left.
pub fn choose_addresses(
    found: &[HostAddress], asked: &str, reach: Reach,
) -> Result<Vec<IpAddr>, String> {
    let words = asked.split(',').map(str::trim).filter(|w| !w.is_empty());
    let (mut wanted, mut refused) = (Vec::new(), Vec::new());
    for word in words.filter(|&word| word != "auto") {
        match word.strip_prefix('^') {
            Some(word) => refused.push(Pattern::parse(word)?),
            None => wanted.push(Pattern::parse(word)?),
        }
    }
    let kept = |f: &&HostAddress| !refused.iter().any(|pattern| pattern.matches(f));
    let mut chosen: Vec<IpAddr> = Vec::new();
    let mut add = |f: &HostAddress| {
        if !chosen.contains(&f.address) {
            chosen.push(f.address);
        }
    };
    let candidates: Vec<&HostAddress> = found.iter().filter(kept).collect();
    for pattern in &wanted {
        let these = candidates.iter().filter(|f| pattern.matches(f));
        these.for_each(|f| add(f));
    }
    if wanted.is_empty() {
        let (own, others): (Vec<&HostAddress>, Vec<&HostAddress>) =
            candidates.into_iter().partition(|f| f.address.is_loopback());
        let (tunnels, plain): (Vec<&HostAddress>, Vec<&HostAddress>) =
            others.into_iter().partition(|f| f.point_to_point);
        let others = plain.into_iter().chain(tunnels);
        match (reach, own.is_empty()) {
            // Exclusions by name apply to loopback addresses too.
            (Reach::Node, false) => own.into_iter().for_each(add),
            _ => others.for_each(&mut add),
        }
        if chosen.is_empty() {
            let own = found.iter().filter(kept);
            own.filter(|f| f.address.is_loopback()).for_each(|f| chosen.push(f.address));
        }
    }
    match chosen.is_empty() {
        true => Err(describe_none(found, asked)),
        false => Ok(chosen),
    }
}

/// Puts one address of each interface before a second of any, and the interface of the default route first. A card
/// without space for all addresses thus omits the least useful ones.
pub fn put_likely_first(found: &[HostAddress], default: Option<&str>, chosen: &mut Vec<IpAddr>) {
    let mut seen = HashMap::new();
    let mut placed = Vec::new();
    for &address in chosen.iter() {
        let name = found.iter().find(|f| f.address == address).map(|f| f.name.as_str());
        let before = seen.entry(name).or_insert(0);
        placed.push(((*before, name != default), address));
        *before += 1;
    }
    placed.sort_by_key(|&(place, _)| place);
    *chosen = placed.into_iter().map(|(_, address)| address).collect();
}

/// Returns the interface of the default route.
pub fn default_interface() -> Option<String> {
    let routes = std::fs::read_to_string("/proc/net/route").ok()?;
    read_default(&routes)
}

fn read_default(routes: &str) -> Option<String> {
    let mut rows = routes.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let all = Some(&"00000000");
    let is_default = |row: &Vec<&str>| row.get(1) == all && row.get(7) == all;
    let found = rows.find(is_default)?;
    Some(found[0].to_owned())
}

fn describe_none(found: &[HostAddress], asked: &str) -> String {
    let there: Vec<String> = found.iter().map(|f| format!("{} ({})", f.name, f.address)).collect();
    let there = match there.is_empty() {
        true => "no interface that is up".to_owned(),
        false => there.join(", "),
    };
    match asked.is_empty() {
        true => format!("other hosts cannot reach any address of this host, which has {there}"),
        false => {
            format!(
                "FASTPATH_INTERFACES={asked} matches no address of this host, which has {there}"
            )
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn host() -> Vec<HostAddress> {
        let found = |name: &str, address: &str, point_to_point| HostAddress {
            name: name.to_owned(),
            address: address.parse().unwrap(),
            point_to_point,
        };
        vec![
            found("lo", "127.0.0.1", false),
            found("tun0", "10.8.0.2", true),
            found("eth0", "10.1.2.3", false),
            found("eth0", "fd00::3", false),
            found("docker0", "172.17.0.1", false),
            found("lo", "::1", false),
        ]
    }

    fn choose(asked: &str, reach: Reach) -> Result<Vec<String>, String> {
        let chosen = choose_addresses(&host(), asked, reach)?;
        Ok(chosen.iter().map(IpAddr::to_string).collect())
    }

    #[test]
    fn choose__is_as_asked() {
        for (asked, expected) in [
            ("", "10.1.2.3 fd00::3 172.17.0.1 10.8.0.2"),
            ("auto", "10.1.2.3 fd00::3 172.17.0.1 10.8.0.2"),
            ("^docker0", "10.1.2.3 fd00::3 10.8.0.2"),
            ("^docker0,^fd00::/8", "10.1.2.3 10.8.0.2"),
            ("tun0,eth0", "10.8.0.2 10.1.2.3 fd00::3"),
            ("eth0, ^10.0.0.0/8", "fd00::3"),
            ("10.0.0.0/8", "10.8.0.2 10.1.2.3"),
            ("10.1.2.3,eth0", "10.1.2.3 fd00::3"),
            ("0.0.0.0/0,^lo", "10.8.0.2 10.1.2.3 172.17.0.1"),
            ("fd00::3,ib0", "fd00::3"),
            ("lo", "127.0.0.1 ::1"),
            ("^eth0,^docker0,^tun0", "127.0.0.1 ::1"),
        ] {
            let chosen = choose(asked, Reach::Network).unwrap();
            assert_eq!(chosen.join(" "), expected, "{asked}");
        }
    }

    #[test]
    fn likely__is_one_address_of_each_interface() {
        let mut chosen = choose_addresses(&host(), "", Reach::Network).unwrap();
        put_likely_first(&host(), Some("docker0"), &mut chosen);
        let chosen: Vec<String> = chosen.iter().map(IpAddr::to_string).collect();
        assert_eq!(chosen, ["172.17.0.1", "10.1.2.3", "10.8.0.2", "fd00::3"]);
    }

    #[test]
    fn default__is_the_way_to_everywhere() {
        let head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\n";
        let net = "eth1\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\n";
        let all = "eth0\t00000000\t0102000A\t0003\t0\t0\t0\t00000000\t0\n";
        assert_eq!(read_default(&format!("{head}{net}{all}")).as_deref(), Some("eth0"));
        assert_eq!(read_default(&format!("{head}{net}")), None);
        assert_eq!(read_default(""), None);
    }

    #[test]
    fn choose__within_a_node_is_loopback_unless_asked_otherwise() {
        let chosen = |asked| choose(asked, Reach::Node).unwrap().join(" ");
        assert_eq!(chosen(""), "127.0.0.1 ::1");
        assert_eq!(chosen("eth0"), "10.1.2.3 fd00::3");
        assert_eq!(chosen("^lo"), "10.1.2.3 fd00::3 172.17.0.1 10.8.0.2");
    }

    #[test]
    fn choose__says_what_there_is_where_nothing_is_left() {
        for asked in ["eth7", "192.168.0.0/16", "^0.0.0.0/0,^::/0"] {
            let why = choose(asked, Reach::Network).unwrap_err();
            assert!(why.contains(asked) && why.contains("docker0 (172.17.0.1)"), "{why}");
        }
        for asked in ["10.1.0.0/33", "10.1/16", "eth0/x", "^fd00::/129"] {
            let why = choose(asked, Reach::Network).unwrap_err();
            assert!(why.contains("is not a network"), "{why}");
        }
        let why = choose_addresses(&[], "", Reach::Network).unwrap_err();
        assert!(why.contains("no interface that is up"), "{why}");
    }

    #[test]
    fn list__has_an_address_of_this_host() {
        let found = list_addresses().unwrap();
        assert!(found.iter().all(|f| !f.name.is_empty()));
    }

    #[test]
    fn fuzz__interfaces_are_understood_or_refused() {
        let corpus: &[&[u8]] = &[b"eth0,10.0.0.0/8", b"^docker0,fd00::/8", b"auto"];
        crate::mutate::run(corpus, |input| {
            let asked = String::from_utf8_lossy(input);
            if let Ok(chosen) = choose_addresses(&host(), &asked, Reach::Network) {
                assert!(!chosen.is_empty());
            }
        });
    }
}
