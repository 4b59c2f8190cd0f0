//! Measures the time of a million simulated packets: `cargo run --profile quick -p fastpath-pcie --example million`.

use std::time::Instant;

use fastpath_pcie::profile::{adapter, host};
use fastpath_pcie::simulator::{FlowSpec, NodeSpec, Simulator};
use fastpath_pcie::{Bytes, LinkError};

fn main() -> Result<(), LinkError> {
    let adapter = adapter("connectx")?;
    let node = NodeSpec {
        host: host("2009")?,
        adapter,
        link: adapter.link.parse()?,
        wire: adapter.wire.parse()?,
        data_link: true,
    };
    for size in [8, 65536] {
        let mut simulator = Simulator::new(&[node, node]);
        let flow = simulator.add_flow(FlowSpec::new(0, 1));
        let start = Instant::now();
        while simulator.packets() < 1_000_000 {
            simulator.load(flow, Bytes(size), 1000, 16);
            simulator.run();
        }
        let (took, packets) = (start.elapsed().as_secs_f64(), simulator.packets());
        println!(
            "{size} B: {packets} packets in {took:.3} s, {:.2} million a second; {} messages at \
             {:.1}",
            packets as f64 / took / 1e6,
            simulator.counts(flow).delivered,
            simulator.rate(flow).mib_per_s(),
        );
    }
    Ok(())
}
