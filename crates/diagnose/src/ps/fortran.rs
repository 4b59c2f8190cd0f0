//! Names of Fortran procedures as their sources have them.

/// Returns the source's name of a symbol; `None` if it is no module procedure or main program of gfortran or flang.
/// Procedures outside modules have names like those of C.
pub(super) fn read_symbol(symbol: &str) -> Option<String> {
    if matches!(symbol, "MAIN__" | "_QQmain") {
        return Some("the main program".to_owned());
    }
    let gfortran = symbol.strip_prefix("__").and_then(|rest| rest.split_once("_MOD_"));
    let parts = match gfortran {
        Some((module, procedure)) => vec![module.to_owned(), procedure.to_owned()],
        None => split_flang(symbol.strip_prefix("_Q")?)?,
    };
    parts.iter().all(|part| !part.is_empty()).then(|| parts.join("::"))
}

/// Splits the symbol of flang, such as `MmodulePprocedure` or `FhostPinternal`. Names are in lower case, so a capital
/// letter begins a part.
fn split_flang(symbol: &str) -> Option<Vec<String>> {
    let mut parts: Vec<String> = Vec::new();
    for letter in symbol.chars() {
        match (letter.is_ascii_uppercase(), parts.last_mut()) {
            (true, _) => parts.push(String::new()),
            (false, Some(part)) => part.push(letter),
            (false, None) => return None,
        }
    }
    (!parts.is_empty()).then_some(parts)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::read_symbol;

    #[test]
    fn symbol__of_a_procedure_has_its_source_name() {
        for (symbol, name) in [
            ("__solver_MOD_relax", Some("solver::relax")),
            ("MAIN__", Some("the main program")),
            ("_QQmain", Some("the main program")),
            ("_QMsolverPrelax", Some("solver::relax")),
            ("_QPrelax", Some("relax")),
            ("_QFhostPinner", Some("host::inner")),
            ("relax_", None),
            ("__libc_start_main", None),
            ("___MOD_x", None),
            ("_Qx", None),
            ("_Q", None),
            ("main", None),
        ] {
            assert_eq!(read_symbol(symbol).as_deref(), name, "{symbol}");
        }
    }
}
