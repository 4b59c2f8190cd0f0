//! Choices between hosts that were made before: a program's calls repeat, and the formulas take as long as many
//! messages within a host.

use super::asked::Call;
use super::hosts::Spread;
use super::{Order, Size};
use std::cell::Cell;

/// Choices that are kept for the members of a communicator.
const KEPT: usize = 32;

/// Members on several hosts, and what was chosen for calls of theirs.
///
/// A choice is kept under everything that it was made of, so that it is the one that would be made again. That
/// also says in which place: another call with the same place takes it over.
#[derive(Debug)]
pub struct Placement {
    /// How the members are spread.
    pub spread: Spread,
    kept: [Cell<Choice>; KEPT],
}

/// What was asked for and, in the lowest bits of `facts`, one more than the number of the algorithm.
#[derive(Debug, Clone, Copy)]
struct Choice {
    bytes: u64,
    facts: u64,
}

/// Bits of the number of an algorithm.
const NUMBER: u32 = 3;

impl Placement {
    /// Nothing was chosen yet.
    pub(crate) fn new(spread: Spread) -> Self {
        let kept = [const { Cell::new(Choice { bytes: 0, facts: 0 }) }; KEPT];
        Placement { spread, kept }
    }

    /// What was chosen for such a call before; otherwise what `choose` says. `facts`: all that this is made of besides
    /// the call, the bytes and the spread, in 56 bits.
    #[inline]
    pub(super) fn choose<A: Copy + Eq>(
        &self, call: &'static Call<A>, bytes: u64, facts: u64, choose: impl FnOnce(Spread) -> A,
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
    /// The facts behind a choice for `ranks` ranks besides the bytes: more elements than ranks are alike.
    pub(super) fn facts(&self, ranks: u32) -> u64 {
        let order = match self.order {
            Order::Free => 0,
            Order::Fixed => 1,
            Order::Tree => 2,
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
    use super::super::hosts::{self, Network};
    use super::super::{Barrier, Bcast};
    use super::*;
    use crate::coll_choice::Room;
    use crate::coll_choice::nodes::Nodes;
    use proptest::prelude::*;

    /// 0 to 19 elements, or up to 2^40 bytes.
    fn sizes() -> impl Strategy<Value = (u64, u64)> {
        let few = (0u64..20).prop_map(|count| (8 * count, count));
        let many = (0u32..40, 1u64..1000)
            .prop_map(|(log, most)| (most << log.min(30), (most << log.min(30)) / 4));
        prop_oneof![few, many]
    }

    proptest! {
        /// A second call, and one after any others, has the choice that it would have without any before it.
        #[test]
        fn choice__is_the_one_that_would_be_made_again(
            hosts in prop::collection::vec(0u32..5, 3..24),
            calls in prop::collection::vec((sizes(), 0..3, any::<bool>()), 1..80),
        ) {
            let Some(nodes) = Nodes::new(&hosts, Room::Own) else {
                return Ok(());
            };
            let (placement, spread, ranks) = (&nodes.placement, nodes.placement.spread, hosts.len() as u32);
            for ((bytes, count), order, commutes) in calls.iter().chain(&calls).copied() {
                let order = [Order::Free, Order::Fixed, Order::Tree][order as usize];
                let size = Size { bytes, count, commutes, is_contiguous: true, order };
                let network = &Network::TCP;
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
        let nodes = Nodes::new(&[0, 0, 1, 1], Room::Own).unwrap();
        let first = nodes.placement.choose(&BCAST, 8, 0, |_| Bcast::Binomial);
        assert_eq!(first, Bcast::Binomial);
        assert_eq!(nodes.placement.choose(&BCAST, 8, 0, |_| Bcast::Nodes), Bcast::Binomial);
        assert_eq!(nodes.placement.choose(&BCAST, 9, 0, |_| Bcast::Nodes), Bcast::Nodes);
        assert_eq!(nodes.placement.choose(&BARRIER, 8, 0, |_| Barrier::Nodes), Barrier::Nodes);
    }
}
