use super::*;
use crate::{PAGE_BYTES, RankPhase};
use std::os::fd::OwnedFd;

fn again(segment: &Segment) -> OwnedFd {
    segment.file().unwrap().try_clone_to_owned().unwrap()
}

fn card(host: &str, port: u16) -> Vec<u8> {
    let card = NetworkCard { host: host.to_owned(), port, addresses: vec![[10, 0, 0, 1].into()] };
    card.encode()
}

#[test]
fn ranks__of_a_node_have_places_and_others_do_not() {
    let a = Segment::create_for_node(&[1, 4, 5], 8, SpareRanks::default(), 7).unwrap();
    let b = Segment::attach(again(&a), 7).unwrap();
    assert_eq!((b.present(), b.capacity(), b.here()), (8, 8, 3));
    assert_eq!(b.node_ranks().collect::<Vec<_>>(), [1, 4, 5]);
    for (rank, place) in [(1, 0), (4, 1), (5, 2)] {
        assert_eq!((b.place(rank), b.rank_at(place)), (Some(place), Some(rank)));
        a.page(rank).unwrap().set_phase(RankPhase::Initialized);
        assert_eq!(b.page(rank).unwrap().phase(), RankPhase::Initialized);
        assert!(!b.is_elsewhere(rank) && b.reaches(rank));
        assert_eq!(b.arena(rank).unwrap().start, b.layout().arena_offset(place));
        let bits = &a.incoming_bitmap(rank).unwrap()[0];
        bits.store(rank as u64, Ordering::Relaxed);
    }
    assert_eq!(b.incoming_bitmap(4).unwrap()[0].load(Ordering::Relaxed), 4);
    for rank in [0, 2, 3, 6, 7] {
        let page = b.page(rank).unwrap();
        assert_eq!(page.state.load(Ordering::Relaxed), STATE_ABSENT);
        assert!(b.is_elsewhere(rank) && b.reaches(rank) && b.place(rank).is_none());
        assert!(b.arena(rank).is_none() && b.incoming_bitmap(rank).is_none());
        assert!(b.pair_region(rank, 4).is_none() && b.back_pair(4, rank).is_err());
    }
    assert!(b.page(8).is_none() && !b.reaches(8) && b.rank_at(3).is_none());
    a.back_pair(5, 1).unwrap();
    let [one, two] = [&a, &b].map(|s| s.pair_region(5, 1).unwrap());
    // SAFETY: both point to the first byte of the region just backed.
    unsafe {
        one.as_ptr().write(9);
        assert_eq!(two.as_ptr().read(), 9);
    }
    assert!(Segment::create_for_node(&[1, 1], 8, SpareRanks::default(), 7).is_err());
    assert!(Segment::create_for_node(&[8], 8, SpareRanks::default(), 7).is_err());
    assert!(Segment::create_for_node(&[], 8, SpareRanks::default(), 7).is_err());
}

#[test]
fn node__that_has_all_ranks_for_good_needs_no_table() {
    let all = Segment::create_for_node(&[0, 1, 2], 3, SpareRanks::default(), 7).unwrap();
    assert_eq!(Some(all.layout()), SegmentLayout::new(3));
    assert_eq!((all.present(), all.capacity()), (3, 3));
    let told = RemoteRank { host: 3, card: &[] };
    all.tell(1, told).unwrap();
    assert_eq!((all.host(1), all.network(1)), (0, None));
}

#[test]
fn others__have_a_host_and_addresses_that_are_kept_once() {
    let a = Segment::create_for_node(&[2], 6, SpareRanks::default(), 7).unwrap();
    let b = Segment::attach(again(&a), 7).unwrap();
    let (one, two, other) = (card("n1", 1), card("n1", 0x1234), card("n2", 1));
    assert_eq!((b.network(0), b.other_host(2)), (None, None));
    assert!(b.other_host(0).unwrap().contains("not known"));
    for (rank, host, card) in [(0, 5, &one), (1, 5, &two), (3, 6, &other)] {
        a.tell(rank, RemoteRank { host, card }).unwrap();
        assert_eq!((b.host(rank), b.network(rank)), (host, Some(card.clone())));
    }
    assert_eq!(b.other_host(1).unwrap(), "n1");
    assert_eq!(a.header().cards.load(Ordering::Relaxed), 2);
    // An invalid card is ignored. The card of a rank of this node is stored on its page.
    a.learn_card(4, &[1, 2]).unwrap();
    a.learn_card(4, &[1; 300]).unwrap();
    assert_eq!(b.network(4), None);
    a.learn_card(2, &two).unwrap();
    assert_eq!(b.page(2).unwrap().network.load(), Some(two.clone()));
    assert_eq!(b.network(2), Some(two));
    a.learn_card(6, &one).unwrap();
    assert_eq!(b.network(6), None);
}

#[test]
fn others__that_are_given_up_are_found_dead() {
    let a = Segment::create_for_node(&[1], 3, SpareRanks::default(), 7).unwrap();
    a.mark_dead(2);
    let state = |rank: usize| a.page(rank).unwrap().state.load(Ordering::Relaxed);
    assert_eq!((state(0), state(2)), (STATE_ABSENT, STATE_DEAD));
    assert!(a.is_elsewhere(2));
    a.mark_dead(1);
    assert_eq!((state(0), state(1)), (STATE_ABSENT, STATE_DEAD));
    a.wake_all();
}

#[test]
fn ranks__are_added_here_and_elsewhere() {
    let a = Segment::create_for_node(&[1, 2], 4, SpareRanks { ranks: 3, foreign: 0 }, 7).unwrap();
    let b = Segment::attach(again(&a), 7).unwrap();
    assert_eq!((b.capacity(), b.layout().ranks()), (4 + numbers_for(3), 5));
    let there = card("n3", 9);
    let elsewhere = |rank: usize| {
        let (host, card) = (8, &there[..]);
        (rank != 5).then_some(RemoteRank { host, card })
    };
    let name = |rank: usize, page: &RankPage| page.parent.store(rank as u32, Ordering::Relaxed);
    assert_eq!(a.add_ranks(2, elsewhere, name).unwrap(), 4);
    assert_eq!((b.present(), b.here()), (6, 3));
    assert_eq!((b.place(4), b.place(5), b.rank_at(2)), (None, Some(2), Some(5)));
    assert_eq!(b.page(5).unwrap().parent.load(Ordering::Relaxed), 5);
    assert_eq!((b.host(4), b.network(4)), (8, Some(there.clone())));
    a.back_pair(5, 1).unwrap();
    assert!(b.pair_region(5, 1).is_some());
    assert!(a.add_ranks(numbers_for(3), elsewhere, name).is_err());
    assert!(a.add_ranks(3, |_| None, name).is_err());
    assert_eq!(a.add_ranks(2, |_| None, name).unwrap(), 6);
    assert_eq!((b.present(), b.place(7)), (8, Some(4)));
}

#[test]
fn fuzz__table_and_pages_may_hold_anything() {
    let a = Segment::create_for_node(&[1, 3], 40, SpareRanks::default(), 7).unwrap();
    let one = card("n1", 7);
    for rank in (0..40).filter(|&rank| a.is_elsewhere(rank)) {
        let (host, card) = (rank as u32, &one[..]);
        a.tell(rank, RemoteRank { host, card }).unwrap();
    }
    let layout = a.layout();
    let front = layout.front_bytes();
    // SAFETY: the front is mapped, and backed as far as it is used. Only this test uses it.
    let bytes = unsafe { std::slice::from_raw_parts_mut(a.front.base.as_ptr(), front) };
    let good = bytes.to_vec();
    let mut random = crate::mutate::Random::new(crate::mutate::seed());
    let table = layout.table_offset();
    for _ in 0..2000 {
        bytes.copy_from_slice(&good);
        for _ in 0..1 + random.below(20) {
            let (from, most) = match random.below(3) {
                0 => (table, 40 * ENTRY_BYTES),
                1 => (layout.cards_offset(), 2 * CARD_BYTES),
                _ => (random.below(table / PAGE_BYTES) * PAGE_BYTES, PAGE_BYTES),
            };
            bytes[from + random.below(most)] = random.next() as u8;
        }
        assert!(a.node_ranks().all(|rank| rank < 40) && a.present() <= 40);
        for rank in 0..41 {
            let _ = (a.page(rank), a.network(rank), a.host(rank), a.other_host(rank));
            let _ = (a.pair_region(rank, 1), a.arena(rank), a.incoming_bitmap(rank));
            let place = a.place(rank);
            assert!(place.is_none_or(|place| place < layout.ranks()));
        }
        a.learn_card(0, &one).ok();
    }
}

#[test]
fn pairs__of_few_ranks_have_memory_before_they_need_it() {
    let segment = Segment::create_with_room(2, 1, 9).unwrap();
    let before = segment.used_bytes().unwrap();
    assert_eq!(segment.bytes_ahead((0, 1)), 0);
    segment.back_pairs_ahead();
    let ahead = segment.used_bytes().unwrap() - before;
    assert_eq!(ahead, 2 * PAIR_AHEAD_BYTES as u64);
    assert_eq!(segment.bytes_ahead((1, 0)), PAIR_AHEAD_BYTES);
    segment.back_in_pair((0, 1), 4096, PAIR_AHEAD_BYTES - 4096).unwrap();
    assert_eq!(segment.used_bytes().unwrap() - before, ahead);
    segment.back_in_pair((0, 1), PAIR_AHEAD_BYTES - 1, 2).unwrap();
    assert_eq!(segment.used_bytes().unwrap() - before, ahead + 4096);
    assert_eq!([2, 7].map(|dst| segment.bytes_ahead((0, dst))), [0; 2]);
}

#[test]
fn pairs__of_many_ranks_or_of_none_have_nothing_ahead() {
    for ranks in [1, 4, 64] {
        let segment = Segment::create(ranks, 9).unwrap();
        let before = segment.used_bytes().unwrap();
        segment.back_pairs_ahead();
        assert_eq!(segment.used_bytes().unwrap(), before, "{ranks} ranks");
        assert_eq!(segment.bytes_ahead((0, ranks - 1)), 0);
    }
}
