//! Balanced dimensions of a grid.

use crate::common::consts::*;
use crate::common::error::{Error, Result};
use std::collections::HashMap;

/// `MPI_Dims_create`: sets the dimensions that are 0 so that the product of all is `nodes`, in descending order and as
/// close to each other as possible (MPI 5.0, section 8.5.2).
///
/// "Close" follows J. L. Träff and F. D. Lübbe, "Specification Guideline Violations by MPI_Dims_create", EuroMPI 2015:
/// the difference between the largest and the smallest dimension is minimal. Among solutions with that difference, the
/// solution with the largest smallest dimension is taken. If several remain, the second smallest dimensions decide, and
/// so on. MPICH does so too. Errors: `MPI_ERR_DIMS` for a negative dimension, or if they do not divide `nodes`;
/// `MPI_ERR_ARG` for `nodes` below 1.
pub fn create_dims(nodes: i32, dims: &mut [i32]) -> Result {
    if nodes < 1 {
        return Err(Error::new(
            MPI_ERR_ARG,
            format!("the number of nodes is {nodes}: pass 1 or more"),
        ));
    }
    let mut given = 1_i64;
    for &dim in dims.iter() {
        if dim < 0 {
            return Err(Error::new(
                MPI_ERR_DIMS,
                format!(
                    "a dimension is {dim}: pass 0 to let the call choose the dimension, or pass 1 \
                     or more"
                ),
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

/// Maximum number of prime factors of a number below 2^31. Further dimensions are 1.
const MOST_FACTORS: usize = 30;

/// Returns `number` as the most balanced product of `count` factors in descending order.
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

/// Branch and bound over the factors in ascending order. Large factors are tried first, so that the first solution
/// found with a given spread is the best solution with that spread.
struct Search {
    /// Divisors of the whole number, ascending.
    divisors: Vec<i32>,
    /// Best solution so far, ascending.
    best: Vec<i32>,
    /// Difference between the largest and the smallest factor of `best`. A better solution has a smaller difference.
    spread: i64,
    /// Factors chosen so far, ascending.
    path: Vec<i32>,
    /// Limits up to which no solution was found, by (rest, factors left, smallest allowed factor).
    failed: HashMap<(i32, u32, i32), i64>,
}

impl Search {
    /// Searches for better solutions that split `rest` into `left` factors of at least `low`.
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
        // The smallest of the `left` factors is at most the `left`-th root of `rest`.
        let end =
            self.divisors.partition_point(|&divisor| power(divisor.into(), left) <= rest.into());
        for index in (0..end).rev() {
            let factor = self.divisors[index];
            // With this factor or a smaller one, the other factors would have to exceed the limit of a better solution.
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

    /// Returns the largest value that a factor may have in a solution better than `best`. The bound depends on the
    /// smallest factor: the first chosen one or, if none is chosen yet, `next`.
    fn limit(&self, next: i32) -> i64 {
        let smallest = self.path.first().copied().unwrap_or(next);
        i64::from(smallest) + self.spread - 1
    }
}

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
        // Other solutions have a smaller largest dimension, but are worse. In the first case the largest would be 45,
        // with a larger difference. In the second case the largest would be 20, with a smaller smallest dimension.
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
        // The numbers below 2^31 with most divisors, and one with few divisors of very different size.
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
