//! Cartesian grids: ranks in row-major order of their coordinates.

use crate::common::consts::*;
use crate::common::error::{Error, Result};

/// Cartesian grid. Without dimensions it has one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cart {
    dims: Vec<i32>,
    periods: Vec<bool>,
}

impl Cart {
    /// Makes a grid of `dims`, with at most `available` processes. `periods` tells whether each dimension is periodic.
    /// Errors: `MPI_ERR_DIMS` for a dimension below 1 or too many processes.
    pub fn new(dims: &[i32], periods: &[bool], available: u32) -> Result<Cart> {
        let mut size = 1_u64;
        for &dim in dims {
            if dim <= 0 {
                let message = format!(
                    "a dimension is {dim}: pass 1 or more, or let MPI_Dims_create choose the \
                     dimensions"
                );
                return Err(Error::new(MPI_ERR_DIMS, message));
            }
            size = size.saturating_mul(dim as u64);
        }
        if size > u64::from(available) {
            let message =
                format!("the grid has {size} processes, but the communicator has only {available}");
            return Err(Error::new(MPI_ERR_DIMS, message));
        }
        Ok(Cart { dims: dims.to_vec(), periods: periods.to_vec() })
    }

    /// Extent of each dimension.
    pub fn dims(&self) -> &[i32] {
        &self.dims
    }

    /// Returns whether each dimension is periodic.
    pub fn periods(&self) -> &[bool] {
        &self.periods
    }

    /// Number of processes.
    pub fn size(&self) -> u32 {
        self.dims.iter().map(|&dim| dim as u32).product()
    }

    /// Returns the coordinates of a rank of the grid.
    pub fn coords(&self, rank: u32) -> Vec<i32> {
        let mut rest = rank;
        let mut coords = vec![0; self.dims.len()];
        for (coord, &dim) in coords.iter_mut().zip(&self.dims).rev() {
            *coord = (rest % dim as u32) as i32;
            rest /= dim as u32;
        }
        coords
    }

    /// Returns the rank at coordinates, one for each dimension. In a periodic dimension, coordinates wrap around.
    /// Errors: `MPI_ERR_ARG` for coordinates beyond the extent of a dimension that is not periodic.
    pub fn rank(&self, coords: &[i32]) -> Result<u32> {
        let mut rank = 0;
        for ((&coord, &dim), &periodic) in coords.iter().zip(&self.dims).zip(&self.periods) {
            let inside = if periodic { coord.rem_euclid(dim) } else { coord };
            if !(0..dim).contains(&inside) {
                let message = format!(
                    "coordinate {coord} is not on the grid: the dimension has coordinates 0 to {} \
                     and is not periodic",
                    dim - 1
                );
                return Err(Error::new(MPI_ERR_ARG, message));
            }
            rank = rank * dim as u32 + inside as u32;
        }
        Ok(rank)
    }

    /// Returns source and destination of `rank` for a shift by `steps`; `MPI_PROC_NULL` beyond the edge. Errors:
    /// `MPI_ERR_DIMS` if the grid has no dimension `direction`.
    pub fn shift(&self, rank: u32, direction: i32, steps: i32) -> Result<(i32, i32)> {
        let count = self.dims.len();
        let axis =
            usize::try_from(direction).ok().filter(|&axis| axis < count).ok_or_else(|| {
                Error::new(
                    MPI_ERR_DIMS,
                    format!("there is no dimension {direction}: the grid has {count} dimensions"),
                )
                .with_advice(Some("pass a direction from 0 to the number of dimensions less 1"))
            })?;
        Ok((self.step(rank, axis, -i64::from(steps)), self.step(rank, axis, i64::from(steps))))
    }

    fn step(&self, rank: u32, axis: usize, steps: i64) -> i32 {
        let mut coords = self.coords(rank);
        let dim = i64::from(self.dims[axis]);
        let target = i64::from(coords[axis]) + steps;
        let inside = if self.periods[axis] { target.rem_euclid(dim) } else { target };
        if !(0..dim).contains(&inside) {
            return MPI_PROC_NULL;
        }
        coords[axis] = inside as i32;
        self.rank(&coords).map_or(MPI_PROC_NULL, |rank| rank as i32)
    }

    /// Returns the lower and the upper neighbour in each dimension.
    pub fn neighbors(&self, rank: u32) -> Vec<i32> {
        (0..self.dims.len())
            .flat_map(|axis| [-1, 1].map(|step| self.step(rank, axis, step)))
            .collect()
    }

    /// Returns the smaller grid of the dimensions that `remain` selects, and the ranks that its processes have in
    /// `self`, in the order of the smaller grid. In all other dimensions these processes have the coordinates of
    /// `rank`.
    pub(crate) fn slice(&self, rank: u32, remain: &[bool]) -> (Cart, Vec<i32>) {
        let kept: Vec<usize> = (0..self.dims.len()).filter(|&axis| remain[axis]).collect();
        let part = Cart {
            dims: kept.iter().map(|&axis| self.dims[axis]).collect(),
            periods: kept.iter().map(|&axis| self.periods[axis]).collect(),
        };
        let mut coords = self.coords(rank);
        let ranks = (0..part.size()).map(|other| {
            for (&axis, coord) in kept.iter().zip(part.coords(other)) {
                coords[axis] = coord;
            }
            self.rank(&coords).map_or(MPI_PROC_NULL, |rank| rank as i32)
        });
        let ranks = ranks.collect();
        (part, ranks)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn cart(dims: &[i32], periods: &[bool]) -> Cart {
        Cart::new(dims, periods, 1000).unwrap()
    }

    fn code<T: std::fmt::Debug>(result: Result<T>) -> i32 {
        result.unwrap_err().code()
    }

    #[test]
    fn ranks__are_in_row_major_order() {
        let grid = cart(&[2, 3, 4], &[false; 3]);
        assert_eq!(grid.coords(0), [0, 0, 0]);
        assert_eq!(grid.coords(5), [0, 1, 1]);
        assert_eq!(grid.coords(23), [1, 2, 3]);
        for rank in 0..24 {
            assert_eq!(grid.rank(&grid.coords(rank)).unwrap(), rank);
        }
        let point = cart(&[], &[]);
        assert_eq!((point.size(), point.rank(&[]).unwrap(), point.coords(0)), (1, 0, vec![]));
    }

    #[test]
    fn rank__wraps_in_periodic_dimensions_only() {
        let grid = cart(&[4, 3], &[true, false]);
        assert_eq!(grid.rank(&[-1, 2]).unwrap(), grid.rank(&[3, 2]).unwrap());
        assert_eq!(grid.rank(&[i32::MIN, 0]).unwrap(), 0);
        assert_eq!(code(grid.rank(&[0, 3])), MPI_ERR_ARG);
        assert_eq!(code(grid.rank(&[0, -1])), MPI_ERR_ARG);
    }

    #[test]
    fn shift__ends_at_the_edge_or_wraps() {
        let grid = cart(&[3, 4], &[false, true]);
        let rank = grid.rank(&[0, 3]).unwrap();
        assert_eq!(
            grid.shift(rank, 0, 1).unwrap(),
            (MPI_PROC_NULL, grid.rank(&[1, 3]).unwrap() as i32)
        );
        assert_eq!(grid.shift(rank, 0, -3).unwrap(), (MPI_PROC_NULL, MPI_PROC_NULL));
        let expected = (grid.rank(&[0, 2]).unwrap() as i32, grid.rank(&[0, 0]).unwrap() as i32);
        assert_eq!(grid.shift(rank, 1, 1).unwrap(), expected);
        assert_eq!(grid.shift(rank, 1, 0).unwrap(), (rank as i32, rank as i32));
        assert_eq!(grid.shift(rank, 1, i32::MIN).unwrap(), (rank as i32, rank as i32));
        assert_eq!(code(grid.shift(rank, 2, 1)), MPI_ERR_DIMS);
        assert_eq!(code(grid.shift(rank, -1, 1)), MPI_ERR_DIMS);
        assert_eq!(grid.neighbors(rank), [MPI_PROC_NULL, 7, 2, 0]);
    }

    #[test]
    fn new__checks_dimensions_and_size() {
        assert_eq!(code(Cart::new(&[2, 0], &[false; 2], 8)), MPI_ERR_DIMS);
        assert_eq!(code(Cart::new(&[-2, -2], &[false; 2], 8)), MPI_ERR_DIMS);
        assert_eq!(code(Cart::new(&[3, 3], &[false; 2], 8)), MPI_ERR_DIMS);
        assert_eq!(code(Cart::new(&[i32::MAX; 3], &[false; 3], u32::MAX)), MPI_ERR_DIMS);
        assert_eq!(Cart::new(&[2, 3], &[false; 2], 8).unwrap().size(), 6);
    }

    #[test]
    fn slice__keeps_what_remains() {
        let grid = cart(&[2, 3, 4], &[true, false, true]);
        let (part, ranks) = grid.slice(grid.rank(&[1, 2, 3]).unwrap(), &[true, false, true]);
        assert_eq!(part, cart(&[2, 4], &[true, true]));
        let expected: Vec<i32> = (0..2)
            .flat_map(|i| (0..4).map(move |k| [i, 2, k]))
            .map(|coords| grid.rank(&coords).unwrap() as i32)
            .collect();
        assert_eq!(ranks, expected);
        let (part, ranks) = grid.slice(7, &[false; 3]);
        assert_eq!((part, ranks), (cart(&[], &[]), vec![7]));
    }
}
