//! Validates JSON against the schemas in `docs/schema` (the part of JSON Schema 2020-12 that `schemars` writes).
//!
//! A keyword that is not implemented here is an error, so that none is silently ignored. A crate that implements all of
//! JSON Schema brings 30 other crates and takes longer to build than the rest of the tests' dependencies.

use serde_json::{Map, Value};

/// Compares the schema in the repository with the types. With UPDATE_SCHEMA set, writes it.
pub fn check_schema_file(name: &str, schema: &schemars::Schema) {
    let path = format!("{}/../../docs/schema/{name}", env!("CARGO_MANIFEST_DIR"));
    let wanted = serde_json::to_string_pretty(schema).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        found, wanted,
        "{path} is out of date: UPDATE_SCHEMA=1 cargo test --workspace schema__"
    );
}

/// Sets the only value that a property of the root may have.
pub fn pin_constant(schema: &mut schemars::Schema, name: &str, value: Value) {
    let property = schema.pointer_mut(&format!("/properties/{name}")).unwrap();
    property["const"] = value;
}

/// Checks `value` against the schema in `text`; the error has the location in `value` and the cause.
pub fn validate(text: &str, value: &Value) -> Result<(), String> {
    let root: Value = serde_json::from_str(text).map_err(|e| format!("no schema: {e}"))?;
    check(&root, &root, value, "")
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let Value::Object(keywords) = schema else {
        return match schema {
            Value::Bool(true) => Ok(()),
            _ => Err(format!("{at}: refused by {schema}")),
        };
    };
    for (keyword, wanted) in keywords {
        let fits = match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "default" => true,
            "$ref" => {
                let pointer = wanted.as_str().and_then(|path| path.strip_prefix('#'));
                let target = pointer.and_then(|path| root.pointer(path));
                let target = target.ok_or_else(|| format!("unknown $ref {wanted}"))?;
                check(root, target, value, at)?;
                true
            }
            "type" => match wanted {
                Value::Array(names) => names.iter().any(|name| has_type(value, name)),
                name => has_type(value, name),
            },
            "format" => fits_format(value, wanted)?,
            "const" => value == wanted,
            "minimum" => value.as_f64().is_none_or(|number| Some(number) >= wanted.as_f64()),
            "minItems" => length(value).is_none_or(|n| Some(n) >= wanted.as_u64()),
            "maxItems" => length(value).is_none_or(|n| Some(n) <= wanted.as_u64()),
            "required" => value.as_object().is_none_or(|object| {
                list(wanted).all(|name| name.as_str().is_some_and(|name| object.contains_key(name)))
            }),
            "properties" => {
                for (name, schema) in wanted.as_object().into_iter().flatten() {
                    if let Some(part) = value.get(name) {
                        check(root, schema, part, &format!("{at}/{name}"))?;
                    }
                }
                true
            }
            "additionalProperties" => {
                for (name, part) in additional(keywords, value) {
                    check(root, wanted, part, &format!("{at}/{name}"))?;
                }
                true
            }
            "prefixItems" => {
                for (i, (schema, part)) in list(wanted).zip(list(value)).enumerate() {
                    check(root, schema, part, &format!("{at}/{i}"))?;
                }
                true
            }
            "items" => {
                let first = keywords.get("prefixItems").map_or(0, |prefix| list(prefix).count());
                for (i, part) in list(value).enumerate().skip(first) {
                    check(root, wanted, part, &format!("{at}/{i}"))?;
                }
                true
            }
            "anyOf" => list(wanted).any(|schema| check(root, schema, value, at).is_ok()),
            "oneOf" => {
                list(wanted).filter(|schema| check(root, schema, value, at).is_ok()).count() == 1
            }
            _ => return Err(format!("the keyword {keyword:?} is not implemented")),
        };
        if !fits {
            return Err(format!("{at}: {value} does not fit {keyword:?}: {wanted}"));
        }
    }
    Ok(())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn length(value: &Value) -> Option<u64> {
    value.as_array().map(|array| array.len() as u64)
}

/// Properties of `value` that the schema's `properties` does not name.
fn additional<'a>(
    keywords: &'a Map<String, Value>, value: &'a Value,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let named = keywords.get("properties").and_then(Value::as_object);
    let all = value.as_object().into_iter().flatten();
    all.filter(move |(name, _)| !named.is_some_and(|named| named.contains_key(*name)))
}

fn has_type(value: &Value, name: &Value) -> bool {
    match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_i64() || value.is_u64(),
        _ => false,
    }
}

/// Whether a number fits the width of `format`. Values other than numbers fit: the keyword `type` checks them.
fn fits_format(value: &Value, format: &Value) -> Result<bool, String> {
    if !value.is_number() {
        return Ok(true);
    }
    match format.as_str() {
        Some("double") => Ok(true),
        Some("uint" | "uint64") => Ok(value.is_u64()),
        Some("uint32") => Ok(value.as_u64().is_some_and(|n| u32::try_from(n).is_ok())),
        Some("int32") => Ok(value.as_i64().is_some_and(|n| i32::try_from(n).is_ok())),
        _ => Err(format!("the format {format} is not implemented")),
    }
}
