//! Digest of a signature, by which two processes compare their signatures. Digests are equal for equal sequences of
//! basic types, independent of their construction. Different sequences have equal digests with a probability of 1 in
//! 10^17.
//!
//! The digest is the value of a polynomial (Rabin and Karp 1987) at a fixed point modulo a prime. The coefficients are
//! the basic types in order. The digest of a repetition follows from that of its body by squaring.

use super::super::predefined::BasicKind;
use super::{Basic, Item, Signature};

/// 2^61 - 1, a prime.
const PRIME: u64 = (1 << 61) - 1;
const POINT: u64 = 0x0b4c_1e6f_9a37_52d9;

/// Digest of a sequence of basic types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    /// Value of the polynomial.
    pub value: u64,
    /// Number of basic elements; saturates.
    pub elements: u64,
    /// `POINT` to the power of the number of elements.
    power: u64,
}

impl Digest {
    const EMPTY: Digest = Digest { value: 0, elements: 0, power: 1 };

    fn of(basic: Basic) -> Digest {
        if let Some((value, index)) = basic.pair_parts() {
            return Digest::of(value).then(Digest::of(index));
        }
        // Types of one kind and size, such as MPI_INT and MPI_INT32_T, differ only by name and agree.
        let kind = match basic.kind {
            BasicKind::Address => BasicKind::Signed,
            kind => kind,
        };
        Digest { value: u64::from(basic.size) << 8 | (kind as u64 + 1), elements: 1, power: POINT }
    }

    fn then(self, next: Digest) -> Digest {
        Digest {
            value: (multiply(self.value, next.power) + next.value) % PRIME,
            elements: self.elements.saturating_add(next.elements),
            power: multiply(self.power, next.power),
        }
    }

    fn times(self, mut count: u64) -> Digest {
        let (mut all, mut body) = (Digest::EMPTY, self);
        while count > 0 {
            if count & 1 == 1 {
                all = all.then(body);
            }
            body = body.then(body);
            count >>= 1;
        }
        all
    }
}

fn multiply(a: u64, b: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(PRIME)) as u64
}

impl Signature {
    /// Returns the digest of `count` copies.
    pub fn digest(&self, count: u64) -> Digest {
        let items = self.items.iter();
        let one = items.fold(Digest::EMPTY, |all, item| all.then(item.digest()));
        one.times(count)
    }

    /// Returns the digest of the first `elements` basic elements of repeated copies. `None` if a copy has no elements.
    pub fn digest_first(&self, elements: u64) -> Option<Digest> {
        if elements == 0 {
            return Some(Digest::EMPTY);
        }
        let mut all = self.digest(elements.checked_div(self.elements)?);
        let mut rest = elements % self.elements;
        for item in &self.items {
            if rest < item.elements() {
                return Some(all.then(item.digest_first(rest)?));
            }
            rest -= item.elements();
            all = all.then(item.digest());
        }
        Some(all)
    }
}

impl Item {
    fn digest(&self) -> Digest {
        match self {
            Item::Run(basic, count) => Digest::of(*basic).times(*count),
            Item::Repeat(body, count) => body.digest(*count),
        }
    }

    fn digest_first(&self, elements: u64) -> Option<Digest> {
        match self {
            Item::Run(basic, _) => {
                let whole = Digest::of(*basic).times(elements / basic.elements());
                match basic.pair_parts() {
                    Some((value, _)) if elements % 2 == 1 => Some(whole.then(Digest::of(value))),
                    _ => Some(whole),
                }
            }
            Item::Repeat(body, _) => body.digest_first(elements),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    const INT: usize = 521;
    const DOUBLE: usize = 532;
    const DOUBLE_INT: usize = 553;
    const HANDLES: [usize; 4] = [INT, DOUBLE, DOUBLE_INT, 579];

    fn named(handle: usize) -> Arc<Signature> {
        Arc::new(Signature::basic(Basic::from_handle(handle).unwrap()))
    }

    /// Returns the basic elements one by one; a pair counts as two.
    fn written_out(signature: &Signature) -> Vec<Basic> {
        let mut all = Vec::new();
        signature.for_each_run(&mut |basic, count| {
            for _ in 0..count {
                match basic.pair_parts() {
                    Some((value, index)) => all.extend([value, index]),
                    None => all.push(basic),
                }
            }
        });
        all
    }

    fn of_elements(elements: &[Basic]) -> u64 {
        let mut flat = Signature::default();
        let mut add = |basic: &Basic| flat.append(&Arc::new(Signature::basic(*basic)), 1);
        elements.iter().for_each(&mut add);
        flat.digest(1).value
    }

    fn nested() -> impl Strategy<Value = Arc<Signature>> {
        let leaf = prop::sample::select(HANDLES.to_vec()).prop_map(named);
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop::collection::vec((inner, 0_u64..4), 1..4).prop_map(|parts| {
                let mut all = Signature::default();
                parts.iter().for_each(|(part, count)| all.append(part, *count));
                Arc::new(all)
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// The digest depends only on the sequence, for the whole and for each prefix.
        #[test]
        fn digest__is_that_of_the_elements_one_by_one(signature in nested(), copies in 0_u64..3) {
            let mut elements = written_out(&signature);
            elements = elements.repeat(copies as usize);
            let digest = signature.digest(copies);
            prop_assert_eq!(digest.elements, elements.len() as u64);
            prop_assert_eq!(digest.value, of_elements(&elements));
            for first in 0..elements.len() {
                let part = signature.digest_first(first as u64).map(|digest| digest.value);
                prop_assert_eq!(part, Some(of_elements(&elements[..first])));
            }
        }

        #[test]
        fn digest__tells_sequences_apart(one in nested(), other in nested()) {
            let class = |basic: &Basic| (basic.kind, basic.size);
            let same = written_out(&one).iter().map(class).eq(written_out(&other).iter().map(class));
            prop_assert_eq!(one.digest(1) == other.digest(1), same);
        }
    }

    #[test]
    fn digest__of_huge_counts_takes_no_time() {
        let (int, double) = (named(INT), named(DOUBLE));
        assert_eq!(int.digest(1 << 62), int.digest(1 << 61).then(int.digest(1 << 61)));
        assert_ne!(int.digest(1 << 62).value, double.digest(1 << 62).value);
        assert!(Signature::default().digest_first(1).is_none());
    }

    #[test]
    fn digest__of_types_of_one_kind_agree() {
        assert_eq!(named(INT).digest(3), named(592).digest(3)); // MPI_INT32_T
        assert_ne!(named(INT).digest(3), named(593).digest(3)); // MPI_UINT32_T
        assert_ne!(named(INT).digest(3), named(528).digest(3)); // MPI_FLOAT
        let pairs = named(DOUBLE_INT).digest(2);
        assert_eq!(pairs.elements, 4);
    }
}
