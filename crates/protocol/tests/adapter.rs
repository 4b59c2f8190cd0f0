//! Runs the library's code over simulated adapters, in virtual time.
#![allow(unsafe_code, non_snake_case)]

mod common;

use common::*;
use fastpath_pcie::profile::{adapter, host};
use fastpath_transport::sim::{Conditions, Hardware};

fn world(adapter_name: &str, inline: u32) -> World {
    let (host, adapter) = (host("2009").unwrap(), adapter(adapter_name).unwrap());
    let hardware = Hardware::new(host, adapter, inline).unwrap();
    let conditions = Conditions { hardware: Some(hardware), ..Conditions::default() };
    World::new(2, conditions)
}

/// Virtual nanoseconds from the send until the receive is complete, between connected ranks.
fn one_way(world: &mut World, size: usize) -> f64 {
    let data = vec![7; size];
    let mut took = 0;
    for tag in 0..2 {
        world.settle();
        let receiving = world.recv(1, 0, tag, size);
        let start = world.network.now_ns();
        let sending = world.send(0, 1, tag, &data);
        assert!(world.run_until(|w| w.is_received(&receiving)));
        took = world.network.now_ns() - start;
        assert_eq!(world.finish_recv(receiving).data, data);
        world.finish_send(sending);
    }
    took as f64
}

#[test]
fn inline__saves_two_serial_reads_and_one_beyond_blueflame() {
    let read = host("2009").unwrap().read.ns();
    let mut inline = world("connectx", 400);
    // Each message has a header of 16 bytes. BlueFlame takes 224 bytes, and inline data is at most 448 bytes.
    let at = [8, 208, 209, 432, 433].map(|size| one_way(&mut inline, size));
    let without = one_way(&mut world("connectx", 0), 13);
    assert!((without - at[0] - 2.0 * read).abs() < 0.3 * read, "{at:?} {without}");
    assert!(at[2] - at[1] > 0.4 * read, "the cliff behind BlueFlame: {at:?}");
    assert!((at[4] - at[3] - read).abs() < 0.4 * read, "the end of inline data: {at:?}");
    assert!(at[1] < without, "{at:?} {without}");
}

#[test]
fn adapter__of_another_generation_pushes_any_descriptor() {
    let read = host("2009").unwrap().read.ns();
    let inline = one_way(&mut world("connectx5", 220), 8);
    let pushed = one_way(&mut world("connectx5", 0), 13);
    assert!((pushed - inline - read).abs() < 0.3 * read, "{inline} {pushed}");
}

#[test]
fn large__messages_arrive_whole_at_the_pace_of_the_bus() {
    let mut world = world("connectx", 400);
    let times = [1 << 20, 2 << 20].map(|size| one_way(&mut world, size));
    let link: fastpath_pcie::Link = "2.0x8".parse().unwrap();
    let fastest = 1e9 / link.raw().bytes_per_s() * f64::from(1 << 20);
    assert!(times[1] - times[0] > fastest, "{times:?} {fastest}");
}
