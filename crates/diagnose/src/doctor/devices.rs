//! What the kernel says of RDMA devices, from sysfs below a root that tests choose.

use std::fs;
use std::path::Path;

use fastpath_report::files::{list_names, list_numbers, read_text};
use serde::Serialize;

use fastpath_machine::pci::sysfs;

/// An RDMA device.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Device {
    pub name: String,
    /// The kernel's module, where the device lies on a bus.
    pub driver: Option<String>,
    pub firmware: Option<String>,
    /// The maker's name of the card, such as `MT_0000000008`: what firmware is looked for by.
    pub board: Option<String>,
    pub node_guid: Option<String>,
    /// The way into it for programs.
    pub uverbs: Option<Uverbs>,
    /// None: it lies on no PCIe bus, it is software.
    pub pcie: Option<Pcie>,
    pub ports: Vec<Port>,
    /// What opening it through the library said; None: not tried.
    pub opened: Option<Result<(), String>>,
}

/// The file through which programs reach a device.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Uverbs {
    pub path: String,
    /// Why this user cannot open it.
    pub problem: Option<String>,
}

/// The link to the bus: what it runs at, and what the adapter could.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Pcie {
    pub address: String,
    pub node: Option<i32>,
    /// As the kernel prints it, such as `16.0 GT/s PCIe`.
    pub speed: String,
    pub speed_most: String,
    pub lanes: u32,
    pub lanes_most: u32,
    /// The port above; None: not shown.
    pub slot: Option<Slot>,
    /// Bytes in a packet that the adapter may send, and that it could: the first is the path's.
    pub payload: Option<[u32; 2]>,
    /// Bytes that one read of memory may ask for.
    pub read_request: Option<u32>,
}

/// The port above an adapter.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Slot {
    pub address: String,
    /// Such as `PCIe 3.0 x8 (8 GT/s)`.
    pub most: String,
    /// Gigabytes (10^9) a second, raw.
    pub rate: f64,
}

/// A port, numbered from 1.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Port {
    pub number: u32,
    /// Such as `ACTIVE`, `DOWN`, `INIT`.
    pub state: String,
    /// Such as `LinkUp`, `Polling`, `Disabled`.
    pub physical: String,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// As the kernel prints it, such as `100 Gb/sec (4X EDR)`.
    pub rate: String,
    /// Bytes of payload in a packet: in use, and the device's most. None: the library was not asked.
    pub mtu: Option<[u32; 2]>,
    /// The network interface that the port's addresses belong to.
    pub interface: Option<Interface>,
    /// The rows of the GID table that are not empty.
    pub gids: Vec<Gid>,
}

/// A row of a GID table.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Gid {
    pub index: u32,
    pub gid: String,
    /// Such as `RoCE v2`.
    pub kind: String,
    /// The network interface that it belongs to.
    pub interface: Option<String>,
}

/// A network interface.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Interface {
    pub name: String,
    /// Bytes; None: it is not in this network namespace.
    pub mtu: Option<u32>,
    pub state: Option<String>,
    /// The priorities that make a sender wait rather than lose packets (PFC), where the driver shows them.
    pub paused: Option<Vec<u8>>,
    /// The priorities whose senders slow down when packets are marked (ECN), where the driver shows them.
    pub slowed: Option<Vec<u8>>,
}

/// An adapter without an RDMA device.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Undriven {
    pub address: String,
    pub vendor: String,
    pub device: String,
    /// The driver it has, which makes no RDMA device of it.
    pub driver: Option<String>,
}

/// All devices, by name.
pub(super) fn list(root: &Path) -> Vec<Device> {
    let mut names = list_names(&root.join("sys/class/infiniband"));
    names.sort();
    names.iter().map(|name| read_device(root, name)).collect()
}

fn read_device(root: &Path, name: &str) -> Device {
    let folder = root.join("sys/class/infiniband").join(name);
    Device {
        name: name.to_owned(),
        driver: link_name(&folder.join("device/driver")),
        firmware: read_text(folder.join("fw_ver")),
        board: read_text(folder.join("board_id")),
        node_guid: read_text(folder.join("node_guid")),
        uverbs: find_uverbs(root, name),
        pcie: read_pcie(root, &folder.join("device")),
        ports: list_numbers(&folder.join("ports"))
            .into_iter()
            .map(|number| read_port(root, &folder, number))
            .collect(),
        opened: None,
    }
}

fn find_uverbs(root: &Path, device: &str) -> Option<Uverbs> {
    let folder = root.join("sys/class/infiniband_verbs");
    let found = list_names(&folder)
        .into_iter()
        .find(|name| read_text(folder.join(name).join("ibdev")).as_deref() == Some(device))?;
    let path = format!("/dev/infiniband/{found}");
    let opened =
        fs::OpenOptions::new().read(true).write(true).open(root.join(path.trim_start_matches('/')));
    Some(Uverbs { path, problem: opened.err().map(|e| e.to_string()) })
}

fn read_pcie(root: &Path, folder: &Path) -> Option<Pcie> {
    let number = |name: &str| read_text(folder.join(name))?.parse().ok();
    let address = link_name(folder)?;
    // What the registers of the adapter and of the port above it say, as far as this user may read them.
    let subject = sysfs::read_device(&root.join("sys"), &address).ok();
    let above = subject.as_ref().and_then(|s| s.above.first());
    let device = subject.as_ref().map(|s| &s.device);
    Some(Pcie {
        slot: above.and_then(|port| {
            Some(Slot {
                address: port.address.clone(),
                most: port.link_can.describe(),
                rate: port.link_can.link()?.raw().bytes_per_s() / 1e9,
            })
        }),
        payload: device.and_then(|d| Some([d.payload_is?, d.payload_can?])),
        read_request: device.and_then(|d| d.read_request),
        address,
        node: read_text(folder.join("numa_node")).and_then(|text| text.parse().ok()),
        speed: read_text(folder.join("current_link_speed"))?,
        speed_most: read_text(folder.join("max_link_speed"))?,
        lanes: number("current_link_width")?,
        lanes_most: number("max_link_width")?,
    })
}

fn read_port(root: &Path, device: &Path, number: u32) -> Port {
    let folder = device.join("ports").join(number.to_string());
    let text = |name: &str| read_text(folder.join(name)).unwrap_or_default();
    // `4: ACTIVE`
    let after_number = |name: &str| {
        let text = text(name);
        text.rsplit(": ").next().unwrap_or_default().to_owned()
    };
    let gids = read_gids(&folder);
    let interface = gids
        .iter()
        .find_map(|gid| read_text(folder.join(format!("gid_attrs/ndevs/{}", gid.index))))
        .or_else(|| list_names(&device.join("device/net")).into_iter().min());
    Port {
        number,
        state: after_number("state"),
        physical: after_number("phys_state"),
        link_layer: text("link_layer"),
        rate: text("rate"),
        mtu: None,
        interface: interface.map(|name| {
            let folder = root.join("sys/class/net").join(&name);
            Interface {
                paused: read_paused(&folder),
                slowed: read_slowed(&folder),
                mtu: read_text(folder.join("mtu")).and_then(|text| text.parse().ok()),
                state: read_text(folder.join("operstate")),
                name,
            }
        }),
        gids,
    }
}

/// Priorities by the file of mlx5's driver as its maker delivers it: eight numbers, 1 for those that pause.
fn read_paused(interface: &Path) -> Option<Vec<u8>> {
    let text = read_text(interface.join("qos/pfc"))?;
    let words = text.split(|c: char| c == ',' || c.is_whitespace());
    let bits: Vec<&str> = words.filter(|w| !w.is_empty()).collect();
    (bits.len() == 8).then_some(())?;
    Some((0..8).filter(|&p| bits[usize::from(p)] == "1").collect())
}

/// Priorities by the files of mlx5's driver: those at which marked packets are answered, and heeded.
fn read_slowed(interface: &Path) -> Option<Vec<u8>> {
    let is_on = |side: &str, priority: u8| {
        let text = read_text(interface.join(format!("ecn/{side}/enable/{priority}")))?;
        Some(text == "1")
    };
    is_on("roce_np", 0)?;
    let both = |&priority: &u8| {
        is_on("roce_np", priority) == Some(true) && is_on("roce_rp", priority) == Some(true)
    };
    Some((0..8).filter(both).collect())
}

fn read_gids(port: &Path) -> Vec<Gid> {
    let filled = |index: u32| {
        let gid = read_text(port.join(format!("gids/{index}")))?;
        let empty = !gid.contains(|c: char| c.is_ascii_hexdigit() && c != '0')
            || gid == "fe80:0000:0000:0000:0000:0000:0000:0000";
        // A table has hundreds of rows, of which a few are filled: the others are not asked what they are.
        let of_row = |what: &str| read_text(port.join(format!("gid_attrs/{what}/{index}")));
        (!empty).then(|| Gid {
            index,
            gid,
            kind: of_row("types").unwrap_or_default(),
            interface: of_row("ndevs"),
        })
    };
    let rows = list_numbers(&port.join("gids"));
    rows.into_iter().filter_map(filled).collect()
}

/// InfiniBand controllers that are no RDMA devices.
pub(super) fn list_undriven(root: &Path) -> Vec<Undriven> {
    const INFINIBAND: &str = "0x0207";
    let folder = root.join("sys/bus/pci/devices");
    let mut names = list_names(&folder);
    names.sort();
    let undriven = |name: &String| {
        let at = folder.join(name);
        let class = read_text(at.join("class"))?;
        (class.starts_with(INFINIBAND) && list_names(&at.join("infiniband")).is_empty()).then(
            || Undriven {
                address: name.clone(),
                vendor: read_text(at.join("vendor")).unwrap_or_default(),
                device: read_text(at.join("device")).unwrap_or_default(),
                driver: link_name(&at.join("driver")),
            },
        )
    };
    names.iter().filter_map(undriven).collect()
}

/// The last part of what a link points to.
fn link_name(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}
