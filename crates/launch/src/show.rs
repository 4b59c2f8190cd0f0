//! Output that options request: the rank map, and how ranks ended.

use crate::args::JobSpec;
use crate::ranks::RankProcess;
use fastpath_base::tell::escape;
use fastpath_job::inspect::ProcessEnd;
use fastpath_job::inspect::describe::describe_end;
use std::fmt::Write as _;
use std::path::Path;

/// Text of `-v` and `--display-map`: node and processors, then each program with its ranks.
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

pub fn describe_ends(ranks: &[RankProcess]) -> String {
    let mut text = String::new();
    let own = |(_, rank): &(usize, &RankProcess)| rank.end != Some(ProcessEnd::Elsewhere);
    for (number, rank) in ranks.iter().enumerate().filter(own) {
        let how = match rank.end {
            Some(ProcessEnd::Exit(code)) => format!("exited with code {code}"),
            Some(end) => describe_end(end),
            None => "had not ended".to_owned(),
        };
        let _ = writeln!(text, "mpiexec: rank {number} {how}");
    }
    text
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}
