//! Cache of the algorithms chosen for members on several hosts. Evaluating the cost formulas takes as long as many
//! messages, and programs repeat their calls.

use super::asked::CallAlgorithms;
use super::hosts::Spread;
use super::{ReductionOrder, Size};
use std::cell::Cell;

const KEPT: usize = 32;

/// Distribution of members over several hosts, with a cache of choices.
///
/// A choice is stored with all its inputs, so a hit equals the result of the formulas. A hash of the inputs selects the
/// entry. A choice with the same hash replaces the entry.
#[derive(Debug)]
pub struct Placement {
    pub spread: Spread,
    kept: [Cell<Choice>; KEPT],
}

/// Inputs of a choice, with the result: the lowest bits of `facts` are the algorithm's number plus one.
#[derive(Debug, Clone, Copy)]
struct Choice {
    bytes: u64,
    facts: u64,
}

/// Number of bits that hold the number of an algorithm.
const NUMBER: u32 = 4;

impl Placement {
    pub(crate) fn new(spread: Spread) -> Self {
        let kept = [const { Cell::new(Choice { bytes: 0, facts: 0 }) }; KEPT];
        Placement { spread, kept }
    }

    /// Returns the cached choice for the call, or the result of `choose`. `facts` has all inputs other than the call,
    /// the bytes and the spread, in 55 bits.
    #[inline]
    pub(super) fn choose<A: Copy + Eq>(
        &self, call: &'static CallAlgorithms<A>, bytes: u64, facts: u64,
        choose: impl FnOnce(Spread) -> A,
    ) -> A {
        debug_assert!(call.all.len() < 1 << NUMBER, "{}: raise NUMBER", call.name);
        let facts = (facts << 5 | call.number) << NUMBER;
        // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, 6.4).
        let hash = (bytes ^ facts.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = &self.kept[(hash >> (64 - KEPT.ilog2())) as usize];
        let kept = place.get();
        let number = kept.facts.wrapping_sub(facts + 1) as usize;
        match call.all.get(number) {
            Some(&(how, _)) if kept.bytes == bytes => how,
            _ => {
                let how = choose(self.spread);
                let number = call.all.iter().position(|&(other, _)| other == how);
                let facts = facts + 1 + number.unwrap_or_default() as u64;
                place.set(Choice { bytes, facts });
                how
            }
        }
    }
}

impl Size {
    /// Encodes the inputs of a choice other than the bytes. All element counts of `ranks` or more have one encoding.
    pub(super) fn facts(&self, ranks: u32) -> u64 {
        let order = match self.order {
            ReductionOrder::Free => 0,
            ReductionOrder::Fixed => 1,
            ReductionOrder::Tree => 2,
        };
        self.count.min(ranks.into()) << 3 | order << 1 | u64::from(self.commutes)
    }
}

impl PartialEq for Placement {
    fn eq(&self, other: &Self) -> bool {
        self.spread == other.spread
    }
}

impl Eq for Placement {}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::asked::{ALLGATHER, ALLREDUCE, BARRIER, BCAST, REDUCE};
    use super::super::hosts::{self, NetworkCosts};
    use super::super::{Barrier, Bcast};
    use super::*;
    use crate::coll_choice::JobProcessors;
    use crate::coll_choice::nodes::NodeMap;
    use proptest::prelude::*;

    /// Generates sizes of 0 to 19 elements, or of up to 2^40 bytes.
    fn sizes() -> impl Strategy<Value = (u64, u64)> {
        let few = (0u64..20).prop_map(|count| (8 * count, count));
        let many = (0u32..40, 1u64..1000)
            .prop_map(|(log, most)| (most << log.min(30), (most << log.min(30)) / 4));
        prop_oneof![few, many]
    }

    proptest! {
        #[test]
        fn choice__is_the_one_that_would_be_made_again(
            hosts in prop::collection::vec(0u32..5, 3..24),
            calls in prop::collection::vec((sizes(), 0..3, any::<bool>()), 1..80),
        ) {
            let Some(nodes) = NodeMap::new(&hosts, JobProcessors::Own) else {
                return Ok(());
            };
            let (placement, spread, ranks) = (&nodes.placement, nodes.placement.spread, hosts.len() as u32);
            for ((bytes, count), order, commutes) in calls.iter().chain(&calls).copied() {
                let order = [ReductionOrder::Free, ReductionOrder::Fixed, ReductionOrder::Tree][order as usize];
                let size = Size { bytes, count, commutes, is_contiguous: true, order };
                let network = &NetworkCosts::TCP;
                let facts = size.facts(ranks);
                let how = placement.choose(&ALLREDUCE, bytes, facts, |s| hosts::allreduce(s, network, size, ranks));
                prop_assert_eq!(how, hosts::allreduce(spread, network, size, ranks));
                let how = placement.choose(&REDUCE, bytes, facts, |s| hosts::reduce(s, network, size, ranks));
                prop_assert_eq!(how, hosts::reduce(spread, network, size, ranks));
                let how = placement.choose(&BCAST, bytes, 0, |s| hosts::bcast(s, network, bytes));
                prop_assert_eq!(how, hosts::bcast(spread, network, bytes));
                let how = placement.choose(&BARRIER, 0, 0, |s| hosts::barrier(s, network));
                prop_assert_eq!(how, hosts::barrier(spread, network));
                let doubles = commutes && ranks.is_power_of_two();
                let how =
                    placement.choose(&ALLGATHER, bytes, doubles.into(), |s| hosts::allgather(s, network, bytes, doubles));
                prop_assert_eq!(how, hosts::allgather(spread, network, bytes, doubles));
            }
        }
    }

    #[test]
    fn choice__that_was_made_is_not_made_again() {
        let nodes = NodeMap::new(&[0, 0, 1, 1], JobProcessors::Own).unwrap();
        let first = nodes.placement.choose(&BCAST, 8, 0, |_| Bcast::Binomial);
        assert_eq!(first, Bcast::Binomial);
        assert_eq!(nodes.placement.choose(&BCAST, 8, 0, |_| Bcast::Nodes), Bcast::Binomial);
        assert_eq!(nodes.placement.choose(&BCAST, 9, 0, |_| Bcast::Nodes), Bcast::Nodes);
        assert_eq!(nodes.placement.choose(&BARRIER, 8, 0, |_| Barrier::Nodes), Barrier::Nodes);
    }
}
