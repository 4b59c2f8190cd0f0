//! Finds the MPI library by a compiler wrapper or by pkg-config.

use std::env;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    for name in ["MPICC", "PATH", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    // docs.rs has no MPI library, and links nothing.
    if env::var_os("DOCS_RS").is_some() {
        return ExitCode::SUCCESS;
    }
    let mut commands = vec![
        vec!["mpicc".to_string(), "-show".into()],
        vec!["mpicc_abi".into(), "-show".into()],
        vec!["pkg-config".into(), "--libs".into(), "mpi".into()],
    ];
    if let Ok(wrapper) = env::var("MPICC") {
        commands = vec![vec![wrapper, "-show".into()]];
    }
    let mut causes = Vec::new();
    for command in commands {
        match find_folders(&command) {
            Ok(folders) => {
                link(&folders);
                return ExitCode::SUCCESS;
            }
            Err(cause) => causes.push(format!("  {}: {cause}", command.join(" "))),
        }
    }
    let causes = causes.join("\n");
    eprintln!("no MPI library with the standard ABI was found:\n{causes}");
    eprintln!("put the folder of Fastpath's mpicc on PATH, or set MPICC to its path");
    ExitCode::FAILURE
}

/// Passes the library and its folders to Cargo, and to the build scripts of dependent crates.
fn link(folders: &[String]) {
    println!("cargo::rustc-link-lib=dylib=mpi_abi");
    for folder in folders {
        println!("cargo::rustc-link-search=native={folder}");
        println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
    }
    if let Some(folder) = folders.first() {
        println!("cargo::metadata=libdir={folder}");
    }
}

/// Returns the library folders that a command prints; none if the library is in a folder of the system. The error is
/// the reason why the command names no library.
fn find_folders(command: &[String]) -> Result<Vec<String>, String> {
    let done = Command::new(&command[0]).args(&command[1..]).output().map_err(|e| e.to_string())?;
    if !done.status.success() {
        let printed = String::from_utf8_lossy(&done.stderr);
        return Err(printed.lines().next().unwrap_or("it failed").to_string());
    }
    let words = split_words(&String::from_utf8_lossy(&done.stdout));
    if !words.iter().any(|word| word == "-lmpi_abi") {
        return Err("it prints no -lmpi_abi".into());
    }
    Ok(words.iter().filter_map(|word| word.strip_prefix("-L")).map(str::to_string).collect())
}

/// Splits a line as a shell does, without expansions.
fn split_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            _ if quote == Some(letter) => quote = None,
            '\\' if quote != Some('\'') => word.get_or_insert_default().extend(letters.next()),
            '"' | '\'' if quote.is_none() => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            _ if letter.is_whitespace() && quote.is_none() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}
