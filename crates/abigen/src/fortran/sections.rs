//! Entry points of module `mpi_f08` that take C descriptors.

use super::ffi::declare;
use super::interface::{Argument, ArgumentKind, ElementCount, IntegerKind, Intent};
use super::shim::{Shim, ident, is_buffer};
use std::fmt::Write;

impl Shim<'_> {
    /// Writes the entry point that takes C descriptors.
    pub fn emit_sections(&self, symbol: &str, body: &str, out: &mut String) {
        let params = self.params(true);
        self.open(symbol, &params, out);
        let buffers: Vec<&Argument> =
            self.interface.arguments.iter().filter(|a| is_buffer(a)).collect();
        // `read`: function for a buffer that must be contiguous to be passed by its address.
        let read_buffers = |read: &str, out: &mut String| {
            for argument in &buffers {
                let x = ident(argument);
                let read = if argument.kind == ArgumentKind::Location { "address" } else { read };
                _ = writeln!(out, "    let {x}_ = section::{read}({x});");
            }
        };
        read_buffers("scalar_or_vector", out);
        let choices: Vec<&&Argument> =
            buffers.iter().filter(|a| a.kind != ArgumentKind::Location).collect();
        let pattern: Vec<String> = choices.iter().map(|a| format!("Some({}_)", ident(a))).collect();
        let value: Vec<String> = choices.iter().map(|a| format!("{}_", ident(a))).collect();
        let addresses = self.pass(|_| None);
        if choices.is_empty() {
            _ = writeln!(out, "    {body}({addresses})\n}} }}");
            return;
        }
        let if_contiguous = format!(
            "    if let ({},) = ({},) {{ return {body}({addresses}); }}",
            pattern.join(", "),
            value.join(", ")
        );
        let names: Vec<&str> = params.iter().map(|(name, _)| name.as_str()).collect();
        // Other sections are handled in a second function, so the entry point needs no frame for them.
        _ = writeln!(
            out,
            "{if_contiguous}\n    {symbol}sections({})\n}} }}\n#[cold]\n#[inline(never)]\n\
             unsafe fn {symbol}sections({}) {{ unsafe {{",
            names.join(", "),
            declare(&params)
        );
        read_buffers("contiguous", out);
        _ = writeln!(out, "{if_contiguous}");
        for argument in &choices {
            self.emit_section(argument, out);
        }
        let call = self.pass(|a| choices.iter().any(|c| c.name == a.name).then_some(()));
        _ = writeln!(out, "    {body}({call})\n}} }}");
    }

    /// Writes the statements that copy a section, or describe it by a datatype.
    fn emit_section(&self, argument: &Argument, out: &mut String) {
        let x = ident(argument);
        let (name, scope) = (&self.interface.function.name, self.scope());
        let refuse = format!(
            "return convert::store_error(ierror, refusal::refuse(\"{name}\", \"{}\", {scope}, \
             refusal_))",
            argument.name
        );
        let made = match (&argument.kind, argument.is_used_later) {
            (_, false) => {
                let is_written = argument.intent != Some(Intent::In);
                format!("section::SectionCopy::new({x}, {is_written})")
            }
            (ArgumentKind::Choice(Some(pair)), true) => {
                let ArgumentKind::Integer(kind) = self.named(&pair.count).kind else {
                    unreachable!("a count is an INTEGER");
                };
                let count = match kind {
                    IntegerKind::Default => format!("i64::from(*r#{})", pair.count),
                    _ => format!("*r#{}", pair.count),
                };
                format!("section::SectionType::new({x}, {count}, *r#{})", pair.datatype)
            }
            (_, true) => format!("section::contiguous_only({x})"),
        };
        _ = writeln!(
            out,
            "    let mut {x}_ = match {made} {{ Ok(made_) => made_, Err(refusal_) => {refuse} }};"
        );
    }

    fn named(&self, parameter: &str) -> &Argument {
        let index = self.interface.function.params.iter().position(|p| p.name == parameter);
        let find = |a: &&Argument| Some(a.parameter) == index;
        self.interface.arguments.iter().find(find).expect("a count or datatype is an argument")
    }

    /// Arguments for the entry point that takes addresses. `replaced`: the buffer was copied or described.
    fn pass(&self, replaced: impl Fn(&Argument) -> Option<()>) -> String {
        let arguments = &self.interface.arguments;
        let typed: Vec<(&Argument, &ElementCount)> = arguments
            .iter()
            .filter(|a| a.is_used_later && replaced(a).is_some())
            .filter_map(|a| match &a.kind {
                ArgumentKind::Choice(Some(pair)) => Some((a, pair)),
                _ => None,
            })
            .collect();
        let mut all = Vec::new();
        let mut lengths = Vec::new();
        for argument in arguments {
            let x = ident(argument);
            let parameter = &self.interface.function.params[argument.parameter].name;
            let by = |get: fn(&ElementCount) -> &str| {
                typed.iter().find(|(_, pair)| get(pair) == parameter).map(|(a, _)| ident(a))
            };
            let is_typed = typed.iter().any(|(a, _)| a.name == argument.name);
            all.push(match &argument.kind {
                ArgumentKind::Choice(_) if is_typed => format!("{x}_.address"),
                ArgumentKind::Choice(_) if replaced(argument).is_some() => {
                    format!("{x}_.address()")
                }
                ArgumentKind::Choice(_) | ArgumentKind::Location => format!("{x}_"),
                ArgumentKind::Text { .. } => {
                    lengths.push(format!("section::element_bytes({x})"));
                    format!("section::address({x}).cast()")
                }
                ArgumentKind::Integer(kind) => match by(|p| &p.count) {
                    Some(buffer) if *kind == IntegerKind::Default => {
                        format!("&mut {buffer}_.count")
                    }
                    Some(buffer) => format!("&mut {buffer}_.large_count"),
                    None => x,
                },
                ArgumentKind::Handle(_) => match by(|p| &p.datatype) {
                    Some(buffer) => format!("&mut {buffer}_.datatype"),
                    None => x,
                },
                _ => x,
            });
        }
        if self.has_code() {
            all.push("ierror".into());
        }
        all.extend(lengths);
        all.join(", ")
    }

    /// Object whose error handler gets an error about a buffer.
    fn scope(&self) -> String {
        for argument in &self.interface.arguments {
            if let ArgumentKind::Handle(base) = &argument.kind
                && argument.intent == Some(Intent::In)
                && let Some(kind) = match base.as_str() {
                    "MPI_Comm" => Some("Comm"),
                    "MPI_Win" => Some("Win"),
                    "MPI_File" => Some("File"),
                    _ => None,
                }
            {
                return format!("refusal::Scope::{kind}(*{})", ident(argument));
            }
        }
        "refusal::Scope::Comm(refusal::COMM_SELF)".into()
    }
}
