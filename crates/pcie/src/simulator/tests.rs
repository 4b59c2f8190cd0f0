//! Tests of the simulator against the closed form, and of its invariants.

use super::*;
use crate::formulas::latency::Path;
use crate::formulas::message::{self, Message};
use crate::formulas::{DataLink, both_rate, read_rate, throughput, write_rate};
use crate::link::{AddressWidth, Generation, Lanes};
use crate::profile::{ADAPTERS, Adapter, HOSTS, adapter, host};
use proptest::prelude::*;
use std::sync::LazyLock;

fn node(host_name: &str, adapter_name: &str) -> NodeSpec<'static> {
    let adapter = adapter(adapter_name).unwrap();
    NodeSpec {
        host: host(host_name).unwrap(),
        adapter,
        link: adapter.link.parse().unwrap(),
        wire: adapter.wire.parse().unwrap(),
        data_link: true,
    }
}

/// Makes a node without memory latency, limited by its bus alone. `reads` is the index of its limit of outstanding
/// reads: 4 or 1024.
fn bus_only(link: Link, data_link: bool, reads: usize) -> NodeSpec<'static> {
    static NEAR: LazyLock<Host> = LazyLock::new(|| Host { read: Time::ZERO, ..HOSTS[1] });
    static DEVICES: LazyLock<[Adapter; 2]> = LazyLock::new(|| {
        [4, 1024].map(|reads_in_flight| Adapter { reads_in_flight, ..ADAPTERS[4] })
    });
    NodeSpec {
        host: &NEAR,
        adapter: &DEVICES[reads],
        link,
        wire: "NDR".parse().unwrap(),
        data_link,
    }
}

/// Runs a stream and returns its rate. Reads or writes alone use the limit of 4 outstanding reads, so that each answer
/// triggers a request and requests are spread evenly. Runs with both need no such limit.
fn stream_rate(link: Link, data_link: bool, write: u64, read: u64, count: u64) -> Rate {
    let both = write > 0 && read > 0;
    let mut simulator = Simulator::new(&[bus_only(link, data_link, usize::from(both))]);
    let depth = if both { 8 } else { 2 };
    let stream = simulator.stream(0, Bytes(write), Bytes(read), count, depth);
    simulator.run();
    let (first, last, pairs) = simulator.stream_span(stream).unwrap();
    assert_eq!(pairs, count - 1);
    let bytes = pairs * write.max(read);
    Rate::from_bytes_per_s(bytes as f64 / ((last - first).ns() * 1e-9))
}

fn any_link() -> impl Strategy<Value = Link> {
    let size = || prop::sample::select(vec![128u64, 256, 512, 1024]);
    let lanes = prop::sample::select(Lanes::ALL.map(u32::from).to_vec());
    (1..=7u32, lanes, size(), size(), any::<[bool; 3]>()).prop_map(
        |(generation, lanes, mps, mrrs, [short, ecrc, cut])| {
            let generation = Generation::try_from(generation).unwrap();
            let width = AddressWidth::try_from(if short { 32 } else { 64 }).unwrap();
            let link = Link::new(generation, Lanes::try_from(lanes).unwrap())
                .with_max_payload(mps)
                .and_then(|l| l.with_max_read_request(mrrs))
                .and_then(|l| l.with_completion(if cut { 64 } else { mps }))
                .unwrap();
            link.with_address(width).with_ecrc(ecrc)
        },
    )
}

fn with_lanes(link: &Link, lanes: Lanes) -> Link {
    Link::new(link.generation(), lanes)
        .with_max_payload(link.max_payload().into())
        .and_then(|l| l.with_max_read_request(link.max_read_request().into()))
        .and_then(|l| l.with_completion(link.completion().into()))
        .unwrap()
        .with_address(link.address())
        .with_ecrc(link.has_ecrc())
}

#[test]
#[should_panic(expected = "an MTU of 0")]
fn flow__without_an_mtu_is_refused() {
    let spec = node("2016", "connectx5");
    Simulator::new(&[spec, spec]).add_flow(FlowSpec { mtu: 0, ..FlowSpec::new(0, 1) });
}

#[test]
#[should_panic(expected = "never fit the receiver's buffer")]
fn flow__whose_packets_outgrow_the_receiver_is_refused() {
    let small = Adapter { receive_buffer: 2048, ..*adapter("connectx5").unwrap() };
    let spec = node("2016", "connectx5");
    let receiver = NodeSpec { adapter: &small, ..spec };
    Simulator::new(&[spec, receiver]).add_flow(FlowSpec::new(0, 1));
}

#[track_caller]
fn agree(simulated: Rate, calculated: Rate, within: f64) {
    let off = simulated / calculated - 1.0;
    assert!(off.abs() < within, "{off:+.5}: {simulated:?} and {calculated:?}");
}

#[test]
fn bus__reproduces_the_grid() {
    let link: Link = "2.0x8".parse().unwrap();
    let mib = |rate: Rate| rate.mib_per_s().0;
    let near =
        |rate: Rate, figure: f64| assert!((mib(rate) / figure - 1.0).abs() < 1e-3, "{rate:?}");
    for (mps, figure) in [(128, 3212.0), (256, 3488.0), (512, 3644.0)] {
        let link = link.with_max_payload(mps).unwrap();
        near(stream_rate(link, false, 65536, 0, 200), figure);
    }
    for (completion, figure) in [(64, 2906.0), (128, 3299.0), (256, 3538.0)] {
        let link = link.with_completion(completion).unwrap();
        near(stream_rate(link, false, 0, 65536, 200), figure);
    }
    let third: Link = "3.0x8".parse().unwrap();
    near(stream_rate(third, false, 65536, 0, 200), 6868.0);
    near(stream_rate(third, false, 0, 65536, 200), 6968.0);
}

/// Alternates reads and writes of one packet, so that packets are spread evenly.
fn even_rate(link: Link, data_link: bool) -> Rate {
    let piece = u64::from(link.max_payload());
    stream_rate(link, data_link, piece, piece, 1000)
}

#[test]
fn bus__agrees_with_the_closed_form_both_ways_where_packets_are_even() {
    for link in every_link().filter(|l| l.max_read_request() <= l.max_payload()) {
        let piece = Bytes(u64::from(link.max_payload()));
        agree(even_rate(link, false), both_rate(&link, piece, DataLink::Ignored), 1e-3);
        agree(even_rate(link, true), both_rate(&link, piece, DataLink::Directional), 1e-3);
    }
}

/// Lists links of every width, with payloads and requests of 128 to 1024 bytes and the default completion size.
/// Generations 4, 5 and 7 differ from the preceding ones only in their rate.
fn every_link() -> impl Iterator<Item = Link> {
    let sizes = [128u64, 256, 512, 1024];
    let generations = [Generation::Gen1, Generation::Gen2, Generation::Gen3, Generation::Gen6];
    let shapes = generations.into_iter().flat_map(|g| Lanes::ALL.map(|l| (g, l)));
    shapes.flat_map(move |(generation, lanes)| {
        let pairs = sizes.into_iter().flat_map(move |mps| sizes.map(|mrrs| (mps, mrrs)));
        pairs.map(move |(mps, mrrs)| {
            Link::new(generation, Lanes::try_from(u32::from(lanes)).unwrap())
                .with_max_payload(mps)
                .and_then(|l| l.with_max_read_request(mrrs))
                .unwrap()
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Larger transfers make bursts, which need fewer answers; the closed form also gives the lower bound of answers.
    #[test]
    fn bus__lies_between_even_packets_and_bursts_both_ways(link in any_link(), pages in 1..4u64) {
        let size = pages * 4096;
        let found = stream_rate(link, true, size, size, 1 + (4 << 20) / size);
        let calculated = |data_link| both_rate(&link, Bytes(size), data_link);
        prop_assert!(found > calculated(DataLink::Directional) * (1.0 - 1e-3), "{:?}", found);
        prop_assert!(found < calculated(DataLink::Bursts) * (1.0 + 1e-3), "{:?}", found);
        let headers = stream_rate(link, false, size, size, 1 + (4 << 20) / size);
        agree(headers, calculated(DataLink::Ignored), 1e-3);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn bus__agrees_with_the_closed_form_on_headers(link in any_link(), pages in 1..8u64) {
        let size = pages * 4096;
        let count = 1 + (1 << 20) / size;
        let bytes = Bytes(size);
        agree(stream_rate(link, false, size, 0, count), write_rate(&link, bytes, DataLink::Ignored), 1e-3);
        agree(stream_rate(link, false, 0, size, count), read_rate(&link, bytes, DataLink::Ignored), 1e-3);
    }

    #[test]
    fn bus__agrees_with_the_closed_form_on_answers(link in any_link(), pages in 1..8u64) {
        let size = pages * 4096;
        let count = 1 + (1 << 20) / size;
        let bytes = Bytes(size);
        agree(stream_rate(link, true, size, 0, count), write_rate(&link, bytes, DataLink::Directional), 1e-3);
        agree(stream_rate(link, true, 0, size, count), read_rate(&link, bytes, DataLink::Directional), 1e-3);
    }

    /// Every byte that crosses the bus is data or belongs to a packet, and all data arrives.
    #[test]
    fn bus__conserves_bytes(link in any_link(), write in 1..20_000u64, read in 1..20_000u64, count in 3..20u64) {
        let mut simulator = Simulator::new(&[bus_only(link, true, 1)]);
        simulator.stream(0, Bytes(write), Bytes(read), count, 2);
        simulator.run();
        let (up, down) = simulator.tallies(0);
        prop_assert_eq!((up.data, down.data), (write * count, read * count));
        let traffic = (crate::formulas::Traffic::write(&link, Bytes(write)) + crate::formulas::Traffic::read(&link, Bytes(read))) * count as f64;
        prop_assert_eq!((up.bytes as f64, down.bytes as f64), (traffic.up.bytes(), traffic.down.bytes()));
        prop_assert_eq!((up.packets as f64, down.packets as f64), (traffic.up.packets, traffic.down.packets));
    }

    /// More lanes, and larger payloads, never make aligned transfers slower.
    #[test]
    fn bus__is_monotone(link in any_link(), pages in 1..4u64) {
        let size = pages * 4096;
        for (write, read) in [(size, 0), (0, size), (size, size)] {
            let rate = |link| stream_rate(link, false, write, read, 32).bytes_per_s();
            let least = rate(link) * (1.0 - 1e-9);
            // A run with writes and reads at once is not compared: requests wait longer between larger writes, so a
            // short run may take longer.
            let larger = link.with_max_payload(u64::from(link.max_payload()) * 2);
            if let (Ok(larger), true) = (larger, read == 0 || write == 0) {
                prop_assert!(rate(larger) >= least);
            }
            if let Ok(wider) = Lanes::try_from(link.lanes().count() * 2) {
                prop_assert!(rate(with_lanes(&link, wider)) >= least);
            }
        }
    }

    /// One message over idle hosts takes the sum of its parts.
    #[test]
    fn message__takes_as_long_as_its_parts(
        size in 0..=4096u64,
        inline in prop::sample::select(vec![0u32, 64, 220, 400]),
        adapter_index in 0..ADAPTERS.len(),
        host_index in 0..HOSTS.len(),
        kind in 0..3usize,
    ) {
        let (host, adapter) = (&HOSTS[host_index], &ADAPTERS[adapter_index]);
        let (transport, verb) = [(Transport::Rc, Verb::Send), (Transport::Rc, Verb::Write), (Transport::Ud, Verb::Send)][kind];
        let size = if verb == Verb::Write { size.max(1) } else { size };
        let path = Path::new(host, adapter).unwrap();
        let spec = NodeSpec { host, adapter, link: path.link, wire: path.wire, data_link: false };
        let mut simulator = Simulator::new(&[spec, spec]);
        let flow = simulator.add_flow(FlowSpec { transport, verb, inline, ..FlowSpec::new(0, 1) });
        simulator.run();
        let start = simulator.now();
        simulator.post(flow, Bytes(size), 7);
        prop_assert!(simulator.run_to_delivery(start + Time::from_ns(1e9)));
        let delivery = simulator.take_delivery().unwrap();
        prop_assert_eq!((delivery.token, delivery.size), (7, Bytes(size)));
        let is_inline = inline > 0 && size <= u64::from(inline);
        let way = path.way(transport, verb, size as u32, is_inline);
        let message = Message { way, ..Message::new(transport, verb, Bytes(size)) };
        let calculated = path.one_way(&message).ns();
        let simulated = (delivery.delivered - start).ns();
        prop_assert!((simulated / calculated - 1.0).abs() < 1e-3, "{} {}", simulated, calculated);
    }

    /// Nothing is lost on a connection; every datagram is delivered or counted as dropped.
    #[test]
    fn messages__are_delivered_or_counted(
        ud: bool,
        senders in 1..4usize,
        size in 1..6000u64,
        count in 1..60u64,
        receives in 1..8u32,
        work in 0..4000u32,
    ) {
        let specs = vec![node("2009", "connectx"); senders + 1];
        let mut simulator = Simulator::new(&specs);
        let transport = if ud { Transport::Ud } else { Transport::Rc };
        let size = if ud { size.min(4096) } else { size };
        let flows: Vec<usize> = (0..senders).map(|from| {
            let work = Time::from_ns(f64::from(work));
            let spec = FlowSpec { transport, receives, work, process: from % 2, ..FlowSpec::new(from, senders) };
            let flow = simulator.add_flow(spec);
            simulator.load(flow, Bytes(size), count, 8);
            flow
        }).collect();
        simulator.run();
        let mut bytes = 0;
        for flow in flows {
            let counts = simulator.counts(flow);
            prop_assert_eq!(counts.posted, count);
            prop_assert_eq!(counts.delivered + counts.dropped, count);
            prop_assert!(ud || counts.dropped == 0);
            prop_assert_eq!(counts.bytes, counts.delivered * size);
            let prefix = if ud { 40 } else { 0 };
            bytes += counts.delivered * (size + prefix + 32);
        }
        let (up, _) = simulator.tallies(senders);
        prop_assert_eq!(up.data, bytes);
    }
}

fn run_load(specs: &[NodeSpec<'_>], flows: &[FlowSpec], size: u64, count: u64) -> Rate {
    let mut simulator = Simulator::new(specs);
    for &spec in flows {
        let flow = simulator.add_flow(spec);
        simulator.load(flow, Bytes(size), count, 16);
    }
    simulator.run();
    simulator.total_rate()
}

#[test]
fn load__of_three_clients_is_bound_by_the_servers_writes() {
    let specs = vec![node("2009", "connectx"); 4];
    let flow = |from| FlowSpec { process: from, ..FlowSpec::new(from, 3) };
    let sum = run_load(&specs, &[flow(0), flow(1), flow(2)], 65536, 600);
    let message =
        Message { receive_batch: 16, ..Message::new(Transport::Rc, Verb::Send, Bytes(65536)) };
    let parts = message::receiver(&specs[3].link, specs[3].adapter, &message);
    let bound = throughput(&specs[3].link, &message::sum(&parts), DataLink::Directional).per_s;
    // When the first message is delivered, parts of two other messages have arrived: 2 of 1800 messages.
    agree(sum, Rate::from_bytes_per_s(bound * 65536.0), 2e-3);
}

/// Rates with one client and one server, with two clients, with two servers, in MiB/s.
fn experiment(client: NodeSpec<'static>, work: Time) -> [f64; 3] {
    let server = node("2009", "connectx");
    let flow = |from, to, process| FlowSpec { process, work, ..FlowSpec::new(from, to) };
    let total = |specs: &[NodeSpec<'_>], flows: &[FlowSpec]| {
        run_load(specs, flows, 65536, 200).mib_per_s().0
    };
    [
        total(&[client, server], &[flow(0, 1, 0)]),
        total(&[client, client, server], &[flow(0, 2, 0), flow(1, 2, 0)]),
        total(&[client, server, server], &[flow(0, 1, 0), flow(0, 2, 0)]),
    ]
}

/// If the sender's reads are the limit, a second client helps and a second server does not. If the server's process is
/// the limit, the opposite is true.
#[test]
fn experiments__tell_sender_from_receiver() {
    let mut narrow = node("2009", "connectx");
    narrow.link = narrow.link.with_completion(128).unwrap();
    let [one, clients, servers] = experiment(narrow, Time::ZERO);
    assert!((one / 3218.0 - 1.0).abs() < 0.02, "{one}");
    assert!(clients / one > 1.05, "{clients}");
    assert!((servers / one - 1.0).abs() < 0.01, "{servers}");
    // 19.4 us for a message of 64 KiB are also 3218 MiB/s.
    let [one, clients, servers] = experiment(node("2009", "connectx"), Time::from_ns(19_340.0));
    assert!((one / 3218.0 - 1.0).abs() < 0.02, "{one}");
    assert!((clients / one - 1.0).abs() < 0.01, "{clients}");
    assert!(servers / one > 1.05, "{servers}");
}

/// A slow receiver stalls the sender of a connection, and loses datagrams.
#[test]
fn receiver__without_descriptors_stalls_or_drops() {
    let counts = |transport| {
        let mut simulator = Simulator::new(&[node("2009", "connectx"); 2]);
        let work = Time::from_ns(3000.0);
        let spec = FlowSpec { transport, work, receives: 32, ..FlowSpec::new(0, 1) };
        let flow = simulator.add_flow(spec);
        simulator.load(flow, Bytes(2048), 2000, 128);
        simulator.run();
        simulator.counts(flow)
    };
    let connected = counts(Transport::Rc);
    assert_eq!((connected.delivered, connected.dropped), (2000, 0));
    assert!(connected.not_ready > 0 && connected.stalled > 0, "{connected:?}");
    let datagrams = counts(Transport::Ud);
    assert!(datagrams.dropped > 0, "{datagrams:?}");
}

#[test]
fn reads__are_serial_as_the_way_says() {
    let time = |size, inline| {
        let spec = NodeSpec { data_link: false, ..node("2009", "connectx") };
        let mut simulator = Simulator::new(&[spec; 2]);
        let verb = Verb::Write;
        let flow = simulator.add_flow(FlowSpec { verb, inline, ..FlowSpec::new(0, 1) });
        simulator.post(flow, Bytes(size), 0);
        simulator.run();
        simulator.take_delivery().unwrap().delivered.ns()
    };
    let read = host("2009").unwrap().read.ns();
    let (none, one, two) = (time(28, 400), time(209, 400), time(28, 0));
    assert!((two - none - 2.0 * read).abs() < 100.0, "{none} {two}");
    assert!(time(209, 400) - time(208, 400) > 200.0, "{one}");
    assert!(time(208, 400) - time(207, 400) < 5.0);
}

#[test]
fn messages__of_a_queue_pair_do_not_overtake_each_other() {
    let spec = node("2009", "connectx");
    let mut simulator = Simulator::new(&[spec; 2]);
    let flow = simulator.add_flow(FlowSpec { inline: 400, ..FlowSpec::new(0, 1) });
    for (token, size) in [100_000, 8, 4096, 0, 300].into_iter().enumerate() {
        simulator.post(flow, Bytes(size), token as u64);
    }
    simulator.run();
    let order: Vec<u64> = std::iter::from_fn(|| Some(simulator.take_delivery()?.token)).collect();
    assert_eq!(order, [0, 1, 2, 3, 4]);
}

/// Datagrams arrive at a rate that a warm receiver sustains, and a receiver that has fallen behind does not. At the
/// full rate the receiver falls behind, and only a lower rate lets it recover.
#[test]
fn receiver__that_fell_behind_stays_behind() {
    let (warm, cold) = (Time::from_ns(450.0), Time::from_ns(520.0));
    let paces = |paces: &[(f64, u64)]| -> Vec<u64> {
        let mut simulator = Simulator::new(&[node("2009", "connectx"); 2]);
        let spec = FlowSpec {
            transport: Transport::Ud,
            receives: 300,
            work: warm,
            cold: Some(Cold { after: Time::from_ns(5000.0), work: cold }),
            ..FlowSpec::new(0, 1)
        };
        let flow = simulator.add_flow(spec);
        let mut posted = 0;
        let drops = paces.iter().map(|&(pace, count)| {
            let before = simulator.counts(flow).dropped;
            simulator.set_pace(flow, Time::from_ns(pace));
            simulator.load(flow, Bytes(1728), count, 8);
            posted += count;
            while simulator.counts(flow).posted < posted {
                simulator.run_until(simulator.now() + Time::from_ns(100.0));
            }
            simulator.counts(flow).dropped - before
        });
        let drops = drops.collect();
        simulator.run();
        drops
    };
    let (full, right, slow) = (0.0, 546.0, 900.0);
    // The rate of 1729-byte messages alone is sustained forever.
    assert_eq!(paces(&[(right, 8000)]), [0]);
    // The rate `right`, after a period at full rate, loses datagrams forever.
    let tipped = paces(&[(full, 8000), (right, 8000), (right, 8000)]);
    assert!(tipped[0] > 0 && tipped[1] > 100 && tipped[2] >= tipped[1], "{tipped:?}");
    // After a period at a lower rate, the rate `right` is sustained again.
    let rested = paces(&[(full, 8000), (slow, 5000), (right, 5000), (right, 8000)]);
    assert!(rested[0] > 0, "{rested:?}");
    assert_eq!(rested[3], 0, "{rested:?}");
}

/// In the closed form, the later packets of a message follow at the rate of the slowest stage.
#[test]
fn message__of_many_packets_takes_as_long_as_its_parts() {
    for (host_name, adapter_name) in
        [("2009", "connectx"), ("2016", "connectx3"), ("2016", "connectx5")]
    {
        let (host, adapter) = (host(host_name).unwrap(), adapter(adapter_name).unwrap());
        let path = Path::new(host, adapter).unwrap();
        let spec = NodeSpec { data_link: false, ..node(host_name, adapter_name) };
        let mut before = 0.0;
        for size in [4096, 8192, 65536, 1 << 20] {
            let mut simulator = Simulator::new(&[spec; 2]);
            let flow = simulator.add_flow(FlowSpec { verb: Verb::Write, ..FlowSpec::new(0, 1) });
            simulator.post(flow, Bytes(size), 0);
            simulator.run();
            let simulated = simulator.take_delivery().unwrap().delivered.ns();
            let way = path.way(Transport::Rc, Verb::Write, size as u32, false);
            let message = Message { way, ..Message::new(Transport::Rc, Verb::Write, Bytes(size)) };
            let calculated = path.one_way(&message).ns();
            assert!(
                (simulated / calculated - 1.0).abs() < 1e-3,
                "{adapter_name} {size}: {simulated} {calculated}"
            );
            assert!(simulated > before);
            before = simulated;
        }
    }
}
