//! The functions of the profiling library: each one measures a call and passes it on as `PMPI_X`.

use crate::exports::{rust_params, rust_type};
use crate::model::{Function, Table};
use std::fmt::Write;

/// Sections whose functions communicate. Calls of other sections are local, and are not measured.
const SECTIONS: &[&str] =
    &["p2p", "request", "partitioned", "coll", "comm", "topo", "rma", "dynamic", "io"];

/// Generates the functions. The source uses these names of `fastpath-profile`: `begin`, `bytes`, `function`, and the C
/// types.
///
/// # Errors
/// A function has a return type other than `int`.
pub fn emit_functions(table: &Table) -> Result<String, String> {
    let mut out = String::new();
    let mut names = String::new();
    let measured = table.functions.iter().filter(|f| SECTIONS.contains(&&*f.section));
    for (number, function) in measured.enumerate() {
        if rust_type(table, &function.ret, "") != "c_int" || function.varargs {
            return Err(format!("{} cannot be measured: it returns no error code", function.name));
        }
        emit_function(table, function, number, &mut out);
        _ = writeln!(
            names,
            "    MeasuredFunction::new(c\"P{}\", {}),",
            function.name,
            kind(function)
        );
    }
    let count = names.lines().count();
    _ = writeln!(out, "pub static FUNCTIONS: [MeasuredFunction; {count}] = [\n{names}];");
    Ok(out)
}

/// Returns the kind of the bytes that a function counts.
fn kind(function: &Function) -> &'static str {
    match &*function.section {
        "io" => "ByteKind::File",
        "rma" => "ByteKind::Window",
        _ => "ByteKind::Sent",
    }
}

fn emit_function(table: &Table, function: &Function, number: usize, out: &mut String) {
    let name = &function.name;
    let params = rust_params(table, function);
    let types: Vec<String> =
        function.params.iter().map(|p| rust_type(table, &p.ctype, &p.suffix)).collect();
    let args: Vec<String> = function.params.iter().map(|p| format!("r#{}", p.name)).collect();
    let (types, args) = (types.join(", "), args.join(", "));
    // The entry stores the return address, which names the call site.
    _ = write!(
        out,
        "#[cfg(target_arch = \"x86_64\")]\n#[unsafe(naked)]\n#[unsafe(no_mangle)]\n\
         pub unsafe extern \"C\" fn {name}({params}) -> c_int {{\n    \
         naked_asm!(enter!(), body = sym measured_{name})\n}}\n\
         #[cfg_attr(not(target_arch = \"x86_64\"), unsafe(export_name = \"{name}\"))]\n\
         unsafe extern \"C\" fn measured_{name}({params}) -> c_int {{\n    \
         let function = &FUNCTIONS[{number}];\n    \
         let real: unsafe extern \"C\" fn({types}) -> c_int =\n        \
         unsafe {{ core::mem::transmute(function.real()) }};\n"
    );
    if name == "MPI_Request_free" {
        out.push_str("    unsafe { bytes::forget(r#request) };\n");
    }
    _ = writeln!(
        out,
        "    let call = begin(function);\n    let code = unsafe {{ real({args}) }};\n    \
         call.end(|| if code == 0 {{ unsafe {{ {} }} }} else {{ 0 }});\n    code\n}}",
        emit_bytes(function)
    );
}

/// Returns the expression for the bytes that a call sends, moves to or from a window, or moves to or from a file. It is
/// evaluated only after a call that succeeded, because a failed call may have had invalid handles.
fn emit_bytes(function: &Function) -> String {
    let has = |name: &str| function.params.iter().any(|p| p.name == name);
    let short = function.name.trim_start_matches("MPI_").trim_end_matches("_c");
    let (short, persistent) = match short.strip_suffix("_init") {
        Some(short) => (short, true),
        None => (short, false),
    };
    let one =
        |count: &str, datatype: &str| format!("bytes::data(i64::from(r#{count}), r#{datatype})");
    let bytes = match &*function.section {
        // The C binding names the source of MPI_Precv_init `dest`.
        "p2p" | "partitioned" if !has("dest") || short == "Precv" => return no_bytes(short),
        "p2p" if has("sendcount") => format!("bytes::to(r#dest, {})", one("sendcount", "sendtype")),
        "p2p" => format!("bytes::to(r#dest, {})", one("count", "datatype")),
        "partitioned" => {
            format!("bytes::to(r#dest, i64::from(r#partitions) * {})", one("count", "datatype"))
        }
        "coll" => collective_bytes(short, &one),
        "rma" if has("origin_count") => one("origin_count", "origin_datatype"),
        "rma" if has("datatype") && has("target_rank") => "bytes::data(1, r#datatype)".into(),
        "io" if has("buf") && has("count") => one("count", "datatype"),
        _ => return no_bytes(short),
    };
    match persistent {
        true => format!("bytes::remember(r#request, {bytes}); 0"),
        false => bytes,
    }
}

/// Returns the expression for a call without a buffer. A started request has the bytes of the call that made it.
fn no_bytes(short: &str) -> String {
    match short {
        "Start" => "bytes::started(r#request, 1)".into(),
        "Startall" => "bytes::started(r#array_of_requests, r#count)".into(),
        _ => "0".into(),
    }
}

/// Returns the expression for the bytes that a rank passes to a collective call. Data that all peers get counts once.
fn collective_bytes(short: &str, one: &dyn Fn(&str, &str) -> String) -> String {
    let mut letters = short.chars();
    let name = match (letters.next(), letters.next()) {
        (Some('I'), Some(second)) if second.is_lowercase() => &short[1..],
        _ => short,
    };
    let name = name.to_lowercase();
    let all = |counts: &str, datatype: &str| {
        format!("bytes::array(r#{counts}, r#{datatype}, bytes::peers(r#comm))")
    };
    let in_place = |sent: String, received: String| {
        format!("if bytes::is_in_place(r#sendbuf) {{ {received} }} else {{ {sent} }}")
    };
    let own = "bytes::own(r#recvcounts, r#recvtype, r#comm)".to_owned();
    let root = |bytes: String| format!("bytes::at_root(r#root, r#comm, || {bytes})");
    let to_root = |bytes: String| format!("bytes::to_root(r#root, || {bytes})");
    let each = |bytes: String| format!("bytes::peers(r#comm) * {bytes}");
    match &*name {
        "allgather" => in_place(one("sendcount", "sendtype"), one("recvcount", "recvtype")),
        "allgatherv" => in_place(one("sendcount", "sendtype"), own),
        "gather" => to_root(in_place(one("sendcount", "sendtype"), one("recvcount", "recvtype"))),
        "gatherv" => to_root(in_place(one("sendcount", "sendtype"), own)),
        "alltoall" => {
            in_place(each(one("sendcount", "sendtype")), each(one("recvcount", "recvtype")))
        }
        "alltoallv" => in_place(all("sendcounts", "sendtype"), all("recvcounts", "recvtype")),
        "alltoallw" => {
            let arrays = |counts: &str, types: &str| {
                format!("bytes::arrays(r#{counts}, r#{types}, bytes::peers(r#comm))")
            };
            in_place(arrays("sendcounts", "sendtypes"), arrays("recvcounts", "recvtypes"))
        }
        "bcast" => root(one("count", "datatype")),
        "scatter" => root(each(one("sendcount", "sendtype"))),
        "scatterv" => root(all("sendcounts", "sendtype")),
        // The result has a part for each rank of the own group, also on an intercommunicator.
        "reduce_scatter" => {
            "bytes::array(r#recvcounts, r#datatype, bytes::group_size(r#comm))".into()
        }
        "reduce_scatter_block" => {
            format!("bytes::group_size(r#comm) * {}", one("recvcount", "datatype"))
        }
        "reduce" => to_root(one("count", "datatype")),
        "allreduce" | "scan" | "exscan" => one("count", "datatype"),
        // The number of neighbors is known only to the topology.
        _ => "0".into(),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn bytes(name: &str) -> String {
        let table = Table::builtin().unwrap();
        emit_bytes(table.function(name).unwrap())
    }

    #[test]
    fn functions__that_communicate_are_measured() {
        let text = emit_functions(&Table::builtin().unwrap()).unwrap();
        for name in ["MPI_Send", "MPI_Waitall", "MPI_Iallreduce_c", "MPI_File_write_at_all"] {
            assert!(text.contains(&format!("fn {name}(")), "{name}");
        }
        assert_eq!(text.matches("call.end(||").count(), text.matches("|| if code == 0 {").count());
        assert!(!text.contains("MPI_Wtime") && !text.contains("fn MPI_Comm_toint("));
    }

    #[test]
    fn bytes__are_those_that_a_call_passes() {
        let send = "bytes::to(r#dest, bytes::data(i64::from(r#count), r#datatype))";
        assert_eq!(bytes("MPI_Issend"), send);
        assert_eq!(bytes("MPI_Send_init_c"), format!("bytes::remember(r#request, {send}); 0"));
        assert_eq!(bytes("MPI_Irecv"), "0");
        assert!(bytes("MPI_Ibcast").starts_with("bytes::at_root("));
        assert!(bytes("MPI_Alltoallv").contains("bytes::array(r#sendcounts, r#sendtype"));
        assert!(bytes("MPI_Reduce_scatter").contains("bytes::group_size(r#comm)"));
        assert!(bytes("MPI_Ireduce_scatter_block").starts_with("bytes::group_size(r#comm)"));
        assert!(bytes("MPI_Igatherv").starts_with("bytes::to_root(r#root, ||"));
        assert_eq!(bytes("MPI_Ineighbor_alltoall"), "0");
        assert_eq!(bytes("MPI_Startall"), "bytes::started(r#array_of_requests, r#count)");
    }

    #[test]
    fn bytes__of_every_collective_call_with_data_are_known() {
        let table = Table::builtin().unwrap();
        for function in table.functions.iter().filter(|f| f.section == "coll") {
            let unknown = emit_bytes(function) == "0";
            let expected = ["arrier", "eighbor"].iter().any(|word| function.name.contains(word));
            assert_eq!(
                unknown || emit_bytes(function).ends_with(", 0); 0"),
                expected,
                "{}",
                function.name
            );
        }
    }
}
