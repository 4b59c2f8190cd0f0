//! Protocol by size, as reported by this library in the job itself.
//!
//! The job prints the table of `fastpath info --protocols --json` (`FASTPATH_REPORT=selection`), with the constants of
//! its ranks.

use serde::{Deserialize, Serialize};

use fastpath_report::catalogue::{self, TestGroup};
use fastpath_report::record::{Case, Level};

/// Variable that makes a job of this library print its selection; other libraries ignore it.
pub const VARIABLE: (&str, &str) = ("FASTPATH_REPORT", "selection");

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Selection {
    classes: Vec<SelectionClass>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct SelectionClass {
    peer: String,
    memory: String,
    transports: Vec<String>,
    ranges: Vec<SizeRange>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct SizeRange {
    from: u64,
    to: Option<u64>,
    protocol: String,
}

impl Selection {
    pub fn parse(line: &str) -> Option<Selection> {
        let is_report = line.starts_with('{') && line.contains("\"classes\":");
        is_report.then(|| serde_json::from_str(line).ok())?
    }

    /// Fills in transport and protocol of a case whose messages have the case's size. A collective's messages may have
    /// other sizes.
    pub fn fill(&self, case: &mut Case) {
        let group = catalogue::find(&case.test).map(|test| test.group);
        let messages = match group {
            Some(TestGroup::Messages) => true,
            Some(TestGroup::Scaling) => case.test != "exit-skew",
            _ => false,
        };
        if !messages || case.level != Level::Mpi || case.protocol.is_some() {
            return;
        }
        // The program's buffers are allocated by the C library.
        let near =
            |c: &SelectionClass| c.peer.starts_with("ranks on") && c.memory.starts_with("private");
        let serves = |c: &&SelectionClass| near(c) || c.peer == "all others";
        let Some(class) = self.classes.iter().find(serves) else {
            return;
        };
        let holds = |r: &&SizeRange| r.from <= case.bytes && r.to.is_none_or(|to| case.bytes <= to);
        if let Some(range) = class.ranges.iter().find(holds) {
            case.transport = Some(class.transports.join(", "));
            case.protocol = Some(range.protocol.clone());
            case.protocol_sizes = Some((range.from, range.to));
        }
    }
}

/// Costs that a rank has learned from messages of another rank, for a range of sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LearnedCosts {
    pub rank: u32,
    pub from_rank: u32,
    /// Smallest size of the octave, in bytes; the last octave has no upper end.
    pub from_bytes: u64,
    pub protocol: String,
    /// Time of the fastest protocol, in picoseconds per byte.
    pub ps_per_byte: u32,
    pub timed_messages: u32,
}

impl LearnedCosts {
    /// Parses learned costs from a line of standard error, if the line has them.
    pub fn parse(line: &str) -> Option<LearnedCosts> {
        let is_learnt = line.starts_with('{') && line.contains("\"timed_messages\":");
        is_learnt.then(|| serde_json::from_str(line).ok())?
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_base::config::Config;
    use fastpath_protocol::report::SelectionReport;
    use fastpath_protocol::selection::Selection as Selected;
    use fastpath_report::testing::samples::make_case;
    use fastpath_transport::PeerClass;

    fn print_report() -> String {
        let selected = Selected::of(&Config::defaults());
        let peers = PeerClass::list(true, true, None);
        SelectionReport::of(&selected, peers).to_json()
    }

    #[test]
    fn line__of_the_library_is_read_and_fills_in_each_size() {
        let selection = Selection::parse(&print_report()).expect("the library's own words");
        let name = |bytes| {
            let mut case = make_case(bytes, &[1.0]);
            case.protocol = None;
            selection.fill(&mut case);
            case.protocol.expect("every size is served")
        };
        assert_eq!((name(0), name(48)), (name(8), name(8)));
        assert!(name(49) != name(48) && name(1 << 20) != name(49));
        let mut case = make_case(48, &[1.0]);
        case.protocol = None;
        selection.fill(&mut case);
        assert_eq!(case.protocol_sizes, Some((0, Some(48))));
    }

    #[test]
    fn collectives__and_other_levels_are_left_alone() {
        let selection = Selection::parse(&print_report()).unwrap();
        for (test, level) in [("bcast", Level::Mpi), ("latency", Level::Protocol)] {
            let mut case = make_case(8, &[1.0]);
            (case.test, case.level, case.protocol) = (test.to_owned(), level, None);
            let before = case.clone();
            selection.fill(&mut case);
            assert_eq!(case, before);
        }
    }

    #[test]
    fn learnt__is_read_and_other_lines_of_a_report_are_not() {
        let learnt = r#"{"rank":1,"from_rank":0,"from_bytes":4096,"protocol":"get","ps_per_byte":50,"timed_messages":7}"#;
        assert_eq!(LearnedCosts::parse(learnt).map(|learnt| learnt.timed_messages), Some(7));
        assert!(
            LearnedCosts::parse(r#"{"rank":0,"threads":{"level":"MPI_THREAD_SINGLE"}}"#).is_none()
        );
        assert!(LearnedCosts::parse(&print_report()).is_none());
    }

    #[test]
    fn report__is_known_whatever_else_it_says() {
        let text = print_report();
        let more = text.replacen('{', r#"{"started":"by somebody","#, 1);
        assert_eq!(Selection::parse(&more), Selection::parse(&text));
        assert!(Selection::parse(&more).is_some());
    }

    #[test]
    fn other_lines__are_none() {
        let text = print_report();
        for line in ["", "hello", "{\"source\":1}", &text[..text.len() - 1]] {
            assert_eq!(Selection::parse(line), None, "{line}");
        }
    }
}
