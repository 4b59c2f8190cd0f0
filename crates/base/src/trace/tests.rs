use super::*;

fn area(events: u32) -> (Area, *mut u8) {
    let layout = std::alloc::Layout::from_size_align(AREA_BYTES as usize, 4096).unwrap();
    // SAFETY: the size is not zero. The memory is never freed, since the area outlives the test.
    let base = unsafe { std::alloc::alloc_zeroed(layout) };
    assert!(!base.is_null());
    // SAFETY: the memory is new, zeroed and page-aligned.
    let area = unsafe { Area::new(base, events, Box::new(|_, _| true)) };
    (area.unwrap(), base)
}

fn word(base: *const u8, offset: usize) -> u64 {
    // SAFETY: the word is inside the memory of `area`, and the layout aligns it.
    unsafe { base.add(offset).cast::<u64>().read() }
}

#[test]
fn points__have_their_numbers() {
    for (number, &point) in Point::ALL.iter().enumerate() {
        assert_eq!(point as usize, number);
        assert_eq!(Point::from_number(number as u8), Some(point));
    }
    assert_eq!(Point::from_number(Point::ALL.len() as u8), None);
}

#[test]
fn begins__have_an_end_that_follows() {
    let phases: Vec<PointPhase> = Point::ALL.iter().map(|p| p.phase()).collect();
    let count = |phase| phases.iter().filter(|&&p| p == phase).count();
    assert_eq!(count(PointPhase::Begin), count(PointPhase::End));
}

#[test]
fn ring__keeps_the_last_events() {
    let (area, base) = area(5);
    let ring = area.add_ring().unwrap();
    for n in 0..20u64 {
        // SAFETY: the ring is this thread's.
        unsafe { area.push(ring, 100 + n, TraceEvent::new(Point::Eager, 7, -2, n)) };
    }
    assert_eq!(word(base, HEADER_BYTES), 20);
    // 5 is rounded up to 8. The ring then has events 12 to 19, and begins with 16 to 19.
    let kept: Vec<u64> = (0..8)
        .map(|place| word(base, HEADER_BYTES + RING_HEADER_BYTES + place * EVENT_BYTES))
        .collect();
    assert_eq!(kept, [116, 117, 118, 119, 112, 113, 114, 115]);
    let first = HEADER_BYTES + RING_HEADER_BYTES;
    assert_eq!(word(base, first + 8), 7 << 32 | Point::Eager as u64);
    assert_eq!(word(base, first + 16), u64::from(-2i32 as u32));
    assert_eq!(word(base, first + 24), 16);
}

#[test]
fn time__is_shared_with_the_named_point_once() {
    let (area, base) = area(8);
    let ring = area.add_ring().unwrap();
    // SAFETY: the ring is this thread's.
    let shared = || unsafe { area.shared_time(ring) };
    // SAFETY: the ring is this thread's.
    let share = |last| unsafe { area.share_time_of(ring, last) };
    // SAFETY: the ring is this thread's.
    let push = |n| unsafe { area.push(ring, 100 + n, TraceEvent::new(Point::Posted, 7, -2, n)) };
    // The first point has number 0, as have the words of an empty ring.
    assert_eq!(Point::ALL[0] as u8, 0);
    share(Point::ALL[0]);
    assert_eq!(shared(), None);
    for n in 0..10 {
        push(2 * n);
        share(Point::Waited);
        assert_eq!(shared(), None);
        share(Point::Posted);
        assert_eq!(shared(), Some(100 + 2 * n));
        // The next event ends the sharing, even if it is recorded with its own time.
        push(2 * n + 1);
        assert_eq!(shared(), None);
    }
    share(Point::Posted);
    // SAFETY: the ring is this thread's, and its memory is never freed.
    unsafe { (*ring).share_no_time() };
    assert_eq!((shared(), word(base, HEADER_BYTES)), (None, 20));
}

#[test]
fn names__have_one_number_each() {
    let (area, _) = area(8);
    let (send, recv) = (area.intern("MPI_Send"), area.intern("MPI_Recv"));
    assert_ne!(send, recv);
    assert_eq!(area.intern("MPI_Send"), send);
}

#[test]
fn subjects__are_known_by_their_text_and_leave_room_for_calls() {
    let (area, base) = area(8);
    assert_eq!(area.name_subject(""), TraceSubject::NONE);
    let ledger = area.name_subject("ledger");
    assert_ne!(ledger, TraceSubject::NONE);
    assert_eq!(area.name_subject(&String::from("ledger")), ledger);
    let others: Vec<TraceSubject> =
        (0..MAX_NAMES).map(|n| area.name_subject(&n.to_string())).collect();
    assert!(others[0] != TraceSubject::NONE && others[0] != ledger);
    assert_eq!(others[MAX_NAMES - 1], TraceSubject::NONE);
    assert_ne!(area.intern("MPI_Send"), MAX_NAMES);
    // The event's second word has the subject between the point and the peer.
    let ring = area.add_ring().unwrap();
    let event = TraceEvent::new(Point::Put, 7, -2, 3);
    // SAFETY: the ring is this thread's.
    unsafe { area.push(ring, 100, event.of(ledger)) };
    let head = word(base, HEADER_BYTES + RING_HEADER_BYTES + 8);
    assert_eq!(head, event.head | u64::from(ledger.0) << 8);
    assert_eq!((head as u8, head >> 32), (Point::Put as u8, 7));
}

#[test]
fn rings__that_find_no_room_are_counted() {
    let (area, base) = area(1 << 20);
    let fits = (AREA_BYTES as usize - HEADER_BYTES) / ring_bytes(1 << 20);
    for _ in 0..fits {
        assert!(area.add_ring().is_some());
    }
    assert!(area.add_ring().is_none() && area.add_ring().is_none());
    // Number of rings, and whether any was lost.
    assert_eq!(word(base, 24) >> 32, fits as u64 + 2);
    assert_eq!(word(base, 32) as u32, 2);
}

#[test]
fn memory__that_is_short_makes_no_area_and_no_ring() {
    let (_, base) = area(8);
    // SAFETY: the memory is that of `area`; parts that are not backed are not touched.
    let none = unsafe { Area::new(base, 8, Box::new(|_, _| false)) };
    assert!(none.is_none());
    // SAFETY: the memory is that of `area`; parts that are not backed are not touched.
    let header = unsafe { Area::new(base, 8, Box::new(|offset, _| offset == 0)) };
    assert!(header.unwrap().add_ring().is_none());
}

#[test]
fn threads__without_room_are_counted_once() {
    let (area, base) = area(1 << 20);
    // There is space for one such ring, which this thread gets.
    assert!(start(area, true) && is_on());
    record(Point::Eager, 1, 2, 3);
    record_last(Point::PostShort, 4, 5, 6, Point::Return);
    let other = std::thread::spawn(|| (0..3).for_each(|_| record(Point::Eager, 1, 2, 3)));
    other.join().unwrap();
    assert_eq!((word(base, HEADER_BYTES), word(base, 32) as u32), (3, 1));
    set_recording(false);
    record(Point::Eager, 1, 2, 3);
    set_recording(true);
    record_call("MPI_Send", 77, Point::PostShort, 4, 5, 6);
    assert!(is_on() && count_recorded() == 6);
    let event = |n: usize| HEADER_BYTES + RING_HEADER_BYTES + n * EVENT_BYTES;
    // Two points share one time; the second has no fields.
    assert_eq!(word(base, event(1)), word(base, event(2)));
    assert_eq!(word(base, event(1) + 8), 4 << 32 | Point::PostShort as u64);
    assert_eq!(word(base, event(2) + 8), Point::Return as u64);
    assert!(word(base, event(0)) < word(base, event(1)));
    // A call lasts from its entry to its return.
    assert_eq!((word(base, event(3)), word(base, event(3) + 8)), (77, 0));
    assert_eq!(word(base, event(4) + 8), 4 << 32 | Point::PostShort as u64);
    assert!(word(base, event(4)) == word(base, event(5)) && word(base, event(4)) > 77);
    assert_eq!(word(base, event(5) + 8), Point::Return as u64);
}
