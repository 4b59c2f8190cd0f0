//! What can go wrong between the library's loading and a queue pair that is ready, and what to do about it.

use std::fmt;

/// A call into the verbs library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // named as the calls
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
    /// What it was for, for people.
    pub fn purpose(self) -> &'static str {
        match self {
            VerbsCall::ListDevices => "listing RDMA devices",
            VerbsCall::OpenDevice => "opening the device",
            VerbsCall::QueryDevice => "asking for the device's limits",
            VerbsCall::QueryPort => "asking for the port's state",
            VerbsCall::QueryGid => "reading the port's GID table",
            VerbsCall::AllocPd => "making a protection domain",
            VerbsCall::RegMr => "registering memory",
            VerbsCall::AllocMw => "making a memory window",
            VerbsCall::CreateChannel => "making a completion channel",
            VerbsCall::CreateCq => "making a completion queue",
            VerbsCall::ArmCq => "arming a completion queue",
            VerbsCall::CreateSrq => "making a shared receive queue",
            VerbsCall::CreateQp => "making a queue pair",
            VerbsCall::QueryQp => "asking what the queue pair was granted",
            VerbsCall::ModifyInit => "initialising the queue pair",
            VerbsCall::ModifyRtr => "making the queue pair ready to receive",
            VerbsCall::ModifyRts => "making the queue pair ready to send",
            VerbsCall::ModifyError => "stopping the queue pair",
            VerbsCall::ModifyReset => "starting the queue pair anew",
            VerbsCall::CreateAh => "making an address handle",
            VerbsCall::PostSend => "posting a send",
            VerbsCall::PostRecv => "posting a receive",
            VerbsCall::PollCq => "polling a completion queue",
        }
    }
}

/// Why verbs cannot be used, or not so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VerbsError {
    /// The library is not there or lacks something.
    NoLibrary(String),
    /// There is no device at all.
    NoDevice,
    /// The kernel has devices of these names, and the verbs library offers none of them.
    NotOffered {
        /// Their names.
        names: Vec<String>,
        /// Whether programs have a way into them.
        open: bool,
    },
    /// No device of the wanted name; the names there are.
    UnknownDevice {
        /// What was asked for.
        wanted: String,
        /// What there is.
        present: Vec<String>,
    },
    /// No port of the device is active.
    NoPort {
        /// The device.
        device: String,
        /// What its ports say.
        ports: String,
    },
    /// The port has no address that peers could use.
    NoGid {
        /// The device.
        device: String,
        /// The port, from 1.
        port: u8,
    },
    /// A value that cannot be used: what it is for, the value, what is accepted.
    Value(String),
    /// A call failed.
    Call {
        /// Which.
        step: VerbsCall,
        /// On which device; empty before one is open.
        device: String,
        /// The system's error number.
        errno: i32,
    },
    /// None of several devices could be used, each for a reason of its own.
    Each(Vec<VerbsError>),
}

impl VerbsError {
    /// That no device could be used, from what was wrong with each that there is.
    pub fn of_each(mut errors: Vec<VerbsError>) -> Self {
        match errors.len() {
            0 => VerbsError::NoDevice,
            1 => errors.remove(0),
            _ => VerbsError::Each(errors),
        }
    }

    /// A failed call on a device.
    pub fn call(step: VerbsCall, device: &str, errno: i32) -> Self {
        VerbsError::Call { step, device: device.to_owned(), errno }
    }

    /// The error number of a failed call; 0 for other errors.
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
                "no RDMA device: no adapter, or its driver is not loaded (`ls \
                 /sys/class/infiniband` is empty)",
            ),
            VerbsError::NotOffered { names, open: false } => write!(
                f,
                "no RDMA device: the kernel has {}, but programs have no way into it; `modprobe \
                 ib_uverbs`",
                names.join(", ")
            ),
            VerbsError::NotOffered { names, open: true } => write!(
                f,
                "no RDMA device: the kernel has {}, but the verbs library offers none: it found \
                 no provider; install it (Debian: ibverbs-providers)",
                names.join(", ")
            ),
            VerbsError::UnknownDevice { wanted, present } if present.is_empty() => {
                write!(f, "no RDMA device {wanted}: this host has none")
            }
            VerbsError::UnknownDevice { wanted, present } => {
                write!(f, "no RDMA device {wanted}; there is: {}", present.join(", "))
            }
            VerbsError::NoPort { device, ports } => {
                write!(
                    f,
                    "{device}: no active port ({ports}): check cable, switch, and that the \
                    network interface is up"
                )
            }
            VerbsError::NoGid { device, port } => write!(
                f,
                "{device} port {port}: its GID table is empty: give the network interface an \
                 address"
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
                    // The kernel says EPERM where the limit is 0.
                    (
                        libc::ENOMEM,
                        VerbsCall::RegMr
                        | VerbsCall::CreateCq
                        | VerbsCall::CreateQp
                        | VerbsCall::CreateSrq,
                    )
                    | (libc::EPERM, VerbsCall::RegMr) => {
                        f.write_str("; the limit on locked memory may be too low (`ulimit -l`)")
                    }
                    (libc::EACCES | libc::EPERM, _) => {
                        f.write_str("; may this user open /dev/infiniband/uverbs*?")
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
        assert!(first.starts_with("a: no active port"), "{text}");
        assert!(second.starts_with("opening the device: "), "{text}");
    }

    #[test]
    fn call__says_what_may_be_the_cause() {
        let text = |step, errno| VerbsError::call(step, "a", errno).to_string();
        assert!(
            text(VerbsCall::OpenDevice, libc::EPERM)
                .ends_with("may this user open /dev/infiniband/uverbs*?")
        );
        for errno in [libc::EPERM, libc::ENOMEM] {
            assert!(text(VerbsCall::RegMr, errno).contains("`ulimit -l`"));
        }
    }
}
