//! Balanced dimensions of a grid.

use crate::consts::*;
use crate::error::{Error, Result};
use std::collections::HashMap;

/// `MPI_Dims_create`: sets the dimensions that are 0 so that the product of all is `nodes`, in
/// descending order. Among all ways it takes the one whose largest dimension is smallest, then whose
/// second largest is smallest, and so on: no way is closer to a cube in that order.
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

/// `number` as a product of `count` factors in descending order, the lexically smallest.
fn factor(number: i32, count: usize) -> Vec<i32> {
    let mut search = Search {
        divisors: find_divisors(number),
        known: HashMap::new(),
    };
    let mut factors = Vec::with_capacity(count);
    let (mut rest, mut limit) = (number, number);
    for left in (0..count).rev() {
        let choice = search.divisors.clone().into_iter().find(|&factor| {
            factor <= limit && rest % factor == 0 && search.can_split(rest / factor, left, factor)
        });
        let factor = choice.unwrap_or(rest);
        factors.push(factor);
        rest /= factor;
        limit = factor;
    }
    factors
}

struct Search {
    /// Divisors of the whole number, ascending.
    divisors: Vec<i32>,
    known: HashMap<(i32, usize, i32), bool>,
}

impl Search {
    /// Whether `number` is a product of `count` factors of at most `limit` each.
    fn can_split(&mut self, number: i32, count: usize, limit: i32) -> bool {
        if number == 1 {
            return true;
        }
        if count == 0 || limit < 2 || !reaches(number, count, limit) {
            return false;
        }
        if number <= limit {
            return true;
        }
        if let Some(&known) = self.known.get(&(number, count, limit)) {
            return known;
        }
        let mut result = false;
        for index in (0..self.divisors.len()).rev() {
            let factor = self.divisors[index];
            if factor > limit || number % factor != 0 {
                continue;
            }
            // This is the largest factor, so the others must make up for the rest.
            if factor < 2 || !reaches(number, count, factor) {
                break;
            }
            if self.can_split(number / factor, count - 1, factor) {
                result = true;
                break;
            }
        }
        self.known.insert((number, count, limit), result);
        result
    }
}

/// Whether `limit` to the power of `count` is at least `number`.
fn reaches(number: i32, count: usize, limit: i32) -> bool {
    let mut power = 1_i64;
    for _ in 0..count {
        power *= i64::from(limit);
        if power >= i64::from(number) {
            return true;
        }
    }
    false
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
    fn dims__agree_with_a_naive_search() {
        for nodes in 1..=200 {
            for count in 1..=4 {
                let best = all_ways(nodes, count, nodes).into_iter().min().unwrap();
                assert_eq!(
                    create(nodes, &vec![0; count]).unwrap(),
                    best,
                    "{nodes} in {count}"
                );
            }
        }
    }

    #[test]
    fn dims__of_large_numbers_are_found() {
        assert_eq!(create(1 << 30, &[0; 3]).unwrap(), [1024; 3]);
        assert_eq!(create(i32::MAX, &[0; 3]).unwrap(), [i32::MAX, 1, 1]);
        // The numbers below 2^31 with most divisors.
        for nodes in [2_095_133_040, 1_396_755_360, 735_134_400] {
            for count in [2, 3, 4, 5, 7, 10, 16] {
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
        assert_eq!(
            create(12, &[2, 3]).unwrap(),
            [2, 3],
            "they only have to divide"
        );
        assert_eq!(create(24, &[0, 2, 0, 0]).unwrap(), [3, 2, 2, 2]);
        assert!(create(5, &[]).unwrap().is_empty());
        assert_eq!(create(6, &[-1, 0]).unwrap_err().code(), MPI_ERR_DIMS);
        assert_eq!(create(6, &[4, 0]).unwrap_err().code(), MPI_ERR_DIMS);
        assert_eq!(create(6, &[i32::MAX; 5]).unwrap_err().code(), MPI_ERR_DIMS);
        assert_eq!(create(0, &[0]).unwrap_err().code(), MPI_ERR_ARG);
    }
}
