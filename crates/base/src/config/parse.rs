//! Parsing of sizes, times, numbers and words. An error text lists what is accepted.

use super::{ConfigValue, ValueKind};
use crate::float;

pub(super) fn parse_value(kind: &ValueKind, text: &str) -> Result<ConfigValue, String> {
    let text = text.trim();
    match *kind {
        ValueKind::Flag => parse_flag(text).map(ConfigValue::Flag),
        ValueKind::FlagOr(words) => match find_word(text, words) {
            Ok(index) => Ok(ConfigValue::Choice(index)),
            Err(_) => parse_flag(text)
                .map(ConfigValue::Flag)
                .map_err(|e| format!("{e}, or {}", words.join(", "))),
        },
        ValueKind::Size => parse_size(text).map(|n| ConfigValue::Number(Some(n))),
        ValueKind::SizeOrAuto | ValueKind::SizeWithin(..) => or_auto(text, parse_size),
        ValueKind::BytesOrAuto => or_auto(text, parse_bytes),
        ValueKind::DurationOrAuto => or_auto(text, parse_duration_ns),
        ValueKind::Count => parse_count(text).map(|n| ConfigValue::Number(Some(n))),
        ValueKind::CountWithin(least, most) => match parse_count(text) {
            Ok(n) if (least..=most).contains(&n) => Ok(ConfigValue::Number(Some(n))),
            _ => Err(format!("expected a whole number from {least} to {most}")),
        },
        ValueKind::Choice(words) => find_word(text, words).map(ConfigValue::Choice),
        ValueKind::Words(words) => parse_words(text, words).map(ConfigValue::List),
        ValueKind::Text => Ok(ConfigValue::Text(text.to_owned())),
    }
}

fn or_auto(text: &str, parse: fn(&str) -> Result<u64, String>) -> Result<ConfigValue, String> {
    if text.eq_ignore_ascii_case("auto") {
        return Ok(ConfigValue::Number(None));
    }
    parse(text).map(|n| ConfigValue::Number(Some(n))).map_err(|e| format!("{e}, or auto"))
}

/// Parses `1`, `yes`, `on`, `true`, `y`, `0`, `no`, `off`, `false`, `n`, in any case.
///
/// # Errors
/// Any other text.
pub fn parse_flag(text: &str) -> Result<bool, String> {
    const ON: &[&str] = &["1", "yes", "on", "true", "y"];
    const OFF: &[&str] = &["0", "no", "off", "false", "n"];
    let is = |words: &[&str]| words.iter().any(|w| w.eq_ignore_ascii_case(text));
    if is(ON) {
        Ok(true)
    } else if is(OFF) {
        Ok(false)
    } else {
        Err("expected yes or no (1 or 0, on or off)".to_owned())
    }
}

/// Parses a whole number, 0 to 2^64 - 1.
///
/// # Errors
/// Anything else.
pub fn parse_count(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a whole number".to_owned())
}

/// Parses bytes: a number, optionally with a fraction and a unit K, M, G or T (powers of 1024; any case; `KB` and `KiB`
/// equal `K`).
///
/// # Errors
/// Not a number, an unknown unit, a negative number, more than 2^63 bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split_unit(text);
    let unit = unit.to_ascii_lowercase();
    let letter = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit);
    let shift = match letter {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err("expected a size such as 4096, 64K or 1M".to_owned()),
    };
    scale(number, (1u64 << shift) as f64)
        .ok_or_else(|| "expected a size such as 4096, 64K or 1M".to_owned())
}

const LONGEST_BYTES: usize = 32;

/// Parses decimal bytes below 2^32, optionally with `K` or `M` for 1024 and 1024 * 1024. Unlike [`parse_size`], accepts
/// no fraction, no other unit and no other characters.
///
/// # Errors
/// Any other text; the message names the cause.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let refuse = |why: &str| Err(format!("{why}; expected a number of bytes such as 0, 220 or 1K"));
    if text.len() > LONGEST_BYTES {
        return refuse("too long");
    }
    let (digits, shift) = match text.as_bytes() {
        [] => return refuse("empty"),
        [b'-', ..] => return refuse("negative"),
        [_, .., b'k' | b'K'] => (&text[..text.len() - 1], 10),
        [_, .., b'm' | b'M'] => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return refuse("not a number");
    }
    let bytes = digits.parse::<u64>().ok();
    match bytes.and_then(|bytes| bytes.checked_mul(1 << shift)) {
        Some(bytes) if bytes <= u32::MAX as u64 => Ok(bytes),
        _ => refuse("too large"),
    }
}

/// Parses a time with its unit (`ns`, `us`, `ms`, `s`, `m`, `h`), in nanoseconds. `m` are minutes. `0` needs no unit.
///
/// # Errors
/// Not a number, no unit, an unknown unit, a negative number, more than 2^63 ns.
pub fn parse_duration_ns(text: &str) -> Result<u64, String> {
    let wrong = || "expected a time such as 500ns, 10us, 1.5ms, 30s or 3m (minutes)".to_owned();
    let (number, unit) = split_unit(text);
    let factor = match unit {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        "" if number == "0" => 1.0,
        _ => return Err(wrong()),
    };
    scale(number, factor).ok_or_else(wrong)
}

fn split_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim())
}

/// Returns `number * factor`, exact for whole numbers. `None` if `number` is not a number, or the result is too large.
fn scale(number: &str, factor: f64) -> Option<u64> {
    const LIMIT: u64 = 1 << 63;
    let value = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(factor as u64)?,
        Err(_) => {
            // Protect the program's floating-point state, because a tool may read settings while the program computes.
            float::isolated(|| {
                let value = number.parse::<f64>().ok()? * factor;
                (0.0..LIMIT as f64).contains(&value).then(|| value.round() as u64)
            })?
        }
    };
    (value <= LIMIT).then_some(value)
}

fn find_word(text: &str, words: &[&str]) -> Result<usize, String> {
    words
        .iter()
        .position(|w| w.eq_ignore_ascii_case(text))
        .ok_or_else(|| format!("{:?} is not one of {}", super::shorten(text), words.join(", ")))
}

fn parse_words(text: &str, words: &[&str]) -> Result<Vec<String>, String> {
    text.split(',')
        .map(str::trim)
        .filter(|w| !w.is_empty())
        .map(|w| find_word(w, words).map(|i| words[i].to_owned()))
        .collect()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn size__takes_human_units() {
        let good: &[(&str, u64)] = &[
            ("0", 0),
            ("4096", 4096),
            ("64K", 65536),
            ("64k", 65536),
            ("64 KiB", 65536),
            ("1.5M", 1_572_864),
            ("2GB", 2 << 30),
            ("1t", 1 << 40),
            ("8B", 8),
            ("9007199254740993", 9_007_199_254_740_993),
        ];
        for (text, bytes) in good {
            assert_eq!(parse_size(text), Ok(*bytes), "{text}");
        }
    }

    #[test]
    fn size__refuses_the_rest() {
        for text in [
            "",
            "K",
            "-1",
            "1Q",
            "1..5K",
            "99999999999999999999",
            "9999999T",
            "0x10",
            "1 2",
            "nan",
            "1KK",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn duration__needs_a_unit() {
        assert_eq!(parse_duration_ns("10us"), Ok(10_000));
        assert_eq!(parse_duration_ns("1.5ms"), Ok(1_500_000));
        assert_eq!(parse_duration_ns("2 s"), Ok(2_000_000_000));
        assert_eq!(parse_duration_ns("0"), Ok(0));
        assert_eq!(parse_duration_ns("3m"), Ok(180_000_000_000));
        assert_eq!(parse_duration_ns("1.5h"), Ok(5_400_000_000_000));
        for text in ["10", "us", "10M", "1e3us", "99999999999s"] {
            assert!(parse_duration_ns(text).is_err(), "{text}");
        }
    }

    #[test]
    fn flag__is_yes_or_no() {
        assert_eq!(parse_flag("Yes"), Ok(true));
        assert_eq!(parse_flag("off"), Ok(false));
        assert!(parse_flag("2").is_err());
    }

    #[test]
    fn words__are_checked_one_by_one() {
        assert_eq!(parse_words("a, B,", &["a", "b"]), Ok(vec!["a".to_owned(), "b".to_owned()]));
        assert!(parse_words("a,c", &["a", "b"]).unwrap_err().contains("\"c\""));
    }

    #[test]
    fn any_text__is_understood_or_refused() {
        let pool = [
            "", "0", "9", "64", ".", "e", "-", "+", "K", "kib", "us", "µ", " ", ",", "auto", "inf",
            "1",
        ];
        let kinds = [
            ValueKind::Flag,
            ValueKind::Size,
            ValueKind::SizeOrAuto,
            ValueKind::DurationOrAuto,
            ValueKind::Count,
            ValueKind::CountWithin(1, 64),
            ValueKind::Choice(&["a"]),
            ValueKind::Words(&["a"]),
            ValueKind::Text,
        ];
        for n in 0..pool.len().pow(4) {
            let text: String = (0..4).map(|k| pool[n / pool.len().pow(k) % pool.len()]).collect();
            for kind in &kinds {
                let _ = parse_value(kind, &text);
            }
        }
    }
}
