//! Requests of a job to its engine, counted for up to a million ranks with the nodes' own code.

use super::*;
use std::net::IpAddr;

const EACH: usize = 64;

/// An engine that has the values of all nodes, and counts requests.
#[derive(Default)]
struct CountingEngine {
    puts: usize,
    put_bytes: usize,
    gets: usize,
    got_bytes: usize,
}

fn card_of(node: usize, ranks: usize) -> NodeCard {
    card_of_each(node, ranks, EACH)
}

/// Card of a node, whose ranks have one name and two addresses.
fn card_of_each(node: usize, ranks: usize, each: usize) -> NodeCard {
    let here = node * each..((node + 1) * each).min(ranks);
    let reach = |port: usize| NetworkCard {
        host: format!("node{node:05}"),
        port: 40_000 + (port % EACH) as u16,
        addresses: ["10.11.12.13", "fd00::1:2:3:4"].map(|a| a.parse::<IpAddr>().unwrap()).to_vec(),
    };
    NodeCard {
        job_id: node as u64,
        secret: [0; SECRET_BYTES],
        leader: reach(0).encode(),
        choices: 0,
        ranks: here.map(|rank| RankCard { rank, network: reach(rank).encode() }).collect(),
    }
}

impl CountingEngine {
    fn put(&mut self, card: &NodeCard) {
        self.puts += 1;
        self.put_bytes += card.encode().len();
    }

    /// Returns the value of the node with this lowest rank.
    fn get(&mut self, lowest: usize, ranks: usize) -> Option<Vec<u8>> {
        self.gets += 1;
        let value = card_of(lowest / EACH, ranks).encode();
        self.got_bytes += value.len();
        lowest.is_multiple_of(EACH).then_some(value)
    }

    /// Reads the cards of all other nodes for one node.
    fn read(&mut self, node: usize, ranks: usize) {
        let mut next = 0;
        let get = |lowest| Ok(self.get(lowest, ranks));
        read_cards(ranks, card_of(node, ranks), get, |card| {
            assert_eq!(card.ranks[0].rank, next);
            next += card.ranks.len();
            Ok(())
        })
        .unwrap();
        assert_eq!(next, ranks);
    }
}

#[test]
fn a_million_ranks__ask_their_engine_for_a_card_of_each_node() {
    for ranks in [1000usize, 10_000, 100_000, 1_000_000] {
        let nodes = ranks.div_ceil(EACH);
        let mut engine = CountingEngine::default();
        (0..nodes).for_each(|node| engine.put(&card_of(node, ranks)));
        // All nodes read all cards but their own, so one node is enough.
        engine.read(nodes / 2, ranks);
        let CountingEngine { puts, put_bytes, gets, got_bytes } = engine;
        println!("{ranks} ranks: {puts} puts, {gets} gets of {got_bytes} B on each node");
        assert_eq!((puts, gets), (nodes, nodes - 1));
        // The cards contain each rank's number and port, and for each node its name and addresses once.
        let most = nodes * (8 * EACH + 200);
        assert!(put_bytes <= most && got_bytes <= most, "{put_bytes} {got_bytes}");
    }
}

/// The memory of a node, filled from the cards of all other nodes.
fn fill_node(ranks: usize, each: usize) -> Job {
    let node = ranks / each / 2;
    let here: Vec<usize> = (node * each..(node + 1) * each).collect();
    let job = Job::on_one_node(&here, ranks).unwrap().pop().unwrap();
    let get = |lowest| Ok(Some(card_of_each(lowest / each, ranks, each).encode()));
    learn_nodes(&job, card_of_each(node, ranks, each), get).unwrap();
    job
}

#[test]
fn memory_of_a_node__has_few_bytes_for_each_rank_of_others() {
    for (ranks, each) in [(1000, 4), (10_000, 4), (1_000_000, 64)] {
        let job = fill_node(ranks, each);
        let (used, nodes) = (job.segment().used_bytes().unwrap() as usize, ranks / each);
        println!("{ranks} ranks, {each} on each node: {used} B");
        // The table takes 16 bytes for each rank, and 200 for each node. The memory of the node's own ranks does not
        // depend on the size of the job.
        let own = Job::in_process(each).unwrap()[0].segment().used_bytes();
        let most = 16 * ranks + 200 * nodes + own.unwrap() as usize + 5 * 4096;
        assert!(used <= most, "{used} {most}");
        for rank in [0, 1, ranks / 2, ranks - 1] {
            let card = card_of_each(rank / each, ranks, each);
            let reach = NetworkCard::decode(&card.ranks[rank % each].network);
            assert_eq!(job.host(rank), (rank / each) as u32);
            let is_here = job.is_node_peer(rank);
            assert_eq!(is_here, rank / each == nodes / 2);
            assert!(is_here || job.network_card(rank) == reach);
        }
    }
}

#[test]
fn nodes__that_say_what_cannot_be_are_refused() {
    let read = |change: fn(&mut NodeCard)| {
        let get = |lowest: usize| {
            let mut card = card_of(lowest / EACH, 200);
            change(&mut card);
            Ok(Some(card.encode()))
        };
        read_cards(200, card_of(1, 200), get, |_| Ok(()))
    };
    assert!(read(|_| {}).is_ok());
    let changes: [fn(&mut NodeCard); 5] = [
        |card| card.choices = 1,
        |card| card.ranks[1].rank = 200,
        |card| card.ranks[1].network.clear(),
        |card| drop(card.ranks.remove(0)),
        |card| card.ranks.push(card_of(1, 200).ranks.remove(0)),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert!(read(change).is_err(), "{number}");
    }
}
