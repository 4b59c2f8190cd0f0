//! One node's part of a job on several: what the agents tell each other, through the engine that has started them,
//! before any rank runs.
//!
//! Each agent opens a listener for each of its ranks, puts one value for the node, and reads the others' after one
//! fence: then it knows how every rank of the job is reached.

mod message;

use fastpath_bootstrap::engine::{Aborter, Engine};
use fastpath_bootstrap::job::random_job_id;
use message::NodeMessage;
use std::ops::Range;

/// What the value of a node is called.
const KEY: &str = "node";

/// This node's agent, and what it knows of the others.
#[derive(Debug)]
pub struct Agent {
    engine: Engine,
    aborter: Aborter,
    node: usize,
    /// How many ranks each node has.
    counts: Vec<usize>,
}

/// What all agents have in common.
#[derive(Debug)]
pub struct Shared {
    /// The job's number.
    pub job_id: u64,
    /// What its ranks prove themselves by.
    pub secret: [u8; 32],
    /// How each rank of the job is reached.
    pub cards: Vec<Vec<u8>>,
}

impl Agent {
    /// Finds the engine that has started this process. `counts`: how many ranks each node has.
    ///
    /// # Errors
    /// There is none, or it has started another number of agents.
    pub fn join(counts: &[usize]) -> Result<Agent, String> {
        let describe = |e| format!("--agent: the engine that should have started it: {e}");
        let engine = Engine::connect().map_err(describe)?;
        let about = engine.about();
        if about.size != counts.len() {
            return Err(format!(
                "the engine has started {} agents for {} nodes: it must start one on each",
                about.size,
                counts.len()
            ));
        }
        Ok(Agent {
            aborter: engine.aborter().map_err(describe)?,
            node: about.rank,
            counts: counts.to_vec(),
            engine,
        })
    }

    /// The ranks of this node.
    pub fn local(&self) -> Range<usize> {
        self.ranks_of(self.node)
    }

    /// This node's number.
    pub fn node(&self) -> usize {
        self.node
    }

    /// Number of the node that a rank runs on.
    pub fn node_of(&self, rank: usize) -> usize {
        let mut end = 0;
        let ends = self.counts.iter().map(|count| {
            end += count;
            end
        });
        ends.take_while(|&end| end <= rank).count()
    }

    fn ranks_of(&self, node: usize) -> Range<usize> {
        let first: usize = self.counts[..node].iter().sum();
        first..first + self.counts[node]
    }

    /// Tells the other agents how the ranks of this node are reached (`cards`), and learns it of theirs.
    ///
    /// # Errors
    /// The engine; an agent of another version.
    pub fn exchange(&mut self, cards: Vec<Vec<u8>>) -> Result<Shared, String> {
        let describe = |e| format!("telling the other nodes how ranks are reached: {e}");
        let own = NodeMessage {
            job_id: random_job_id(),
            secret: random_secret(),
            cards,
        };
        let put = self.engine.put(KEY, &own.encode());
        put.and_then(|()| self.engine.fence()).map_err(describe)?;
        let mut shared: Option<Shared> = None;
        for node in 0..self.counts.len() {
            let said = self.engine.get(node, KEY).map_err(describe)?;
            let said = said.as_deref().and_then(NodeMessage::decode);
            let said = said.filter(|said| said.cards.len() == self.counts[node]);
            let said = said.ok_or_else(|| {
                format!("the agent of node {node} says nothing that is understood: is Fastpath of another version there?")
            })?;
            let all = shared.get_or_insert_with(|| Shared {
                job_id: said.job_id,
                secret: said.secret,
                cards: Vec::new(),
            });
            all.cards.extend(said.cards);
        }
        shared.ok_or_else(|| "there is no node".to_owned())
    }

    /// The ranks of this node have ended, with this code: ends the others unless it is 0.
    pub fn leave(&mut self, code: i32) {
        match code {
            0 => drop(self.engine.finalize()),
            code => self.aborter.abort(code),
        }
    }
}
