//! Card with a rank's network addresses, for its peers.

use std::net::IpAddr;

/// Largest size of a card in a rank's page, in bytes.
pub const CARD_BYTES: usize = 192;
const VERSION: u8 = 1;
const HOST_BYTES: usize = 64;
/// Number of addresses that fit a card even if the host's name has its maximum length.
pub const SURELY_FIT: usize = (CARD_BYTES - 4 - HOST_BYTES) / 17;

/// Network addresses of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkCard {
    /// Name of the host, for messages.
    pub host: String,
    /// Port on which the rank listens.
    pub port: u16,
    /// Addresses of the host, at least one, the best first.
    pub addresses: Vec<IpAddr>,
}

impl NetworkCard {
    /// Encodes the card in at most [`CARD_BYTES`]. A long name is cut, and addresses that do not fit are left out.
    pub fn encode(&self) -> Vec<u8> {
        let mut end = self.host.len().min(HOST_BYTES);
        while !self.host.is_char_boundary(end) {
            end -= 1;
        }
        let [high, low] = self.port.to_be_bytes();
        let mut bytes = vec![VERSION, high, low, end as u8];
        bytes.extend_from_slice(&self.host.as_bytes()[..end]);
        for address in &self.addresses {
            let mut entry = Vec::with_capacity(17);
            match address {
                IpAddr::V4(address) => {
                    entry.push(4);
                    entry.extend(address.octets());
                }
                IpAddr::V6(address) => {
                    entry.push(6);
                    entry.extend(address.octets());
                }
            }
            if bytes.len() + entry.len() <= CARD_BYTES {
                bytes.extend(entry);
            }
        }
        bytes
    }

    /// Decodes a card; `None` if the bytes are not a card.
    pub fn decode(bytes: &[u8]) -> Option<NetworkCard> {
        if bytes.len() > CARD_BYTES {
            return None;
        }
        let (&[VERSION, high, low, length], rest) = bytes.split_first_chunk::<4>()? else {
            return None;
        };
        let (host, mut rest) = rest.split_at_checked(length as usize)?;
        let host = std::str::from_utf8(host).ok()?.to_owned();
        if host.len() > HOST_BYTES || host.chars().any(char::is_control) {
            return None;
        }
        let mut addresses = Vec::new();
        while let Some((&family, after)) = rest.split_first() {
            let (address, after): (IpAddr, _) = match family {
                4 => {
                    let (octets, after) = after.split_first_chunk::<4>()?;
                    ((*octets).into(), after)
                }
                6 => {
                    let (octets, after) = after.split_first_chunk::<16>()?;
                    ((*octets).into(), after)
                }
                _ => return None,
            };
            addresses.push(address);
            rest = after;
        }
        let port = u16::from_be_bytes([high, low]);
        (port != 0 && !addresses.is_empty()).then_some(NetworkCard { host, port, addresses })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn card(addresses: &[&str]) -> NetworkCard {
        NetworkCard {
            host: "node7".to_owned(),
            port: 40_001,
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn card__round_trips() {
        for addresses in [&["10.1.2.3"][..], &["fd00::1", "192.168.0.1", "::1"], &["0.0.0.0"]] {
            let card = card(addresses);
            assert_eq!(NetworkCard::decode(&card.encode()), Some(card));
        }
    }

    #[test]
    fn encode__leaves_out_what_finds_no_room() {
        let mut long = card(&["fd00::1"; 40]);
        long.host = "é".repeat(100);
        let bytes = long.encode();
        assert!(bytes.len() <= CARD_BYTES);
        let seen = NetworkCard::decode(&bytes).unwrap();
        assert_eq!(seen.host, "é".repeat(HOST_BYTES / 2));
        assert_eq!(seen.addresses.len(), SURELY_FIT);
    }

    #[test]
    fn decode__refuses_what_is_no_card() {
        for bytes in [
            &[][..],
            &[1, 0],
            &[2, 1, 1, 0, 4, 1, 2, 3, 4],
            &[1, 0, 0, 0, 4, 1, 2, 3, 4],
            &[1, 1, 1, 0],
            &[1, 1, 1, 0, 5, 1, 2, 3, 4],
            &[1, 1, 1, 0, 4, 1, 2, 3],
            &[1, 1, 1, 9, 4, 1, 2, 3, 4],
            &[1, 1, 1, 1, 0x1b, 4, 1, 2, 3, 4],
            &[0; 400],
        ] {
            assert_eq!(NetworkCard::decode(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn fuzz__card_is_understood_or_refused() {
        let (one, two) = (card(&["10.1.2.3"]).encode(), card(&["fd00::1", "1.2.3.4"]).encode());
        crate::mutate::run(&[&one, &two], |input| {
            let Some(card) = NetworkCard::decode(input) else {
                return;
            };
            assert!(card.port != 0 && !card.addresses.is_empty());
            assert_eq!(card.encode(), input);
        });
    }
}
