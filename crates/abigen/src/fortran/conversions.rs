//! Statements that convert arguments between Fortran and C.

use super::interface::{Argument, ArgumentKind, Array, Intent};
use super::shim::{Shim, ident};
use crate::model::Param;
use std::fmt::Write;

/// Statements around the call of the C function.
#[derive(Default)]
pub struct Steps {
    /// Before the call.
    pub before: String,
    /// Arguments of the call.
    pub arguments: Vec<String>,
    /// After the call; `code_` is its error code.
    pub after: String,
}

impl Shim<'_> {
    /// Adds the conversion of one argument. `is_f08`: for module `mpi_f08` alone.
    ///
    /// # Errors
    /// No conversion is known.
    pub fn convert(
        &self, argument: &Argument, param: &Param, is_f08: bool, steps: &mut Steps,
    ) -> Result<(), String> {
        let x = ident(argument);
        let is_pointer = param.ctype.stars > 0 || !param.suffix.is_empty();
        let local = format!("{x}_");
        let Steps { before, arguments, after } = steps;
        let is_output = argument.intent == Some(Intent::Out);
        match &argument.kind {
            ArgumentKind::Integer(_) if !is_pointer => arguments.push(format!("*{x}")),
            ArgumentKind::Integer(_) => arguments.push(match param.suffix.as_str() {
                "[][3]" => format!("{x}.cast()"),
                _ => x,
            }),
            ArgumentKind::Logical => match (&argument.array, is_output) {
                (None, false) => arguments.push(format!("*{x} & 1")),
                (None, true) => {
                    // A call that returns the error of an operation sets the result too.
                    _ = writeln!(before, "    let mut {local} = convert::UNSET;");
                    _ = writeln!(
                        after,
                        "    if {local} != convert::UNSET {{ *{x} = c_int::from({local} != 0); }}"
                    );
                    arguments.push(format!("&mut {local}"));
                }
                (Some(array), _) => {
                    let length = match is_output {
                        true => self.result_length(array)?,
                        false => self.length(array)?,
                    };
                    _ = writeln!(before, "    let length_ = {length};");
                    let made = match is_output {
                        true => {
                            "vec![convert::UNSET; usize::try_from(length_).unwrap_or(0)]".into()
                        }
                        false => format!("convert::logicals({x}, length_)"),
                    };
                    _ = writeln!(before, "    let mut {local}: Vec<c_int> = {made};");
                    if is_output {
                        _ = writeln!(
                            after,
                            "    for (i, v) in {local}.iter().enumerate() {{ \
                             if *v != convert::UNSET \
                             {{ *{x}.add(i) = c_int::from(*v != 0); }} }}"
                        );
                    }
                    arguments.push(format!("{local}.as_mut_ptr()"));
                }
            },
            ArgumentKind::Index if argument.array.is_none() => {
                _ = writeln!(before, "    let mut {local} = convert::UNSET;");
                _ = writeln!(
                    after,
                    "    if {local} != convert::UNSET {{ \
                     *{x} = convert::index_from_one({local}); }}"
                );
                arguments.push(format!("&mut {local}"));
            }
            ArgumentKind::Index => {
                // Errors of single requests leave the others completed, so their indices count too.
                _ = writeln!(before, "    *r#outcount = 0;");
                _ = writeln!(after, "    convert::indices_from_one({x}, *r#outcount);");
                arguments.push(x);
            }
            ArgumentKind::Handle(base) => {
                self.convert_handle(argument, base, is_pointer, steps)?;
            }
            ArgumentKind::Status if argument.array.is_some() => {
                arguments.push(format!("special_addresses::statuses({x})"));
            }
            ArgumentKind::Status => arguments.push(format!("special_addresses::status({x})")),
            ArgumentKind::Choice(_) if self.interface.function.section == "coll" => {
                arguments.push(format!("special_addresses::collective_buffer({x})"));
            }
            ArgumentKind::Choice(_) => arguments.push(format!("special_addresses::buffer({x})")),
            ArgumentKind::Location => arguments.push(format!("special_addresses::location({x})")),
            ArgumentKind::Booleans | ArgumentKind::Base => arguments.push(x),
            ArgumentKind::Detached => {
                _ = writeln!(before, "    let mut {local}: *mut c_void = core::ptr::null_mut();");
                if is_f08 {
                    _ = writeln!(
                        after,
                        "    if code_ == 0 {{ \
                         *{x}.cast() = special_addresses::detached({local}); }}"
                    );
                }
                arguments.push(format!("(&raw mut {local}).cast()"));
            }
            ArgumentKind::Text { drops_leading, .. } if argument.intent == Some(Intent::In) => {
                _ = writeln!(
                    before,
                    "    let mut {local} = text::to_c({x}, {x}_length, {drops_leading});"
                );
                arguments.push(format!("{local}.as_mut_ptr()"));
            }
            ArgumentKind::Text { .. } => {
                let most = match self.has(|a| a.name == "valuelen" && a.intent == Some(Intent::In))
                {
                    true => "*r#valuelen",
                    false => "text::LONGEST",
                };
                _ = writeln!(before, "    let mut {local} = text::OutText::new({most});");
                let test = match self.has(|a| a.name == "flag") {
                    true => "code_ == 0 && r#flag_ != 0",
                    false => "code_ == 0",
                };
                _ = writeln!(after, "    if {test} {{ {local}.store({x}, {x}_length); }}");
                arguments.push(format!("{local}.address()"));
            }
            ArgumentKind::Weights => arguments.push(format!("special_addresses::weights({x})")),
            ArgumentKind::ErrorCodes => {
                arguments.push(format!("special_addresses::error_codes({x})"))
            }
            ArgumentKind::State(_) | ArgumentKind::Attribute(_) | ArgumentKind::Procedure(_) => {
                return Err(format!(
                    "{}: {} needs an entry point by hand: add `handwritten` to table/fortran.txt",
                    self.interface.function.name, argument.name
                ));
            }
        }
        Ok(())
    }

    fn convert_handle(
        &self, argument: &Argument, base: &str, is_pointer: bool, steps: &mut Steps,
    ) -> Result<(), String> {
        let Steps { before, arguments, after } = steps;
        let (x, kind) = (ident(argument), base.trim_start_matches("MPI_").to_lowercase());
        let local = format!("{x}_");
        let (from, to) = (format!("convert::{kind}_from"), format!("convert::{kind}_to"));
        match (&argument.array, argument.intent) {
            (None, _) if !is_pointer => arguments.push(format!("{from}(*{x})")),
            (None, Some(Intent::Out)) => {
                // A call that fails without a result leaves the variable alone. No handle is 0.
                _ = writeln!(before, "    let mut {local} = 0_usize;");
                _ = writeln!(after, "    if {local} != 0 {{ *{x} = {to}({local}); }}");
                arguments.push(format!("&mut {local}"));
            }
            (None, _) => {
                _ = writeln!(before, "    let mut {local} = {from}(*{x});");
                if argument.intent != Some(Intent::In) {
                    _ = writeln!(after, "    *{x} = {to}({local});");
                }
                arguments.push(format!("&mut {local}"));
            }
            (Some(_), _) if argument.name == "sendtypes" || argument.name == "recvtypes" => {
                let is_neighbor = self.interface.function.name.to_lowercase().contains("neighbor");
                let is_send = argument.name == "sendtypes";
                _ = writeln!(
                    before,
                    "    let mut {local} = \
                     crate::handwritten::peer_types({x}, *r#comm, {is_neighbor}, \
                     {is_send}, r#sendbuf);"
                );
                if self.has(|a| a.name == "request") {
                    _ = writeln!(after, "    crate::handwritten::keep_types({local}, r#request_);");
                }
                arguments.push(format!("{local}.as_mut_ptr()"));
            }
            (Some(array), intent) => {
                if intent == Some(Intent::Out) {
                    let length = self.result_length(array)?;
                    _ = writeln!(
                        before,
                        "    let mut {local} = \
                         vec![0_usize; usize::try_from({length}).unwrap_or(0)];"
                    );
                    _ = writeln!(
                        after,
                        "    for (i, v) in {local}.iter().enumerate() {{ \
                         if *v != 0 {{ *{x}.add(i) = \
                         {to}(*v); }} }}"
                    );
                    arguments.push(format!("{local}.as_mut_ptr()"));
                    return Ok(());
                }
                let length = self.length(array)?;
                _ = writeln!(
                    before,
                    "    let mut {local} = \
                     convert::Handles::read({x}, {length}, {from});"
                );
                if intent == Some(Intent::InOut) {
                    _ = writeln!(after, "    {local}.write({x}, {to});");
                }
                arguments.push(format!("{local}.address()"));
            }
        }
        Ok(())
    }

    /// Expression for the room that C needs for an array of results: programs may pass a length far above it.
    fn result_length(&self, array: &Array) -> Result<String, String> {
        let length = self.length(array)?;
        match self.interface.function.name.as_str() {
            "MPI_Cart_get" => {
                Ok(format!("crate::handwritten::room_for_dimensions(*r#comm, {length})"))
            }
            "MPI_Type_get_contents" | "MPI_Type_get_contents_c" => {
                Ok(format!("crate::handwritten::room_for_types(*r#datatype, ({length}).into())"))
            }
            name => Err(format!("{name}: an array of results cannot be converted")),
        }
    }

    /// Expression for the length of an array.
    fn length(&self, array: &Array) -> Result<String, String> {
        if let Some(argument) = self.interface.arguments.iter().find(|a| a.name == array.extent) {
            return Ok(format!("*{}", ident(argument)));
        }
        match self.interface.function.name.as_str() {
            "MPI_Cart_sub" => Ok("crate::handwritten::cartesian_dimensions(*r#comm)".into()),
            name => {
                Err(format!("{name}: an array of length `{}` cannot be converted", array.extent))
            }
        }
    }
}
