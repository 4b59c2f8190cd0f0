//! Parser of callgrind's output with `--dump-instr=yes`: how often each instruction of each object was executed (the
//! "callgrind profile format", version 1).

use std::collections::{BTreeMap, HashMap};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dump {
    /// Name given by the counted program.
    pub name: String,
    /// Number of all executed instructions.
    pub total: u64,
    pub costs: BTreeMap<(String, u64), u64>,
    /// Function by address, as callgrind names it from the symbol table.
    pub functions: HashMap<(String, u64), String>,
}

#[derive(Default)]
struct NameTable(HashMap<String, String>);

impl NameTable {
    /// Resolves `(3) name`, which defines a name, or `(3)`, which refers to it.
    fn resolve(&mut self, text: &str) -> String {
        let Some(rest) = text.strip_prefix('(') else {
            return text.to_owned();
        };
        let Some((number, name)) = rest.split_once(')') else {
            return text.to_owned();
        };
        let name = name.trim();
        if name.is_empty() {
            return self.0.get(number).cloned().unwrap_or_default();
        }
        self.0.insert(number.to_owned(), name.to_owned());
        name.to_owned()
    }
}

/// Parses a position: absolute, relative to the last position, or equal to it.
fn parse_position(text: &str, last: u64) -> Option<u64> {
    if text == "*" {
        return Some(last);
    }
    let (text, sign) = match text.as_bytes().first()? {
        b'+' => (&text[1..], 1),
        b'-' => (&text[1..], -1),
        _ => (text, 0),
    };
    let value = match text.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok()?,
        None => text.parse().ok()?,
    };
    Some(match sign {
        1 => last.wrapping_add(value),
        -1 => last.wrapping_sub(value),
        _ => value,
    })
}

/// Parses a dump. An error has the line whose format is wrong.
pub fn parse_dump(text: &str) -> Result<Dump, String> {
    let mut dump = Dump::default();
    let (mut objects, mut functions) = (NameTable::default(), NameTable::default());
    let (mut object, mut function) = (String::new(), String::new());
    let (mut address, mut called) = (0, false);
    for (number, line) in text.lines().enumerate() {
        let wrong = || format!("line {}: {line}", number + 1);
        match line.split_once(['=', ':']) {
            Some(("desc", rest)) => {
                if let Some(name) = rest.trim().strip_prefix("Trigger: Client Request:") {
                    dump.name = name.trim().to_owned();
                }
                continue;
            }
            Some(("ob", name)) => object = objects.resolve(name),
            Some(("fn", name)) => function = functions.resolve(name),
            // Names of called code, whose cost is counted at its own position.
            Some(("cob", name)) => drop(objects.resolve(name)),
            Some(("cfn", name)) => drop(functions.resolve(name)),
            Some(("calls", _)) => called = true,
            Some(("totals" | "summary", rest)) => {
                dump.total = rest.trim().parse().map_err(|_| wrong())?;
            }
            _ if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) => {
                let mut words = line.split_ascii_whitespace();
                let position = words.next().and_then(|w| parse_position(w, address));
                address = position.ok_or_else(wrong)?;
                let cost: u64 = words.nth(1).unwrap_or("0").parse().map_err(|_| wrong())?;
                if !called {
                    let key = (object.clone(), address);
                    *dump.costs.entry(key.clone()).or_default() += cost;
                    dump.functions.entry(key).or_insert_with(|| function.clone());
                }
                called = false;
            }
            _ => {}
        }
    }
    Ok(dump)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "# callgrind format\nversion: 1\ndesc: Trigger: Client Request: \
        MPI_Send\n\npositions: instr line\nevents: Ir\n\
        summary: 1010\n\nob=(8) /tmp/ins\nfl=(161) /a.c\nfn=(24) make_call\n0x18b0 93 10\n+12 * \
        20\ncob=(7) /lib.so\ncfn=(9) send\n\
        calls=10 0x62620 2111 \n* * 900\n+4 +1 30\n\nob=(7)\nfn=(9)\n0x62620 5 40\nfi=(2) \
        /b.rs\n+3 -2 50\ntotals: 1010\n";

    #[test]
    fn dump__counts_each_instruction_once_where_it_is() {
        let dump = parse_dump(TEXT).unwrap();
        assert_eq!((dump.name.as_str(), dump.total), ("MPI_Send", 1010));
        let at = |object: &str, address| dump.costs.get(&(object.to_owned(), address)).copied();
        assert_eq!(at("/tmp/ins", 0x18b0), Some(10));
        assert_eq!(at("/tmp/ins", 0x18bc), Some(20));
        assert_eq!(at("/tmp/ins", 0x18c0), Some(30));
        assert_eq!(at("/lib.so", 0x62620), Some(40));
        assert_eq!(at("/lib.so", 0x62623), Some(50));
        assert_eq!(dump.costs.values().sum::<u64>(), 150);
        assert_eq!(dump.functions[&("/lib.so".to_owned(), 0x62623)], "send");
    }

    #[test]
    fn dump__that_is_damaged_is_refused_with_its_line() {
        let wrong = TEXT.replace("+12 * 20", "+12 * twenty");
        assert!(parse_dump(&wrong).unwrap_err().contains("twenty"));
    }

    proptest! {
        #[test]
        fn any_text__is_read_or_refused(text in "([-+*0-9x= ():\n]|fn=|ob=|calls=|totals: ){0,200}") {
            let _ = parse_dump(&text);
        }
    }
}
