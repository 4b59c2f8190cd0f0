//! Distribution of a communicator's members over nodes.

use super::hosts::Spread;
use super::{JobProcessors, Placement};
use std::ops::Range;

#[derive(Debug)]
pub struct NodeMap {
    /// Node of each member. Nodes are numbered in the order of their lowest members.
    of: Box<[u32]>,
    /// All members, ordered by node, then by rank.
    pub(crate) members: Box<[u32]>,
    /// Start of each node in `members`, then the number of members.
    pub(crate) starts: Box<[u32]>,
    pub(crate) placement: Placement,
    /// Placement of one member of each node.
    pub(crate) heads: Placement,
    /// Processors of the calling member's node.
    pub(crate) inside: JobProcessors<'static>,
}

impl NodeMap {
    /// Makes the distribution from each member's host; `None` for a single host. `inside`: see [`NodeMap::inside`].
    pub(crate) fn new(hosts: &[u32], inside: JobProcessors<'static>) -> Option<NodeMap> {
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
        Some(NodeMap {
            of,
            members,
            starts: starts.into(),
            placement: Placement::new(spread),
            heads: Placement::new(spread.between()),
            inside,
        })
    }

    pub(crate) fn count(&self) -> u32 {
        self.placement.spread.nodes
    }

    pub(crate) fn of(&self, member: u32) -> u32 {
        self.of[member as usize]
    }

    /// Returns the ranks of consecutive nodes, if each node has consecutive ranks.
    pub(crate) fn ranks(&self, nodes: Range<u32>) -> Range<u32> {
        self.starts[nodes.start as usize]..self.starts[nodes.end as usize]
    }

    pub(crate) fn members(&self, node: u32) -> &[u32] {
        let node = node as usize;
        &self.members[self.starts[node] as usize..self.starts[node + 1] as usize]
    }
}
