//! The table in memory.

/// Everything the table says.
#[derive(Debug, Default)]
pub struct Table {
    /// All functions, large-count forms among them, in the order of the table.
    pub functions: Vec<Function>,
    /// All constants, in the order of the table.
    pub constants: Vec<Constant>,
    /// Integer types: name and the C type they stand for.
    pub integers: Vec<(String, String)>,
    /// Handle types, those of the tool interface last.
    pub handles: Vec<String>,
    /// Enumeration types.
    pub enums: Vec<String>,
    /// Callback types.
    pub callbacks: Vec<Callback>,
    /// Other names of callback types: new name, existing name.
    pub aliases: Vec<(String, String)>,
}

/// One function of the standard, without its `PMPI_` twin.
#[derive(Debug, Clone)]
pub struct Function {
    /// `MPI_Send`, `MPI_Send_c`.
    pub name: String,
    /// The group of functions it belongs to; the name of a Rust module.
    pub section: String,
    /// What it returns.
    pub ret: CType,
    /// Named parameters in order.
    pub params: Vec<Param>,
    /// Ends in `...`.
    pub varargs: bool,
    /// For the large-count form of a pair, the name of the other one.
    pub large_of: Option<String>,
    /// May be called before initialisation and after finalisation.
    pub anytime: bool,
    /// The version of the standard that deprecated it.
    pub deprecated: Option<String>,
    /// The parameter that points to the handle on which errors are raised.
    pub scope: Option<String>,
    /// The parameter that points to a handle which the function reads.
    pub inout: Option<String>,
    /// The function whose body serves this one too: their parameters differ in names alone.
    pub body_of: Option<String>,
    /// Errors are raised on no open file (MPI 5.0, section 14.7), whatever the parameters are.
    pub on_no_file: bool,
}

/// A parameter of a function or a callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its type before the name.
    pub ctype: CType,
    /// What follows the name: nothing, `[]` or `[][3]`.
    pub suffix: String,
    /// Its width differs between the two forms of a pair.
    pub poly: bool,
}

/// A C type: `const BASE **`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CType {
    /// `int`, `void`, `MPI_Comm`, ...
    pub base: String,
    /// Starts with `const`.
    pub constant: bool,
    /// The number of stars.
    pub stars: usize,
}

/// A callback type: `typedef RET NAME(PARAMS)`.
#[derive(Debug, Clone)]
pub struct Callback {
    /// `MPI_User_function`, ...
    pub name: String,
    /// What it returns.
    pub ret: CType,
    /// Named parameters in order.
    pub params: Vec<Param>,
    /// Ends in `...`.
    pub varargs: bool,
    /// The version of the standard that deprecated it.
    pub deprecated: Option<String>,
}

/// A constant.
#[derive(Debug, Clone)]
pub struct Constant {
    /// `MPI_COMM_WORLD`, ...
    pub name: String,
    /// The group of constants it belongs to.
    pub section: String,
    /// Its C type.
    pub ctype: CType,
    /// Its value, before the cast to a pointer type where that is the type.
    pub value: i64,
}

/// How a C type is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CTypeKind {
    /// `void`
    Void,
    /// `char`
    Char,
    /// `int` or an enumeration
    Int,
    /// `double`
    Double,
    /// `MPI_Aint`
    Aint,
    /// `MPI_Count` and `MPI_Offset`
    Long,
    /// `MPI_Status`
    Status,
    /// A handle, by its value
    Handle,
    /// A callback, by its address
    Callback,
}

impl Table {
    /// What `base`, the innermost name of a C type, is; `None` when the table does not know it.
    #[must_use]
    pub fn kind(&self, base: &str) -> Option<CTypeKind> {
        Some(match base {
            "void" => CTypeKind::Void,
            "char" => CTypeKind::Char,
            "int" => CTypeKind::Int,
            "double" => CTypeKind::Double,
            "MPI_Status" => CTypeKind::Status,
            "MPI_Aint" => CTypeKind::Aint,
            _ if self.integers.iter().any(|(name, _)| name == base) => CTypeKind::Long,
            _ if self.handles.iter().any(|name| name == base) => CTypeKind::Handle,
            _ if self.enums.iter().any(|name| name == base) => CTypeKind::Int,
            _ if self.callbacks.iter().any(|c| c.name == base) => CTypeKind::Callback,
            _ => return None,
        })
    }

    /// The function of that name.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|f| f.name == name)
    }

    /// All 2 N names the library exports, sorted: each function as `MPI_X` and as `PMPI_X`.
    #[must_use]
    pub fn symbols(&self) -> Vec<String> {
        let mut all: Vec<String> =
            self.functions.iter().flat_map(|f| [f.name.clone(), format!("P{}", f.name)]).collect();
        all.sort();
        all
    }
}

impl Function {
    /// The name of the hand-written body: `comm_dup` for `MPI_Comm_dup`.
    #[must_use]
    pub fn body_name(&self) -> String {
        self.name.trim_start_matches("MPI_").to_lowercase()
    }
}

impl CType {
    /// As C writes it, ready to be followed by a name: `const void *` or `int `.
    #[must_use]
    pub fn c_prefix(&self) -> String {
        let constant = if self.constant { "const " } else { "" };
        format!("{constant}{} {}", self.base, "*".repeat(self.stars))
    }
}

impl Param {
    /// The declaration in C: `const int counts[]`.
    #[must_use]
    pub fn c_decl(&self) -> String {
        format!("{}{}{}", self.ctype.c_prefix(), self.name, self.suffix)
    }
}

/// Parameters as they stand between the parentheses of a C prototype.
#[must_use]
pub fn c_params(params: &[Param], varargs: bool) -> String {
    let mut all: Vec<String> = params.iter().map(Param::c_decl).collect();
    if varargs {
        all.push("...".into());
    }
    if all.is_empty() { "void".into() } else { all.join(", ") }
}
