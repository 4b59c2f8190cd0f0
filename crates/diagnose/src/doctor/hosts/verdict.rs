//! Conclusions from the calls of all hosts: the connection that a job would use, and diagnostics. Pure functions.

use std::collections::BTreeSet;
use std::net::IpAddr;

use fastpath_report::data::values;

use super::super::diagnostics::{Diagnostic, Diagnostics};
use super::{Attempt, CallResult, HostConnection, HostFacts, HostsReport};

/// Delay, in seconds, after which a rank calls the next address if one does not answer.
const APART_S: f64 = 0.25;

/// Lists the calls of `dialer` to `peer` that a job would make too, in the job's order. Addresses that the dialer has
/// too, such as that of a bridge, come last.
fn list_calls(report: &HostsReport, dialer: usize, peer: usize) -> Vec<&Attempt> {
    let is_own = |address: &IpAddr| {
        let own = &report.hosts[dialer].interfaces;
        own.iter().any(|one| one.address == *address)
    };
    let is_asked = |call: &&Attempt| call.peer == peer && call.from.is_none();
    let tried = report.tried.get(dialer).map_or(&[][..], Vec::as_slice);
    let mut calls: Vec<&Attempt> = tried.iter().filter(is_asked).collect();
    calls.sort_by_key(|call| is_own(&call.to));
    calls
}

/// Finds the connection that results from a host's calls to a peer.
fn find_way(report: &HostsReport, dialer: usize, peer: usize) -> Option<HostConnection> {
    let mut after_s = 0.0;
    for call in list_calls(report, dialer, peer) {
        match (&call.outcome, call.source) {
            (CallResult::Reached { .. }, Some(from)) => {
                return Some(HostConnection { dialer, peer, from, to: call.to, after_s });
            }
            (CallResult::Silent, _) => after_s += APART_S,
            _ => {}
        }
    }
    None
}

fn list_pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |low| (low + 1..count).map(move |high| (low, high)))
}

/// Lists the connection of each pair of hosts that can have one. If both calls succeed, that of the lower host is used.
pub fn list_used(report: &HostsReport) -> Vec<HostConnection> {
    let pairs = list_pairs(report.hosts.len());
    let used = pairs
        .map(|(low, high)| find_way(report, low, high).or_else(|| find_way(report, high, low)));
    used.flatten().collect()
}

pub fn describe_outcome(outcome: &CallResult) -> String {
    match outcome {
        CallResult::Reached { connect_us } => format!("reached in {connect_us:.0} us"),
        CallResult::Refused => {
            "refused: no process listens at the port, or a firewall rejects the connection"
                .to_owned()
        }
        CallResult::Silent => {
            "does not answer: a firewall drops packets, or there is no route".to_owned()
        }
        CallResult::Impossible { why } => format!("cannot be reached: {why}"),
        CallResult::Stranger => "another program answers".to_owned(),
    }
}

pub fn diagnose(report: &HostsReport, used: &[HostConnection]) -> Vec<Diagnostic> {
    let mut found = Diagnostics::default();
    let hosts = &report.hosts;
    for host in hosts {
        if let Some(why) = &host.problem {
            found.add("hosts-no-address", &host.name, values!(why));
        }
    }
    for (low, high) in list_pairs(hosts.len()) {
        look_at_pair(report, (low, high), used, &mut found);
    }
    for failed in report.speeds.iter().filter_map(|speed| speed.as_ref().err()) {
        let (dialer, peer, why) = failed;
        let name = |at: &usize| hosts.get(*at).map_or("?", |host| &host.name);
        let subject = format!("{} and {}", name(dialer), name(peer));
        found.add("hosts-stall", &subject, values!(why));
    }
    look_at_differences(hosts, &mut found);
    found.list()
}

fn look_at_pair(
    report: &HostsReport, (low, high): (usize, usize), used: &[HostConnection],
    found: &mut Diagnostics,
) {
    let hosts = &report.hosts;
    let (a, b) = (&hosts[low].name, &hosts[high].name);
    let subject = format!("{a} and {b}");
    let ways = [find_way(report, low, high), find_way(report, high, low)];
    let ports = match hosts[high].ports.as_str() {
        "" => "all ports (fewer if FASTPATH_PORTS is set)".to_owned(),
        ports => format!("the ports {ports}"),
    };
    match &ways {
        // Neither host reaches the other, because one of them has a problem that is reported for that host.
        [None, None] if [low, high].iter().any(|&at| hosts[at].problem.is_some()) => {}
        [None, None] => {
            let calls = list_calls(report, low, high);
            let calls = calls.iter().map(|call| {
                let outcome = describe_outcome(&call.outcome);
                format!("{} {outcome}", call.to)
            });
            let tried = calls.collect::<Vec<_>>().join("; ");
            found.add("hosts-apart", &subject, values!(tried, ports));
        }
        [Some(_), None] => found.add("hosts-one-way", &subject, values!(a, b, ports)),
        [None, Some(_)] => found.add("hosts-one-way", &subject, values!(a = b, b = a, ports)),
        [Some(_), Some(_)] => {}
    }
    let is_of_pair = |one: &&HostConnection| {
        let ends = [one.dialer, one.peer];
        ends.contains(&low) && ends.contains(&high)
    };
    let Some(one) = used.iter().find(is_of_pair) else {
        return;
    };
    if one.after_s > 0.0 {
        let calls = list_calls(report, one.dialer, one.peer);
        let silent = calls.iter().take_while(|call| call.to != one.to);
        let silent = silent.filter(|call| call.outcome == CallResult::Silent);
        let silent: Vec<String> = silent.map(|call| call.to.to_string()).collect();
        let without = silent.iter().map(|address| format!("^{address}"));
        let without = without.collect::<Vec<_>>().join(",");
        let (silent, after) = (silent.join(", "), one.after_s);
        found.add("hosts-slow", &subject, values!(silent, after, without));
    }
    let mtu = |host: usize, address: IpAddr| {
        let mut all = hosts[host].interfaces.iter();
        all.find(|one| one.address == address)?.mtu
    };
    if let (Some(here), Some(there)) = (mtu(one.dialer, one.from), mtu(one.peer, one.to))
        && here != there
    {
        let (from, to) = (one.from, one.to);
        found.add("hosts-mtu", &subject, values!(from, here, to, there));
    }
}

/// Reports properties that should be equal on all hosts and are not.
fn look_at_differences(hosts: &[HostFacts], found: &mut Diagnostics) {
    let mut compare = |name: &str, value: &dyn Fn(&HostFacts) -> String| {
        let values: BTreeSet<String> = hosts.iter().map(value).collect();
        if values.len() > 1 {
            let each = hosts.iter().map(|host| format!("{} on {}", value(host), host.name));
            let each = each.collect::<Vec<_>>().join(", ");
            found.add(name, "hosts", values!(each));
        }
    };
    compare("hosts-version", &|host| host.version.clone());
    compare("hosts-files", &|host| host.open_files.to_string());
    compare("hosts-locked", &|host| {
        host.locked_memory.map_or("unlimited".to_owned(), |bytes| format!("{bytes} bytes"))
    });
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::super::diagnostics::Severity;
    use super::super::{Interface, Speed};
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn host(name: &str, addresses: &[&str]) -> HostFacts {
        let interface = |text: &&str| Interface {
            name: "eth".to_owned(),
            address: address(text),
            mtu: Some(1500),
        };
        HostFacts {
            name: name.to_owned(),
            interfaces: addresses.iter().map(interface).collect(),
            told: addresses.iter().map(|text| address(text)).collect(),
            port: 7,
            ..HostFacts::default()
        }
    }

    fn attempt(peer: usize, to: &str, outcome: CallResult) -> Attempt {
        let reached = matches!(outcome, CallResult::Reached { .. });
        Attempt {
            peer,
            from: None,
            source: reached.then(|| address("10.0.0.1")),
            to: address(to),
            outcome,
        }
    }

    const REACHED: CallResult = CallResult::Reached { connect_us: 50.0 };

    fn report(there: Vec<Attempt>, back: Vec<Attempt>) -> HostsReport {
        HostsReport {
            hosts: vec![
                host("a", &["172.17.0.1", "10.0.0.1"]),
                host("b", &["172.17.0.1", "192.0.2.2", "10.0.0.2"]),
            ],
            tried: vec![there, back],
            speeds: Vec::new(),
        }
    }

    fn names(report: &HostsReport) -> Vec<(Severity, String)> {
        let said = diagnose(report, &list_used(report));
        said.into_iter().map(|t| (t.severity, t.what)).collect()
    }

    #[test]
    fn used__is_the_first_that_answers_and_own_addresses_come_last() {
        let there = vec![
            attempt(1, "172.17.0.1", CallResult::Stranger),
            attempt(1, "192.0.2.2", CallResult::Silent),
            attempt(1, "10.0.0.2", REACHED),
        ];
        let back = vec![attempt(0, "10.0.0.1", REACHED)];
        let report = report(there, back);
        let used = list_used(&report);
        assert_eq!(used.len(), 1);
        assert_eq!((used[0].dialer, used[0].to), (0, address("10.0.0.2")));
        assert_eq!(used[0].after_s, APART_S);
        let said = names(&report);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].1.contains("192.0.2.2"), "{said:?}");
        assert_eq!(said[0].0, Severity::Note);
    }

    #[test]
    fn hosts__that_reach_each_other_one_way_or_not_at_all_are_told() {
        let back = vec![attempt(0, "10.0.0.1", REACHED)];
        let one_way = report(vec![attempt(1, "10.0.0.2", CallResult::Refused)], back);
        assert_eq!(list_used(&one_way)[0].dialer, 1);
        let said = names(&one_way);
        assert!(said[0].1.contains("from b to a"), "{said:?}");
        let there = vec![
            attempt(1, "10.0.0.2", CallResult::Refused),
            attempt(1, "192.0.2.2", CallResult::Silent),
        ];
        let apart = report(there, vec![attempt(0, "10.0.0.1", CallResult::Silent)]);
        assert!(list_used(&apart).is_empty());
        let said = names(&apart);
        assert_eq!(said[0].0, Severity::Trouble);
        assert!(
            said[0].1.contains("10.0.0.2 refused")
                && said[0].1.contains("192.0.2.2 does not answer")
        );
    }

    #[test]
    fn differences__are_told_with_the_hosts() {
        let mut report =
            report(vec![attempt(1, "10.0.0.2", REACHED)], vec![attempt(0, "10.0.0.1", REACHED)]);
        report.hosts[1].version = "other".to_owned();
        report.hosts[1].open_files = 5;
        report.hosts[1].locked_memory = Some(65536);
        report.hosts[1].interfaces[2].mtu = Some(9000);
        report.hosts[0].problem = Some("no port".to_owned());
        let failed = Err((0, 1, "it stalls".to_owned()));
        report.speeds = vec![failed];
        let said = names(&report);
        for text in ["other on b", "5 on b", "65536 bytes on b", "9000", "no port", "it stalls"] {
            assert!(said.iter().any(|(_, what)| what.contains(text)), "{text}: {said:?}");
        }
        assert_eq!(said[0].0, Severity::Trouble);
        assert_eq!(said.last().unwrap().0, Severity::Note);
    }

    #[test]
    fn report__survives_its_way_as_json() {
        let mut report = report(vec![attempt(1, "10.0.0.2", REACHED)], Vec::new());
        report.tried[1].push(attempt(0, "fd00::1", CallResult::Impossible { why: "x".to_owned() }));
        report.speeds.push(Ok(Speed {
            dialer: 0,
            peer: 1,
            half_round_trip_us: [1.5, 2.5],
            bandwidth_mb_s: [3.0, 4.0],
            path_mtu: None,
        }));
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<HostsReport>(&text).unwrap(), report);
    }
}
