//! Network addresses of ranks: the host's addresses, a listening port, and the card with both for peers.
//!
//! | module | contents |
//! |---|---|
//! | [`interfaces`] | addresses of this host, and those published to peers |
//! | [`ports`] | listening sockets, and allowed ports |
//! | [`proof`] | proof that the other end of a connection is of the job |

pub mod interfaces;
mod place;
pub mod ports;
pub mod proof;

pub use fastpath_segment::NetworkCard;
pub use interfaces::Reach;
pub(crate) use place::NetworkPlace;
pub use ports::Listener;

use fastpath_base::config::{Config, Key};
use fastpath_base::topology;
use fastpath_segment::network_card::SURELY_FIT;
use interfaces::{choose_addresses, default_interface, list_addresses, put_likely_first};
use ports::parse_ports;

/// Opens a listening socket by `FASTPATH_INTERFACES` and `FASTPATH_PORTS`, and makes its card. `needed` is the number
/// of such sockets of the job on this host.
///
/// # Errors
/// A text for users: a variable is malformed or excludes everything, all ports are in use, or the kernel's error.
pub fn open(
    config: &Config, reach: Reach, needed: usize,
) -> Result<(Listener, NetworkCard), String> {
    let ports = parse_ports(config.text(Key::Ports))?;
    let addresses = find_addresses(config, reach)?;
    // Listen only on these addresses if the user has chosen them, or if they are loopback.
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

/// Returns the addresses published to peers, at least one.
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

/// Makes the card of a socket that another process opened for this rank.
///
/// # Errors
/// The errors of [`open`] about addresses.
pub fn describe_inherited(
    config: &Config, reach: Reach, listener: &Listener,
) -> Result<NetworkCard, String> {
    Ok(describe(listener, find_addresses(config, reach)?))
}
