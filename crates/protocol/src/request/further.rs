//! Requests of further workers: their numbers are the last ones of all, so that a handle says whose it is.

use super::{CAPACITY, Request, RequestPool, reserved_bytes};
use fastpath_base::memory;
use fastpath_bootstrap::segment::FURTHER;

/// Requests of a further worker ([`RequestPool::further`]), a power of two.
pub(super) const CAPACITY_EACH: u32 = 1 << 17;

/// The first index of a further worker's requests; those of all of them are the last that there could be.
const fn first_of(place: u32) -> u32 {
    CAPACITY - (FURTHER as u32 + 1 - place) * CAPACITY_EACH
}

/// Which of a process's workers a request belongs to, by its id or handle, where there are further ones.
#[inline]
pub fn place_of(id: u32) -> u32 {
    match (id & (CAPACITY - 1)).checked_sub(first_of(1)) {
        Some(behind) => 1 + behind / CAPACITY_EACH,
        None => 0,
    }
}

impl RequestPool {
    /// The pool of a further worker at `place`, from 1 to [`FURTHER`]: its ids and handles differ from those of all
    /// others. Reserves address space alone.
    ///
    /// # Errors
    /// There is no address space for it.
    pub fn further(place: u32) -> std::io::Result<Self> {
        let (first, bytes) = (first_of(place), reserved_bytes(CAPACITY_EACH));
        let start: *mut Request = memory::reserve(bytes)?.cast();
        Ok(RequestPool {
            base: start.wrapping_sub(first as usize),
            free: std::ptr::null_mut(),
            first,
            end: first + CAPACITY_EACH,
            fresh: first,
            mask: CAPACITY - 1,
        })
    }

    /// Leaves the last indices to further workers; false where address space is limited.
    pub fn share(&mut self) -> bool {
        let whole = !self.is_limited();
        if whole {
            self.end = first_of(1);
        }
        whole
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::super::RequestKind;
    use super::*;

    #[test]
    fn further_pools__have_handles_of_their_own() {
        let mut pools = vec![RequestPool::new().expect("address space")];
        assert!(pools[0].share());
        for place in 1..=FURTHER as u32 {
            pools.push(RequestPool::further(place).expect("address space"));
        }
        for place in 0..pools.len() {
            let id = pools[place].allocate(RequestKind::Send).expect("a request");
            let handle = pools[place].get(id).handle;
            assert_eq!((place_of(id), place_of(handle)), (place as u32, place as u32));
            assert_eq!(pools[place].find(handle.into()), Some(id));
            assert_eq!(pools[0].find(handle.into()), (place == 0).then_some(id));
        }
        let mut last = pools.pop().expect("a pool");
        let got = std::iter::from_fn(|| last.allocate(RequestKind::Recv)).last();
        assert_eq!((got, last.has_room()), (Some(CAPACITY - 1), false));
    }
}
