//! When a pair is worth a connection.

use std::fmt::{self, Display};

/// What making a connection takes both sides: a queue pair, four changes of its state, and three wireup datagrams.
/// Of the order
/// of what adapters take; not measured on the machine at hand.
const CONNECT_NS: u64 = 500_000;
/// What a message costs more by datagrams: sequence number, window, acknowledgement. Not measured on the machine at
/// hand.
const MESSAGE_NS: u64 = 250;
/// What each KiB costs more: packets that the adapter would cut by itself, and a copy more. Not measured either.
const KIB_NS: u64 = 200;

/// When a pair gets a connection, and how many pairs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Nanoseconds that making a connection is taken to cost.
    pub connect_ns: u64,
    /// Connections of a rank at most. A pair beyond them stays with datagrams.
    pub most: u32,
}

impl Default for Rule {
    fn default() -> Self {
        Rule { connect_ns: CONNECT_NS, most: 1024 }
    }
}

impl Rule {
    /// Nanoseconds that a message of `len` bytes costs more by datagrams than by a connection.
    #[inline]
    pub fn excess_ns(len: usize) -> u64 {
        MESSAGE_NS + ((len as u64 * KIB_NS) >> 10)
    }

    /// Whether a pair whose datagrams have cost so much more gets a connection: once they have cost as much as making
    /// it takes, so that whatever comes, no more than twice the least possible was spent (the rule of ski rental).
    #[inline]
    pub fn is_worth(&self, spent_ns: u64) -> bool {
        spent_ns >= self.connect_ns
    }

    /// Messages of `len` bytes after which a pair gets a connection.
    pub fn messages(&self, len: usize) -> u64 {
        self.connect_ns.div_ceil(Self::excess_ns(len)).max(1)
    }
}

/// For people.
impl Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a pair begins with ud and gets a connection at its first message that the receiver's \
             adapter fetches, or once \
             datagrams have cost {} us more: after {} messages of 8 B or {} of 8 KiB; {} \
             connections at most",
            self.connect_ns / 1000,
            self.messages(8),
            self.messages(8192),
            self.most
        )
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages__long_ones_are_worth_a_connection_sooner() {
        let rule = Rule::default();
        let counts = [0, 8, 1024, 8192, 32768].map(|len| rule.messages(len));
        assert!(counts.windows(2).all(|pair| pair[1] <= pair[0]), "{counts:?}");
        assert_eq!(counts[0], 2000);
        let at_once = Rule { connect_ns: 0, ..rule };
        assert!(at_once.is_worth(0));
        assert_eq!(at_once.messages(8), 1);
    }

    proptest! {
        /// Against one that knows what is to come, the rule never spends more than twice, and one message.
        #[test]
        fn is_worth__costs_twice_the_least_at_most(lens in prop::collection::vec(0_usize..32768, 0..4000), connect_ns in 0_u64..1_000_000) {
            let rule = Rule { connect_ns, most: 1 };
            let (mut datagrams, mut connected) = (0, false);
            for &len in &lens {
                connected |= rule.is_worth(datagrams);
                datagrams += if connected { 0 } else { Rule::excess_ns(len) };
            }
            let spent = datagrams + if connected { connect_ns } else { 0 };
            let all: u64 = lens.iter().map(|&len| Rule::excess_ns(len)).sum();
            prop_assert!(spent <= 2 * all.min(connect_ns) + Rule::excess_ns(32768));
        }
    }
}
