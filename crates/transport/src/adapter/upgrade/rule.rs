//! Rule for upgrading a pair to a connection.

use std::fmt::{self, Display};

/// Cost of a connection for both sides, in nanoseconds: a queue pair, four state changes, three wireup datagrams. An
/// order of magnitude for adapters, not measured on this machine.
const CONNECT_NS: u64 = 500_000;
/// Cost that datagrams add to each message, in ns: sequence number, window, acknowledgement. Not measured.
const MESSAGE_NS: u64 = 250;
/// Cost that datagrams add to each KiB, in ns: splitting into packets by software, and one more copy. Not measured.
const KIB_NS: u64 = 200;

/// Rule for upgrades: when a pair gets a connection, and how many pairs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Assumed cost of a connection, in nanoseconds.
    pub connect_ns: u64,
    /// Maximum number of connections of a rank. All further pairs stay with datagrams.
    pub most: u32,
}

impl Default for Rule {
    fn default() -> Self {
        Rule { connect_ns: CONNECT_NS, most: 1024 }
    }
}

impl Rule {
    /// Excess cost of a message of `len` bytes by datagrams, in nanoseconds.
    #[inline]
    pub fn excess_ns(len: usize) -> u64 {
        MESSAGE_NS + ((len as u64 * KIB_NS) >> 10)
    }

    /// Whether a pair gets a connection: its excess cost has reached the cost of a connection. The total is then at
    /// most twice the optimum, for any later traffic (ski rental).
    #[inline]
    pub fn is_worth(&self, spent_ns: u64) -> bool {
        spent_ns >= self.connect_ns
    }

    /// Number of messages of `len` bytes after which a pair gets a connection.
    pub fn messages(&self, len: usize) -> u64 {
        self.connect_ns.div_ceil(Self::excess_ns(len)).max(1)
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a pair starts with ud. The pair changes to rc at its first long message (one that the \
             receiver's adapter reads by RDMA), or when the extra time of its datagrams, compared \
             with rc, adds up to {} us: after {} messages of 8 B, or {} of 8 KiB. A rank has at \
             most {} connections",
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
        /// The rule costs at most twice as much as a rule that knows the future, plus the excess cost of one message.
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
