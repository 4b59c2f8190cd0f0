//! Detects ranks that ran as singletons: the program loaded another MPI library, which made each of them rank 0 of 1.

use crate::ranks::RankProcess;
use fastpath_job::inspect::ProcessEnd;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Number of bytes searched at the start of a program. They hold the names of its libraries.
const HEAD: u64 = 4 << 20;

/// Returns a warning if a job has two or more ranks, each still runs or exited with code 0, and none joined the job.
/// Returns None unless their program names an MPI library other than the one beside this launcher.
pub fn describe(ranks: &[RankProcess], has_joined: impl Fn(usize) -> bool) -> Option<String> {
    let is_well = |rank: &RankProcess| matches!(rank.end, None | Some(ProcessEnd::Exit(0)));
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
        "mpiexec: no rank has called MPI_Init of Fastpath; each rank may have run alone, as rank 0 \
         of 1. {program} needs {name}: ldd prints which library the program loads. If that is \
         libmpi_abi.so of another MPI, put {} first in LD_LIBRARY_PATH\n",
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
