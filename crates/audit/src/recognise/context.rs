//! Context of a table from the lines above it: the tool's version, and the test.

use super::super::formats::{HPCC, IMB, OSU, PERFTEST, QPERF};

#[derive(Default)]
pub struct OutputContext {
    /// The tool, and the test as the tool names it.
    title: (&'static str, String),
    pub osu: Option<String>,
    imb: Option<String>,
    hpcc: Option<String>,
    /// Whether the table is Fastpath's in the columns of another tool; a line above the table describes these columns.
    pub ours: bool,
}

impl OutputContext {
    /// Parses a line that names the tool, its version or its test; returns whether it begins another table.
    pub fn read(&mut self, line: &str) -> bool {
        let text = line.trim().trim_start_matches('#').trim();
        if text.ends_with("columns:") || text.contains(" columns: ") {
            self.ours = text.starts_with("OSU columns:") || text.starts_with("perftest columns:");
            return false;
        }
        if let Some((_, after)) = text.split_once("HPC Challenge Benchmark version ") {
            self.hpcc = after.split(' ').next().map(str::to_owned);
            return true;
        }
        if let Some((before, after)) = text.split_once("MPI Benchmark")
            && before.trim_start().starts_with("Intel")
        {
            let mut words = after.split([' ', ',']).map(|w| w.trim_start_matches('V'));
            let version = words.find(|w| w.starts_with(|c: char| c.is_ascii_digit()));
            self.imb = version.map(str::to_owned);
            return true;
        }
        let Some((tool, title)) = self.read_title(line, text) else {
            return false;
        };
        self.title = (tool, title.trim().to_owned());
        true
    }

    /// Returns the tool and its test, if the line names a test.
    fn read_title<'a>(&mut self, line: &'a str, text: &'a str) -> Option<(&'static str, &'a str)> {
        if let Some(rest) = text.strip_prefix("OSU ") {
            let (title, version) = rest.rsplit_once(" v").unwrap_or((rest, ""));
            self.osu = Some(version.to_owned());
            return Some((OSU, title.strip_suffix(" Test")?));
        }
        if let Some(rest) = text.strip_prefix("Benchmarking ") {
            return Some((IMB, rest));
        }
        if let Some(rest) = text.strip_prefix("Begin of ") {
            return Some((HPCC, rest.strip_suffix(" section.")?));
        }
        if let Some(test) = line.strip_suffix(':') {
            return (test.contains('_') && !test.contains(' ')).then_some((QPERF, test));
        }
        let test = text.strip_suffix(" Test")?;
        (!test.contains(':') && !line.starts_with('#')).then_some((PERFTEST, test))
    }

    pub fn title_of(&self, tool: &str) -> &str {
        if self.title.0 == tool { &self.title.1 } else { "" }
    }

    pub fn version_of(&self, tool: &str) -> Option<&str> {
        let version = match tool {
            OSU => &self.osu,
            IMB => &self.imb,
            HPCC => &self.hpcc,
            _ => &None,
        };
        version.as_deref().filter(|v| !v.is_empty())
    }
}
