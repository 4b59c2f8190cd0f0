//! Which protocol serves which size, as our library says it in the job itself.
//!
//! The table of `fastpath info --protocols --json` is what a job chooses; the job prints the same
//! (`FASTPATH_REPORT=selection`) with the constants that its ranks have.

use serde::{Deserialize, Serialize};

use fastpath_report::catalogue::{self, Group};
use fastpath_report::record::{Case, Level};

/// By which a job of our library is asked to say it; others do not know it.
pub const VARIABLE: (&str, &str) = ("FASTPATH_REPORT", "selection");

/// What the library has selected.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Selection {
    classes: Vec<Class>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Class {
    peer: String,
    memory: String,
    transports: Vec<String>,
    ranges: Vec<Range>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Range {
    from: u64,
    to: Option<u64>,
    protocol: String,
}

impl Selection {
    /// The selection that a line on the standard error holds, if it holds one.
    pub fn parse(line: &str) -> Option<Selection> {
        let is_report = line.starts_with('{') && line.contains("\"classes\":");
        is_report.then(|| serde_json::from_str(line).ok())?
    }

    /// Fills in transport and protocol of a case whose messages have the case's size; what lies
    /// between a collective's ranks is its own affair.
    pub fn fill(&self, case: &mut Case) {
        let group = catalogue::find(&case.test).map(|test| test.group);
        let messages = match group {
            Some(Group::Messages) => true,
            Some(Group::Scaling) => case.test != "exit-skew",
            _ => false,
        };
        if !messages || case.level != Level::Mpi || case.protocol.is_some() {
            return;
        }
        // Buffers of the program come from the C library.
        let near = |c: &Class| c.peer.starts_with("ranks on") && c.memory.starts_with("private");
        let serves = |c: &&Class| near(c) || c.peer == "all others";
        let Some(class) = self.classes.iter().find(serves) else {
            return;
        };
        let holds = |r: &&Range| r.from <= case.bytes && r.to.is_none_or(|to| case.bytes <= to);
        if let Some(range) = class.ranges.iter().find(holds) {
            case.transport = Some(class.transports.join(", "));
            case.protocol = Some(range.protocol.clone());
            case.protocol_sizes = Some((range.from, range.to));
        }
    }
}

/// What a rank has learnt of another one's messages of some sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Learnt {
    /// Who has learnt it, of whose messages.
    pub rank: u32,
    /// Who sent them.
    pub from_rank: u32,
    /// Smallest size of the octave, in bytes; the last one has no upper end.
    pub from_bytes: u64,
    /// The way that took least.
    pub protocol: String,
    /// What it took, in picoseconds for each byte.
    pub ps_per_byte: u32,
    /// The number of timed messages behind it.
    pub timed_messages: u32,
}

impl Learnt {
    /// What a line on the standard error says of it, if it does.
    pub fn parse(line: &str) -> Option<Learnt> {
        let is_learnt = line.starts_with('{') && line.contains("\"timed_messages\":");
        is_learnt.then(|| serde_json::from_str(line).ok())?
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use fastpath_base::config::Config;
    use fastpath_protocol::selection::Selection as Selected;
    use fastpath_protocol::selection::report::Report;
    use fastpath_report::testing::samples::make_case;
    use fastpath_transport::PeerClass;

    /// What a job with the default settings prints.
    fn print_report() -> String {
        let selected = Selected::of(&Config::defaults());
        let peers = PeerClass::list(true, true, None);
        Report::of(&selected, peers).to_json()
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
        assert_eq!(Learnt::parse(learnt).map(|learnt| learnt.timed_messages), Some(7));
        assert!(Learnt::parse(r#"{"rank":0,"threads":{"level":"MPI_THREAD_SINGLE"}}"#).is_none());
        assert!(Learnt::parse(&print_report()).is_none());
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
