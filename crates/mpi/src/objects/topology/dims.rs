//! Balanced dimensions of a grid.

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use std::collections::HashMap;

/// `MPI_Dims_create`: sets the dimensions that are 0 so that the product of all is `nodes`, in
/// descending order and as close to each other as possible (MPI 5.0, section 8.5.2).
///
/// "Close" is the reading of J. L. Träff and F. D. Lübbe, "Specification Guideline Violations by
/// MPI_Dims_create", EuroMPI 2015: the difference between the largest and the smallest dimension is
/// as small as it can be. Of several ways with that difference, it takes the one with the largest
/// smallest dimension, then with the largest second smallest, and so on. MPICH gives the same.
///
/// # Errors
/// `MPI_ERR_DIMS` for a negative dimension, and where the given dimensions do not divide `nodes`.
/// `MPI_ERR_ARG` for a number of nodes below 1.
pub fn create_dims(nodes: i32, dims: &mut [i32]) -> Result {
    if nodes < 1 {
        return Err(Error::new(
            MPI_ERR_ARG,
            format!("the number of nodes is {nodes}: it must be 1 or more"),
        ));
    }
    let mut given = 1_i64;
    for &dim in dims.iter() {
        if dim < 0 {
            return Err(Error::new(
                MPI_ERR_DIMS,
                format!("a dimension is {dim}: give 0 to have it found"),
            ));
        }
        given = given.saturating_mul(i64::from(dim.max(1)));
    }
    if i64::from(nodes) % given != 0 {
        let message = format!(
            "the product of the given dimensions, {given}, does not divide the {nodes} nodes"
        );
        return Err(Error::new(MPI_ERR_DIMS, message));
    }
    let free = dims.iter().filter(|&&dim| dim == 0).count();
    if free > 0 {
        let mut found = factor(nodes / given as i32, free).into_iter();
        for dim in dims.iter_mut().filter(|dim| **dim == 0) {
            *dim = found.next().unwrap_or(1);
        }
    }
    Ok(())
}

/// Most prime factors of a number below 2^31: further dimensions are 1.
const MOST_FACTORS: usize = 30;

/// `number` as a product of `count` factors in descending order, the most balanced one.
fn factor(number: i32, count: usize) -> Vec<i32> {
    let free = count.min(MOST_FACTORS);
    let mut search = Search {
        divisors: find_divisors(number),
        best: Vec::new(),
        spread: i64::from(number),
        path: Vec::with_capacity(free),
        failed: HashMap::new(),
    };
    search.split(number, free as u32, 1);
    let mut factors = search.best;
    factors.reverse();
    factors.resize(count, 1);
    factors
}

/// Branch and bound over the factors in ascending order. It tries large factors first, so that the
/// first way found with a certain spread is the wanted one among those with that spread.
struct Search {
    /// Divisors of the whole number, ascending.
    divisors: Vec<i32>,
    /// The best way so far, ascending.
    best: Vec<i32>,
    /// The difference between its largest and its smallest factor: a better way has a smaller one.
    spread: i64,
    /// Factors chosen so far, ascending.
    path: Vec<i32>,
    /// For (rest, factors left, smallest one allowed): the limit up to which no way was found.
    failed: HashMap<(i32, u32, i32), i64>,
}

impl Search {
    /// Searches for better ways to split `rest` into `left` factors of at least `low`.
    fn split(&mut self, rest: i32, left: u32, low: i32) {
        if left == 1 {
            if i64::from(rest) <= self.limit(rest) {
                self.path.push(rest);
                self.spread = i64::from(rest - self.path[0]);
                self.best.clone_from(&self.path);
                self.path.pop();
            }
            return;
        }
        let state = (rest, left, low);
        let limit = self.limit(rest);
        if self.failed.get(&state).is_some_and(|failed| *failed >= limit) {
            return;
        }
        // The smallest factor is at most the root of `rest`.
        let end =
            self.divisors.partition_point(|&divisor| power(divisor.into(), left) <= rest.into());
        for index in (0..end).rev() {
            let factor = self.divisors[index];
            // With a smaller one the others would have to be above the limit.
            if factor < low || power(self.limit(factor), left - 1) < i64::from(rest / factor) {
                break;
            }
            if rest % factor == 0 {
                self.path.push(factor);
                self.split(rest / factor, left - 1, factor);
                self.path.pop();
            }
        }
        if !self.path.is_empty() {
            let limit = self.limit(rest);
            self.failed.insert(state, limit);
        }
    }

    /// What the largest factor may be in a better way. Where no factor is chosen yet, `next` is.
    fn limit(&self, next: i32) -> i64 {
        let smallest = self.path.first().copied().unwrap_or(next);
        i64::from(smallest) + self.spread - 1
    }
}

/// `base` to the power of `exponent`, or the largest number where that is larger.
fn power(base: i64, exponent: u32) -> i64 {
    base.saturating_pow(exponent)
}

fn find_divisors(number: i32) -> Vec<i32> {
    let number = i64::from(number);
    let mut low = Vec::new();
    let mut high = Vec::new();
    let mut divisor = 1_i64;
    while divisor * divisor <= number {
        if number % divisor == 0 {
            low.push(divisor as i32);
            if divisor * divisor != number {
                high.push((number / divisor) as i32);
            }
        }
        divisor += 1;
    }
    low.extend(high.into_iter().rev());
    low
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn create(nodes: i32, dims: &[i32]) -> Result<Vec<i32>> {
        let mut dims = dims.to_vec();
        create_dims(nodes, &mut dims).map(|()| dims)
    }

    /// All ways to write `number` as `count` factors in descending order, the naive way.
    fn all_ways(number: i32, count: usize, limit: i32) -> Vec<Vec<i32>> {
        if count == 0 {
            return if number == 1 { vec![vec![]] } else { vec![] };
        }
        let mut ways = Vec::new();
        for factor in (1..=limit.min(number)).filter(|factor| number % factor == 0) {
            for mut rest in all_ways(number / factor, count - 1, factor) {
                rest.insert(0, factor);
                ways.push(rest);
            }
        }
        ways
    }

    #[test]
    fn dims__of_the_standards_examples() {
        assert_eq!(create(6, &[0, 0]).unwrap(), [3, 2]);
        assert_eq!(create(7, &[0, 0]).unwrap(), [7, 1]);
        assert_eq!(create(6, &[0, 3, 0]).unwrap(), [2, 3, 1]);
        assert_eq!(create(7, &[0, 3, 0]).unwrap_err().code(), MPI_ERR_DIMS);
    }

    #[test]
    fn dims__are_as_close_to_each_other_as_possible() {
        // A smaller largest dimension, 45 and 20, goes with a larger difference or a smaller smallest one.
        assert_eq!(create(34_425, &[0; 3]).unwrap(), [51, 27, 25]);
        assert_eq!(create(5040, &[0; 3]).unwrap(), [21, 16, 15]);
        assert_eq!(create(5040 * 7, &[0, 7, 0, 0]).unwrap(), [21, 7, 16, 15]);
    }

    #[test]
    fn dims__agree_with_a_naive_search() {
        for (most, count) in [(3000, 1), (3000, 2), (3000, 3), (1000, 4), (400, 5), (130, 7)] {
            for nodes in 1..=most {
                let rank = |way: &Vec<i32>| {
                    let ascending: Vec<i32> = way.iter().rev().map(|dim| -dim).collect();
                    (way[0] - way[count - 1], ascending)
                };
                let best = all_ways(nodes, count, nodes).into_iter().min_by_key(rank).unwrap();
                let dims = create(nodes, &vec![0; count]).unwrap();
                assert_eq!(dims, best, "{nodes} in {count}");
            }
        }
    }

    #[test]
    fn dims__of_large_numbers_are_found() {
        assert_eq!(create(1 << 30, &[0; 3]).unwrap(), [1024; 3]);
        assert_eq!(create(i32::MAX, &[0; 3]).unwrap(), [i32::MAX, 1, 1]);
        assert_eq!(create(1 << 30, &[0; 40]).unwrap()[28..32], [2, 2, 1, 1]);
        let many = create(i32::MAX, &vec![0; 1_000_000]).unwrap();
        assert_eq!(many[..2], [i32::MAX, 1]);
        // The numbers below 2^31 with most divisors, and one with few of very different size.
        for nodes in [2_095_133_040, 1_396_755_360, 735_134_400, 2_147_483_646] {
            for count in 2..=32 {
                let dims = create(nodes, &vec![0; count]).unwrap();
                assert_eq!(
                    dims.iter().map(|&dim| i64::from(dim)).product::<i64>(),
                    i64::from(nodes)
                );
                assert!(dims.is_sorted_by(|a, b| a >= b));
            }
        }
    }

    #[test]
    fn dims__given_are_kept_and_checked() {
        assert_eq!(create(12, &[2, 3]).unwrap(), [2, 3], "they only have to divide");
        assert_eq!(create(24, &[0, 2, 0, 0]).unwrap(), [3, 2, 2, 2]);
        assert!(create(5, &[]).unwrap().is_empty());
        assert_eq!(create(6, &[-1, 0]).unwrap_err().code(), MPI_ERR_DIMS);
        assert_eq!(create(6, &[4, 0]).unwrap_err().code(), MPI_ERR_DIMS);
        assert_eq!(create(6, &[i32::MAX; 5]).unwrap_err().code(), MPI_ERR_DIMS);
        assert_eq!(create(0, &[0]).unwrap_err().code(), MPI_ERR_ARG);
    }
}
