//! Options about ranks that fail.

use super::parser_state::Parser;
use super::values::GivenOption;
use super::{UsageError, wrong};

/// Reads the value of `--with-ft`.
pub fn set_fault_tolerance(parser: &mut Parser<'_>, given: &GivenOption) -> Result<(), UsageError> {
    let value = given.value().to_string_lossy();
    let is_on = match &*value {
        "ulfm" | "mpi" | "1" | "yes" | "true" | "on" => true,
        "none" | "0" | "no" | "false" | "off" => false,
        _ => return wrong(format!("--with-ft {value}: the value is ulfm, mpi or none")),
    };
    tolerate_failures(parser, is_on);
    Ok(())
}

/// Sets FASTPATH_FT for all ranks.
pub fn tolerate_failures(parser: &mut Parser<'_>, is_on: bool) {
    let value = if is_on { "1" } else { "0" };
    parser.spec.env.push(("FASTPATH_FT".into(), value.into()));
}
