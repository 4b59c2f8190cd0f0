//! Tables compiled in from `data/`: facts about tests, tools, devices and texts are data.

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// Declares a table that is parsed from a file of `data/` when it is first used.
#[macro_export]
macro_rules! table {
    ($(#[$note:meta])* $seen:vis $name:ident: $type:ty = $file:literal) => {
        $(#[$note])*
        $seen static $name: std::sync::LazyLock<$type> = std::sync::LazyLock::new(|| {
            $crate::data::read($file, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/",
                $file)))
        });
    };
}
/// Names and values for `fill`: `name = expression`, or `name` alone for the variable of that name.
#[macro_export]
macro_rules! values {
    ($($key:ident $(= $value:expr)?),* $(,)?) => {
        &[$((stringify!($key), &$crate::data::value!($key $(= $value)?) as &dyn
            std::fmt::Display)),*]
    };
}
/// One value of [`values!`].
#[macro_export]
#[doc(hidden)]
macro_rules! value {
    ($key:ident) => {
        $key
    };
    ($key:ident = $value:expr) => {
        $value
    };
}
pub use crate::{table, value, values};

/// Parses the text of a file.
///
/// # Panics
///
/// Panics if the text does not parse as `T`. The files are part of the program, and a test reads each of them.
pub fn read<T: DeserializeOwned>(file: &str, text: &str) -> T {
    toml::from_str(text).unwrap_or_else(|e| panic!("data/{file}: {e}"))
}

/// A text that lives as long as the program. The alias hides the reference from serde's derive, which would otherwise
/// borrow the text from its input.
pub type Text = &'static str;

/// Deserializes a text that lives as long as the program.
pub fn leak<'de, D: Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
    Ok(String::deserialize(from)?.leak())
}

/// Deserializes a list that lives as long as the program.
pub fn leak_all<'de, D, T>(from: D) -> Result<&'static [T], D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    Ok(Vec::deserialize(from)?.leak())
}

/// Names and their replacements in a text.
pub type Values<'a> = &'a [(&'a str, &'a dyn Display)];

/// Replaces names in a text by their values.
pub fn fill(text: &str, values: Values) -> String {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or((part, ""));
        let value = values.iter().find(|(known, _)| *known == name);
        debug_assert!(value.is_some(), "`{text}` needs {name}");
        filled += &value.map_or_else(String::new, |(_, value)| value.to_string());
        filled += rest;
    }
    filled
}
