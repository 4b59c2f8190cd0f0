//! Limits for instruction counts, from a file of calls and limits.

use std::fs;
use std::path::Path;

use anyhow::{Context, Error, Result, bail, ensure};

use fastpath_report::output::print_line;
use fastpath_report::record::Breakdown;

/// Payload, in bytes, to which the limits apply.
const BYTES: u64 = 8;

/// Reads the limits. Each line has a call, or several with `+` between them, and a number; `#` begins a comment.
pub fn read(path: &Path) -> Result<Vec<(String, f64)>> {
    let text = fs::read_to_string(path).map_err(Error::from);
    let limits = text.and_then(|text| parse(&text));
    let some = limits.and_then(|l| match l.is_empty() {
        true => bail!("the file contains no budget; write lines such as `MPI_Send 80`"),
        false => Ok(l),
    });
    some.with_context(|| path.display().to_string())
}

fn parse(text: &str) -> Result<Vec<(String, f64)>> {
    let lines = text.lines().map(|l| l.split('#').next().unwrap_or("").trim());
    let limit = |line: &str| {
        let words = line.split_once(char::is_whitespace);
        let (call, limit) = words.with_context(|| {
            format!("`{line}`: write a call and its limit, such as `MPI_Send 80`")
        })?;
        let limit: u32 =
            limit.trim().parse().with_context(|| format!("`{line}`: the limit is not a number"))?;
        Ok((call.to_owned(), f64::from(limit)))
    };
    lines.filter(|l| !l.is_empty()).map(limit).collect()
}

/// Compares the counts with the limits. Fails if a call exceeds its limit or was not counted.
pub fn check(limits: &[(String, f64)], counted: &[Breakdown], shows: bool) -> Result<()> {
    let mut exceeded = Vec::new();
    for (call, limit) in limits {
        let total = call.split('+').map(|call| find(counted, call)).sum::<Result<f64>>()?;
        let over = total > *limit;
        if shows {
            let mark = if over { "  EXCEEDED" } else { "" };
            print_line(&format!("budget of {call:<22} {limit:>6}, counted {total:.2}{mark}"));
        }
        if over {
            exceeded.push(format!(
                "{call} takes {total:.2} instructions, more than its budget of {limit}"
            ));
        }
    }
    ensure!(exceeded.is_empty(), "{}", exceeded.join("; "));
    Ok(())
}

fn find(counted: &[Breakdown], call: &str) -> Result<f64> {
    let found = counted.iter().find(|b| b.operation == call && b.bytes == BYTES);
    found
        .map(|b| b.total)
        .with_context(|| format!("{call} has a budget for {BYTES} B, but was not counted"))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn counted(operation: &str, total: f64) -> Breakdown {
        Breakdown {
            mpi: "ours".into(),
            operation: operation.into(),
            level: Default::default(),
            bytes: 8,
            calls: 1000,
            total,
            parts: Vec::new(),
        }
    }

    #[test]
    fn budget__is_kept_exceeded_or_not_counted() {
        let limits = parse("# a comment\nMPI_Send 80\n").unwrap();
        assert_eq!(limits, [("MPI_Send".to_owned(), 80.0)]);
        assert!(check(&limits, &[counted("MPI_Send", 80.0)], false).is_ok());
        let over = check(&limits, &[counted("MPI_Send", 80.01)], false).unwrap_err();
        assert!(over.to_string().contains("80.01"), "{over}");
        let none = check(&[("MPI_Recv".into(), 1.0)], &[counted("MPI_Send", 1.0)], false);
        assert!(none.unwrap_err().to_string().contains("MPI_Recv"));
    }

    #[test]
    fn budget__of_several_calls_is_for_their_sum() {
        let limits = parse("MPI_Put+MPI_Win_flush 70").unwrap();
        let both = |put| [counted("MPI_Win_flush", 24.5), counted("MPI_Put", put)];
        assert!(check(&limits, &both(45.5), false).is_ok());
        let over = check(&limits, &both(46.0), false).unwrap_err().to_string();
        assert!(over.contains("MPI_Put+MPI_Win_flush takes 70.50"), "{over}");
        let none = check(&limits, &both(1.0)[..1], false).unwrap_err().to_string();
        assert!(none.starts_with("MPI_Put has a budget for 8 B, but was not counted"), "{none}");
    }

    #[test]
    fn budget__of_nonsense_is_refused() {
        for wrong in ["MPI_Send", "MPI_Send many", "MPI_Send 1 2"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(read(Path::new("/proc/none/budgets")).is_err());
    }
}
