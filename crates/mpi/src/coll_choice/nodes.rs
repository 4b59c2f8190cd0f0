//! Which members of a communicator share a host.

use super::hosts::Spread;
use super::{Placement, Room};
use std::ops::Range;

/// Which members of a communicator share a host.
#[derive(Debug)]
pub struct Nodes {
    /// The node of each member; nodes are numbered in the order of their lowest members.
    of: Box<[u32]>,
    /// All members, node after node, those of one in their order.
    pub(crate) members: Box<[u32]>,
    /// Where in `members` each node begins, and the end.
    pub(crate) starts: Box<[u32]>,
    /// What the choice of an algorithm asks for.
    pub(crate) placement: Placement,
    /// The same for one member of each node.
    pub(crate) heads: Placement,
    /// What processors the calling member's node has.
    pub(crate) inside: Room<'static>,
}

impl Nodes {
    /// From the host of each member; none where all are on one host. `inside`: what processors this one has.
    pub(crate) fn new(hosts: &[u32], inside: Room<'static>) -> Option<Nodes> {
        let mut numbers = std::collections::HashMap::new();
        let mut sizes: Vec<u32> = Vec::new();
        let of: Box<[u32]> = hosts
            .iter()
            .map(|host| {
                let node = *numbers.entry(*host).or_insert(sizes.len());
                match sizes.get_mut(node) {
                    Some(size) => *size += 1,
                    None => sizes.push(1),
                }
                node as u32
            })
            .collect();
        if sizes.len() < 2 {
            return None;
        }
        let mut starts = vec![0];
        starts.extend(sizes.iter().scan(0, |end, size| {
            *end += size;
            Some(*end)
        }));
        let mut members: Box<[u32]> = (0..hosts.len() as u32).collect();
        members.sort_by_key(|&member| of[member as usize]);
        let spread = Spread::of(&starts);
        let spread = match of.is_sorted() {
            true => spread,
            false => spread.mixed((0..).zip(&of).all(|(rank, &node)| node == rank % spread.nodes)),
        };
        Some(Nodes {
            of,
            members,
            starts: starts.into(),
            placement: Placement::new(spread),
            heads: Placement::new(spread.between()),
            inside,
        })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.placement.spread.nodes
    }

    /// The node of a member.
    pub(crate) fn of(&self, member: u32) -> u32 {
        self.of[member as usize]
    }

    /// The ranks of consecutive nodes, where the ranks of each are.
    pub(crate) fn ranks(&self, nodes: Range<u32>) -> Range<u32> {
        self.starts[nodes.start as usize]..self.starts[nodes.end as usize]
    }

    /// The members on a node.
    pub(crate) fn members(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.members[self.starts[node] as usize..self.starts[node + 1] as usize]
    }
}
