//! Counters of the transports to other hosts, as text and as named numbers.

use crate::adapter::rc::RcIface;
use crate::adapter::{Adapter, describe_refused, ud, upgrade};
use crate::{tcp, verbs};

/// Counters of one transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportCounts {
    /// Name of the transport; `port` for the adapter's port.
    pub of: &'static str,
    /// The counters, in one line.
    pub text: String,
    /// Each counter with its name.
    pub numbers: Vec<(&'static str, u64)>,
}

impl TransportCounts {
    pub(super) fn of_adapter(adapter: &Adapter) -> Vec<Self> {
        match adapter {
            Adapter::Rc(iface) => vec![TransportCounts::of_rc(iface)],
            Adapter::Ud(iface, _) => vec![TransportCounts::of_ud(&iface.counters())],
            Adapter::Upgrade(iface) => {
                let (ud, rc) = iface.parts();
                let pairs = TransportCounts::of_pairs(&iface.counters());
                vec![pairs, TransportCounts::of_ud(&ud.counters()), TransportCounts::of_rc(rc)]
            }
        }
    }

    fn of_rc(iface: &RcIface) -> Self {
        let c = iface.counters();
        let (r, refusal) = iface.with_registrations(|all| (all.counts(), all.refusal()));
        let kept = match refusal {
            None => format!("{} kept at the end", r.kept),
            Some(why) => format!("no registration of the program's own memory is kept ({why})"),
        };
        let text = format!(
            "{} {}, {} bytes of inline data granted; {} sends inline, {} from buffers; dropped: {} \
             protocol violations; {} connections failed; registrations: {} made, {} reused, {} \
             dropped because their memory changed, {} dropped to make room for others, {kept}{}",
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
        TransportCounts { of: "rc", text, numbers }
    }

    fn of_ud(c: &ud::UdCounters) -> Self {
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
        TransportCounts { of: "ud", text: c.to_string(), numbers }
    }

    pub(super) fn of_tcp(c: &tcp::TcpCounters) -> Self {
        let text = format!(
            "{} {}, {} opened by the peer; {} failed attempts to connect; {} connections from \
             unknown processes",
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
        TransportCounts { of: "tcp", text, numbers }
    }

    fn of_pairs(c: &upgrade::UpgradeCounters) -> Self {
        let text = format!(
            "{} of {} pairs have a connection; without a connection: {} because of the limit, {} \
             because connecting failed; dropped: {} connection requests of unknown senders",
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
        TransportCounts { of: "pairs", text, numbers }
    }

    pub(super) fn of_port(counter: &verbs::PortCounter) -> Self {
        let count = counter.since();
        TransportCounts {
            of: "port",
            text: format!("{} {count} (sum over all processes that use the adapter)", counter.name),
            numbers: vec![(counter.name, count)],
        }
    }
}
