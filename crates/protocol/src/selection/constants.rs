//! What things cost on a machine: the few numbers that every protocol's cost is made of.

/// One constant: its name in files, the range that can be believed, what it means.
#[derive(Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Unit, for people.
    pub unit: &'static str,
    /// Smallest value that is believed.
    pub least: f64,
    /// Largest one.
    pub most: f64,
    /// One line for people.
    pub meaning: &'static str,
    /// Reads it.
    pub get: fn(&Constants) -> f64,
    /// Writes it.
    pub set: fn(&mut Constants, f64),
}

/// Defines structure, defaults and table together, so that they cannot fall out of step.
macro_rules! constants {
    ($($name:ident $default:literal, $unit:literal, $least:literal, $most:literal,
        $meaning:literal;)*) => {
        /// Costs of one machine, in nanoseconds or nanoseconds per byte.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct Constants { $(#[doc = $meaning] pub $name: f64,)* }

        impl Default for Constants {
            /// What decides where nothing was measured.
            fn default() -> Self {
                Constants { $($name: $default,)* }
            }
        }

        /// Every constant.
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
        "a cache line, one way between two processors";
    post_ns 80.0, "ns", 1.0, 20_000.0,
        "sending or taking one message of the ring, without its bytes";
    step_ns 250.0, "ns", 1.0, 100_000.0,
        "a step of a handshake beyond that: request, progress, matching";
    transfer_byte_ns 0.045, "ns/B", 0.001, 100.0,
        "copying a byte out of, or over, another processor's cache";
    kernel_call_ns 500.0, "ns", 1.0, 1_000_000.0,
        "a call of process_vm_readv or process_vm_writev, without its bytes";
    kernel_byte_ns 0.045, "ns/B", 0.0, 100.0,
        "what such a call adds to the copy of a byte: pages looked up and held";
}

impl Constants {
    /// The first constant that nobody can believe, with the reason.
    ///
    /// # Errors
    /// It is no number, or outside its range.
    pub fn check(&self) -> Result<(), String> {
        for field in FIELDS {
            let value = (field.get)(self);
            if !(field.least..=field.most).contains(&value) {
                return Err(format!(
                    "{} = {value} is outside {} to {} {}",
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
