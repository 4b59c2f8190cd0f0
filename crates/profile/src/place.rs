//! Functions and lines of call sites, from debug information.

use addr2line::Loader;
use fastpath_base::tell::escape;
use serde::Serialize;
use std::collections::HashMap;
use std::path::Path;

/// A call site in the program.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CallPlace {
    /// Function that makes the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Source file and line, if the program has debug information.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// File with the code, and the address of the call in it.
    pub object: String,
    pub address: u64,
}

impl CallPlace {
    /// Returns the line in the source, or else the address in the object file.
    pub fn describe(&self) -> String {
        let place = match (&self.file, self.line) {
            (Some(file), Some(line)) => format!("{}:{line}", short(file)),
            _ => format!("{}+{:#x}", short(&self.object), self.address),
        };
        escape(&place).into_owned()
    }

    /// Returns the calling function; `?` if the program has no symbols.
    pub fn function(&self) -> String {
        escape(self.caller.as_deref().unwrap_or("?")).into_owned()
    }
}

/// Returns the name of a file without its folders.
fn short(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Debug information by file, loaded at the first use of the file.
#[derive(Default)]
pub(crate) struct Places(HashMap<String, Option<Loader>>);

impl Places {
    /// Finds function and line of an address; neither if the file cannot be read.
    pub fn find(&mut self, object: &str, address: u64) -> CallPlace {
        let open = || Loader::new(Path::new(object)).ok();
        let loader = self.0.entry(object.to_owned()).or_insert_with(open).as_ref();
        let function = loader.and_then(|loader| {
            let frame = loader.find_frames(address).ok()?.next().ok()??;
            Some(frame.function?.demangle().ok()?.into_owned())
        });
        let symbol = || Some(loader?.find_symbol(address)?.to_owned());
        let location = loader.and_then(|loader| loader.find_location(address).ok()?);
        CallPlace {
            caller: function.or_else(symbol),
            file: location.as_ref().and_then(|location| location.file).map(str::to_owned),
            line: location.and_then(|location| location.line),
            object: object.to_owned(),
            address,
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn place__without_debug_information_is_object_and_address() {
        let place = Places::default().find("/proc/none/none", 0x40);
        assert_eq!((place.describe(), place.function()), ("none+0x40".into(), "?".into()));
    }
}
