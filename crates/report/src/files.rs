//! Reading of kernel files and user files.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::path::Path;

use fastpath_base::tell;

/// Maximum number of bytes that are read from a kernel file.
const KERNEL_MAX: u64 = 64 << 10;

/// Returns the text of a small file, trimmed; None if it is missing or not text.
pub fn read_text(path: impl AsRef<Path>) -> Option<String> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(KERNEL_MAX).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Lists the names in a folder; empty without such a folder.
pub fn list_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Lists the names in a folder that are numbers, sorted.
pub fn list_numbers(folder: &Path) -> Vec<u32> {
    let names = list_names(folder).into_iter();
    let mut numbers: Vec<u32> = names.filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// Reads a whole file that the user named; `-` is standard input. At a terminal, prints what the program waits for.
///
/// # Errors
/// The file cannot be read, or has more than `most` bytes.
pub fn read_input(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    if path.as_os_str() != "-" {
        return read_whole(File::open(path)?, most);
    }
    if io::stdin().is_terminal() {
        tell!("fastpath: reading standard input: paste the text, then press Enter and Ctrl-D");
    }
    read_whole(io::stdin().lock(), most)
}

/// Reads the whole input.
///
/// # Errors
/// The input cannot be read, or has more than `most` bytes.
pub fn read_whole(input: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!(
            "the text is longer than {most} bytes, the limit; pass a part of the text"
        )));
    }
    Ok(bytes)
}
