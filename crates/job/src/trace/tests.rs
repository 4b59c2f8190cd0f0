use super::read::read_rank;
use super::*;
use fastpath_base::trace::{
    EVENT_BYTES, HEADER_BYTES, Point, RING_HEADER_BYTES, TRACE_MAGIC, enter, leave, record,
};

const FRONT: usize = 40;

/// A part with one ring of two events, as consecutive pieces: front, ring, names.
fn part(written: u64, events: &[(u64, Point, u64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [TRACE_MAGIC, 0, 0] {
        bytes.extend(u64::to_le_bytes(word));
    }
    // Events, rings, lost, process.
    for word in [2, 1, 0, 77] {
        bytes.extend(u32::to_le_bytes(word));
    }
    bytes.extend(written.to_le_bytes());
    bytes.extend([2u32, 5].into_iter().flat_map(u32::to_le_bytes));
    bytes.resize(FRONT + RING_HEADER_BYTES, 0);
    for &(ticks, point, number) in events {
        bytes.extend(ticks.to_le_bytes());
        bytes.extend((3 << 32 | point as u64).to_le_bytes());
        bytes.extend(9u64.to_le_bytes());
        bytes.extend(number.to_le_bytes());
    }
    bytes.resize(FRONT + RING_HEADER_BYTES + 2 * EVENT_BYTES, 0);
    bytes.extend(b"MPI_\"Send");
    bytes
}

/// Reads a part made by `part`; the rest is zeros.
fn read(bytes: &[u8]) -> String {
    let place = |offset: usize| match offset {
        0 => 0,
        HEADER_BYTES => FRONT,
        _ => FRONT + RING_HEADER_BYTES + 2 * EVENT_BYTES,
    };
    let trace = read_rank(4, |offset, len| {
        let from = bytes.get(place(offset)..).unwrap_or_default();
        let there = from.len().min(len);
        let mut data = vec![0; len];
        data[..there].copy_from_slice(&from[..there]);
        Ok(data)
    });
    let mut out = Vec::new();
    let ranks: Vec<_> = trace.unwrap().into_iter().collect();
    write::write(&ranks, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Asserts matching brackets and quotes, and no control character in a text.
fn assert_json(text: &str) {
    let mut open = Vec::new();
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '{' | '[' if !quoted => open.push(c),
            '}' if !quoted => assert_eq!(open.pop(), Some('{'), "{text}"),
            ']' if !quoted => assert_eq!(open.pop(), Some('['), "{text}"),
            '\\' => panic!("an escape: {text}"),
            c => assert!(!c.is_control() || !quoted, "{text}"),
        }
    }
    assert!(open.is_empty() && !quoted, "{text}");
}

#[test]
fn part__with_nothing_in_it_is_no_rank() {
    assert!(!read(&[]).contains("process_name"));
    let text = read(&part(0, &[]));
    assert!(text.contains("rank 4 (process 77)"));
    assert!(text.contains("\"name\":\"thread 5\""), "{text}");
}

#[test]
fn names__are_cleaned() {
    let text = read(&part(1, &[(10, Point::Call, 0)]));
    assert!(text.contains("\"name\":\"MPI_?Send\""), "{text}");
    assert_json(&text);
}

#[test]
fn names__that_are_not_there_are_unknown() {
    let text = read(&part(1, &[(10, Point::Call, u64::MAX)]));
    assert!(text.contains("\"name\":\"?\""), "{text}");
}

#[test]
fn windows__are_named() {
    let mut bytes = part(1, &[(10, Point::Put, 8)]);
    // In an event, the byte at offset 8 is the number of the point, and the next bytes are the number of the window's
    // name. Names count from 1, so 1 is the first name.
    bytes[FRONT + RING_HEADER_BYTES + 9] = 1;
    let text = read(&bytes);
    let expected =
        "\"name\":\"put\",\"args\":{\"peer\":3,\"handle\":9,\"bytes\":8,\"window\":\"MPI_?Send\"}";
    assert!(text.contains(expected), "{text}");
    assert_json(&text);
}

#[test]
fn ends__whose_beginning_was_overwritten_are_left_out() {
    // Three points were written to a ring of two: the third has overwritten the first, which is the call's begin.
    let text = read(&part(3, &[(30, Point::PostShort, 8), (20, Point::Return, 0)]));
    assert!(!text.contains("\"ph\":\"E\""), "{text}");
    assert!(text.contains(
        "\"name\":\"post: short\",\"args\":{\"peer\":3,\"tag\":9,\"bytes\":8},\"s\":\"t\""
    ));
    assert_json(&text);
}

#[test]
fn calls__that_never_return_stay_open() {
    let text = read(&part(2, &[(10, Point::Call, 0), (20, Point::Sleep, 0)]));
    assert_eq!(text.matches("\"ph\":\"B\"").count(), 2, "{text}");
    assert_eq!(text.matches("\"ph\":\"E\"").count(), 0, "{text}");
    assert_json(&text);
}

#[test]
fn fuzz__parts_of_any_content_make_a_file() {
    let good = part(2, &[(10, Point::Call, 0), (20, Point::Return, 0)]);
    let long = part(u64::MAX, &[(u64::MAX, Point::Arrival, u64::MAX)]);
    crate::mutate::run(&[&good, &long], |input| assert_json(&read(input)));
}

#[test]
fn job__records_from_its_start_and_is_written() {
    let job: &'static Job = Box::leak(Box::new(Job::singleton().unwrap()));
    record(Point::PostShort, 0, 0, 1);
    job.start_trace(100, true).unwrap();
    enter("MPI_Send");
    record(Point::PostShort, 0, 5, 8);
    leave();
    std::thread::scope(|s| {
        s.spawn(|| record(Point::Unexpected, 0, 6, 16));
    });
    let path = std::env::temp_dir().join(format!("fastpath-trace-{}.json", std::process::id()));
    let summary = write_file(job.segment(), &path).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let expected = Summary { ranks: 1, points: 4, overwritten: 0, threads_lost: 0 };
    assert_eq!(summary, expected);
    assert!(text.contains("\"ts\":0.000,\"name\":\"MPI_Send\""), "{text}");
    assert!(text.contains("\"tag\":5,\"bytes\":8"), "{text}");
    assert!(text.contains("\"name\":\"unexpected\""), "{text}");
    assert_json(&text);
}
