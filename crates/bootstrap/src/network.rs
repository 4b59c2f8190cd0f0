//! What a rank needs to be reached over the network: addresses of its host, a port that it listens on, and the card by
//! which peers learn of both.
//!
//! | module | holds |
//! |---|---|
//! | [`interfaces`] | the addresses of this host, and which of them are told to peers |
//! | [`ports`] | the listening sockets, and the ports that it may have |
//! | [`proof`] | what shows on a connection that its other end is of the job |
//! | [`random`] | what secrets are made of |
//! | [`card`] | the bytes in which a rank's page says where it is reached |

pub mod card;
pub mod interfaces;
pub mod ports;
pub mod proof;
pub mod random;

pub use card::NetworkCard;
pub use ports::Listener;

use card::SURELY_FIT;
use fastpath_base::config::{Config, Key};
use fastpath_base::topology;
use interfaces::{choose_addresses, default_interface, list_addresses, put_likely_first};
use ports::parse_ports;

/// Where a rank is to be reached from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Only by ranks that share its memory, all on this machine: nothing listens on a network.
    Node,
    /// By ranks of other hosts.
    Network,
}

/// Opens a listening socket as `FASTPATH_INTERFACES` and `FASTPATH_PORTS` say, and the card that describes it.
/// `needed`: how many such sockets the job has on this host.
///
/// # Errors
/// For people: a variable that cannot be understood or leaves nothing, all ports in use, or what the kernel said.
pub fn open(
    config: &Config, reach: Reach, needed: usize,
) -> Result<(Listener, NetworkCard), String> {
    let ports = parse_ports(config.text(Key::Ports))?;
    let addresses = find_addresses(config, reach)?;
    // Whoever is reached on this machine alone listens to nobody else, and nobody listens where it is not allowed.
    let only = match !is_auto(config) || addresses[0].is_loopback() {
        true => &addresses[..],
        false => &[],
    };
    let listener = Listener::open(ports, only, needed)?;
    let card = describe(&listener, addresses);
    Ok((listener, card))
}

fn is_auto(config: &Config) -> bool {
    matches!(config.text(Key::Interfaces).trim(), "" | "auto")
}

/// The addresses that peers get, at least one.
fn find_addresses(config: &Config, reach: Reach) -> Result<Vec<std::net::IpAddr>, String> {
    let found =
        list_addresses().map_err(|e| format!("this host's interfaces cannot be listed: {e}"))?;
    let mut addresses = choose_addresses(&found, config.text(Key::Interfaces), reach)?;
    if addresses[0].is_loopback() {
        addresses.truncate(1);
    }
    if addresses.len() > SURELY_FIT && is_auto(config) {
        put_likely_first(&found, default_interface().as_deref(), &mut addresses);
    }
    Ok(addresses)
}

fn describe(listener: &Listener, addresses: Vec<std::net::IpAddr>) -> NetworkCard {
    NetworkCard { host: topology::host_name(), port: listener.port(), addresses }
}

/// The card of a socket that another process opened for this rank.
///
/// # Errors
/// As [`open`], of the addresses.
pub fn describe_inherited(
    config: &Config, reach: Reach, listener: &Listener,
) -> Result<NetworkCard, String> {
    Ok(describe(listener, find_addresses(config, reach)?))
}
