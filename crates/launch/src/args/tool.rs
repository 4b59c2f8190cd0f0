//! Tools around ranks: `-gtool`, `-gtoolfile` and `-gdb`, as in Intel MPI.

use super::parser_state::Parser;
use super::spec::{RankTool, Stdin};
use super::values::GivenOption;
use super::{UsageError, refuse_rank, wrong};
use fastpath_base::topology::CpuSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Debuggers that pass the words after a program to it only with `--args`.
const GDBS: [&str; 4] = ["gdb", "gdb-oneapi", "cuda-gdb", "rocgdb"];

/// Makes a tool, for debuggers of [`GDBS`] with `--args`.
fn make_tool(mut words: Vec<OsString>, ranks: Option<CpuSet>) -> RankTool {
    let name = words.first().and_then(|word| Path::new(word).file_name());
    let is_gdb = name.is_some_and(|name| GDBS.iter().any(|gdb| name == *gdb));
    if is_gdb && !words.iter().any(|word| word == "--args" || word == "-args") {
        words.push("--args".into());
    }
    RankTool { words, ranks }
}

/// Applies `-gtool "TOOL:RANKS;..."`.
pub fn take_tools(parser: &mut Parser<'_>, given: &GivenOption) -> Result<(), UsageError> {
    let parts = given.value().as_bytes().split(|&b| b == b';' || b == b'\n');
    let parts: Vec<&[u8]> = parts.filter(|part| !part.trim_ascii().is_empty()).collect();
    if parts.is_empty() {
        return wrong(format!("{} needs a tool and its ranks, such as gdb:0", given.name));
    }
    for part in parts {
        let tool = read_tool(part.trim_ascii());
        parser.spec.tools.push(tool.or_else(|why| wrong(format!("{}: {why}", given.typed())))?);
    }
    Ok(())
}

/// Applies `-gtoolfile FILE`: a file with values of `-gtool`, one per line.
pub fn take_file(parser: &mut Parser<'_>, given: &GivenOption) -> Result<(), UsageError> {
    let text = parser.here.read(Path::new(given.value()));
    let text = text.or_else(|e| wrong(format!("{}: {e}", given.typed())))?;
    let name = format!("{}: -gtool", given.typed());
    take_tools(parser, &GivenOption { name, values: vec![OsString::from_vec(text)] })
}

/// Applies `-gdb`: starts every rank in gdb with the standard input of `mpiexec`, and output lines with the rank.
pub fn take_gdb(parser: &mut Parser<'_>) {
    parser.spec.tools.push(make_tool(vec!["gdb".into(), "-q".into()], None));
    parser.spec.stdin = Stdin::All;
    parser.spec.output.prefix = b"[%r] ".to_vec();
}

/// Reads `TOOL:RANKS`. RANKS is `all` or a list such as `0,3-5`.
fn read_tool(text: &[u8]) -> Result<RankTool, String> {
    let form = "use TOOL:RANKS, such as gdb:0 or \"valgrind -q:1,4-6\"; RANKS may be all";
    let at = text.iter().rposition(|&b| b == b':').ok_or_else(|| form.to_owned())?;
    let (words, ranks) = (&text[..at], String::from_utf8_lossy(&text[at + 1..]));
    if let Some((_, mode)) = ranks.split_once(['=', '@']) {
        return Err(format!("mode or architecture {mode} is not supported; omit it"));
    }
    let ranks = match ranks.trim() {
        "all" => None,
        list => Some(CpuSet::parse(list).filter(|set| !set.is_empty()).ok_or(form)?),
    };
    match shlex::bytes::split(words) {
        None => Err("a quotation mark is not closed".to_owned()),
        Some(words) if words.is_empty() => Err(form.to_owned()),
        Some(words) => Ok(make_tool(words.into_iter().map(OsString::from_vec).collect(), ranks)),
    }
}

/// Checks that the ranks of all tools exist, and that no rank has two tools.
pub fn check_tools(tools: &[RankTool], total: usize) -> Result<(), UsageError> {
    let named = tools.iter().flat_map(|tool| tool.ranks.iter().flat_map(CpuSet::iter));
    if let Some(rank) = named.into_iter().find(|&rank| rank >= total) {
        return refuse_rank("-gtool", rank, total);
    }
    let twice = (0..total).find(|&rank| tools.iter().filter(|t| t.has_rank(rank)).count() > 1);
    match twice {
        Some(rank) => {
            wrong(format!("-gtool: rank {rank} has two tools; name each rank for one tool"))
        }
        None => Ok(()),
    }
}
