#![allow(unsafe_code)]
//! Patterns for names of output files and for line tags: `%r` is the rank, `%R` the rank with leading zeros, `%h` the
//! node, `%t` the time in seconds since 1970, `%T` date and time of day. `%g` (group) and `%p` (proxy) are 0, as on
//! Hydra's first node. `%%` is a `%`.

use std::time::{SystemTime, UNIX_EPOCH};

pub const LETTERS: &str = "%r, %R, %h, %t, %T, %g, %p and %%";

/// Returns the first invalid letter after a `%`. A `%` at the end stands for itself.
pub fn find_unknown(text: &[u8]) -> Option<char> {
    let mut rest = text.iter();
    while rest.any(|&byte| byte == b'%') {
        match rest.next() {
            Some(b'r' | b'R' | b'h' | b'g' | b'p' | b't' | b'T' | b'%') | None => {}
            Some(_) => {
                let text = String::from_utf8_lossy(&text[text.len() - rest.len() - 1..]);
                return text.chars().next();
            }
        }
    }
    None
}

/// A pattern for one rank, in which everything but the time is filled in.
#[derive(Clone, Debug, Default)]
pub struct Pattern {
    pieces: Vec<PatternPiece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PatternPiece {
    Text(Vec<u8>),
    Seconds,
    Date,
}

#[derive(Clone, Copy, Debug)]
pub struct PatternRank<'a> {
    pub rank: usize,
    pub ranks: usize,
    pub host: &'a str,
}

impl Pattern {
    /// Makes the pattern of a rank, in which everything but the time is filled in. An unknown letter stays unchanged.
    pub fn new(text: &[u8], who: PatternRank<'_>) -> Pattern {
        let mut pattern = Pattern::default();
        let mut rest = text.iter().copied();
        while let Some(byte) = rest.next() {
            if byte != b'%' {
                pattern.push(&[byte]);
                continue;
            }
            let digits = who.ranks.to_string().len();
            match rest.next() {
                Some(b'r') => pattern.push(who.rank.to_string().as_bytes()),
                Some(b'R') => pattern.push(format!("{:0digits$}", who.rank).as_bytes()),
                Some(b'h') => pattern.push(who.host.as_bytes()),
                Some(b'g' | b'p') => pattern.push(b"0"),
                Some(b't') => pattern.pieces.push(PatternPiece::Seconds),
                Some(b'T') => pattern.pieces.push(PatternPiece::Date),
                Some(b'%') | None => pattern.push(b"%"),
                Some(other) => pattern.push(&[b'%', other]),
            }
        }
        pattern
    }

    fn push(&mut self, bytes: &[u8]) {
        match self.pieces.last_mut() {
            Some(PatternPiece::Text(text)) => text.extend_from_slice(bytes),
            _ => self.pieces.push(PatternPiece::Text(bytes.to_vec())),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        let seconds = || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            now.map_or(0, |d| d.as_secs() as libc::time_t)
        };
        for piece in &self.pieces {
            match piece {
                PatternPiece::Text(text) => out.extend_from_slice(text),
                PatternPiece::Seconds => out.extend_from_slice(seconds().to_string().as_bytes()),
                PatternPiece::Date => out.extend_from_slice(format_date(seconds()).as_bytes()),
            }
        }
    }
}

/// Formats a time, such as `2026-11-23 12:33:22`, in the user's time zone.
fn format_date(seconds: libc::time_t) -> String {
    // SAFETY: all zeros is a valid tm, and the call fills it or fails.
    let tm = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&seconds, &mut tm).is_null() {
            return seconds.to_string();
        }
        tm
    };
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        tm.tm_year + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec
    )
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn write(text: &str) -> String {
        let who = PatternRank { rank: 7, ranks: 12, host: "box" };
        let mut out = Vec::new();
        Pattern::new(text.as_bytes(), who).write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn pattern__fills_in_the_rank() {
        assert_eq!(write("o.%r.%R.%h.%g.%p"), "o.7.07.box.0.0");
        assert_eq!(write("100%% %x 5%"), "100% %x 5%");
        assert_eq!(write("%%r%r"), "%r7");
        assert_eq!(write(""), "");
    }

    #[test]
    fn unknown_wireup_datagram__is_found() {
        assert_eq!(find_unknown(b"%r%R%h%t%T%g%p%%z 5%"), None);
        assert_eq!(find_unknown(b"o.%r.%z"), Some('z'));
        assert_eq!(find_unknown("%ü".as_bytes()), Some('ü'));
    }

    #[test]
    fn pattern__writes_the_time() {
        assert!(write("%t").parse::<u64>().unwrap() > 1 << 30);
        let date = write("%T");
        assert_eq!(date.len(), 19);
        assert_eq!(date.matches(['-', ':', ' ']).count(), 5);
    }
}
