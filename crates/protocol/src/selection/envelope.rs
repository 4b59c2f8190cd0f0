//! Piecewise linear cost curves and their lower envelope.

use fastpath_transport::Cost;

/// Cost by size, as linear pieces in order. Each piece ends where the next starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    pieces: Vec<(u64, Cost)>,
    /// Largest message size, in bytes, that the curve serves.
    pub to: u64,
}

impl Curve {
    /// Returns a line for sizes `from..=to`.
    pub fn line(from: u64, to: u64, cost: Cost) -> Curve {
        Curve { pieces: vec![(from, cost)], to }
    }

    /// Adds a line from size `from` on, beyond the existing pieces.
    pub fn then(mut self, from: u64, cost: Cost) -> Curve {
        debug_assert!(self.pieces.last().is_none_or(|last| last.0 < from));
        self.pieces.push((from, cost));
        self
    }

    /// Returns the smallest size that the curve serves.
    pub fn from(&self) -> u64 {
        self.pieces.first().map_or(u64::MAX, |first| first.0)
    }

    /// Restricts the curve to sizes `from..=to`.
    pub fn within(mut self, from: u64, to: u64) -> Curve {
        let skip = self.pieces.partition_point(|piece| piece.0 <= from);
        self.pieces.drain(..skip.saturating_sub(1));
        if let Some(first) = self.pieces.first_mut() {
            first.0 = first.0.max(from);
        }
        self.to = self.to.min(to);
        self
    }

    fn cost(&self, size: u64) -> Option<&Cost> {
        let next = self.pieces.partition_point(|piece| piece.0 <= size);
        (size <= self.to && next > 0).then(|| &self.pieces[next - 1].1)
    }

    /// Returns the cost of `size` bytes, in nanoseconds; `None` if the curve does not serve this size.
    pub fn at(&self, size: u64) -> Option<f64> {
        self.cost(size).map(|cost| cost.at(size))
    }
}

/// Range of the envelope: sizes `from..=to`, and the index of the best curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Smallest size.
    pub from: u64,
    /// Largest size.
    pub to: u64,
    /// Index of the best candidate.
    pub best: usize,
}

/// Returns the curve of least cost for every size that any of `curves` serves. At equal costs the earlier curve wins.
pub fn lower(curves: &[Curve]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let borders = find_borders(curves);
    for (index, &from) in borders.iter().enumerate() {
        let to = borders.get(index + 1).map_or(u64::MAX, |next| next - 1);
        // No lines cross between two borders, so the best curve at one border is best up to the next.
        let costs = curves.iter().enumerate();
        let best = costs
            .filter_map(|(i, curve)| Some((curve.at(from)?, curve.at(to)?, i)))
            .min_by(|x, y| x.0.total_cmp(&y.0).then(x.1.total_cmp(&y.1)));
        let Some((_, _, best)) = best else { continue };
        match spans.last_mut() {
            Some(last) if last.best == best && last.to + 1 == from => last.to = to,
            _ => spans.push(Span { from, to, best }),
        }
    }
    spans
}

/// Returns the sizes at which the order of the curves may change, sorted and without duplicates.
fn find_borders(curves: &[Curve]) -> Vec<u64> {
    let ends = curves.iter().map(|curve| curve.to.saturating_add(1));
    let starts = curves.iter().flat_map(|c| c.pieces.iter().map(|p| p.0));
    let mut borders: Vec<u64> = starts.chain(ends).collect();
    for (i, a) in curves.iter().enumerate() {
        for b in &curves[i + 1..] {
            for (_, x) in &a.pieces {
                borders.extend(b.pieces.iter().flat_map(|(_, y)| cross(x, y)));
            }
        }
    }
    borders.sort_unstable();
    borders.dedup();
    borders
}

fn cross(x: &Cost, y: &Cost) -> Vec<u64> {
    let slope = x.ns_per_byte - y.ns_per_byte;
    if slope == 0.0 {
        return Vec::new(); // parallel lines do not cross
    }
    let meet = (y.fixed_ns() - x.fixed_ns()) / slope;
    if (0.0..1e18).contains(&meet) {
        let meet = meet as u64;
        vec![meet, meet + 1, meet + 2]
    } else {
        Vec::new()
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cost(fixed: f64, ns_per_byte: f64) -> Cost {
        Cost { send_overhead_ns: fixed, recv_overhead_ns: 0.0, ns_per_byte, latency_ns: 0.0 }
    }

    fn curve() -> impl Strategy<Value = Curve> {
        let piece = (1_u64..100_000, 0.0..1e4_f64, 0.0..2.0_f64);
        let pieces = prop::collection::vec(piece, 1..4);
        (pieces, 0_u64..100_000, 0_u64..300_000).prop_map(|(pieces, from, len)| {
            let mut from = from;
            let mut curve: Option<Curve> = None;
            for (step, fixed, slope) in pieces {
                let cost = cost(fixed, slope);
                curve = Some(match curve {
                    None => Curve::line(from, from + len, cost),
                    Some(curve) => curve.then(from, cost),
                });
                from += step;
            }
            curve.unwrap()
        })
    }

    proptest! {
        #[test]
        fn lower__is_the_minimum_at_every_size(curves in prop::collection::vec(curve(), 1..6), sizes in prop::collection::vec(0_u64..500_000, 50)) {
            let spans = lower(&curves);
            let ends = spans.iter().flat_map(|s| [s.from, s.from + 1, s.to.saturating_sub(1), s.to]);
            for size in sizes.into_iter().chain(ends) {
                let least = curves.iter().filter_map(|c| c.at(size)).min_by(f64::total_cmp);
                let span = spans.iter().find(|s| (s.from..=s.to).contains(&size));
                match (least, span) {
                    (Some(least), Some(span)) => {
                        let chosen = curves[span.best].at(size).unwrap();
                        prop_assert!(chosen <= least * (1.0 + 1e-9) + 1e-6, "{size}: {chosen} and \
                            {least}");
                    }
                    (None, None) => {}
                    other => prop_assert!(false, "{size}: {other:?}"),
                }
            }
        }

        #[test]
        fn lower__spans_are_in_order_and_do_not_overlap(curves in prop::collection::vec(curve(), 1..6)) {
            for pair in lower(&curves).windows(2) {
                prop_assert!(pair[0].from <= pair[0].to && pair[0].to < pair[1].from);
                prop_assert!(pair[0].to + 1 < pair[1].from || pair[0].best != pair[1].best);
            }
        }

        #[test]
        fn within__serves_the_same_at_the_same_cost(curve in curve(), a in 0_u64..400_000, b in 0_u64..400_000, size in 0_u64..400_000) {
            let cut = curve.clone().within(a, b);
            let expected = if (a..=b).contains(&size) { curve.at(size) } else { None };
            prop_assert_eq!(cut.at(size), expected);
        }
    }

    #[test]
    fn lower__finds_the_size_at_which_two_lines_meet() {
        let curves = [
            Curve::line(0, u64::MAX, cost(100.0, 1.0)),
            Curve::line(0, u64::MAX, cost(600.0, 0.5)),
        ];
        let spans = lower(&curves);
        let found: Vec<_> = spans.iter().map(|s| (s.from, s.best)).collect();
        assert_eq!(found, [(0, 0), (1001, 1)], "1000 costs the same: the first is kept");
    }

    #[test]
    fn lower__of_nothing_is_nothing() {
        assert!(lower(&[]).is_empty());
    }
}
