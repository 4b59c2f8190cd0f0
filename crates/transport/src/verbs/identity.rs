//! Identity of a device: measurements of one device must not be used for another.

use super::device::DeviceContext;
use std::fs;
use std::path::Path;

/// Vendor ids of software adapters: Soft-RoCE (rxe) and Soft-iWARP (siw).
const SOFTWARE: [u32; 2] = [0xff_ffff, 0x62_6d74];
const LONGEST: usize = 60;

/// Properties that determine a device's speed, each one line of text without control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceIdentity {
    /// Device name, such as `mlx5_0`.
    pub name: String,
    /// Vendor id and part id, such as `0x2c9:4119`.
    pub part: String,
    /// Firmware version; `none` for software.
    pub firmware: String,
    /// Kernel module and its version, or else the kernel's version. `software` if no bus device has a driver.
    pub driver: String,
    /// Whether the adapter is software, run by the processor.
    pub software: bool,
}

impl DeviceIdentity {
    /// Identity of an open device.
    pub fn of(context: &DeviceContext) -> Self {
        let attributes = context.attributes();
        let numbers = (attributes.vendor_id, attributes.vendor_part_id);
        Self::read(Path::new("/"), context.name(), numbers, &context.firmware())
    }

    fn read(root: &Path, name: &str, (vendor, part): (u32, u32), firmware: &str) -> Self {
        let device = root.join("sys/class/infiniband").join(name).join("device");
        let bus = fs::read_link(device.join("driver")).ok();
        let module = bus.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        let software = module.is_none() || SOFTWARE.contains(&vendor);
        // The driver of a software adapter's network interface is irrelevant.
        let module = module.filter(|_| !software);
        let read = |path: &str| fs::read_to_string(root.join(path)).ok();
        let own = module.and_then(|name| read(&format!("sys/module/{name}/version")));
        let version = own.or_else(|| read("proc/sys/kernel/osrelease")).unwrap_or_default();
        DeviceIdentity {
            name: one_line(name),
            part: format!("{vendor:#x}:{part}"),
            firmware: one_line(firmware),
            driver: one_line(&format!("{} {}", module.unwrap_or("software"), version.trim())),
            software,
        }
    }
}

fn one_line(text: &str) -> String {
    let first = text.trim().lines().next().unwrap_or("").trim();
    let line: String = first.chars().filter(|c| !c.is_control()).take(LONGEST).collect();
    match line.is_empty() {
        true => "none".to_owned(),
        false => line,
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    struct SysfsTree(PathBuf);

    impl SysfsTree {
        fn new(name: &str) -> SysfsTree {
            let name = format!("fastpath-identity-{name}-{}", std::process::id());
            let root = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&root);
            let tree = SysfsTree(root);
            tree.write("proc/sys/kernel/osrelease", "6.1.0-x\n");
            tree
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn drive(&self, device: &str, module: &str) {
            let folder = self.0.join(format!("sys/class/infiniband/{device}/device"));
            fs::create_dir_all(&folder).unwrap();
            let target = format!("/sys/bus/pci/drivers/{module}");
            std::os::unix::fs::symlink(target, folder.join("driver")).unwrap();
        }
    }

    impl Drop for SysfsTree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn adapter__is_known_by_part_firmware_and_driver() {
        let tree = SysfsTree::new("adapter");
        tree.drive("mlx5_0", "mlx5_core");
        let read = || DeviceIdentity::read(&tree.0, "mlx5_0", (0x2c9, 4119), "16.35.3006");
        let of_kernel = DeviceIdentity {
            name: "mlx5_0".to_owned(),
            part: "0x2c9:4119".to_owned(),
            firmware: "16.35.3006".to_owned(),
            driver: "mlx5_core 6.1.0-x".to_owned(),
            software: false,
        };
        assert_eq!(read(), of_kernel);
        tree.write("sys/module/mlx5_core/version", "5.8-1.1.2\n");
        assert_eq!(read().driver, "mlx5_core 5.8-1.1.2");
    }

    #[test]
    fn software__is_known_on_a_bus_and_off_it() {
        let tree = SysfsTree::new("software");
        let read = || DeviceIdentity::read(&tree.0, "rxe0", (0xff_ffff, 0), "");
        let alone = read();
        assert!(alone.software);
        assert_eq!((alone.firmware.as_str(), alone.driver.as_str()), ("none", "software 6.1.0-x"));
        // For an rxe device, the kernel shows the driver of the Ethernet adapter below it.
        tree.drive("rxe0", "e1000e");
        assert_eq!(read(), alone);
    }

    #[test]
    fn values__are_one_line_each() {
        let tree = SysfsTree::new("lines");
        let long = format!("a\u{7}b\nc: d\n{}", "x".repeat(500));
        let found = DeviceIdentity::read(&tree.0, "x", (1, 2), &long);
        assert_eq!(found.firmware, "ab");
        let found = DeviceIdentity::read(&tree.0, "x", (1, 2), &"y".repeat(500));
        assert_eq!(found.firmware.len(), LONGEST);
    }
}
