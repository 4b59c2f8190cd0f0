//! Errors of all steps from loading the library to connecting a queue pair, with remedies.

use std::fmt;

/// Call of the verbs library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // named like the calls
pub enum VerbsCall {
    ListDevices,
    OpenDevice,
    QueryDevice,
    QueryPort,
    QueryGid,
    AllocPd,
    RegMr,
    AllocMw,
    CreateChannel,
    CreateCq,
    ArmCq,
    CreateSrq,
    CreateQp,
    QueryQp,
    ModifyInit,
    ModifyRtr,
    ModifyRts,
    ModifyError,
    ModifyReset,
    CreateAh,
    PostSend,
    PostRecv,
    PollCq,
}

impl VerbsCall {
    /// Purpose of the call, for messages.
    pub fn purpose(self) -> &'static str {
        match self {
            VerbsCall::ListDevices => "listing RDMA devices",
            VerbsCall::OpenDevice => "opening the device",
            VerbsCall::QueryDevice => "reading the device's limits",
            VerbsCall::QueryPort => "reading the port's state",
            VerbsCall::QueryGid => "reading the port's GID table",
            VerbsCall::AllocPd => "creating a protection domain",
            VerbsCall::RegMr => "registering memory",
            VerbsCall::AllocMw => "creating a memory window",
            VerbsCall::CreateChannel => "creating a completion channel",
            VerbsCall::CreateCq => "creating a completion queue",
            VerbsCall::ArmCq => "arming a completion queue",
            VerbsCall::CreateSrq => "creating a shared receive queue",
            VerbsCall::CreateQp => "creating a queue pair",
            VerbsCall::QueryQp => "reading the granted limits of the queue pair",
            VerbsCall::ModifyInit => "initialising the queue pair",
            VerbsCall::ModifyRtr => "making the queue pair ready to receive",
            VerbsCall::ModifyRts => "making the queue pair ready to send",
            VerbsCall::ModifyError => "stopping the queue pair",
            VerbsCall::ModifyReset => "restarting the queue pair",
            VerbsCall::CreateAh => "creating an address handle",
            VerbsCall::PostSend => "posting a send",
            VerbsCall::PostRecv => "posting a receive",
            VerbsCall::PollCq => "polling a completion queue",
        }
    }
}

/// Reason why verbs cannot be used, in general or with these settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerbsError {
    /// The library is missing or lacks a function.
    NoLibrary(String),
    /// There is no device.
    NoDevice,
    /// The kernel has devices, but the verbs library offers none.
    NotOffered {
        /// Names of the devices.
        names: Vec<String>,
        /// Whether the kernel has device files for programs.
        open: bool,
    },
    /// There is no device of this name.
    UnknownDevice {
        /// Requested name.
        wanted: String,
        /// Existing names.
        present: Vec<String>,
    },
    /// No port of the device is active.
    NoPort {
        /// Device name.
        device: String,
        /// State of the ports.
        ports: String,
    },
    /// The port has no address for peers.
    NoGid {
        /// Device name.
        device: String,
        /// Port number, from 1.
        port: u8,
    },
    /// A value is invalid; the text names its purpose, the value, and the accepted values.
    Value(String),
    /// A call failed.
    Call {
        /// Failed call.
        step: VerbsCall,
        /// Device name; empty before one is open.
        device: String,
        /// The system's error number.
        errno: i32,
    },
    /// No device could be used. Holds the error of each device.
    Each(Vec<VerbsError>),
}

impl VerbsError {
    /// Combines the errors of all devices.
    pub fn of_each(mut errors: Vec<VerbsError>) -> Self {
        match errors.len() {
            0 => VerbsError::NoDevice,
            1 => errors.remove(0),
            _ => VerbsError::Each(errors),
        }
    }

    /// Creates the error of a failed call on a device.
    pub fn call(step: VerbsCall, device: &str, errno: i32) -> Self {
        VerbsError::Call { step, device: device.to_owned(), errno }
    }

    /// Error number of a failed call; 0 for other errors.
    pub fn errno(&self) -> i32 {
        match self {
            VerbsError::Call { errno, .. } => *errno,
            _ => 0,
        }
    }
}

impl fmt::Display for VerbsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VerbsError::NoLibrary(why) => write!(f, "no verbs library: {why}"),
            VerbsError::NoDevice => f.write_str(
                "no RDMA device: this host has no adapter, or the adapter's driver is not loaded \
                 (`ls /sys/class/infiniband` is empty)",
            ),
            VerbsError::NotOffered { names, open: false } => write!(
                f,
                "no RDMA device: the kernel has {}, but programs cannot open RDMA devices: run \
                 `modprobe ib_uverbs`",
                names.join(", ")
            ),
            VerbsError::NotOffered { names, open: true } => write!(
                f,
                "no RDMA device: the kernel has {}, but the verbs library has no provider for that \
                 device: install the provider (Debian: ibverbs-providers)",
                names.join(", ")
            ),
            VerbsError::UnknownDevice { wanted, present } if present.is_empty() => {
                write!(f, "no RDMA device {wanted}: this host has none")
            }
            VerbsError::UnknownDevice { wanted, present } => {
                write!(f, "no RDMA device {wanted}: this host has {}", present.join(", "))
            }
            VerbsError::NoPort { device, ports } => {
                write!(
                    f,
                    "{device} has no active port ({ports}): check the cable and the switch, and \
                     that the network interface is up"
                )
            }
            VerbsError::NoGid { device, port } => write!(
                f,
                "{device} port {port} has no address (its GID table is empty): give the network \
                 interface of this port an address"
            ),
            VerbsError::Value(why) => f.write_str(why),
            VerbsError::Each(errors) => {
                let errors: Vec<String> = errors.iter().map(VerbsError::to_string).collect();
                f.write_str(&errors.join("; "))
            }
            VerbsError::Call { step, device, errno } => {
                let cause = std::io::Error::from_raw_os_error(*errno);
                if !device.is_empty() {
                    write!(f, "{device}: ")?;
                }
                write!(f, "{}: {cause}", step.purpose())?;
                match (*errno, step) {
                    // If the limit is 0, the kernel returns EPERM.
                    (
                        libc::ENOMEM,
                        VerbsCall::RegMr
                        | VerbsCall::CreateCq
                        | VerbsCall::CreateQp
                        | VerbsCall::CreateSrq,
                    )
                    | (libc::EPERM, VerbsCall::RegMr) => f.write_str(
                        "; if the limit on locked memory is too low, raise it (`ulimit -l`)",
                    ),
                    (libc::EACCES | libc::EPERM, _) => {
                        f.write_str("; check that this user may open /dev/infiniband/uverbs*")
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for VerbsError {}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn each__names_the_trouble_of_every_device() {
        let down = |device: &str| VerbsError::NoPort {
            device: device.to_owned(),
            ports: "port 1 down".to_owned(),
        };
        assert_eq!(VerbsError::of_each(Vec::new()), VerbsError::NoDevice);
        assert_eq!(VerbsError::of_each(vec![down("a")]), down("a"));
        let text = VerbsError::of_each(vec![
            down("a"),
            VerbsError::call(VerbsCall::OpenDevice, "b", libc::EACCES),
        ])
        .to_string();
        let (first, second) = text.split_once("; b: ").unwrap();
        assert!(first.starts_with("a has no active port"), "{text}");
        assert!(second.starts_with("opening the device: "), "{text}");
    }

    #[test]
    fn call__says_what_may_be_the_cause() {
        let text = |step, errno| VerbsError::call(step, "a", errno).to_string();
        assert!(
            text(VerbsCall::OpenDevice, libc::EPERM)
                .ends_with("check that this user may open /dev/infiniband/uverbs*")
        );
        for errno in [libc::EPERM, libc::ENOMEM] {
            assert!(text(VerbsCall::RegMr, errno).contains("`ulimit -l`"));
        }
    }
}
