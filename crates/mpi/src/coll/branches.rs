//! Reductions over hosts whose ranks are not one branch of the operand tree ([`Actors`]), as with 48 ranks per host.
//!
//! The consecutive ranks of a host form a few branches of that tree. Each branch is reduced separately. Then the hosts
//! exchange the values of their branches, and combine them along the tree. The result has the same bits as on one host,
//! at the price of a few more short messages. Each branch's bytes cross the network once. VECTORS is defined in
//! `coll.rs`.
#![allow(unsafe_code)]

use super::choose;
use super::choose::NodeMap;
use super::fabric::{self, Batch, Fabric};
use super::local::Reduction;
use super::nodes::Levels;
use super::reduce;
use super::scratch::Scratch;
use super::vector::Vector;
use crate::coll_choice::tree::{Actors, Branch, branches, count, those_of};
use crate::common::error::Result;
use std::ops::Range;

/// Values of branches in rank order, and free memory for further values.
struct BranchState<'a> {
    red: &'a Reduction<'a>,
    actors: Actors,
    held: Vec<(Branch, Vector<'a>)>,
    free: Vec<Vector<'a>>,
}

impl<'a> BranchState<'a> {
    /// Takes free memory for the branches of `ranks`.
    fn take(&mut self, ranks: Range<u32>) -> Vec<(Branch, Vector<'a>)> {
        let places = self.free.drain(..).rev();
        let mut places = places.collect::<Vec<_>>();
        let taken = branches(self.actors, ranks).map_while(|branch| Some((branch, places.pop()?)));
        let taken = taken.collect();
        places.reverse();
        self.free = places;
        taken
    }

    /// Adds the values `theirs` of neighbouring ranks, and combines two halves of a branch when both are present.
    /// `lower` tells whether these ranks are lower.
    ///
    /// # Safety
    /// The vectors are valid, and do not overlap.
    unsafe fn combine(&mut self, lower: bool, theirs: Vec<(Branch, Vector<'a>)>) {
        let own = std::mem::take(&mut self.held);
        let (first, second) = if lower { (theirs, own) } else { (own, theirs) };
        for (branch, value) in first.into_iter().chain(second) {
            self.held.push((branch, value));
            while let &[.., (lower, left), (upper, right)] = &self.held[..]
                && lower.continues(upper)
            {
                // SAFETY: VECTORS.
                unsafe { self.red.fold(left, right) };
                self.held.truncate(self.held.len() - 2);
                self.held.push((lower.twice(), right));
                self.free.push(left);
            }
        }
    }
}

/// Reduces to `result` at the heads of the nodes for which `wants` returns true.
///
/// # Safety
/// The operand is readable, and the result of heads writable. They do not overlap, or are the same.
pub(super) async unsafe fn reduce<'a, F: Fabric>(
    f: &F, nodes: &NodeMap, levels: &Levels<'_, F>, red: &'a Reduction<'a>, operand: Vector<'a>,
    result: Option<Vector<'a>>, wants: impl Fn(u32) -> bool,
) -> Result {
    let actors = Actors::of(f.size());
    let own = nodes.of(f.rank());
    let size = red.size(operand.count, f.room()).along_tree();
    let ranks_of = |range: Range<u32>| nodes.ranks(range);
    let mut scratch = Scratch::new(f);
    let mut held = BranchState { red, actors, held: Vec::new(), free: Vec::new() };
    if levels.heads.is_some() {
        let places = needed(nodes, actors, own);
        let places_of = scratch.elements(red.layout, operand.count * places)?;
        let place = |number| places_of.part(number * operand.count, operand.count);
        held.free = (0..places).map(place).collect();
    }
    let mut mine = held.take(ranks_of(own..own + 1)).into_iter();
    // SAFETY: VECTORS; the places in the scratch memory do not overlap.
    unsafe {
        // Each branch is reduced separately. The value of a branch without the head goes to the branch's first rank,
        // which sends the value to the head.
        let head = levels.node.member(levels.head);
        for branch in branches(actors, ranks_of(own..own + 1)) {
            let ranks = branch.ranks(actors);
            let top = if ranks.contains(&head) { head } else { ranks.start };
            let place = mine.next();
            if ranks.contains(&f.rank()) {
                let part = levels.node.narrow(nodes, own, &ranks);
                let how = choose::reduce(size, ranks.end - ranks.start, fabric::place(&part));
                let mut aside = Scratch::new(f);
                let at_top = match place {
                    Some((_, place)) => Some(place),
                    None if f.rank() == top => Some(aside.elements(red.layout, operand.count)?),
                    None => None,
                };
                let at_top = at_top.filter(|_| f.rank() == top);
                reduce::run_as(&part, how, red, operand, at_top, top - ranks.start).await?;
                if let Some(value) = at_top.filter(|_| top != head) {
                    f.send(head, value.buffer()).await?;
                }
            } else if let Some((_, place)) = place {
                f.recv(top, place.buffer()).await?;
            }
            held.held.extend(place);
        }
        let Some(heads) = &levels.heads else {
            return Ok(());
        };
        meet(heads, nodes, &mut held, result, wants).await
    }
}

/// Exchanges values between the heads of nodes by recursive doubling.
///
/// # Safety
/// See [`reduce`].
async unsafe fn meet<'a, F: Fabric>(
    f: &F, nodes: &NodeMap, held: &mut BranchState<'a>, result: Option<Vector<'a>>,
    wants: impl Fn(u32) -> bool,
) -> Result {
    let (rank, actors) = (f.rank(), Actors::of(f.size()));
    let is_paired = actors.is_paired(rank);
    // SAFETY: VECTORS.
    unsafe {
        if is_paired && rank % 2 == 0 {
            trade(f, rank + 1, &held.held, &[]).await?;
            if let Some(result) = result.filter(|_| wants(rank)) {
                f.recv(rank + 1, result.buffer()).await?;
            }
            return Ok(());
        }
        if is_paired {
            let theirs = held.take(nodes.ranks(rank - 1..rank));
            trade(f, rank - 1, &[], &theirs).await?;
            held.combine(true, theirs);
        }
        let me = actors.number(rank);
        let mut mask = 1;
        while mask < actors.count {
            let them = me ^ mask;
            let theirs = held.take(nodes.ranks(those_of(actors, them, mask)));
            trade(f, actors.rank(them), &held.held, &theirs).await?;
            held.combine(them < me, theirs);
            mask *= 2;
        }
        let value = held.held[0].1;
        if is_paired && wants(rank - 1) {
            f.send(rank - 1, value.buffer()).await?;
        }
        match result {
            Some(result) => value.copy_to(result),
            None => Ok(()),
        }
    }
}

/// Returns the number of values for which the head of a node needs memory.
fn needed(nodes: &NodeMap, actors: Actors, node: u32) -> u64 {
    let count = |of: Range<u32>| u64::from(count(actors, nodes.ranks(of)));
    let heads = Actors::of(nodes.count());
    let me = heads.number(node);
    let own = count(node..node + 1);
    let pair = match heads.is_paired(node) && node % 2 == 1 {
        true => own + count(node - 1..node),
        false => own,
    };
    let steps = (0..heads.count.ilog2()).map(|step| {
        let mask = 1 << step;
        count(those_of(heads, me, mask)) + count(those_of(heads, me ^ mask, mask))
    });
    steps.chain([pair]).max().unwrap_or(pair)
}

/// Sends and receives vectors at the same time.
///
/// # Safety
/// Vectors of `out` are readable and those of `into` writable. They do not overlap.
async unsafe fn trade<'a, F: Fabric>(
    f: &F, with: u32, out: &[(Branch, Vector<'a>)], into: &[(Branch, Vector<'a>)],
) -> Result {
    let mut batch = Batch::new(f);
    // SAFETY: VECTORS.
    unsafe {
        into.iter().for_each(|theirs| batch.recv(with, theirs.1));
        out.iter().for_each(|own| batch.send(with, own.1));
    }
    batch.finish().await
}
