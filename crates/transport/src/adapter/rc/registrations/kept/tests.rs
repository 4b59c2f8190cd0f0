use super::super::super::watch::tests::{
    LEN, OWN, PAGE, RIGHTS, advise, map, map_at, start, unmap,
};
use super::*;
use crate::verbs::ProtectionDomain;
use crate::verbs::{fake, fault};

/// Creates registrations that keep up to `most` bytes; `None` if the kernel does not report changes.
fn registrations(most: usize) -> Option<Registrations> {
    start()?;
    fake::set_conditions(fake::Conditions::default());
    let mut registrations = Registrations::new(&ProtectionDomain::new(&fake::open()).unwrap());
    registrations.keep_most(most);
    Some(registrations)
}

fn register(
    registrations: &mut Registrations, range: &Range<usize>, access: Access,
) -> Arc<MemoryRegion> {
    let at = std::ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: the fake device reads only memory that is sent.
    unsafe { registrations.register(at, range.len(), access) }.unwrap()
}

fn pass(registrations: &mut Registrations, range: &Range<usize>) -> u32 {
    let key = register(registrations, range, Access::Shown).rkey();
    registrations.release_unused();
    key
}

fn pass_often(registrations: &mut Registrations, range: &Range<usize>, times: usize) {
    for _ in 0..times {
        pass(registrations, range);
    }
}

fn kept(registrations: &Registrations) -> u64 {
    registrations.counts().kept
}

#[test]
fn memory__is_kept_from_its_second_use_on() {
    let Some(mut registrations) = registrations(1 << 30) else {
        return;
    };
    let (first, second) = (map(), map());
    let once = pass(&mut registrations, &first);
    assert_eq!(kept(&registrations), 0);
    let key = pass(&mut registrations, &first);
    assert!(key != once && kept(&registrations) == 1);
    for _ in 0..100 {
        assert_eq!(pass(&mut registrations, &first), key);
    }
    // The kept registration serves reads and writes of the device in the range, but no writes of peers.
    let part = first.start + 100..first.end - 100;
    for access in [Access::Read, Access::Write, Access::Shown] {
        assert_eq!(register(&mut registrations, &part, access).rkey(), key);
    }
    assert_ne!(register(&mut registrations, &part, Access::Remote).rkey(), key);
    assert!(registrations.is_lasting(&part) && !registrations.is_lasting(&second));
    let counts = registrations.counts();
    assert_eq!((counts.made, counts.reused, counts.unmapped), (3, 103, 0));
    registrations.keep_most(0);
    assert_ne!(pass(&mut registrations, &first), key);
    assert_eq!(kept(&registrations), 0);
    assert_eq!(registrations.refusal().unwrap(), "switched off");
    drop(registrations);
    assert_eq!(fault::alive(), 0);
}

type LookupFn<'a> = &'a dyn Fn(&Range<usize>);

#[test]
fn memory__that_changed_is_registered_anew() {
    let Some(mut registrations) = registrations(1 << 30) else {
        return;
    };
    let range = map();
    let same = |at: usize| {
        map_at(at, LEN, RIGHTS, OWN | libc::MAP_FIXED);
    };
    let ways: [LookupFn<'_>; 5] = [
        &|range| unmap(range.start, LEN),
        &|range| unmap(range.start + 5 * PAGE, PAGE),
        &|range| same(range.start),
        &|range| advise(range.start + PAGE, PAGE, libc::MADV_DONTNEED),
        &|range| advise(range.start, LEN, libc::MADV_FREE),
    ];
    let mut dropped = 0;
    for (at, way) in ways.iter().enumerate() {
        // Use the range often enough that its registration is kept again at once.
        let mut key = 0;
        while kept(&registrations) == 0 {
            key = pass(&mut registrations, &range);
        }
        // The watching thread may still process the last change; until then the state is uncertain.
        let reused = (0..1_000_000).filter(|_| pass(&mut registrations, &range) == key);
        assert_eq!(reused.take(5).count(), 5, "way {at}");
        way(&range);
        if at < 2 {
            same(range.start);
        }
        assert_ne!(pass(&mut registrations, &range), key, "way {at}");
        // The watching thread may still be storing the change.
        while registrations.counts().unmapped == dropped {
            pass(&mut registrations, &range);
        }
        dropped += 1;
        assert_eq!(registrations.counts().unmapped, dropped);
    }
}

#[test]
fn memory__that_is_unmapped_after_each_message_is_hardly_ever_kept() {
    let Some(mut registrations) = registrations(1 << 30) else {
        return;
    };
    let range = map();
    for _ in 0..200 {
        pass(&mut registrations, &range);
        map_at(range.start, LEN, RIGHTS, OWN | libc::MAP_FIXED);
    }
    let counts = registrations.counts();
    assert_eq!((counts.made, counts.reused), (200, 0));
    // Kept registrations are dropped after 2, 4, 8, ... 64 uses.
    assert!((5..=7).contains(&counts.unmapped), "{counts:?}");
}

#[test]
fn memory__that_was_used_longest_ago_makes_room() {
    let Some(mut registrations) = registrations(2 * LEN + PAGE) else {
        return;
    };
    let [first, second, third] = [map(), map(), map()];
    for range in [&first, &second, &first, &second] {
        pass(&mut registrations, range);
    }
    let keys = [pass(&mut registrations, &second), pass(&mut registrations, &first)];
    pass(&mut registrations, &third);
    pass(&mut registrations, &third);
    assert_eq!((kept(&registrations), registrations.counts().evicted), (2, 1));
    assert_eq!(pass(&mut registrations, &first), keys[1]);
    assert_ne!(pass(&mut registrations, &second), keys[0]);
    // Registrations in use are not evicted.
    let held = [
        register(&mut registrations, &first, Access::Read),
        register(&mut registrations, &third, Access::Read),
    ];
    pass_often(&mut registrations, &second, 9);
    assert_eq!(registrations.counts().evicted, 1);
    drop(held);
    // This range is larger than the limit.
    let large = map_at(0, 3 * LEN, RIGHTS, OWN);
    pass_often(&mut registrations, &(large..large + 3 * LEN), 9);
    assert_eq!((kept(&registrations), registrations.counts().evicted), (2, 1));
}

#[test]
fn memory__that_is_kept_gives_way_where_no_more_may_be_locked() {
    let Some(mut registrations) = registrations(1 << 30) else {
        return;
    };
    let [first, second] = [map(), map()];
    fake::set_conditions(fake::Conditions { lockable: LEN + PAGE, ..fake::Conditions::default() });
    pass_often(&mut registrations, &first, 3);
    assert_eq!(kept(&registrations), 1);
    pass(&mut registrations, &second);
    assert_eq!((kept(&registrations), registrations.counts().evicted), (0, 1));
    let held = register(&mut registrations, &second, Access::Read);
    let at = std::ptr::with_exposed_provenance_mut(first.start);
    // SAFETY: the fake device reads only memory that is sent.
    let refused = unsafe { registrations.register(at, LEN, Access::Read) };
    assert!(refused.is_err(), "nothing gives way");
    drop(held);
}

#[test]
fn memory__that_others_may_change_is_not_kept() {
    let Some(mut registrations) = registrations(1 << 30) else {
        return;
    };
    let shared = map_at(0, LEN, RIGHTS, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    pass_often(&mut registrations, &(shared..shared + LEN), 20);
    let counts = registrations.counts();
    assert_eq!((counts.made, counts.kept), (20, 0));
}

#[test]
fn memory__is_not_counted_where_the_kernel_tells_nothing() {
    fake::set_conditions(fake::Conditions::default());
    let mut registrations = Registrations::new(&ProtectionDomain::new(&fake::open()).unwrap());
    registrations.keep_most(1 << 30);
    let known =
        |registrations: &Registrations| registrations.keeping.as_ref().unwrap().candidates.known();
    let memory = vec![0_u8; LEN];
    let range = memory.as_ptr().expose_provenance()..memory.as_ptr().addr() + LEN;
    pass(&mut registrations, &range);
    assert_eq!(known(&registrations), 1, "not asked yet");
    registrations.keep_most(1 << 30);
    registrations.keeping.as_mut().unwrap().source = Source::None("refused".to_owned());
    pass_often(&mut registrations, &range, 9);
    let counts = registrations.counts();
    assert_eq!((known(&registrations), counts.made, counts.reused), (0, 10, 0));
    assert_eq!(registrations.refusal().unwrap(), "refused");
}

#[test]
fn memory__that_changes_more_than_it_is_used_is_not_watched_for_a_while() {
    let Some(mut registrations) = registrations(1 << 30) else {
        return;
    };
    let (used, other) = (map(), map());
    for range in [&used, &other, &used, &other] {
        pass(&mut registrations, range);
    }
    assert_eq!(kept(&registrations), 2);
    for _ in 0..2 * FREE_REPORTS {
        advise(other.start, PAGE, libc::MADV_DONTNEED);
    }
    while kept(&registrations) > 0 {
        pass(&mut registrations, &used);
    }
    let made = registrations.counts().made;
    while kept(&registrations) == 0 {
        pass(&mut registrations, &used);
    }
    let rest = registrations.counts().made - made;
    assert!((REST / 2..=REST + 8).contains(&rest), "{rest}");
}

#[test]
fn default__leaves_room_for_others() {
    let gigabytes = |n: usize| n << 30;
    assert_eq!(super::share(gigabytes(64), None, 1), gigabytes(8));
    assert_eq!(super::share(gigabytes(64), None, 4), gigabytes(2));
    assert_eq!(super::share(gigabytes(64), None, 0), gigabytes(8));
    assert_eq!(super::share(gigabytes(64), Some(8 << 20), 4), 4 << 20);
    assert_eq!(super::share(gigabytes(64), Some(gigabytes(64)), 4), gigabytes(2));
    assert!(Registrations::default_most(1) > 0);
}
