//! Floor of file accesses: system calls that transfer equally many bytes from equally many processes.

use fastpath_report::record::Case;

/// Name of this floor in results.
const NAME: &str = "the same bytes by pwrite or pread";

fn is_system(case: &Case) -> bool {
    matches!(case.variant.as_str(), "pwrite" | "pread")
}

/// Attaches floors to the file cases of a run, in their order. The system calls of each size are measured first.
#[derive(Default)]
pub struct Floors {
    system: Option<Case>,
}

impl Floors {
    /// Sets the floor of a file case, if the system calls were measured before it.
    pub fn attach(&mut self, case: &mut Case) {
        if is_system(case) {
            self.system = Some(case.clone());
            return;
        }
        let same = |system: &&Case| {
            (&system.test, system.bytes, system.ranks) == (&case.test, case.bytes, case.ranks)
        };
        if let Some(system) = self.system.as_ref().filter(same) {
            case.floor = Some(system.samples.clone());
            case.floor_of = Some(NAME.to_owned());
            case.floor_line = None;
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_report::testing::samples::make_case;

    #[test]
    fn floor__of_a_file_is_what_the_system_takes_for_as_many_bytes() {
        let of = |variant: &str, bytes, time| Case {
            test: "file-write".into(),
            variant: variant.into(),
            ..make_case(bytes, &[time])
        };
        let mut floors = Floors::default();
        let floor = |floors: &mut Floors, mut case: Case| {
            floors.attach(&mut case);
            (case.floor.and_then(|floor| floor.quantile(0.5)), case.floor_of)
        };
        let before = floor(&mut floors, of("independent", 64, 300.0));
        assert_ne!(before.1.as_deref(), Some(NAME), "nothing was measured yet");
        let own = floor(&mut floors, of("pwrite", 64, 200.0));
        assert_eq!(own, before, "its own floor is what it was");
        let after = floor(&mut floors, of("independent", 64, 300.0));
        assert_eq!(after, (Some(200.0), Some(NAME.to_owned())));
        assert_eq!(floor(&mut floors, of("independent", 128, 300.0)), before);
    }
}
