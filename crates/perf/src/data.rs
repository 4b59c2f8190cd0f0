//! Tables that are compiled in from `data/`: what is known of tests, tools, devices and texts is no code.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// Declares a table that is read from a file of `data/` when it is first needed.
macro_rules! table {
    ($(#[$note:meta])* $seen:vis $name:ident: $type:ty = $file:literal) => {
        $(#[$note])*
        $seen static $name: std::sync::LazyLock<$type> = std::sync::LazyLock::new(|| {
            $crate::data::read($file, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/", $file)))
        });
    };
}
pub(crate) use table;

/// What the text of a file says.
///
/// # Panics
///
/// If it does not fit the type. The files are part of the program, and a test reads each of them.
pub fn read<T: DeserializeOwned>(file: &str, text: &str) -> T {
    toml::from_str(text).unwrap_or_else(|e| panic!("data/{file}: {e}"))
}

/// A text that lives as long as the program. (Under its own name serde would take the reference for borrowed.)
pub type Text = &'static str;

/// Reads a text that lives as long as the program, as everything in these tables does.
pub fn leak<'de, D: Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
    Ok(String::deserialize(from)?.leak())
}

/// The same for a list.
pub fn leak_all<'de, D, T>(from: D) -> Result<&'static [T], D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    Ok(Vec::deserialize(from)?.leak())
}
