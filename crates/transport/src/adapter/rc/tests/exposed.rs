//! Registered memory: a peer reads it until it is deregistered, and within its bounds.
#![allow(unsafe_code)]

use super::*;

#[test]
fn registered_memory__is_read_until_it_is_deregistered() {
    let mut pair = RcPair::new(Settings::default());
    let mut data: Vec<u8> = (0..100_000_u32).map(|i| ((i * 7) >> 3) as u8).collect();
    let mut got = vec![0_u8; data.len()];
    // SAFETY: the memory outlives its registration.
    let mut show = |pair: &mut RcPair| unsafe { pair.ends[1].register(data.as_mut_ptr(), 100_000) };
    let [first, second] = [show(&mut pair).unwrap(), show(&mut pair).unwrap()];
    // SAFETY: `got` has room for all bytes.
    let fetched = unsafe { pair.ends[0].get(got.as_mut_ptr(), 100_000, first) };
    assert_eq!(fetched, Ok(()));
    assert!(got == data);
    // Two messages were announced from this buffer, so it stays registered until both have ended.
    pair.ends[1].deregister(first.rkey);
    // SAFETY: `got` has room for all bytes.
    let fetched = unsafe { pair.ends[0].get(got.as_mut_ptr(), 100_000, second) };
    assert_eq!(fetched, Ok(()));
    pair.ends[1].deregister(second.rkey);
    let left = pair.ends[1].with(|connection| connection.exposed.len());
    assert_eq!(left, 0);
    // SAFETY: `got` has room for all bytes.
    let fetched = unsafe { pair.ends[0].get(got.as_mut_ptr(), 100_000, second) };
    assert_eq!(fetched, Err(RemoteError::Fault));
    assert!(pair.ends[0].peer_has_left());
}

#[test]
fn exposed_memory__is_read_alone_and_within_its_bounds() {
    for (offset, len, write) in [(0, 8, true), (4095, 2, false), (5000, 1, false)] {
        let mut pair = RcPair::new(quick());
        let mut data = vec![1_u8; 4096];
        let mut got = [7_u8; 8];
        // SAFETY: the memory outlives its registration.
        let shown = unsafe { pair.ends[1].register(data.as_mut_ptr(), 4096) }.unwrap();
        let at = Remote { addr: shown.addr + offset, ..shown };
        // SAFETY: `got` has room for `len` bytes.
        let refused = unsafe {
            match write {
                true => pair.ends[0].put(got.as_ptr(), len, at),
                false => pair.ends[0].get(got.as_mut_ptr(), len, at),
            }
        };
        assert_eq!(refused, Err(RemoteError::Fault));
        drop(pair);
        assert!(data.iter().all(|&byte| byte == 1));
    }
}

#[test]
fn memory__that_cannot_be_locked_is_not_shown_and_not_fetched_into() {
    let context = fake::open();
    fake::set_conditions(fake::Conditions::default());
    let mut pair = RcPair::on(&context, Settings::default()).unwrap();
    let (mut data, mut got) = (vec![1_u8; 100_000], vec![0_u8; 100_000]);
    // SAFETY: the memory outlives its registration.
    let shown = unsafe { pair.ends[1].register(data.as_mut_ptr(), data.len()) }.unwrap();
    fake::set_conditions(fake::Conditions { lockable: 0, ..fake::Conditions::default() });
    // SAFETY: the memory outlives its registration, and `got` has room for all bytes.
    unsafe {
        assert_eq!(pair.ends[1].register(got.as_mut_ptr(), 100_000), None);
        let refused = pair.ends[0].get(got.as_mut_ptr(), 100_000, shown);
        assert_eq!(refused, Err(RemoteError::Unsupported));
    }
    // The connection still works: the message is sent in fragments.
    assert_eq!(send(&mut pair.ends[0], 5, 8), Post::Done);
}
