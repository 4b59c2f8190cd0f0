//! What is said of a job because the command line asks for it: what runs where, and how it ended.

use crate::args::JobSpec;
use crate::ranks::Rank;
use fastpath_base::tell::escape;
use fastpath_bootstrap::inspect::ProcessEnd;
use fastpath_bootstrap::inspect::describe::describe_end;
use std::fmt::Write as _;
use std::path::Path;

/// The lines of `-v` and `--display-map`: node and processors, then each program with its ranks.
pub fn describe_map(spec: &JobSpec, paths: &[&Path], host: &str, processors: usize) -> String {
    let mut text = format!("mpiexec: node {host}, {processors} processor{}\n", plural(processors));
    let mut first = 0;
    for (app, path) in spec.apps.iter().zip(paths) {
        let which = match app.ranks {
            1 => format!("rank {first}"),
            n => format!("ranks {first}-{}", first + n - 1),
        };
        first += app.ranks;
        let mut line = format!("mpiexec: {which}: {}", path.display());
        for word in app.argv.iter().skip(1) {
            let _ = write!(line, " {}", word.display());
        }
        if let Some(dir) = &app.wdir {
            let _ = write!(line, ", in {}", dir.display());
        }
        let _ = writeln!(text, "{}", escape(&line));
    }
    text
}

/// The lines of `-print-all-exitcodes`.
pub fn describe_ends(ranks: &[Rank]) -> String {
    let mut text = String::new();
    let own = |(_, rank): &(usize, &Rank)| rank.end != Some(ProcessEnd::Elsewhere);
    for (number, rank) in ranks.iter().enumerate().filter(own) {
        let how = match rank.end {
            Some(ProcessEnd::Exit(code)) => format!("left with exit code {code}"),
            Some(end) => describe_end(end),
            None => "was not waited for".to_owned(),
        };
        let _ = writeln!(text, "mpiexec: rank {number} {how}");
    }
    text
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}
