//! Type signature: the basic types of a datatype in order, without displacements.
//!
//! A signature consists of runs of one basic type and repetitions of shared signatures. The size therefore depends on
//! the arguments of the type's constructors, and not on its number of elements.

mod digest;

use super::predefined::Basic;
pub use digest::Digest;
use std::sync::Arc;

/// Maximum number of items of a part that is copied; a longer part is shared.
const INLINE_ITEMS: usize = 256;

#[derive(Debug, Clone)]
enum Item {
    Run(Basic, u64),
    Repeat(Arc<Signature>, u64),
}

impl Item {
    fn bytes(&self) -> u64 {
        match self {
            Item::Run(basic, count) => u64::from(basic.size).saturating_mul(*count),
            Item::Repeat(body, count) => body.bytes.saturating_mul(*count),
        }
    }

    fn elements(&self) -> u64 {
        match self {
            Item::Run(basic, count) => basic.elements().saturating_mul(*count),
            Item::Repeat(body, count) => body.elements.saturating_mul(*count),
        }
    }
}

/// Basic types in order.
#[derive(Debug, Clone, Default)]
pub struct Signature {
    items: Vec<Item>,
    bytes: u64,
    elements: u64,
}

impl Signature {
    /// Returns the signature of one basic type; empty if it is not supported.
    pub fn basic(basic: Basic) -> Signature {
        let mut signature = Signature::default();
        if basic.is_supported() {
            signature.push(Item::Run(basic, 1));
        }
        signature
    }

    /// Returns the number of data bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of basic elements; a pair counts as two.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Returns the basic type if there is only one.
    pub fn uniform(&self) -> Option<Basic> {
        match &*self.items {
            [Item::Run(basic, _)] => Some(*basic),
            [Item::Repeat(body, _)] => body.uniform(),
            _ => None,
        }
    }

    /// Appends `count` copies of `part`.
    pub fn append(&mut self, part: &Arc<Signature>, count: u64) {
        if count == 0 {
            return;
        }
        match &*part.items {
            [] => {}
            [Item::Run(basic, n)] => self.push(Item::Run(*basic, n.saturating_mul(count))),
            [Item::Repeat(body, n)] => {
                self.push(Item::Repeat(body.clone(), n.saturating_mul(count)))
            }
            items if count == 1 && self.items.len() + items.len() <= INLINE_ITEMS => {
                items.iter().for_each(|item| self.push(item.clone()));
            }
            _ => self.push(Item::Repeat(part.clone(), count)),
        }
    }

    fn push(&mut self, item: Item) {
        self.bytes = self.bytes.saturating_add(item.bytes());
        self.elements = self.elements.saturating_add(item.elements());
        match (self.items.last_mut(), &item) {
            (Some(Item::Run(last, n)), Item::Run(next, m)) if last == next => {
                *n = n.saturating_add(*m)
            }
            (Some(Item::Repeat(last, n)), Item::Repeat(next, m)) if Arc::ptr_eq(last, next) => {
                *n = n.saturating_add(*m);
            }
            _ => self.items.push(item),
        }
    }

    /// Returns the basic elements in the first `bytes` bytes of repeated copies; `None` if these end within an element.
    pub fn elements_in(&self, bytes: u64) -> Option<u64> {
        if self.bytes == 0 {
            return (bytes == 0).then_some(0);
        }
        let mut elements = (bytes / self.bytes).checked_mul(self.elements)?;
        let mut rest = bytes % self.bytes;
        for item in &self.items {
            let whole = item.bytes();
            if rest >= whole {
                elements = elements.checked_add(item.elements())?;
                rest -= whole;
                continue;
            }
            let part = match item {
                Item::Run(basic, _) => elements_of_run(*basic, rest),
                Item::Repeat(body, _) => body.elements_in(rest),
            };
            return elements.checked_add(part?);
        }
        Some(elements)
    }

    /// Returns the bytes of the first `elements` basic elements of repeated copies; `None` if they do not fit 64 bits.
    pub fn bytes_of(&self, elements: u64) -> Option<u64> {
        if self.elements == 0 {
            return (elements == 0).then_some(0);
        }
        let mut bytes = (elements / self.elements).checked_mul(self.bytes)?;
        let mut rest = elements % self.elements;
        for item in &self.items {
            let whole = item.elements();
            if rest >= whole {
                bytes = bytes.checked_add(item.bytes())?;
                rest -= whole;
                continue;
            }
            let part = match item {
                Item::Run(basic, _) => {
                    let pairs = rest / basic.elements();
                    let value = basic.pair_parts().map_or(0, |(value, _)| u64::from(value.size));
                    pairs * u64::from(basic.size) + rest % basic.elements() * value
                }
                Item::Repeat(body, _) => body.bytes_of(rest)?,
            };
            return bytes.checked_add(part);
        }
        Some(bytes)
    }

    /// Returns the sum of `measure` over all basic types, as often as each occurs; `None` if it does not fit 64 bits.
    pub fn measure(&self, measure: &dyn Fn(Basic) -> u64) -> Option<u64> {
        self.items.iter().try_fold(0u64, |sum, item| {
            let part = match item {
                Item::Run(basic, count) => measure(*basic).checked_mul(*count),
                Item::Repeat(body, count) => body.measure(measure)?.checked_mul(*count),
            };
            sum.checked_add(part?)
        })
    }

    /// Returns the basic types without duplicates.
    pub fn basics(&self) -> Vec<Basic> {
        let mut found = Vec::new();
        self.find_basics(&mut found);
        found
    }

    fn find_basics(&self, found: &mut Vec<Basic>) {
        for item in &self.items {
            match item {
                Item::Run(basic, _) if found.contains(basic) => {}
                Item::Run(basic, _) => found.push(*basic),
                Item::Repeat(body, _) => body.find_basics(found),
            }
        }
    }

    /// Calls `visit` for each run of one basic type, in order. There may be one call for each element.
    pub fn for_each_run(&self, visit: &mut dyn FnMut(Basic, u64)) {
        for item in &self.items {
            match item {
                Item::Run(basic, count) => visit(*basic, *count),
                Item::Repeat(body, count) => (0..*count).for_each(|_| body.for_each_run(visit)),
            }
        }
    }
}

fn elements_of_run(basic: Basic, bytes: u64) -> Option<u64> {
    let size = u64::from(basic.size);
    let (whole, rest) = (bytes / size, bytes % size);
    match basic.pair_parts() {
        _ if rest == 0 => Some(whole * basic.elements()),
        Some((value, _)) if rest == u64::from(value.size) => Some(whole * 2 + 1),
        _ => None,
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn named(handle: usize) -> Arc<Signature> {
        Arc::new(Signature::basic(Basic::from_handle(handle).unwrap()))
    }

    fn joined(parts: &[(&Arc<Signature>, u64)]) -> Arc<Signature> {
        let mut all = Signature::default();
        parts.iter().for_each(|(part, count)| all.append(part, *count));
        Arc::new(all)
    }

    #[test]
    fn elements_in__counts_whole_basic_elements_only() {
        let (short, double, pair) = (named(520), named(532), named(553));
        let s = joined(&[(&short, 3), (&double, 2), (&pair, 1)]);
        let many = joined(&[(&s, 1000), (&short, 1)]);
        let mut bytes = 0;
        let sizes: Vec<u64> = (0..2300)
            .flat_map(|i| if i % 1001 == 1000 { vec![2] } else { vec![2, 2, 2, 8, 8, 8, 4] })
            .collect();
        for (count, size) in sizes.iter().enumerate() {
            assert_eq!(many.elements_in(bytes), Some(count as u64));
            assert_eq!(many.bytes_of(count as u64), Some(bytes));
            for part in 1..*size {
                assert_eq!(many.elements_in(bytes + part), None);
            }
            bytes += size;
        }
    }

    #[test]
    fn uniform__looks_through_repetition() {
        let (int, double) = (named(521), named(532));
        assert_eq!(joined(&[(&int, 5), (&int, 7)]).uniform(), Basic::from_handle(521));
        assert_eq!(joined(&[(&int, 5), (&double, 7)]).uniform(), None);
        assert_eq!(Signature::default().uniform(), None);
    }

    #[test]
    fn append__of_many_copies_stays_small() {
        let (int, double) = (named(521), named(532));
        let s = joined(&[(&int, 1), (&double, 1)]);
        let many = joined(&[(&s, 1 << 40), (&s, 1)]);
        assert_eq!(many.items.len(), 3);
        assert_eq!(many.bytes(), ((1 << 40) + 1) * 12);
        assert_eq!(many.elements_in(12 * (1 << 39) + 4), Some((1 << 40) + 1));
    }
}
