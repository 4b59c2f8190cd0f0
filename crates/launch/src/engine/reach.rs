//! Checks that the hosts which ssh is to reach have an address. Otherwise an engine would mix ssh's error with its own
//! text, or wait.

use crate::args::Node;
use fastpath_base::topology::host_name;
use std::net::ToSocketAddrs;
use std::process::{Command, Stdio};

/// Maximum number of hosts named in a message.
const TOLD_MOST: usize = 4;

/// Reports a missing ssh, or hosts without a known address.
pub fn check_hosts(nodes: &[Node]) -> Result<(), String> {
    let own = host_name();
    let others = nodes.iter().map(|node| node.name.as_str());
    let others: Vec<&str> = others.filter(|&name| name != own && !is_known(name)).collect();
    if others.is_empty() {
        return Ok(());
    }
    let mut unknown = Vec::new();
    for name in others {
        let config = read_config(name)?;
        if !is_way(&config, name, &is_known) {
            unknown.push(name);
        }
    }
    match unknown.is_empty() {
        true => Ok(()),
        false => Err(describe(&unknown)),
    }
}

/// Whether the hosts file or the name service resolves the name.
fn is_known(name: &str) -> bool {
    (name, 0).to_socket_addrs().is_ok()
}

fn read_config(name: &str) -> Result<String, String> {
    let asked = Command::new("ssh")
        .args(["-G", "--", name])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match asked {
        Ok(output) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) => Err(format!(
            "host {name} is reached by ssh, and ssh cannot be started: {error}; install ssh \
             (Debian's package openssh-client), or name another program with -launcher-exec"
        )),
    }
}

/// Whether ssh's configuration reaches a host without an address: by another name, or through another host.
fn is_way(config: &str, name: &str, is_known: &dyn Fn(&str) -> bool) -> bool {
    config.lines().filter_map(|line| line.split_once(' ')).any(|(key, value)| match key {
        "hostname" => value != name && is_known(value),
        "proxyjump" | "proxycommand" => value != "none",
        _ => false,
    })
}

fn describe(unknown: &[&str]) -> String {
    let mut names = unknown[..unknown.len().min(TOLD_MOST)].join(", ");
    if unknown.len() > TOLD_MOST {
        names += &format!(" and {} more", unknown.len() - TOLD_MOST);
    }
    let (s, have) = match unknown.len() {
        1 => ("", "has"),
        _ => ("s", "have"),
    };
    format!(
        "host{s} {names} {have} no address: the hosts file, the name service and the configuration \
         of ssh do not contain the name; check the spelling"
    )
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn way__is_another_name_or_another_host() {
        let way = |config: &str| is_way(config, "a", &|name| name == "a.example.org");
        assert!(!way("user x\nhostname a\nport 22\n"));
        assert!(way("user x\nhostname a.example.org\n"));
        assert!(!way("hostname b.example.org\n"));
        assert!(way("hostname a\nproxyjump gate\n"));
        assert!(!way("hostname a\nproxycommand none\n"));
        assert!(!way(""));
    }

    #[test]
    fn hosts__without_an_address_are_named() {
        assert_eq!(
            describe(&["nosuch"]),
            "host nosuch has no address: the hosts file, the name service and the configuration of \
             ssh do not contain the name; check the spelling"
        );
        let many = describe(&["a", "b", "c", "d", "e", "f"]);
        assert!(many.starts_with("hosts a, b, c, d and 2 more have no"));
        let here = ["localhost".to_owned(), host_name()];
        let here = here.map(|name| Node { name, ranks: 1 });
        assert_eq!(check_hosts(&here), Ok(()));
    }
}
