//! Memory of rank 1, reached by rank 0 of a world.
#![allow(unsafe_code, dead_code)]

use super::common::World;
use fastpath_protocol::rma::{BufferState, ExposedMemory, RemoteKey, RmaError};
use fastpath_transport::sim::Conditions;

/// Memory of rank 1, and the key by which rank 0 reaches it.
pub struct Region {
    pub at: *mut u8,
    pub len: usize,
    pub exposed: ExposedMemory,
    pub key: RemoteKey,
}

/// Allocates memory of rank 1, from the library's arena if `arena` is set, and exposes all bytes from `skip` on.
pub fn region(world: &mut World, len: usize, skip: usize, arena: bool) -> Region {
    let owner = world.rank(1);
    let at = match arena {
        true => owner.allocate_memory(len + skip, 64).unwrap().as_ptr(),
        false => Box::leak(vec![0_u64; (len + skip).div_ceil(8) + 1].into_boxed_slice())
            .as_mut_ptr()
            .cast(),
    };
    let at = at.wrapping_add(skip);
    // SAFETY: the memory stays mapped, because no test frees it.
    let exposed = unsafe { owner.expose_memory(at, len) };
    let key = world.rank(0).unpack_key(1, &exposed.key).unwrap();
    Region { at, len, exposed, key }
}

impl Region {
    pub fn bytes(&self) -> Vec<u8> {
        // SAFETY: the memory stays mapped, and is not written meanwhile.
        (0..self.len).map(|i| unsafe { self.at.add(i).read_volatile() }).collect()
    }

    pub fn fill(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.len);
        // SAFETY: the memory stays mapped, and has `self.len` bytes.
        unsafe { self.at.copy_from(bytes.as_ptr(), self.len) };
    }
}

/// Makes progress until everything from rank 0 to rank 1 is complete.
pub fn flush(world: &mut World) -> Result<(), RmaError> {
    let mut outcome = None;
    let ended = world.run_until(|world| match world.rank(0).progress_flush(1) {
        Ok(false) => false,
        Ok(true) => {
            outcome = Some(Ok(()));
            true
        }
        Err(error) => {
            outcome = Some(Err(error));
            true
        }
    });
    assert!(ended, "a flush never ends");
    outcome.unwrap()
}

pub fn put(
    world: &mut World, key: &mut RemoteKey, offset: u64, bytes: &[u8],
) -> Result<BufferState, RmaError> {
    // SAFETY: every caller keeps the bytes until it has flushed.
    unsafe { world.rank(0).put_nbi(key, offset, bytes.as_ptr(), bytes.len()) }
}

pub fn get(
    world: &mut World, key: &mut RemoteKey, offset: u64, to: &mut [u8],
) -> Result<BufferState, RmaError> {
    // SAFETY: every caller keeps the bytes until it has flushed.
    unsafe { world.rank(0).get_nbi(key, offset, to.as_mut_ptr(), to.len()) }
}

/// Returns the conditions of a network that loses, duplicates, delays and refuses messages.
pub fn bad_network(seed: u64) -> Conditions {
    Conditions {
        seed,
        delay_ns: 100..=20_000,
        refuse: 0.2,
        wake: 0.1,
        reliable: false,
        drop: 0.1,
        double: 0.1,
        slots: 8,
        wireup: true,
        ..Conditions::default()
    }
}

pub fn with_fragments(mut world: World, fragment: u64) -> World {
    for worker in &mut world.workers {
        worker.planner.thresholds.fragment = fragment;
    }
    world
}
