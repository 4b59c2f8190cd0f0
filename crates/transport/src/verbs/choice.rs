//! Choice of the adapter: the requested adapter, or the first usable one.

use super::device::{DeviceContext, list_devices};
use super::error::VerbsError;
use super::library::Library;
use std::path::Path;
use std::sync::Arc;

/// Opens the named device, with a port after a colon if given (`mlx5_0:1`), or else the first device that `make` can
/// use.
///
/// # Errors
/// No such device, or no usable one, with the error of each device.
pub fn open_device<T>(
    wanted: Option<&str>, make: impl Fn(&Arc<DeviceContext>, Option<u8>) -> Result<T, VerbsError>,
) -> Result<T, VerbsError> {
    let library = Library::load()?;
    if let Some(wanted) = wanted {
        let (name, port) = split_port(wanted)?;
        let opened = DeviceContext::open(library, name).map_err(|error| match &error {
            VerbsError::UnknownDevice { present, .. } if present.is_empty() => {
                explain_none(Path::new(SYSFS)).unwrap_or(error)
            }
            _ => error,
        });
        return make(&opened?, port);
    }
    let mut errors = Vec::new();
    for name in list_devices(library)? {
        match DeviceContext::open(library, &name).and_then(|context| make(&context, None)) {
            Ok(made) => return Ok(made),
            Err(error) => errors.push(error),
        }
    }
    match explain_none(Path::new(SYSFS)) {
        Some(why) if errors.is_empty() => Err(why),
        _ => Err(VerbsError::of_each(errors)),
    }
}

const SYSFS: &str = "/sys/class";

/// Reason why the library lists none of the kernel's devices; `None` if the kernel has no devices. `classes` is the
/// folder of device classes.
fn explain_none(classes: &Path) -> Option<VerbsError> {
    let list = |class: &str| {
        let entries = std::fs::read_dir(classes.join(class));
        let entries = entries.into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    let names = list("infiniband");
    let ways = list("infiniband_verbs");
    (!names.is_empty()).then(|| VerbsError::NotOffered {
        names,
        open: ways.iter().any(|way| way.starts_with("uverbs")),
    })
}

/// Splits a device name from the port after a colon.
///
/// # Errors
/// The text after the colon is no port number.
pub fn split_port(wanted: &str) -> Result<(&str, Option<u8>), VerbsError> {
    let Some((name, port)) = wanted.split_once(':') else {
        return Ok((wanted, None));
    };
    match port.parse() {
        Ok(port) if !name.is_empty() => Ok((name, Some(port))),
        _ => {
            let text = format!(
                "'{wanted}' is not the name of a device: expected a name such as mlx5_0 or mlx5_0:1"
            );
            Err(VerbsError::Value(text))
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn none__listed_is_told_from_none_there() {
        let folder = std::env::temp_dir().join(format!("fastpath-none-{}", std::process::id()));
        assert_eq!(explain_none(&folder), None);
        let make = |name: &str| std::fs::create_dir_all(folder.join(name)).unwrap();
        make("infiniband/rxe1");
        make("infiniband/rxe0");
        let closed = explain_none(&folder).unwrap().to_string();
        make("infiniband_verbs/uverbs0");
        let open = explain_none(&folder).unwrap().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        for (why, remedy) in [(closed, "ib_uverbs"), (open, "ibverbs-providers")] {
            assert!(why.contains("has rxe0, rxe1") && why.contains(remedy), "{why}");
        }
    }

    #[test]
    fn split_port__reads_a_number_or_refuses() {
        assert_eq!(split_port("mlx5_0"), Ok(("mlx5_0", None)));
        assert_eq!(split_port("mlx5_0:2"), Ok(("mlx5_0", Some(2))));
        for wrong in ["mlx5_0:", "mlx5_0:a", "mlx5_0:256", "mlx5_0:1:2", ":", ":1"] {
            let Err(VerbsError::Value(text)) = split_port(wrong) else {
                panic!("{wrong} was taken");
            };
            assert!(text.starts_with(&format!("'{wrong}' is no")), "{text}");
        }
    }
}
