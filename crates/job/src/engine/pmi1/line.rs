//! The lines of PMI-1: `cmd=get kvsname=K key=KEY`, answered by `cmd=get_result rc=0 value=V`. No function here has a
//! side effect.
//!
//! Engines differ in what they write: `rc` may be missing. Other fields, such as `tag=0` in Hydra 5, are ignored.

/// Largest line sent, in bytes: Slurm garbles a longer one.
pub const LINE_MOST: usize = 1024;

/// Largest line read, in bytes.
pub const ANSWER_MOST: usize = 8192;

/// Largest value, in bytes. Keeps each line below [`LINE_MOST`]. Limits that the engine announces are not used.
pub const VALUE_MOST: usize = 700;

/// The fields of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmiLine(Vec<(String, String)>);

impl PmiLine {
    /// Parses a line. Words without `=` are ignored.
    pub fn parse(text: &str) -> PmiLine {
        let fields = text.split_whitespace().filter_map(|w| w.split_once('='));
        PmiLine(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn number(&self, name: &str) -> Option<usize> {
        self.field(name)?.parse().ok()
    }

    /// Returns whether the line answers `command` with success.
    pub fn answers(&self, command: &str) -> bool {
        self.field("cmd") == Some(command) && self.field("rc").is_none_or(|rc| rc == "0")
    }
}

/// Encodes a value: base64 in pieces of at most [`VALUE_MOST`] bytes, the first of which begins with their number. An
/// empty value is one piece.
pub fn split_value(value: &[u8]) -> Vec<String> {
    let text = data_encoding::BASE64URL_NOPAD.encode(value);
    // The number of pieces and a colon precede the first piece.
    let pieces = text.as_bytes().chunks(VALUE_MOST - 8);
    let pieces: Vec<&str> =
        pieces.map(|piece| std::str::from_utf8(piece).unwrap_or_default()).collect();
    let first = format!("{}:{}", pieces.len().max(1), pieces.first().unwrap_or(&""));
    let others = pieces.iter().skip(1).map(|&piece| piece.to_owned());
    std::iter::once(first).chain(others).collect()
}

/// Returns the number of pieces, and the content of the first one; `None` if it is not a first piece.
pub fn read_first(piece: &str) -> Option<(usize, &str)> {
    let (count, text) = piece.split_once(':')?;
    let count = count.parse().ok().filter(|&n| (1..=PIECES_MOST).contains(&n))?;
    Some((count, text))
}

/// Largest number of pieces of a value: some MiB.
pub const PIECES_MOST: usize = 8192;

/// Decodes the value of all pieces; `None` if they are not a value.
pub fn join_value(text: &str) -> Option<Vec<u8>> {
    data_encoding::BASE64URL_NOPAD.decode(text.as_bytes()).ok()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn line__is_read_leniently() {
        for text in [
            "cmd=barrier_out",
            "cmd=barrier_out rc=0\n",
            "cmd=barrier_out tag=0",
            "  cmd=barrier_out   rc=0 msg=success more",
        ] {
            assert!(PmiLine::parse(text).answers("barrier_out"), "{text}");
        }
        for text in ["", "barrier_out", "cmd=barrier_out rc=-1", "cmd=put_result rc=0"] {
            assert!(!PmiLine::parse(text).answers("barrier_out"), "{text}");
        }
        let line = PmiLine::parse("cmd=get_result rc=0 value=(vector,(0,1,2)) a=b=c size=-1 n=3");
        assert_eq!(line.field("value"), Some("(vector,(0,1,2))"));
        assert_eq!(line.field("a"), Some("b=c"));
        assert_eq!((line.number("size"), line.number("n")), (None, Some(3)));
    }

    #[test]
    fn value__comes_back_from_pieces_that_fit_a_line() {
        for length in [0, 1, 518, 519, 520, 2000, 100_000] {
            let value: Vec<u8> = (0..length).map(|i| (i * 7) as u8).collect();
            let pieces = split_value(&value);
            assert!(pieces.iter().all(|piece| piece.len() <= VALUE_MOST));
            assert!(pieces.iter().all(|piece| !piece.contains(['=', ' ', '\n'])));
            let (count, first) = read_first(&pieces[0]).unwrap();
            assert_eq!(count, pieces.len());
            let text = first.to_owned() + &pieces[1..].concat();
            assert_eq!(join_value(&text), Some(value));
        }
        for piece in ["", "1", "0:", "x:AA", "99999:AA", "-1:AA"] {
            assert_eq!(read_first(piece), None, "{piece}");
        }
        assert_eq!(join_value("A=B"), None);
    }

    #[test]
    fn fuzz__lines_are_understood_or_ignored() {
        let corpus: &[&[u8]] = &[
            b"cmd=get_result rc=0 value=2:QUJD",
            b"cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024",
            b"cmd=set size=4",
        ];
        crate::mutate::run(corpus, |input| {
            let line = PmiLine::parse(&String::from_utf8_lossy(input));
            if let Some((count, text)) = line.field("value").and_then(read_first) {
                assert!((1..=PIECES_MOST).contains(&count));
                if let Some(value) = join_value(text) {
                    let again = split_value(&value);
                    let first = read_first(&again[0]).unwrap().1;
                    assert!(join_value(first).is_some());
                }
            }
        });
    }
}
