//! Constants of a machine: the few numbers that determine the costs of all protocols.

/// Constant with its name in files, plausible range and meaning.
#[derive(Debug)]
pub struct Field {
    /// Name.
    pub name: &'static str,
    /// Unit, for reports.
    pub unit: &'static str,
    /// Smallest plausible value.
    pub least: f64,
    /// Largest plausible value.
    pub most: f64,
    /// Meaning, in one line.
    pub meaning: &'static str,
    /// Reads the value.
    pub get: fn(&Constants) -> f64,
    /// Writes the value.
    pub set: fn(&mut Constants, f64),
}

/// Defines structure, defaults and table from one list, so that they stay consistent.
macro_rules! constants {
    ($($name:ident $default:literal, $unit:literal, $least:literal, $most:literal,
        $meaning:literal;)*) => {
        /// Costs of one machine, in nanoseconds or nanoseconds per byte.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct Constants { $(#[doc = $meaning] pub $name: f64,)* }

        impl Default for Constants {
            fn default() -> Self {
                Constants { $($name: $default,)* }
            }
        }

        /// All constants.
        pub static FIELDS: &[Field] = &[$(Field {
            name: stringify!($name),
            unit: $unit,
            least: $least,
            most: $most,
            meaning: $meaning,
            get: |constants| constants.$name,
            set: |constants, value| constants.$name = value,
        },)*];
    };
}

constants! {
    line_ns 120.0, "ns", 1.0, 20_000.0,
        "time of a cache line from one processor to another";
    post_ns 80.0, "ns", 1.0, 20_000.0,
        "time to send or receive a message through the ring, without the copy of its bytes";
    step_ns 250.0, "ns", 1.0, 100_000.0,
        "time of one more step of a handshake: request, progress, matching";
    transfer_byte_ns 0.045, "ns/B", 0.001, 100.0,
        "time to read or overwrite a byte that is in another processor's cache";
    kernel_call_ns 500.0, "ns", 1.0, 1_000_000.0,
        "time of a call of process_vm_readv or process_vm_writev, without the copy of its bytes";
    kernel_byte_ns 0.045, "ns/B", 0.0, 100.0,
        "time that process_vm_readv or process_vm_writev adds to the copy of a byte: page look-up \
         and pinning";
}

impl Constants {
    /// Checks that all constants are plausible.
    ///
    /// # Errors
    /// Names the first constant that is not a number or outside its range.
    pub fn check(&self) -> Result<(), String> {
        for field in FIELDS {
            let value = (field.get)(self);
            if !(field.least..=field.most).contains(&value) {
                return Err(format!(
                    "the constant {} = {value} is outside of the range {} to {} {}",
                    field.name, field.least, field.most, field.unit
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn defaults__can_be_believed() {
        assert_eq!(Constants::default().check(), Ok(()));
    }

    #[test]
    fn check__names_what_is_no_number_or_out_of_range() {
        for field in FIELDS {
            for wrong in [f64::NAN, f64::INFINITY, -1.0, field.most * 2.0] {
                let mut constants = Constants::default();
                (field.set)(&mut constants, wrong);
                let error = constants.check().unwrap_err();
                assert!(error.contains(field.name), "{error}");
            }
        }
    }
}
