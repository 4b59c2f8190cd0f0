//! The kernel's facts about RDMA devices, from sysfs below a root that tests choose.

use std::fs;
use std::path::Path;

use fastpath_report::files::{list_names, list_numbers, read_text};
use serde::Serialize;

use fastpath_machine::pci::sysfs;

#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Device {
    pub name: String,
    pub driver: Option<String>,
    pub firmware: Option<String>,
    /// Vendor's name of the board, such as `MT_0000000008`, by which firmware is found.
    pub board: Option<String>,
    pub node_guid: Option<String>,
    /// User-space access to the device.
    pub uverbs: Option<Uverbs>,
    /// PCIe link; None: the device is software, because it is on no PCIe bus.
    pub pcie: Option<Pcie>,
    pub ports: Vec<PortFacts>,
    /// Result of opening the device through the library; None: not tried.
    pub opened: Option<Result<(), String>>,
}

#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Uverbs {
    pub path: String,
    /// Reason for which this user cannot open the file; None if it can be opened.
    pub problem: Option<String>,
}

/// PCIe link: current and largest speed and width.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Pcie {
    pub address: String,
    pub node: Option<i32>,
    /// Speed as the kernel prints it, such as `16.0 GT/s PCIe`.
    pub speed: String,
    pub speed_most: String,
    pub lanes: u32,
    pub lanes_most: u32,
    /// The port above the adapter, towards the processor; None: not visible.
    pub slot: Option<PcieSlot>,
    /// Maximum payload in bytes: the configured value, which is that of the path, and the largest value that the
    /// adapter supports.
    pub payload: Option<[u32; 2]>,
    pub read_request: Option<u32>,
}

#[derive(Debug, Serialize, PartialEq)]
pub(super) struct PcieSlot {
    pub address: String,
    /// Fastest link, such as `PCIe 3.0 x8 (8 GT/s)`.
    pub most: String,
    /// Raw rate, in gigabytes (10^9) per second.
    pub rate: f64,
}

/// A port, numbered from 1.
#[derive(Debug, Serialize, PartialEq)]
pub(super) struct PortFacts {
    pub number: u32,
    /// State of the port, such as `ACTIVE`, `DOWN`, `INIT`.
    pub state: String,
    /// Physical state of the port, such as `LinkUp`, `Polling`, `Disabled`.
    pub physical: String,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// Rate as the kernel prints it, such as `100 Gb/sec (4X EDR)`.
    pub rate: String,
    /// MTU in bytes: active, and the device's largest. None: the library was not queried.
    pub mtu: Option<[u32; 2]>,
    pub interface: Option<Interface>,
    pub gids: Vec<Gid>,
}

#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Gid {
    pub index: u32,
    pub gid: String,
    pub kind: String,
    pub interface: Option<String>,
}

#[derive(Debug, Serialize, PartialEq)]
pub(super) struct Interface {
    pub name: String,
    /// MTU in bytes; None: the interface is not in this network namespace.
    pub mtu: Option<u32>,
    pub state: Option<String>,
    /// Priorities with priority flow control (PFC), if the driver reports them.
    pub paused: Option<Vec<u8>>,
    /// Priorities with explicit congestion notification (ECN), if the driver reports them.
    pub slowed: Option<Vec<u8>>,
}

#[derive(Debug, Serialize, PartialEq)]
pub(super) struct DriverlessDevice {
    pub address: String,
    pub vendor: String,
    pub device: String,
    pub driver: Option<String>,
}

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
    // Registers of the adapter and of the port above it, as far as this user may read them.
    let subject = sysfs::read_device(&root.join("sys"), &address).ok();
    let above = subject.as_ref().and_then(|s| s.above.first());
    let device = subject.as_ref().map(|s| &s.device);
    Some(Pcie {
        slot: above.and_then(|port| {
            Some(PcieSlot {
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

fn read_port(root: &Path, device: &Path, number: u32) -> PortFacts {
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
    PortFacts {
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

/// Reads PFC priorities from the file of the vendor's mlx5 driver: eight numbers, 1 for enabled.
fn read_paused(interface: &Path) -> Option<Vec<u8>> {
    let text = read_text(interface.join("qos/pfc"))?;
    let words = text.split(|c: char| c == ',' || c.is_whitespace());
    let bits: Vec<&str> = words.filter(|w| !w.is_empty()).collect();
    (bits.len() == 8).then_some(())?;
    Some((0..8).filter(|&p| bits[usize::from(p)] == "1").collect())
}

/// Reads ECN priorities from files of the mlx5 driver: those enabled as notification and as reaction point.
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
        // A table has hundreds of rows, of which a few are filled: read only the attributes of filled rows.
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

pub(super) fn list_undriven(root: &Path) -> Vec<DriverlessDevice> {
    const INFINIBAND: &str = "0x0207";
    let folder = root.join("sys/bus/pci/devices");
    let mut names = list_names(&folder);
    names.sort();
    let undriven = |name: &String| {
        let at = folder.join(name);
        let class = read_text(at.join("class"))?;
        (class.starts_with(INFINIBAND) && list_names(&at.join("infiniband")).is_empty()).then(
            || DriverlessDevice {
                address: name.clone(),
                vendor: read_text(at.join("vendor")).unwrap_or_default(),
                device: read_text(at.join("device")).unwrap_or_default(),
                driver: link_name(&at.join("driver")),
            },
        )
    };
    names.iter().filter_map(undriven).collect()
}

fn link_name(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}
