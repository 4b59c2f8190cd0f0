//! What the transports over adapters have counted, for people and for programs.

use super::rc::RcIface;
use super::{ud, upgrade};
use crate::{tcp, verbs};

/// What a transport has counted, for people and for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Of which transport, or of the adapter's port.
    pub of: &'static str,
    /// One line.
    pub text: String,
    /// Each number with its name.
    pub numbers: Vec<(&'static str, u64)>,
}

/// What is said of a limit on locked memory that was met; nothing where it was not.
pub(crate) fn describe_refused(times: u64) -> String {
    match times {
        0 => String::new(),
        1 => "; memory for more buffers was refused once: it went on with fewer (`ulimit -l`)"
            .to_owned(),
        _ => format!(
            "; memory for more buffers was refused {times} times: it went on with fewer (`ulimit \
             -l`)"
        ),
    }
}

impl Counts {
    pub(super) fn of_rc(iface: &RcIface) -> Self {
        let c = iface.counters();
        let (r, refusal) = iface.with_registrations(|all| (all.counts(), all.refusal()));
        let kept = match refusal {
            None => format!("{} kept at the end", r.kept),
            Some(why) => format!("none of the program's own memory is kept ({why})"),
        };
        let text = format!(
            "{} {}, {} bytes of inline data granted; {} sends inline, {} from buffers; dropped: \
             {} violations; {} connections failed; registrations: {} made, \
             {} reused, {} dropped as their memory changed, {} for others, {kept}{}",
            c.connections,
            if c.connections == 1 { "queue pair" } else { "queue pairs" },
            c.granted,
            c.inline,
            c.copied,
            c.violations,
            c.failures,
            r.made,
            r.reused,
            r.unmapped,
            r.evicted,
            describe_refused(c.refused)
        );
        let numbers = vec![
            ("connections", c.connections),
            ("inline_granted", c.granted),
            ("inline", c.inline),
            ("copied", c.copied),
            ("receive_polls", c.recv_polls),
            ("violations", c.violations),
            ("failures", c.failures),
            ("buffers_refused", c.refused),
            ("registrations_made", r.made),
            ("registrations_reused", r.reused),
            ("registrations_changed", r.unmapped),
            ("registrations_evicted", r.evicted),
            ("registrations_kept", r.kept),
        ];
        Counts { of: "rc", text, numbers }
    }

    pub(super) fn of_ud(c: &ud::Counters) -> Self {
        let numbers = vec![
            ("connections", c.connections),
            ("inline_granted", c.granted),
            ("inline", c.inline),
            ("sent", c.sent),
            ("resent", c.resent),
            ("acks", c.acks),
            ("received", c.received),
            ("duplicates", c.duplicates),
            ("early", c.early),
            ("garbage", c.garbage),
            ("violations", c.violations),
            ("receive_errors", c.receive_errors),
            ("out_of_buffer", c.out_of_buffer),
            ("outages", c.outages),
            ("buffers_refused", c.refused),
            ("receive_polls", c.recv_polls),
            ("failures", c.failures),
        ];
        Counts { of: "ud", text: c.to_string(), numbers }
    }

    /// What connections of the kernel's network have counted.
    pub(crate) fn of_tcp(c: &tcp::Counters) -> Self {
        let text = format!(
            "{} {}, {} made by the peer; {} calls that did not reach a peer; {} strangers",
            c.connections,
            if c.connections == 1 { "connection" } else { "connections" },
            c.accepted,
            c.failed,
            c.strangers
        );
        let numbers = vec![
            ("connections", c.connections),
            ("accepted", c.accepted),
            ("failed", c.failed),
            ("strangers", c.strangers),
        ];
        Counts { of: "tcp", text, numbers }
    }

    pub(super) fn of_pairs(c: &upgrade::Counters) -> Self {
        let text = format!(
            "{} of {} have a connection; without one: {} for the limit, {} that failed; dropped: \
             {} wireup datagrams of strangers",
            c.upgraded, c.pairs, c.limited, c.stayed, c.strangers
        );
        let numbers = vec![
            ("pairs", c.pairs),
            ("upgraded", c.upgraded),
            ("limited", c.limited),
            ("stayed", c.stayed),
            ("strangers", c.strangers),
            ("rests", c.rests),
        ];
        Counts { of: "pairs", text, numbers }
    }

    /// What the kernel has counted of receive buffers that ran out.
    pub(crate) fn of_port(counter: &verbs::PortCounter) -> Self {
        let count = counter.since();
        Counts {
            of: "port",
            text: format!("{} {count}, of all processes that use the adapter", counter.name),
            numbers: vec![(counter.name, count)],
        }
    }
}
