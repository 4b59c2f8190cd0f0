//! Logarithmic axes and axes of shares: positions of values, and marks.

/// A logarithmic axis, or a linear axis of shares, drawn from `start` to `end`. If the axis has a position for zero,
/// that position is `start`, and the logarithm begins after a gap.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    low: f64,
    high: f64,
    start: f64,
    end: f64,
    gap: f64,
    is_even: bool,
}

impl Axis {
    /// Creates a linear axis of shares, from 0 to 100 %.
    pub fn of_shares(start: f64, end: f64) -> Axis {
        Axis { low: 0.0, high: 100.0, start, end, gap: 0.0, is_even: true }
    }

    /// Creates an axis for all values, with a position for zero if one of them is zero.
    pub fn around(values: impl IntoIterator<Item = f64>, start: f64, end: f64) -> Axis {
        let (mut low, mut high, mut zero) = (f64::INFINITY, 0f64, false);
        for value in values {
            if value > 0.0 && value.is_finite() {
                low = low.min(value);
                high = high.max(value);
            } else {
                zero = true;
            }
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        if low == high {
            (low, high) = (low / 2.0, high * 2.0);
        }
        let gap = if zero { (end - start).signum() * 26.0 } else { 0.0 };
        Axis { low, high, start, end, gap, is_even: false }
    }

    /// Extends the axis at both ends by shares of its length. An axis of shares stays unchanged.
    pub fn padded(self, below: f64, above: f64) -> Axis {
        if self.is_even {
            return self;
        }
        let span = self.high / self.low;
        Axis {
            low: self.low / span.powf(below).max(1.15),
            high: self.high * span.powf(above).max(1.15),
            ..self
        }
    }

    /// Returns the position of a value. On a logarithmic axis, values of zero and less are at the start.
    pub fn place(&self, value: f64) -> f64 {
        if self.is_even {
            let share = (value - self.low) / (self.high - self.low);
            return self.start + (self.end - self.start) * share;
        }
        if value <= 0.0 {
            return self.start;
        }
        let from = self.start + self.gap;
        let share = (value / self.low).ln() / (self.high / self.low).ln();
        from + (self.end - from) * share
    }

    fn holds(&self, value: f64) -> bool {
        (self.low * 0.999..=self.high * 1.001).contains(&value)
    }

    /// Marks at decades, with 2 and 5 between them if there are few; at quarters on an axis of shares.
    pub fn decimal_marks(&self) -> Vec<f64> {
        if self.is_even {
            return vec![0.0, 25.0, 50.0, 75.0, 100.0];
        }
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let decades = (self.high / self.low).log10();
        let within: &[f64] = if decades <= 2.2 {
            &[1.0, 2.0, 5.0]
        } else if decades <= 4.0 {
            &[1.0, 3.0]
        } else {
            &[1.0]
        };
        let all = (first..=last).flat_map(|p| within.iter().map(move |m| m * 10f64.powi(p)));
        let marks: Vec<f64> = all.filter(|v| self.holds(*v)).collect();
        if marks.len() >= 2 { marks } else { vec![self.low, self.high] }
    }

    /// Marks at powers of two, at least `room` apart for their labels, and at zero if zero has a position.
    pub fn binary_marks(&self, room: f64) -> Vec<f64> {
        let (first, last) = (self.low.log2().ceil() as i32, self.high.log2().floor() as i32);
        let each = (self.place(2.0 * self.low) - self.place(self.low)).abs();
        let every = ((room / each.max(0.01)).ceil() as i32).max(1);
        let zero = (self.gap != 0.0).then_some(0.0);
        let powers = (first..=last).filter(|p| (last - p) % every == 0);
        let far = |v: &f64| self.gap == 0.0 || (self.place(*v) - self.start).abs() >= room * 0.75;
        zero.into_iter().chain(powers.map(|p| 2f64.powi(p)).filter(far)).collect()
    }
}

/// Moves positions apart until each is `room` from the next, within `[low, high]`; keeps the order.
pub fn spread(places: &[f64], room: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by(|&a, &b| places[a].total_cmp(&places[b]));
    let mut moved = places.to_vec();
    let mut least = low;
    for &i in &order {
        moved[i] = moved[i].max(least);
        least = moved[i] + room;
    }
    let mut most = high;
    for &i in order.iter().rev() {
        moved[i] = moved[i].min(most);
        most = moved[i] - room;
    }
    moved
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn axis__has_a_place_for_zero_and_for_equals() {
        let axis = Axis::around([0.0, 8.0, 1024.0], 50.0, 350.0);
        assert_eq!((axis.place(0.0), axis.place(8.0), axis.place(1024.0)), (50.0, 76.0, 350.0));
        let axis = Axis::around([5.0, 5.0], 0.0, 100.0);
        assert!((axis.place(5.0) - 50.0).abs() < 1e-9);
        assert!(Axis::around([], 0.0, 100.0).place(1.0).is_finite());
    }

    #[test]
    fn shares__lie_evenly_and_nothing_is_in_its_place() {
        let axis = Axis::of_shares(300.0, 20.0).padded(0.06, 0.03);
        assert_eq!([0.0, 50.0, 100.0].map(|v| axis.place(v)), [300.0, 160.0, 20.0]);
        assert_eq!(axis.decimal_marks().len(), 5);
    }

    #[test]
    fn marks__are_apart() {
        for high in [2.0, 64.0, 4096.0, 4e6, 1e12] {
            let axis = Axis::around([0.0, 1.0, high], 50.0, 350.0);
            let places: Vec<f64> = axis.binary_marks(30.0).iter().map(|v| axis.place(*v)).collect();
            assert!(places.windows(2).all(|w| w[1] - w[0] >= 20.0), "{high}: {places:?}");
            assert!(axis.decimal_marks().len() >= 2);
        }
    }

    #[test]
    fn spread__parts_what_falls_together() {
        let moved = spread(&[100.0, 100.0, 101.0, 10.0], 13.0, 0.0, 110.0);
        let mut sorted = moved.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|w| w[1] - w[0] >= 12.99) && sorted[3] <= 110.0, "{moved:?}");
        assert_eq!(moved[3], 10.0);
    }
}
