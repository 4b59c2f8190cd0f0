//! The software way as it travels: what the active messages carry, and where answers belong.
//!
//! | id | header.imm | header.key | payload |
//! |---|---|---|---|
//! | `REMOTE_PUT` | 0 | 0 | [`Place`], then the bytes |
//! | `REMOTE_GET` | bytes wanted | token | [`Place`] |
//! | `REMOTE_ATOMIC` | [`ADD`] or [`SWAP`] | token | [`Change`] |
//! | `REMOTE_DATA` | 0, or 1 for refused | token | the bytes, or what was there before |
//! | `REMOTE_FLUSH` | 0 | number of puts so far | none |
//! | `REMOTE_FLUSHED` | puts refused since the last answer | the same number | none: those puts have been carried out |

/// `REMOTE_ATOMIC`: add.
pub(super) const ADD: u32 = 0;
/// `REMOTE_ATOMIC`: compare and swap.
pub(super) const SWAP: u32 = 1;

/// Where in the owner's memory.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub region: u64,
    pub offset: u64,
}

/// What an atomic does.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    pub place: Place,
    pub operand: u64,
    pub compare: u64,
}

const _: () = assert!(size_of::<Place>() == 16 && size_of::<Change>() == 32);

/// Where an answer belongs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Landing {
    pub peer: u32,
    pub to: *mut u8,
    pub len: usize,
}

/// Places for answers under way, by token: index, and above it how often the place has been used.
#[derive(Default)]
pub(crate) struct Landings {
    places: Vec<(u32, Option<Landing>)>,
    free: Vec<u32>,
}

impl Landings {
    pub(super) fn insert(&mut self, landing: Landing) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[index as usize];
        *place = (place.0.wrapping_add(1), Some(landing));
        u64::from(place.0) << 32 | u64::from(index)
    }

    /// Ends what a token of `peer` names.
    pub(super) fn remove(&mut self, token: u64, peer: u32) -> Option<Landing> {
        let index = token as u32;
        let (used, place) = self.places.get_mut(index as usize)?;
        let right = |landing: &mut Landing| u64::from(*used) == token >> 32 && landing.peer == peer;
        let landing = place.take_if(right)?;
        self.free.push(index);
        Some(landing)
    }

    /// Ends all of a peer's.
    pub fn remove_all(&mut self, peer: u32) {
        for (place, index) in self.places.iter_mut().zip(0..) {
            if place.1.take_if(|landing| landing.peer == peer).is_some() {
                self.free.push(index);
            }
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn landing__is_found_once_by_its_peer_alone() {
        let mut landings = Landings::default();
        let landing = |peer| Landing {
            peer,
            to: std::ptr::null_mut(),
            len: 8,
        };
        let [first, second] = [1, 2].map(|peer| landings.insert(landing(peer)));
        assert!(landings.remove(first, 2).is_none() && landings.remove(second, 1).is_none());
        assert_eq!(landings.remove(first, 1).map(|l| l.peer), Some(1));
        assert!(landings.remove(first, 1).is_none());
        let third = landings.insert(landing(1));
        assert!(third != first && landings.remove(first, 1).is_none());
        landings.remove_all(1);
        assert!(landings.remove(third, 1).is_none() && landings.remove(second, 2).is_some());
        for token in [0, u64::MAX, 7, 1 << 32] {
            assert!(landings.remove(token, 1).is_none());
        }
    }
}
