//! Memory mappings of this process, from /proc/self/maps. Nothing here allocates.

use std::fs::File;
use std::io::{self, Read};
use std::ops::{ControlFlow, Range};

/// Bytes of the read buffer; the rest of a longer line is skipped.
const ROOM: usize = 8192;

/// A mapping of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapsEntry {
    /// Address range of the mapping; not empty.
    pub range: Range<usize>,
    /// Whether the process may write the mapping.
    pub is_writable: bool,
    /// Whether the mapping is private and not backed by a file.
    pub is_own: bool,
}

fn parse(line: &[u8]) -> Option<MapsEntry> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let (range, rights) = (text(words.next()?)?, words.next()?);
    let (_offset, _device, inode) = (words.next()?, words.next()?, words.next()?);
    let is_unnamed = match words.next() {
        None => true,
        // Any other name belongs to kernel pages or, if the inode is 0, to a file without an inode.
        Some(name) => name == b"[heap]" || name == b"[stack]" || name.starts_with(b"[anon:"),
    };
    let (start, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let range = number(start)?..number(end)?;
    let is_private = rights.starts_with(b"rw") && rights.ends_with(b"p");
    (!range.is_empty()).then_some(MapsEntry {
        range,
        is_writable: rights.get(1) == Some(&b'w'),
        is_own: is_private && inode == b"0" && is_unnamed,
    })
}

/// Visits the mappings in order of address.
///
/// # Errors
/// /proc is not available.
pub fn visit(mut visit: impl FnMut(MapsEntry) -> ControlFlow<()>) -> io::Result<()> {
    let mut file = File::open("/proc/self/maps")?;
    visit_lines(&mut file, |line| match parse(line) {
        Some(mapping) => visit(mapping),
        None => ControlFlow::Continue(()),
    })
}

fn visit_lines(
    from: &mut impl Read, mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut buffer = [0; ROOM];
    let (mut filled, mut skipping) = (0, false);
    loop {
        match from.read(&mut buffer[filled..])? {
            0 => return Ok(()),
            got => filled += got,
        }
        let mut done = 0;
        while let Some(end) = buffer[done..filled].iter().position(|byte| *byte == b'\n') {
            let line = &buffer[done..done + end];
            done += end + 1;
            if !std::mem::take(&mut skipping) && visit(line).is_break() {
                return Ok(());
            }
        }
        buffer.copy_within(done..filled, 0);
        filled -= done;
        if filled == ROOM {
            // The line is longer than the buffer, so its rest is skipped.
            (filled, skipping) = (0, true);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse__finds_private_memory_of_no_file() {
        let own_of = |mapping: MapsEntry| mapping.is_own.then_some(mapping.range);
        let of = |text: &str| parse(text.as_bytes()).and_then(own_of);
        let own = Some(0x7f00_0000_1000..0x7f00_0000_3000);
        let line = "7f0000001000-7f0000003000 rw-p 00000000 00:00 0 ";
        assert_eq!(of(line), own);
        for name in ["[heap]", "[stack]", "[anon:some name]"] {
            assert_eq!(of(&format!("{line}          {name}")), own, "{name}");
        }
        for other in ["[vvar]", "/dev/zero", "//anon", "anon_inode:x"] {
            assert_eq!(of(&format!("{line}          {other}")), None, "{other}");
        }
        for rights in ["r--p", "rw-s", "---p", "r-xp"] {
            assert_eq!(of(&line.replace("rw-p", rights)), None, "{rights}");
            let found = parse(line.replace("rw-p", rights).as_bytes()).unwrap();
            assert_eq!(found.is_writable, rights == "rw-s", "{rights}");
        }
        for bad in ["", "7f-", "1000-9000", "x-y rw-p 0 0:0 0", "2-1 rw-p 0 0:0 0"] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(of(&line.replace(" 0 ", " 17 /tmp/x (deleted)")), None);
    }

    #[test]
    fn lines__survive_any_cut_and_any_length() {
        struct Cut<'a>(&'a [u8], usize);
        impl Read for Cut<'_> {
            fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
                let most = self.1.min(to.len());
                Read::read(&mut self.0, &mut to[..most])
            }
        }
        let long = "x".repeat(3 * ROOM);
        let text = format!("one\n{long}\ntwo\n\nthree\n");
        for cut in [1, 7, 4096, 100_000] {
            let mut seen = Vec::new();
            let visited = visit_lines(&mut Cut(text.as_bytes(), cut), |line| {
                seen.push(String::from_utf8(line.to_vec()).unwrap());
                ControlFlow::Continue(())
            });
            visited.unwrap();
            assert_eq!(seen, ["one", "two", "", "three"], "{cut}");
        }
    }

    #[test]
    fn visit__finds_the_heap_and_the_stack() {
        let (boxed, local) = (Box::new([1_u8; 100]), 1_u8);
        for at in [(&raw const *boxed).addr(), (&raw const local).addr()] {
            let mut found = false;
            let visited = visit(|mapping| {
                found |= mapping.is_own && mapping.range.contains(&at);
                ControlFlow::Continue(())
            });
            assert!(visited.is_ok() && found);
        }
    }
}
