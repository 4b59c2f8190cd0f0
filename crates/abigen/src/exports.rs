//! The exported entry points: for each function of the table `PMPI_X`, and `MPI_X` as a weak alias.

use crate::file_access;
use crate::model::{CType, CTypeKind, Function, Param, Table};
use crate::scan::{Bodies, Body, Bundle};
use std::fmt::Write;

/// How `MPI_X` comes to be another name of `PMPI_X`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// A weak symbol with the same address. The linker must accept a second version script
    /// ([`VERSION_SCRIPT`]) beside the compiler's own, which lld does and GNU ld does not.
    WeakAlias,
    /// A function that jumps to the other: one instruction more, with every linker.
    Jump,
}

/// The version script that lets the aliases out of the library.
pub const VERSION_SCRIPT: &str = "{ global: MPI_*; PMPI_*; };\n";

/// The source of the module with all exports. It expects in scope what `fastpath-abi` puts there:
/// `entry`, `enter`, `fail`, `fail_unsupported`, `clear`, `Scope`, `Status`, the constants and the C types.
///
/// # Errors
///
/// A function that returns no `int` has no body: there is no error code to return instead.
pub fn emit_exports(table: &Table, bodies: &Bodies, names: Names) -> Result<String, String> {
    let mut out = String::new();
    let mut section = "";
    let mut aliases = String::new();
    for function in &table.functions {
        if function.section != section {
            close_section(&mut out, &mut aliases);
            section = &function.section;
            _ = writeln!(out, "pub mod {section} {{\nuse super::*;");
        }
        emit_function(table, bodies, function, &mut out)?;
        let name = &function.name;
        match names {
            Names::WeakAlias => {
                _ = writeln!(
                    aliases,
                    "    \".weak {name}\", \".type {name}, @function\", \".set {name}, P{name}\","
                );
            }
            Names::Jump => emit_jump(table, function, &mut out),
        }
    }
    close_section(&mut out, &mut aliases);
    Ok(out)
}

fn close_section(out: &mut String, aliases: &mut String) {
    if !aliases.is_empty() {
        // In the module of the functions, so that both are in one object file.
        _ = writeln!(out, "core::arch::global_asm!(\n{aliases});");
        aliases.clear();
    }
    if !out.is_empty() {
        out.push_str("}\n");
    }
}

/// The module file that declares each file with bodies.
#[must_use]
pub fn emit_modules(bodies: &Bodies) -> String {
    let mut out = String::new();
    for path in &bodies.files {
        let module = path.file_stem().unwrap_or_default().to_string_lossy();
        _ = writeln!(out, "#[path = {:?}]\npub mod {module};", path.display().to_string());
    }
    out
}

fn emit_function(
    table: &Table, bodies: &Bodies, function: &Function, out: &mut String,
) -> Result<(), String> {
    let name = &function.name;
    let found = find_body(bodies, function);
    let ret = rust_return(table, &function.ret);
    if found.is_none() && ret != "c_int" {
        return Err(format!("{name} returns {ret} and has no body"));
    }
    let params = rust_params(table, function, found.is_some());
    _ = writeln!(
        out,
        "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn P{name}({params}) -> {ret} {{"
    );
    let quick = found.as_ref().and_then(|(name, _)| Some((name, bodies.quick.get(name)?)));
    let has_quick = quick.is_some();
    if let Some((body_name, quick)) = quick {
        emit_quick(table, function, body_name, quick, out);
        _ = writeln!(out, "#[cold]\n#[inline(never)]\nunsafe fn slow({params}) -> {ret} {{");
    }
    match found {
        None if is_tool(function) => out.push_str("    MPI_ERR_UNSUPPORTED_OPERATION\n"),
        None => {
            let (clear, scope) = (clear_results(table, function), scope(function));
            _ = writeln!(out, "    {clear}fail_unsupported({scope}, \"{name}\")");
        }
        Some((body_name, body)) => emit_call(table, function, &body_name, body, out),
    }
    out.push_str(if has_quick { "}\n}\n" } else { "}\n" });
    Ok(())
}

/// The short way, and the jump to all the rest.
fn emit_quick(table: &Table, function: &Function, body_name: &str, quick: &Body, out: &mut String) {
    let widened = list_arguments(table, function, quick, |_| true);
    let names: Vec<String> = function.params.iter().map(|p| format!("r#{}", p.name)).collect();
    _ = writeln!(
        out,
        "    if unsafe {{ entry::{}::{body_name}_quick({}) }} {{ return 0; }}\n    return unsafe \
         {{ slow({}) }};",
        quick.module,
        widened.join(", "),
        names.join(", ")
    );
}

/// The body of that name, or of the function that this one is `as`. A large-count form falls back to the one it shares
/// with the other form, an access of a file to the one of its kind, and a collective call that does not block to the
/// one that takes the form: `gather` for `MPI_Igather` and `MPI_Gather_init`, or `igather` where the blocking call has
/// a body of its own.
#[must_use]
pub fn find_body<'a>(bodies: &'a Bodies, function: &Function) -> Option<(String, &'a Body)> {
    let own = match &function.body_of {
        Some(name) => name.trim_start_matches("MPI_").to_lowercase(),
        None => function.body_name(),
    };
    if let Some(body) = bodies.by_name.get(&own) {
        return Some((own, body));
    }
    let shared = match function.large_of {
        Some(_) => own.trim_end_matches("_c"),
        None => &own,
    };
    if let Some(body) = bodies.by_name.get(shared) {
        return Some((shared.to_string(), body));
    }
    if let Some(name) = file_access::body_name(shared) {
        let body = bodies.by_name.get(name).filter(|body| body.takes_access)?;
        return Some((name.to_string(), body));
    }
    let call = shared.strip_suffix("_init").or_else(|| shared.strip_prefix('i'))?;
    [format!("i{call}"), call.to_string()].into_iter().find_map(|name| {
        let body = bodies.by_name.get(&name).filter(|body| body.takes_form)?;
        Some((name, body))
    })
}

/// The form of a collective call, from its name and whether it has a request.
fn form(function: &Function) -> &'static str {
    let has_request = function.params.iter().any(|p| p.name == "request");
    match (has_request, function.name.contains("_init")) {
        (false, _) => "entry::Form::Blocking",
        (true, false) => "entry::Form::Nonblocking(r#request)",
        (true, true) => "entry::Form::Persistent(r#request)",
    }
}

fn emit_call(table: &Table, function: &Function, body_name: &str, body: &Body, out: &mut String) {
    let name = &function.name;
    let mut args: Vec<String> = Vec::new();
    if body.takes_process {
        args.push("&process".into());
    }
    if body.takes_form {
        args.push(form(function).into());
    }
    if body.takes_width {
        args.push(match function.large_of {
            Some(_) => "entry::Width::Large".into(),
            None => "entry::Width::Small".into(),
        });
    }
    if body.takes_access {
        let count = function.params.iter().find(|p| p.name == "count");
        let count = count.map(|p| argument(table, p)).unwrap_or_default();
        args.push(file_access::argument(function, &count));
    }
    // What the body returns is stored through it.
    let result = function.params.last().filter(|_| body.returns_value);
    let is_passed = |p: &Param| match &*p.name {
        name if result.is_some_and(|result| result.name == name) => false,
        "info" | "request" => !body.takes_form,
        name => !(body.takes_access && file_access::is_part(name)),
    };
    args.extend(list_arguments(table, function, body, is_passed));
    if body.takes_access && name.ends_with("_end") {
        // That of the first half is used.
        out.push_str("    _ = r#buf;\n");
    }
    let mut call = format!("unsafe {{ entry::{}::{body_name}({}) }}", body.module, args.join(", "));
    if body.takes_form && function.params.iter().any(|p| p.name == "info") {
        // No hint is known, but the object must be one.
        call = format!("entry::check_info(&process, r#info).and_then(|()| {call})");
    }
    if !body.returns_result {
        _ = writeln!(out, "    {call}");
        return;
    }
    let call = match result {
        None => call,
        Some(result) => format!("unsafe {{ entry::give(r#{}, || {call}) }}", result.name),
    };
    let clear = clear_results(table, function);
    let fail = |process: &str| match is_tool(function) {
        true => "error.code()".to_string(),
        false if clear.is_empty() => format!("fail({process}, scope, \"{name}\", error)"),
        false => format!("{{ {clear}fail({process}, scope, \"{name}\", error) }}"),
    };
    if !is_tool(function) {
        _ = writeln!(out, "    let scope = {};", scope(function));
    }
    let mut process = "None";
    if body.takes_process {
        let anytime = function.anytime;
        _ = writeln!(out, "    let process = match enter(\"{name}\", {anytime}) {{");
        _ = writeln!(out, "        Ok(process) => process,");
        _ = writeln!(out, "        Err(error) => return {},\n    }};", fail("None"));
        process = "Some(&*process)";
    }
    _ = writeln!(out, "    match {call} {{\n        Ok(()) => 0,");
    _ = writeln!(out, "        Err(error) => {},\n    }}", fail(process));
}

/// What a body is given of C's arguments: those that belong to a bundle in one struct.
fn list_arguments(
    table: &Table, function: &Function, body: &Body, is_passed: impl Fn(&Param) -> bool,
) -> Vec<String> {
    let value = |name: &str| function.params.iter().find(|p| p.name == name);
    let bundle = |bundle: &Bundle| {
        let field = |name: &String| Some(format!("{name}: {}", argument(table, value(name)?)));
        let fields: Vec<String> = bundle.fields.iter().filter_map(field).collect();
        format!("entry::arguments::{} {{ {} }}", bundle.name, fields.join(", "))
    };
    let mut args = Vec::new();
    for param in function.params.iter().filter(|p| is_passed(p)) {
        match body.bundles.iter().find(|b| b.fields.contains(&param.name)) {
            None => args.push(argument(table, param)),
            Some(found) if found.fields.first() == Some(&param.name) => args.push(bundle(found)),
            Some(_) => {}
        }
    }
    args
}

/// The tool interface returns its error codes and calls no error handler (MPI 5.0, section 15.3).
fn is_tool(function: &Function) -> bool {
    function.name.starts_with("MPI_T_")
}

/// Statements that set what a failing call would have returned to null, so that nobody takes what
/// the variable held before for an object of this call.
fn clear_results(table: &Table, function: &Function) -> String {
    let mut statements = String::new();
    for param in &function.params {
        if let Some(null) = null_result(table, function, param) {
            _ = write!(statements, "unsafe {{ clear(r#{}, {null}) }}; ", param.name);
        }
    }
    statements
}

/// The null of a parameter that points to the variable for a new handle or attribute key.
fn null_result(table: &Table, function: &Function, param: &Param) -> Option<String> {
    let ctype = &param.ctype;
    let is_result = ctype.stars == 1
        && param.suffix.is_empty()
        && function.inout.as_ref() != Some(&param.name)
        && !is_tool(function);
    match table.kind(&ctype.base) {
        Some(CTypeKind::Handle) if is_result => Some(format!("{}_NULL", ctype.base.to_uppercase())),
        Some(CTypeKind::Int) if is_result && param.name.ends_with("keyval") => {
            Some("MPI_KEYVAL_INVALID".into())
        }
        _ => None,
    }
}

fn emit_jump(table: &Table, function: &Function, out: &mut String) {
    let name = &function.name;
    let args: Vec<String> = function.params.iter().map(|p| format!("r#{}", p.name)).collect();
    _ = writeln!(
        out,
        "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn {name}({}) -> {} {{\n    unsafe {{ \
         P{name}({}) }}\n}}",
        rust_params(table, function, true),
        rust_return(table, &function.ret),
        args.join(", ")
    );
}

/// Which object's error handler gets an error of this call.
fn scope(function: &Function) -> String {
    if function.on_no_file {
        return "Scope::File(MPI_FILE_NULL)".into();
    }
    if let Some(name) = &function.scope
        && let Some(param) = function.params.iter().find(|p| p.name == *name)
        && let Some(kind) = scope_kind(&param.ctype.base)
    {
        return format!("Scope::{kind}(unsafe {{ read_handle(r#{name}) }})");
    }
    let by_value = |p: &&Param| p.ctype.stars == 0 && p.suffix.is_empty();
    let mut values = function.params.iter().filter(by_value);
    if let Some((kind, name)) = values.find_map(|p| Some((scope_kind(&p.ctype.base)?, &p.name))) {
        return format!("Scope::{kind}(r#{name})");
    }
    // A call that makes an object gets the error handler that this is to have.
    let has_handler = function.params.iter().any(|p| p.name == "errhandler");
    let made = function.params.last().filter(|p| p.ctype.stars == 1);
    match made.and_then(|p| scope_kind(&p.ctype.base)) {
        Some(kind) if has_handler => format!("Scope::New(HandlerKind::{kind}, r#errhandler)"),
        _ => "Scope::None".into(),
    }
}

fn scope_kind(base: &str) -> Option<&'static str> {
    Some(match base {
        "MPI_Comm" => "Comm",
        "MPI_Win" => "Win",
        "MPI_File" => "File",
        "MPI_Session" => "Session",
        _ => return None,
    })
}

/// What a body gets for a parameter: a count by value is widened.
fn argument(table: &Table, param: &Param) -> String {
    let name = &param.name;
    let by_value = param.ctype.stars == 0 && param.suffix.is_empty();
    match table.kind(&param.ctype.base) {
        Some(CTypeKind::Int) if param.poly && by_value => format!("i64::from(r#{name})"),
        Some(CTypeKind::Aint) if param.poly && by_value => format!("r#{name} as i64"),
        _ => format!("r#{name}"),
    }
}

fn rust_params(table: &Table, function: &Function, used: bool) -> String {
    let scope = scope(function);
    let params: Vec<String> = function
        .params
        .iter()
        .map(|p| {
            // An unused name would be a warning in a function without a body.
            let read = scope.contains(&format!("r#{})", p.name))
                || null_result(table, function, p).is_some();
            let silent = !used && !read;
            let name = if silent { format!("_{}", p.name) } else { format!("r#{}", p.name) };
            format!("{name}: {}", rust_type(table, &p.ctype, &p.suffix))
        })
        .collect();
    params.join(", ")
}

/// How a parameter arrives: handles and callbacks as `usize`, pointers as pointers to C types.
fn rust_type(table: &Table, ctype: &CType, suffix: &str) -> String {
    let kind = table.kind(&ctype.base);
    let scalar = match kind {
        Some(CTypeKind::Char) => "c_char",
        Some(CTypeKind::Double) => "f64",
        Some(CTypeKind::Aint) => "isize",
        Some(CTypeKind::Long) => "i64",
        Some(CTypeKind::Status) => "Status",
        Some(CTypeKind::Handle) => "usize",
        // A callback is a pointer already, with its star or without.
        Some(CTypeKind::Callback) => return "usize".into(),
        Some(CTypeKind::Void) => "c_void",
        Some(CTypeKind::Int) | None => "c_int",
    };
    let (element, depth) = match suffix {
        "" => (scalar.to_string(), ctype.stars),
        "[][3]" => (format!("[{scalar}; 3]"), ctype.stars + 1),
        _ => (scalar.to_string(), ctype.stars + 1),
    };
    // `const` in C belongs to the innermost type.
    let innermost = if ctype.constant { "*const " } else { "*mut " };
    match depth {
        0 => element,
        _ => format!("{}{innermost}{element}", "*mut ".repeat(depth - 1)),
    }
}

fn rust_return(table: &Table, ctype: &CType) -> String {
    rust_type(table, ctype, "")
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn body(takes_process: bool, returns_result: bool) -> Body {
        Body {
            module: "m".into(),
            place: String::new(),
            takes_process,
            takes_form: false,
            takes_access: false,
            takes_width: false,
            returns_result,
            returns_value: false,
            bundles: Vec::new(),
        }
    }

    fn emit(name: &str, bodies: &[(&str, Body)]) -> String {
        let table = Table::builtin().unwrap();
        let mut all = Bodies::default();
        for (name, body) in bodies {
            all.by_name.insert((*name).into(), body.clone());
        }
        let mut out = String::new();
        emit_function(&table, &all, table.function(name).unwrap(), &mut out).unwrap();
        out
    }

    #[test]
    fn raw_body__is_called_straight() {
        let text = emit("MPI_Send", &[("send", body(false, true))]);
        assert!(!text.contains("enter("));
        assert!(text.contains(
            "entry::m::send(r#buf, i64::from(r#count), r#datatype, r#dest, r#tag, r#comm)"
        ));
        assert!(text.contains("fail(None, scope, \"MPI_Send\", error)"));
        assert!(text.contains("let scope = Scope::Comm(r#comm);"));
    }

    #[test]
    fn body_with_process__is_entered() {
        let text = emit("MPI_Comm_dup", &[("comm_dup", body(true, true))]);
        assert!(text.contains("enter(\"MPI_Comm_dup\", false)"));
        assert!(text.contains("entry::m::comm_dup(&process, r#comm, r#newcomm)"));
        let text = emit("MPI_Info_create", &[("info_create", body(true, true))]);
        assert!(text.contains("enter(\"MPI_Info_create\", true)"));
    }

    #[test]
    fn body_with_a_width__is_told_which_form_it_serves() {
        let body = Body { takes_width: true, ..body(true, true) };
        for (name, width) in [("MPI_Type_contiguous", "Small"), ("MPI_Type_contiguous_c", "Large")]
        {
            let text = emit(name, &[("type_contiguous", body.clone())]);
            let given = format!("type_contiguous(&process, entry::Width::{width}, ");
            assert!(text.contains(&given), "{text}");
        }
    }

    #[test]
    fn body_with_a_bundle__is_given_the_struct_in_its_place() {
        let fields = ["buf", "count", "datatype", "dest", "tag", "comm"].map(str::to_owned);
        let bundle = Bundle { name: "Sent".into(), fields: fields.to_vec() };
        let body = Body { bundles: vec![bundle], ..body(false, true) };
        let text = emit("MPI_Issend", &[("issend", body)]);
        let given = "issend(entry::arguments::Sent { buf: r#buf, count: ";
        assert!(text.contains(given), "{text}");
        assert!(text.contains("comm: r#comm }, r#request)"), "{text}");
    }

    #[test]
    fn quick_body__is_asked_before_the_call_is_entered() {
        let table = Table::builtin().unwrap();
        let mut bodies = Bodies::default();
        bodies.by_name.insert("type_size".into(), body(true, true));
        bodies.quick.insert("type_size".into(), body(false, false));
        for name in ["MPI_Type_size", "MPI_Type_size_c"] {
            let mut text = String::new();
            emit_function(&table, &bodies, table.function(name).unwrap(), &mut text).unwrap();
            let quick = text.find("entry::m::type_size_quick(r#datatype, r#size) } { return 0; }");
            let entered = text.find(&format!("enter(\"{name}\", false)"));
            assert!(quick.unwrap() < entered.unwrap(), "{text}");
            assert_eq!(text.matches('{').count(), text.matches('}').count());
        }
    }

    #[test]
    fn body_with_a_form__serves_three_functions_in_two_widths() {
        let body = Body { takes_form: true, ..body(true, true) };
        for (name, call) in [
            ("MPI_Gather", "gather(&process, entry::Form::Blocking, r#sendbuf,"),
            ("MPI_Igather_c", "gather(&process, entry::Form::Nonblocking(r#request), r#sendbuf,"),
            ("MPI_Gather_init", "gather(&process, entry::Form::Persistent(r#request), r#sendbuf,"),
        ] {
            let text = emit(name, &[("gather", body.clone())]);
            assert!(text.contains(call) && text.contains("r#comm) }"), "{text}");
        }
        let apart = [("barrier", self::body(false, false)), ("ibarrier", body)];
        assert!(emit("MPI_Barrier", &apart).contains("entry::m::barrier(r#comm)"));
        for name in ["MPI_Ibarrier", "MPI_Barrier_init"] {
            assert!(emit(name, &apart).contains("entry::m::ibarrier(&process, entry::Form::"));
        }
        let checks = |name| emit(name, &apart).contains("entry::check_info(&process, r#info)");
        assert!(checks("MPI_Barrier_init") && !checks("MPI_Ibarrier"));
    }

    #[test]
    fn large_form__shares_the_body_unless_it_has_its_own() {
        let text = emit("MPI_Send_c", &[("send", body(false, true))]);
        assert!(text.contains("entry::m::send(r#buf, r#count,"));
        assert!(text.contains("r#count: i64"));
        let both = [("send", body(false, true)), ("send_c", body(false, true))];
        assert!(emit("MPI_Send_c", &both).contains("entry::m::send_c("));
        let apart = emit("MPI_Op_create_c", &[("op_create", body(true, true))]);
        assert!(apart.contains("fail_unsupported(Scope::None, \"MPI_Op_create_c\")"));
    }

    #[test]
    fn function_as_another__is_served_by_its_body() {
        let text = emit("MPI_Win_toint", &[("comm_toint", body(false, false))]);
        assert!(text.contains("entry::m::comm_toint(r#win)"), "{text}");
        let table = Table::builtin().unwrap();
        for function in &table.functions {
            let Some(name) = &function.body_of else {
                continue;
            };
            let other = table.function(name).unwrap();
            let types = |function: &Function| {
                let types = function.params.iter().map(|p| rust_type(&table, &p.ctype, &p.suffix));
                types
                    .map(|t| t.replace("i64", "c_int").replace("isize", "c_int"))
                    .collect::<Vec<_>>()
            };
            assert_eq!(types(function), types(other), "{} as {name}", function.name);
        }
    }

    #[test]
    fn error_without_an_open_file__is_one_of_files() {
        for name in ["MPI_File_open", "MPI_File_delete", "MPI_Register_datarep"] {
            let text = emit(name, &[]);
            assert!(text.contains("fail_unsupported(Scope::File(MPI_FILE_NULL), "), "{text}");
        }
        assert!(emit("MPI_File_sync", &[]).contains("fail_unsupported(Scope::File(r#fh), "));
    }

    #[test]
    fn missing_body__says_so_on_its_communicator() {
        let text = emit("MPI_Send", &[]);
        assert!(text.contains("fail_unsupported(Scope::Comm(r#comm), \"MPI_Send\")"));
        assert!(text.contains("_buf: *const c_void"));
        assert!(emit("MPI_Comm_free", &[]).contains("Scope::Comm(unsafe { read_handle(r#comm) })"));
    }

    #[test]
    fn call_that_makes_an_object__raises_errors_on_its_handler() {
        let comm = emit("MPI_Comm_create_from_group", &[]);
        assert!(comm.contains("fail_unsupported(Scope::New(HandlerKind::Comm, r#errhandler), "));
        let session = emit("MPI_Session_init", &[]);
        assert!(
            session.contains("fail_unsupported(Scope::New(HandlerKind::Session, r#errhandler), ")
        );
        let handler = emit("MPI_Comm_create_errhandler", &[]);
        assert!(handler.contains("fail_unsupported(Scope::None, "));
    }

    #[test]
    fn failing_call__sets_what_it_returns_to_null() {
        let clear = "unsafe { clear(r#newcomm, MPI_COMM_NULL) }; fail(";
        let text = emit("MPI_Comm_dup", &[("comm_dup", body(true, true))]);
        assert_eq!(text.matches(clear).count(), 2, "{text}");
        assert!(text.contains("Ok(()) => 0,"));
        let text = emit("MPI_Win_create", &[]);
        assert!(text.contains("unsafe { clear(r#win, MPI_WIN_NULL) }; fail_unsupported("));
        let text = emit("MPI_Comm_create_keyval", &[("comm_create_keyval", body(true, true))]);
        assert!(text.contains("clear(r#comm_keyval, MPI_KEYVAL_INVALID)"));
        let text = emit("MPI_Imrecv", &[("imrecv", body(true, true))]);
        assert!(text.contains("clear(r#request,") && !text.contains("clear(r#message,"));
    }

    #[test]
    fn handle_that_a_function_reads__is_left_alone() {
        let table = Table::builtin().unwrap();
        let reads: Vec<&str> =
            table.functions.iter().filter(|f| f.inout.is_some()).map(|f| &*f.name).collect();
        for function in &table.functions {
            let verb = function.name.trim_end_matches("_c").rsplit('_').next().unwrap();
            let takes = ["free", "commit", "disconnect", "close", "finalize"].contains(&verb);
            if takes && !clear_results(&table, function).is_empty() {
                panic!("{} must say `inout`", function.name);
            }
        }
        for name in ["MPI_Wait", "MPI_Test", "MPI_Start", "MPI_Cancel", "MPI_Mrecv", "MPI_Imrecv_c"]
        {
            assert!(reads.contains(&name), "{name}");
        }
    }

    #[test]
    fn tool_interface__calls_no_error_handler() {
        assert!(emit("MPI_T_finalize", &[]).contains("{\n    MPI_ERR_UNSUPPORTED_OPERATION\n}"));
        let text = emit("MPI_T_finalize", &[("t_finalize", body(true, true))]);
        assert_eq!(text.matches("error.code()").count(), 2);
        assert!(!text.contains("fail"));
    }

    #[test]
    fn missing_body__without_an_error_code_is_refused() {
        let table = Table::builtin().unwrap();
        let wtime = table.function("MPI_Wtime").unwrap();
        assert!(emit_function(&table, &Bodies::default(), wtime, &mut String::new()).is_err());
    }

    #[test]
    fn types__are_those_of_the_contract() {
        let table = Table::builtin().unwrap();
        let types = |name: &str| rust_params(&table, table.function(name).unwrap(), true);
        assert!(types("MPI_Alltoallv_c").contains("r#sdispls: *const isize"));
        assert!(types("MPI_Waitall").contains("r#array_of_statuses: *mut Status"));
        assert!(types("MPI_Group_range_incl").contains("r#ranges: *mut [c_int; 3]"));
        assert!(types("MPI_Comm_spawn").contains("r#argv: *mut *mut c_char"));
        assert!(types("MPI_Init").contains("r#argv: *mut *mut *mut c_char"));
        assert!(types("MPI_Op_create").contains("r#user_fn: usize"));
        assert!(types("MPI_File_seek").contains("r#offset: i64"));
        assert_eq!(types("MPI_Pcontrol"), "r#level: c_int");
    }
}
