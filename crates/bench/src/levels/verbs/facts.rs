//! Lines about the adapter of a run.

use std::fs;
use std::path::Path;

use fastpath_transport::verbs::DeviceContext;
use fastpath_transport::verbs::abi::LINK_LAYER_ETHERNET;

use super::bare::POLL_BATCH;
use super::wire::ConnectedPair;
use crate::options::verbs::{Connection, VerbsOptions};

/// Name of Soft-RoCE in sysfs.
const SOFT_ROCE: &str = "rxe";

/// Line about a software adapter, whose times are those of the processor; None for hardware.
pub fn describe_software(device: &str, sysfs: &Path) -> Option<String> {
    let at = sysfs.join("class/infiniband").join(device);
    let says = fs::read_to_string(at.join("node_desc")).unwrap_or_default();
    if says.trim() == SOFT_ROCE {
        return Some(format!(
            "{device} is Soft-RoCE, a software adapter: its times depend on this processor, not on \
             adapter hardware"
        ));
    }
    (at.exists() && !at.join("device").exists()).then(|| {
        format!(
            "{device} has no bus, so it is a software adapter: its times depend on this processor, \
             not on adapter hardware"
        )
    })
}

/// Lines above the tables of a run: device and port, queues, both ends.
pub fn describe_wire(
    wire: &ConnectedPair, options: &VerbsOptions, depths: [u32; 2],
) -> Vec<String> {
    let mut lines = vec![describe_device(&wire.context, wire)];
    lines.extend(describe_software(wire.context.name(), Path::new("/sys")));
    let inline = wire.pair.granted_inline();
    let (asked, by) = &wire.asked;
    let depths = match depths {
        [messages, remote] if messages == remote => format!("{messages}"),
        [messages, remote] => format!("{messages}, for put and get {remote}"),
    };
    lines.push(format!(
        "queue pair: {}; send depth {depths} (granted {}); separate receive queue, depth {}; post \
         list {}; {}; up to {} completions per poll; inline {inline} B granted, {asked} requested \
         ({by}); MTU {}",
        match wire.connection {
            Connection::Rc => "reliable connection (RC)",
            Connection::Ud => "datagrams (UD)",
        },
        wire.pair.send_depth(),
        wire.rx_depth,
        options.post_list.unwrap_or(1),
        options.cq_moderation.map_or_else(
            || "signalled sends chosen by each test".to_owned(),
            |n| format!("1 in {n} sends signalled"),
        ),
        options.poll_batch.unwrap_or(POLL_BATCH),
        wire.path.mtu_bytes(),
    ));
    let (address, rkey) = wire.shown();
    let gid = wire.port.gid_to(&wire.path);
    let gid = gid.map_or_else(|| "none".to_owned(), |(row, gid)| format!("{gid:?} (row {row})"));
    lines.push(format!(
        "local:  LID {:#06x} QPN {:#08x} PSN {:#08x} RKey {rkey:#010x} VAddr {address:#018x} GID \
         {gid}",
        wire.port.lid(),
        wire.pair.qpn(),
        wire.psn,
    ));
    let there = &wire.there;
    lines.push(format!(
        "remote: LID {:#06x} QPN {:#08x} PSN {:#08x} RKey {:#010x} VAddr {:#018x} GID {:?}; \
         addresses exchanged through the job's memory, no connection manager",
        wire.path.route.dlid,
        there.qpn,
        there.psn,
        there.rkey,
        there.address,
        wire.path.route.grh.dgid,
    ));
    lines
}

fn describe_device(context: &DeviceContext, wire: &ConnectedPair) -> String {
    let number = wire.port.number();
    let link = match context.query_port(number) {
        Ok(port) if port.link_layer == LINK_LAYER_ETHERNET => "Ethernet",
        Ok(_) => "InfiniBand",
        Err(_) => "unknown",
    };
    let firmware = match context.firmware() {
        none if none.is_empty() => "unknown".to_owned(),
        firmware => firmware,
    };
    format!(
        "adapter: {} port {number} of {}, link {link}, firmware {firmware}",
        context.name(),
        context.ports(),
    )
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn software__is_known_by_its_name_or_by_having_no_bus() {
        let root = std::env::temp_dir().join(format!("fastpath-facts-{}", std::process::id()));
        let devices = root.join("class/infiniband");
        for (name, says, bus) in [("a", "rxe", true), ("b", "x", false), ("c", "x", true)] {
            let at = devices.join(name);
            fs::create_dir_all(&at).unwrap();
            fs::write(at.join("node_desc"), format!("{says}\n")).unwrap();
            if bus {
                fs::create_dir(at.join("device")).unwrap();
            }
        }
        let said = ["a", "b", "c", "none"].map(|name| describe_software(name, &root));
        fs::remove_dir_all(&root).unwrap();
        assert!(said[0].as_ref().unwrap().contains("Soft-RoCE"), "{said:?}");
        assert!(said[1].as_ref().unwrap().contains("no bus"), "{said:?}");
        assert_eq!((&said[2], &said[3]), (&None, &None));
    }
}
