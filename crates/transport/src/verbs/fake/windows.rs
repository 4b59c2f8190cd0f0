//! Memory windows of type 2. A queue pair binds a window for its peer alone, until the peer invalidates it.
#![allow(unsafe_code)]

use super::carry::{CarryResult, allows};
use super::*;
use libc::c_int;

pub(super) struct Bound {
    pair: u32,
    region: u32,
    addr: u64,
    length: u64,
    access: i32,
}

pub(super) unsafe extern "C" fn alloc_mw(pd: *mut Pd, kind: c_int) -> *mut Mw {
    if kind != MW_TYPE_2 || with(|fabric| !fabric.conditions.windows) {
        return fail(libc::EOPNOTSUPP);
    }
    let rkey = with(|fabric| {
        fabric.next_number += 0x100;
        fabric.next_number << 8
    });
    // SAFETY: OBJECTS: the domain is alive.
    let context = unsafe { (*pd).context };
    Box::into_raw(Box::new(Mw { context, pd, rkey, handle: 0, mw_type: kind }))
}

pub(super) unsafe extern "C" fn dealloc_mw(mw: *mut Mw) -> c_int {
    // SAFETY: OBJECTS: `alloc_mw` made the window.
    unsafe {
        let base = (*mw).rkey & !0xff;
        with(|fabric| fabric.windows.retain(|key, _| key & !0xff != base));
        free(mw)
    }
}

impl FakeFabric {
    /// Binds a window's key to memory. A window that is still bound must be invalidated first.
    pub(super) fn carry_bind(&mut self, pair: u32, job: &FakeSend) -> CarryResult {
        let to = job.request.bind;
        // SAFETY: OBJECTS: a poster keeps region and window alive.
        let (region, base) = unsafe { ((*to.mr).lkey, (*to.mw).rkey & !0xff) };
        let inside = allows(self, region, to.addr, to.length, ACCESS_MW_BIND);
        let bound = self.windows.keys().any(|key| key & !0xff == base);
        if !inside || bound || to.rkey & !0xff != base {
            return CarryResult::Failed(WC_MW_BIND_ERR);
        }
        let to_memory =
            Bound { pair, region, addr: to.addr, length: to.length, access: to.access as i32 };
        self.windows.insert(to.rkey, to_memory);
        CarryResult::Done { opcode: WC_OP_BIND_MW, bytes: 0 }
    }

    pub(super) fn invalidate(&mut self, pair: u32, key: u32) -> bool {
        let known = self.windows.get(&key).is_some_and(|w| w.pair == pair);
        if known {
            self.windows.remove(&key);
        }
        known
    }

    pub(super) fn reaches(&self, pair: u32, key: u32, address: u64, len: u64, access: i32) -> bool {
        let Some(window) = self.windows.get(&key) else {
            return allows(self, key, address, len, access);
        };
        let end = window.addr + window.length;
        let inside = address >= window.addr && address.saturating_add(len) <= end;
        window.pair == pair
            && inside
            && window.access & access == access
            && self.regions.contains_key(&window.region)
    }
}
