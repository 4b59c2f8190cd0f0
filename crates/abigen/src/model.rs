//! The table in memory.

/// Content of the table.
#[derive(Debug, Default)]
pub struct Table {
    /// All functions in table order, including large-count forms.
    pub functions: Vec<Function>,
    /// All constants in table order.
    pub constants: Vec<Constant>,
    /// Integer types: name and underlying C type.
    pub integers: Vec<(String, String)>,
    /// Handle types, those of the tool interface last.
    pub handles: Vec<String>,
    /// Enumeration types.
    pub enums: Vec<String>,
    /// Callback types.
    pub callbacks: Vec<Callback>,
    /// Aliases of callback types: new name, existing name.
    pub aliases: Vec<(String, String)>,
}

/// One function of the standard, without its `PMPI_` twin.
#[derive(Debug, Clone)]
pub struct Function {
    /// Name in C, such as `MPI_Send` or `MPI_Send_c`.
    pub name: String,
    /// Group of the function, which names a Rust module.
    pub section: String,
    /// Return type.
    pub ret: CType,
    /// Named parameters in order.
    pub params: Vec<Param>,
    /// Whether the parameters end with `...`.
    pub varargs: bool,
    /// Name of the other form, if this is the large-count form of a pair; otherwise `None`.
    pub large_of: Option<String>,
    /// Whether the function may be called before initialisation and after finalisation.
    pub anytime: bool,
    /// Version of the standard that deprecated the function.
    pub deprecated: Option<String>,
    /// Parameter that points to the handle on which errors are raised; `None`: the first argument with an error
    /// handler.
    pub scope: Option<String>,
    /// Parameter that points to a handle which the function reads.
    pub inout: Option<String>,
    /// Whether errors are raised on `MPI_FILE_NULL` (MPI 5.0, section 14.7), whatever the parameters are.
    pub on_no_file: bool,
}

/// A parameter of a function or a callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Name.
    pub name: String,
    /// Type before the name.
    pub ctype: CType,
    /// Text after the name: nothing, `[]` or `[][3]`.
    pub suffix: String,
    /// Whether the parameter's width differs between the two forms of a pair.
    pub poly: bool,
}

/// A C type: `const BASE **`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CType {
    /// Innermost name, such as `int`, `void` or `MPI_Comm`.
    pub base: String,
    /// Whether the C type starts with `const`.
    pub constant: bool,
    /// Number of stars.
    pub stars: usize,
}

/// A callback type: `typedef RET NAME(PARAMS)`.
#[derive(Debug, Clone)]
pub struct Callback {
    /// Name, such as `MPI_User_function`.
    pub name: String,
    /// Return type.
    pub ret: CType,
    /// Named parameters in order.
    pub params: Vec<Param>,
    /// Whether the parameters end with `...`.
    pub varargs: bool,
    /// Version of the standard that deprecated the callback.
    pub deprecated: Option<String>,
}

/// A constant.
#[derive(Debug, Clone)]
pub struct Constant {
    /// Name, such as `MPI_COMM_WORLD`.
    pub name: String,
    /// Group of the constant.
    pub section: String,
    /// C type.
    pub ctype: CType,
    /// Value, before a cast to a pointer type.
    pub value: i64,
}

/// Kind of a C type, which determines how it is passed.
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
    /// Returns the kind of `base`, the innermost name of a C type; `None` for an unknown one.
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

    /// Finds a function by name.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|f| f.name == name)
    }

    /// Returns all names that the library exports, sorted: each function as `MPI_X` and as `PMPI_X`.
    #[must_use]
    pub fn symbols(&self) -> Vec<String> {
        let mut all: Vec<String> =
            self.functions.iter().flat_map(|f| [f.name.clone(), format!("P{}", f.name)]).collect();
        all.sort();
        all
    }
}

impl CType {
    /// Formats the type for C, to be followed by a name: `const void *` or `int `.
    #[must_use]
    pub fn c_prefix(&self) -> String {
        let constant = if self.constant { "const " } else { "" };
        format!("{constant}{} {}", self.base, "*".repeat(self.stars))
    }
}

impl Param {
    /// Formats the declaration in C: `const int counts[]`.
    #[must_use]
    pub fn c_decl(&self) -> String {
        format!("{}{}{}", self.ctype.c_prefix(), self.name, self.suffix)
    }
}

/// Formats parameters for a C prototype, without parentheses.
#[must_use]
pub fn c_params(params: &[Param], varargs: bool) -> String {
    let mut all: Vec<String> = params.iter().map(Param::c_decl).collect();
    if varargs {
        all.push("...".into());
    }
    if all.is_empty() { "void".into() } else { all.join(", ") }
}
