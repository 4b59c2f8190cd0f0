//! Ranks that were singletons: the program has loaded another MPI library, for which each of them is rank 0 of 1.

use crate::ranks::Rank;
use fastpath_bootstrap::inspect::ProcessEnd;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// So much of a program is looked through; the names of its libraries lie further ahead.
const HEAD: u64 = 4 << 20;

/// The line about a job of several ranks that all ended well, or run too long, without one having joined it, if their
/// program names an MPI library other than the one beside this launcher. None if it names none.
pub fn describe(ranks: &[Rank], has_joined: impl Fn(usize) -> bool) -> Option<String> {
    let is_well = |rank: &Rank| matches!(rank.end, None | Some(ProcessEnd::Exit(0)));
    if ranks.len() < 2 || !ranks.iter().all(is_well) || (0..ranks.len()).any(has_joined) {
        return None;
    }
    let program = &ranks[0].program;
    let head = read_head(Path::new(program))?;
    let name = ["libmpi_abi.so", "libmpi.so", "libmpich.so", "libmpi_cxx.so"]
        .into_iter()
        .find(|name| holds(&head, name.as_bytes()))?;
    let own = std::env::current_exe().ok()?;
    let own = own.parent()?.parent()?.join("lib");
    if holds(&head, own.as_os_str().as_encoded_bytes()) {
        return None;
    }
    Some(format!(
        "mpiexec: no rank has joined the job: each may have run alone, as rank 0 of 1. {program} \
         names {name}: check with ldd which one it loads; to replace one of the standard ABI \
         (libmpi_abi.so) by this one, put {} first in LD_LIBRARY_PATH\n",
        own.display()
    ))
}

fn read_head(program: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let file = File::open(program).ok()?;
    file.take(HEAD).read_to_end(&mut head).ok()?;
    Some(head)
}

fn holds(bytes: &[u8], name: &[u8]) -> bool {
    bytes.windows(name.len()).any(|window| window == name)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn holds__a_name_wherever_it_lies() {
        assert!(holds(b"libmpi.so.12", b"libmpi.so") && holds(b"\0libmpi.so", b"libmpi.so"));
        assert!(!holds(b"libmpi.s", b"libmpi.so") && !holds(b"", b"libmpi.so"));
    }
}
