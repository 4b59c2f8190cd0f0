//! Which protocol serves which size, for a peer on this node.

use fastpath_protocol::worker::{SHORT_LIMIT, Thresholds};
use serde::Serialize;

/// One range of sizes.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Range {
    /// Smallest message, in bytes.
    pub from: u64,
    /// Largest message, in bytes; None: no limit.
    pub to: Option<u64>,
    /// Name of the protocol.
    pub protocol: &'static str,
    /// How the bytes move.
    pub how: String,
    /// What else could serve this range and does not, and why.
    pub rejected: Option<String>,
}

/// The ranges, without gap or overlap, from 0 bytes up. `single_copy` says whether the kernel may
/// copy between processes, or why not.
pub fn list(thresholds: &Thresholds, single_copy: Result<(), String>) -> Vec<Range> {
    let Thresholds {
        eager,
        first,
        part,
        fragment,
        single_copy: single,
        ..
    } = *thresholds;
    let mut steps = vec![
        (
            SHORT_LIMIT as u64,
            "eager short",
            "header and payload in one cache line, written once".to_owned(),
        ),
        (
            eager,
            "eager",
            "whole, through the pair's ring, without asking".to_owned(),
        ),
        (
            first,
            "eager in parts",
            format!("parts of {part} B through the ring, without asking; both sides copy at once"),
        ),
    ];
    let pipeline = format!("announced with the first {first} B; then fragments of {fragment} B");
    if single_copy.is_ok() {
        steps.push((single.saturating_sub(1), "rendezvous, pipelined", pipeline));
        let how = "announced; the kernel copies from buffer to buffer, both ranks taking pieces";
        steps.push((u64::MAX, "rendezvous, single copy", how.to_owned()));
    } else {
        steps.push((u64::MAX, "rendezvous, pipelined", pipeline));
    }
    let mut from = 0;
    let mut ranges = Vec::new();
    for (to, protocol, how) in steps {
        if to < from {
            continue;
        }
        ranges.push(Range {
            from,
            to: (to != u64::MAX).then_some(to),
            protocol,
            how,
            rejected: None,
        });
        from = to.saturating_add(1);
    }
    if let (Err(why), Some(last)) = (single_copy, ranges.last_mut()) {
        last.rejected = Some(format!("single copy from {single} B: {why}"));
    }
    ranges
}

impl Range {
    /// The sizes as text.
    pub fn sizes(&self) -> String {
        match self.to {
            Some(to) => format!("{} to {to} B", self.from),
            None => format!("from {} B", self.from),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn ranges__cover_every_size_once() {
        for single_copy in [Ok(()), Err("not permitted".to_owned())] {
            let ranges = list(&Thresholds::default(), single_copy);
            assert_eq!(ranges[0].from, 0);
            for pair in ranges.windows(2) {
                assert_eq!(pair[0].to.map(|to| to + 1), Some(pair[1].from));
            }
            assert_eq!(ranges.last().unwrap().to, None);
        }
    }

    #[test]
    fn single_copy__that_is_refused_is_named_with_the_reason() {
        let ranges = list(&Thresholds::default(), Err("not permitted".to_owned()));
        assert!(
            ranges
                .iter()
                .all(|r| r.protocol != "rendezvous, single copy")
        );
        let rejected = ranges.last().unwrap().rejected.as_deref().unwrap();
        assert!(rejected.contains("not permitted"), "{rejected}");
    }

    #[test]
    fn range__that_is_empty_is_left_out() {
        let thresholds = Thresholds {
            eager: 32,
            ..Thresholds::default()
        };
        let ranges = list(&thresholds, Ok(()));
        assert!(ranges.iter().all(|r| r.protocol != "eager"), "{ranges:?}");
    }
}
