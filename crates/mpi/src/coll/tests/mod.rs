//! Tests of the algorithms on simulated ranks, against results computed without messages.
#![allow(non_snake_case)]

mod lines;
mod long_lines;
mod measured_lines;
mod movement;
mod reductions;
mod scale;

use super::simulator::Mode;
use super::vector::Vector;
use crate::common::consts::MPI_UINT32_T;
use crate::objects::datatype::{Basic, Datatype, Form};
use proptest::prelude::*;
use std::rc::Rc;

/// Number of data words in an element of either shape.
const WORDS: usize = 4;
/// Value of memory that was never written.
const EMPTY: u32 = 0xeeee_eeee;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Tight,
    /// Elements of seven words, of which words 1 and 3 to 5 (from 0) are data.
    Gappy,
}

impl Shape {
    fn datatype(self) -> Datatype {
        let word = Rc::new(Datatype::named(Basic::from_handle(MPI_UINT32_T).unwrap()));
        let datatype = match self {
            Shape::Tight => Datatype::contiguous(WORDS as i64, &word, Form::Small).unwrap(),
            Shape::Gappy => {
                let parts =
                    Rc::new(Datatype::indexed(&[1, 3], &[1, 3], &word, Form::Small).unwrap());
                Datatype::resized(&parts, 0, 28, Form::Small).unwrap()
            }
        };
        datatype.commit();
        datatype
    }

    fn extent(self) -> usize {
        if self == Shape::Tight { 4 } else { 7 }
    }

    fn places(self) -> [usize; WORDS] {
        if self == Shape::Tight { [0, 1, 2, 3] } else { [1, 3, 4, 5] }
    }
}

/// Memory for elements of a shape, with a guard element behind them.
struct Area {
    shape: Shape,
    datatype: Datatype,
    words: Vec<u32>,
}

impl Area {
    fn new(shape: Shape, elements: usize) -> Area {
        let words = vec![EMPTY; (elements + 1) * shape.extent()];
        Area { shape, datatype: shape.datatype(), words }
    }

    fn filled(shape: Shape, data: &[u32]) -> Area {
        let mut area = Area::new(shape, data.len() / WORDS);
        area.put(0, data);
        area
    }

    fn put(&mut self, first: usize, data: &[u32]) {
        for (i, element) in data.chunks(WORDS).enumerate() {
            for (place, word) in self.shape.places().into_iter().zip(element) {
                self.words[(first + i) * self.shape.extent() + place] = *word;
            }
        }
    }

    /// Returns the data words of all elements. Panics if gaps or guard were written.
    fn data(&self) -> Vec<u32> {
        let extent = self.shape.extent();
        let (elements, guard) = self.words.split_at(self.words.len() - extent);
        assert!(guard.iter().all(|&w| w == EMPTY), "written behind the end");
        for (i, word) in elements.iter().enumerate() {
            assert!(
                self.shape.places().contains(&(i % extent)) || *word == EMPTY,
                "written into a gap"
            );
        }
        elements.chunks(extent).flat_map(|e| self.shape.places().map(|place| e[place])).collect()
    }

    fn vector(&self, first: u64, count: u64) -> Vector<'_> {
        Vector::at(self.words.as_ptr().cast(), 0, self.datatype.layout()).part(first, count)
    }
}

/// Returns the data of block `block` of rank `rank`. All words are different.
fn words(rank: u32, block: u32, elements: u64) -> Vec<u32> {
    (0..elements as u32 * WORDS as u32).map(|i| rank << 24 | block << 16 | i).collect()
}

fn untouched(elements: u64) -> Vec<u32> {
    vec![EMPTY; elements as usize * WORDS]
}

fn any_shape() -> impl Strategy<Value = Shape> {
    prop_oneof![Just(Shape::Tight), Just(Shape::Gappy)]
}

fn any_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Eager), Just(Mode::Rendezvous)]
}

/// Generates mostly a few elements, sometimes enough for blocks above the limits of short messages.
fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..6, 1 => 60u64..100]
}

/// Generates the host of each rank: up to five hosts, in blocks or mixed.
fn any_hosts() -> impl Strategy<Value = Vec<u32>> {
    let hosts = proptest::collection::vec(0u32..5, 1..18);
    (hosts, any::<bool>()).prop_map(|(mut hosts, in_blocks)| {
        if in_blocks {
            hosts.sort();
        }
        hosts
    })
}
