//! Configuration of a worker, and reports on it.

use crate::decide;
use crate::report::SelectionReport;
use crate::selection::Selection;
use crate::worker::Worker;
use fastpath_base::config::Config;
use fastpath_transport::ConfigureError;
use fastpath_transport::interfaces::TransportCounts;

impl Worker {
    /// Applies the configuration. Call it before the first message.
    pub fn configure(&mut self, config: &Config) -> Result<(), ConfigureError> {
        let mut warnings = self.interfaces.configure(config)?;
        self.rma.resolves_once = !config.is_disabled("resolve-once");
        self.rma.gates_wireup = !config.is_disabled("wireup-gate");
        *self.planner.selection = Selection::of(config);
        self.planner.selection.warnings.append(&mut warnings);
        self.planner.thresholds = decide::thresholds(&self.planner.selection);
        Ok(())
    }

    /// Returns the adapter's counters for the report at the end, as lines or one JSON object. The result is empty
    /// without an adapter.
    pub fn report_counts(&self, json: bool) -> Vec<String> {
        let (counts, rank) = (self.interfaces.adapter_counts(), self.rank);
        if !json {
            let line = |c: &TransportCounts| format!("rank {rank}: {}: {}", c.of, c.text);
            return counts.iter().map(line).collect();
        }
        if counts.is_empty() {
            return Vec::new();
        }
        let mut object = serde_json::Map::new();
        object.insert("rank".to_owned(), rank.into());
        for TransportCounts { of, numbers, .. } in counts {
            let numbers = numbers.into_iter().map(|(name, n)| (name.to_owned(), n.into()));
            object.insert(of.to_owned(), serde_json::Map::from_iter(numbers).into());
        }
        vec![serde_json::Value::Object(object).to_string()]
    }

    /// Returns warnings about stored constants and sizes, a line each.
    pub fn selection_warnings(&self) -> &[String] {
        &self.planner.selection.warnings
    }

    /// Returns the report of the selection. Tries a copy from a peer, waiting at most `timeout_ns` ns for its start.
    pub fn report(&mut self, timeout_ns: u64) -> SelectionReport {
        let mut told = (*self.planner.selection).clone();
        if told.kernel.is_ok() {
            told.kernel = self.interfaces.probe_single_copy(timeout_ns);
        }
        SelectionReport::of(&told, self.interfaces.peer_classes())
    }
}
