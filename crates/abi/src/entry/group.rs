//! Groups (MPI 5.0, section 7.3).
//!
//! **ARGUMENTS.** Arguments are valid as [`super`] states, and as the function's own contract states.
#![allow(unsafe_code)]

use super::{load, read_array, store};
use core::ffi::c_int;
use fastpath_mpi::common::consts::{MPI_ERR_ARG, MPI_GROUP_NULL};
use fastpath_mpi::objects::group::{Group, free_group, publish_group};
use fastpath_mpi::{Error, Process, Result};
use std::rc::Rc;

pub fn group_size(p: &Process, group: usize) -> Result<c_int> {
    Ok(p.group(group)?.size() as c_int)
}

pub fn group_rank(p: &Process, group: usize) -> Result<c_int> {
    Ok(p.group(group)?.rank_or_undefined())
}

pub fn group_compare(p: &Process, group1: usize, group2: usize) -> Result<c_int> {
    Ok(p.group(group1)?.compare(&*p.group(group2)?))
}

pub unsafe fn group_translate_ranks(
    p: &Process, group1: usize, n: c_int, ranks1: *const c_int, group2: usize, ranks2: *mut c_int,
) -> Result<()> {
    let (group1, group2) = (p.group(group1)?, p.group(group2)?);
    // SAFETY: ARGUMENTS.
    let translated = group1.translate(unsafe { read_array(ranks1, n) }?, &group2)?;
    if ranks2.is_null() && n > 0 {
        return Err(Error::new(
            MPI_ERR_ARG,
            "ranks2 is NULL: pass an array for the translated ranks",
        ));
    }
    for (index, rank) in translated.into_iter().enumerate() {
        // SAFETY: `ranks2` is not null, and so has `n` elements by this function's contract.
        unsafe { ranks2.add(index).write(rank) };
    }
    Ok(())
}

pub fn group_union(p: &Process, group1: usize, group2: usize) -> Result<usize> {
    let result = p.group(group1)?.union(&*p.group(group2)?);
    insert_group(p, result)
}

pub fn group_intersection(p: &Process, group1: usize, group2: usize) -> Result<usize> {
    let result = p.group(group1)?.intersection(&*p.group(group2)?);
    insert_group(p, result)
}

pub fn group_difference(p: &Process, group1: usize, group2: usize) -> Result<usize> {
    let result = p.group(group1)?.difference(&*p.group(group2)?);
    insert_group(p, result)
}

pub unsafe fn group_incl(
    p: &Process, group: usize, n: c_int, ranks: *const c_int,
) -> Result<usize> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let result = p.group(group)?.include(read_array(ranks, n)?)?;
        insert_group(p, result)
    }
}

pub unsafe fn group_excl(
    p: &Process, group: usize, n: c_int, ranks: *const c_int,
) -> Result<usize> {
    // SAFETY: ARGUMENTS.
    unsafe {
        let result = p.group(group)?.exclude(read_array(ranks, n)?)?;
        insert_group(p, result)
    }
}

pub unsafe fn group_range_incl(
    p: &Process, group: usize, n: c_int, ranges: *mut [c_int; 3], newgroup: *mut usize,
) -> Result<()> {
    let group = p.group(group)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let ranks = group.expand_ranges(read_array(ranges, n)?)?;
        store(newgroup, insert_group(p, group.include(&ranks)?)?)
    }
}

pub unsafe fn group_range_excl(
    p: &Process, group: usize, n: c_int, ranges: *mut [c_int; 3], newgroup: *mut usize,
) -> Result<()> {
    let group = p.group(group)?;
    // SAFETY: ARGUMENTS.
    unsafe {
        let ranks = group.expand_ranges(read_array(ranges, n)?)?;
        store(newgroup, insert_group(p, group.exclude(&ranks)?)?)
    }
}

pub unsafe fn group_free(p: &Process, group: *mut usize) -> Result<()> {
    // SAFETY: ARGUMENTS.
    unsafe {
        free_group(&p.groups, load(group)?)?;
        store(group, MPI_GROUP_NULL)
    }
}

pub(crate) fn insert_group(p: &Process, group: impl Into<Rc<Group>>) -> Result<usize> {
    publish_group(&p.groups, group.into())
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use core::ptr::{null, null_mut};
    use fastpath_mpi::common::consts::{MPI_ERR_GROUP, MPI_ERR_RANK, MPI_GROUP_EMPTY};
    use fastpath_mpi::objects::group::register_predefined;

    fn process() -> (Process, usize) {
        let p = Process::new();
        register_predefined(&p.groups);
        let group = publish_group(&p.groups, Rc::new(Group::new(vec![0, 1, 2, 3], 1))).unwrap();
        (p, group)
    }

    #[test]
    fn calls__take_and_give_c_arrays() {
        let (p, group) = process();
        let ranks = [3, 1];
        // SAFETY: all pointers point to variables or to arrays of the passed size.
        unsafe {
            let mut made = group_incl(&p, group, 2, ranks.as_ptr()).unwrap();
            let mut translated = [9; 2];
            group_translate_ranks(&p, made, 2, [1, 0].as_ptr(), group, translated.as_mut_ptr())
                .unwrap();
            assert_eq!(translated, [1, 3]);
            assert_eq!(group_rank(&p, made).unwrap(), 1);
            let mut empty = 0;
            group_range_excl(&p, group, 1, [[0, 3, 1]].as_mut_ptr(), &mut empty).unwrap();
            assert_eq!(empty, MPI_GROUP_EMPTY);
            group_free(&p, &mut made).unwrap();
            assert_eq!(made, MPI_GROUP_NULL);
        }
    }

    #[test]
    fn mistakes__have_their_class() {
        let (p, group) = process();
        // SAFETY: all pointers are null or point to an array of the passed size.
        unsafe {
            let code = |result: Result<usize>| result.unwrap_err().code();
            assert_eq!(code(group_incl(&p, group, -1, null())), MPI_ERR_ARG);
            assert_eq!(code(group_incl(&p, group, 1, null())), MPI_ERR_ARG);
            assert_eq!(code(group_incl(&p, group, 1, [4].as_ptr())), MPI_ERR_RANK);
            assert_eq!(group_incl(&p, group, 0, null()).unwrap(), MPI_GROUP_EMPTY);
            let refused = group_free(&p, null_mut()).unwrap_err();
            assert_eq!(refused.code(), MPI_ERR_ARG);
        }
        let refused = group_size(&p, MPI_GROUP_NULL).unwrap_err();
        assert_eq!(refused.code(), MPI_ERR_GROUP);
    }
}
