//! What is read of the kernel's files and of the user's.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Bytes that are read of a file of the kernel at most.
const KERNEL_MAX: u64 = 64 << 10;

/// The text of a small file, without space around it; None if it is missing or no text.
pub fn read_text(path: impl AsRef<Path>) -> Option<String> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(KERNEL_MAX).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The names in a folder; none where there is no such folder.
pub fn list_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The names in a folder that are numbers, in their order.
pub fn list_numbers(folder: &Path) -> Vec<u32> {
    let names = list_names(folder).into_iter();
    let mut numbers: Vec<u32> = names.filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// A whole file that the user named, `-` for the standard input.
///
/// # Errors
/// It cannot be read, or has more than `most` bytes.
pub fn read_input(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    match path.as_os_str() == "-" {
        true => read_whole(io::stdin().lock(), most),
        false => read_whole(File::open(path)?, most),
    }
}

/// All of it, if that is at most so much.
///
/// # Errors
/// It cannot be read, or has more than `most` bytes.
pub fn read_whole(input: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!(
            "longer than {most} bytes, which is the most that is read; give a part of it"
        )));
    }
    Ok(bytes)
}
