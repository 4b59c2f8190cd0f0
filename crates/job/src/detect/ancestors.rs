//! Ancestors of a process.

pub(crate) fn is_ancestor(ancestor: u32, process: u32) -> bool {
    let mut current = process;
    for _ in 0..1000 {
        let Some(parent) = parent_of(current) else {
            return false;
        };
        if parent == ancestor {
            return true;
        }
        if parent == 0 {
            return false;
        }
        current = parent;
    }
    false
}

/// Returns the parent of a process; `None` if the process does not exist.
pub(crate) fn parent_of(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may contain anything, so search for the last parenthesis.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn ancestors__are_found() {
        let me = std::process::id();
        assert!(is_ancestor(parent_of(me).unwrap(), me));
        assert!(!is_ancestor(me, me));
    }
}
