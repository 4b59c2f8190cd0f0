//! Line tables of code objects.

/// Format of a line table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineTable {
    /// 3.9 (`co_lnotab`): increments of offset and line. Offsets count bytes.
    Bytes,
    /// 3.10 (PEP 626): lengths of ranges, and increments of the line. Instructions have two bytes.
    Ranges,
    /// 3.11 and later (`Objects/locations.md`): ranges of instructions with encoded locations. Offsets count bytes.
    Locations,
}

impl LineTable {
    /// Returns the line of an instruction; `None` if it has none. `first` is the line of the function, and `offset` is
    /// the instruction's offset as frames of this version have it.
    pub fn find(self, table: &[u8], first: u32, offset: u64) -> Option<u32> {
        let mut line = i64::from(first);
        let found = match self {
            LineTable::Bytes => {
                let mut at = 0;
                for pair in table.chunks_exact(2) {
                    at += u64::from(pair[0]);
                    if at > offset {
                        break;
                    }
                    line += i64::from(pair[1] as i8);
                }
                Some(line)
            }
            LineTable::Ranges => {
                let (wanted, mut end) = (2 * offset, 0);
                table.chunks_exact(2).find_map(|pair| {
                    end += u64::from(pair[0]);
                    let has_line = pair[1] as i8 != i8::MIN;
                    line += if has_line { i64::from(pair[1] as i8) } else { 0 };
                    (wanted < end).then_some(has_line.then_some(line))
                })?
            }
            LineTable::Locations => find_location(table, line, offset / 2)?,
        };
        found.and_then(|line| u32::try_from(line).ok())
    }
}

/// Returns the line of an instruction. The outer `None` means that the table does not have it.
fn find_location(table: &[u8], mut line: i64, wanted: u64) -> Option<Option<i64>> {
    let (mut bytes, mut end) = (table.iter().copied(), 0);
    loop {
        let head = bytes.next()?;
        end += u64::from(head & 7) + 1;
        let form = head >> 3 & 15;
        match form {
            // The line is that of the entry before; one byte with columns.
            0..=9 => _ = bytes.next()?,
            10..=12 => {
                line += i64::from(form - 10);
                bytes.nth(1)?;
            }
            13 => line = line.checked_add(read_signed(&mut bytes)?)?,
            14 => {
                line = line.checked_add(read_signed(&mut bytes)?)?;
                for _ in 0..3 {
                    read_number(&mut bytes)?;
                }
            }
            _ => {}
        }
        if wanted < end {
            return Some((form != 15).then_some(line));
        }
    }
}

/// Reads a number of six bits per byte, the lowest first. Bit 6 means that more follow.
fn read_number(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = bytes.next()?;
        number |= u64::from(byte & 63).checked_shl(shift)?;
        if byte & 64 == 0 {
            return Some(number);
        }
        shift += 6;
    }
}

/// Reads a number whose lowest bit is the sign.
fn read_signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let number = read_number(bytes)?;
    let size = i64::try_from(number >> 1).ok()?;
    Some(if number & 1 == 1 { -size } else { size })
}
