//! Tree of broadcasts through shared lines. Pure.
//!
//! Each rank reads a line of one parent: the root, the leader of its socket, the leader of its L3, or the leader of a
//! part of a wide L3. A leader has one line for each kind of child, so that distant children do not queue behind near
//! ones. The groups minimize the time in a model of cache lines: a reader sees a line after the latency between the two
//! processors, and each further reader of the line [`LineCosts::reader_ns`] later.
//!
//! References: Ramos and Hoefler, Modeling Communication in Cache-coherent SMP Systems (2013), for the model.

use std::collections::HashMap;

/// Number of lines of a rank in a broadcast: for leaders of sockets, of L3s, of parts of an L3, and for other ranks.
pub(crate) const TREE_STEPS: usize = 4;

/// Numbers of the L3 domain and of the socket of a rank's processor. L3 numbers are unique on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct CachePlace {
    pub(crate) socket: u32,
    pub(crate) l3: u32,
}

/// Times of a cache line, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineCosts {
    /// Time from a store until a reader in the same L3 sees it.
    pub(crate) same_l3_ns: f64,
    /// Time until a reader in another L3 of the socket sees it.
    pub(crate) same_socket_ns: f64,
    /// Time until a reader in another socket sees it.
    pub(crate) other_socket_ns: f64,
    /// Additional time for each further line that a rank reads at the same time.
    pub(crate) next_ns: f64,
    /// Additional time for each further rank that reads a line at the same time.
    pub(crate) reader_ns: f64,
}

impl LineCosts {
    /// Usual costs of server processors (AMD EPYC 9004, Intel Xeon 8300).
    pub(crate) const USUAL: LineCosts = LineCosts {
        same_l3_ns: 35.0,
        same_socket_ns: 90.0,
        other_socket_ns: 170.0,
        next_ns: 24.0,
        reader_ns: 3.0,
    };
}

/// Parent and children of one rank in a broadcast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Branching {
    /// Rank whose line this rank reads; `None` at the root.
    pub(crate) parent: Option<u32>,
    /// Index of that line among the lines of the parent.
    pub(crate) step: u32,
    /// Ranks that read this rank's lines, in the order of the lines. Those of the first line are the most distant.
    pub(crate) children: Box<[u32]>,
    /// Index of the first child of each line, then the number of children.
    starts: [usize; TREE_STEPS + 1],
}

impl Branching {
    /// Returns the children that read a line.
    pub(crate) fn children_of(&self, step: u32) -> &[u32] {
        &self.children[self.starts[step as usize]..self.starts[step as usize + 1]]
    }
}

/// Groups of ranks in broadcasts.
#[derive(Debug)]
pub(super) struct TreePlaces {
    pub(super) places: Box<[CachePlace]>,
    /// Part of the L3 of each rank. Numbers are unique on the host.
    pub(super) parts: Box<[u32]>,
    /// Whether L3s have leaders. Otherwise their ranks read a line of the leader of the socket.
    has_l3_leaders: bool,
}

impl TreePlaces {
    pub(super) fn new(places: &[CachePlace], costs: &LineCosts) -> TreePlaces {
        let mut sorted = places.to_vec();
        sorted.sort();
        let widest = |sizes: &mut dyn Iterator<Item = usize>| sizes.max().unwrap_or(1) as u32;
        let ranks = widest(&mut sorted.chunk_by(|a, b| a == b).map(<[_]>::len));
        let in_socket = widest(&mut sorted.chunk_by(|a, b| a.socket == b.socket).map(<[_]>::len));
        sorted.dedup();
        let l3s = widest(&mut sorted.chunk_by(|a, b| a.socket == b.socket).map(<[_]>::len));
        let step_ns = |first_ns: f64, readers: u32| match readers {
            0 => 0.0,
            _ => first_ns + f64::from(readers - 1) * costs.reader_ns,
        };
        let ns = |parts: u32| {
            let of_a_part = ranks.div_ceil(parts);
            step_ns(costs.same_l3_ns, parts - 1) + step_ns(costs.same_l3_ns, of_a_part - 1)
        };
        let part_count = (1..=ranks).min_by(|&a, &b| ns(a).total_cmp(&ns(b))).unwrap_or(1);
        let of_a_part = ranks.div_ceil(part_count);
        let with_leaders = step_ns(costs.same_socket_ns, l3s - 1) + ns(part_count);
        let without = step_ns(costs.same_socket_ns, in_socket - ranks).max(ns(part_count));
        let mut seen = HashMap::new();
        let parts = places.iter().map(|place| {
            let before = seen.entry(place.l3).or_insert(0);
            *before += 1;
            place.l3 * ranks + (*before - 1) / of_a_part
        });
        TreePlaces {
            parts: parts.collect(),
            places: places.into(),
            has_l3_leaders: with_leaders <= without,
        }
    }

    /// Returns the place of `rank` in the broadcast from `root`.
    pub(super) fn branching(&self, rank: u32, root: u32) -> Branching {
        let leaders = Leaders::new(self, root);
        let parents: Vec<_> =
            (0..self.places.len() as u32).map(|rank| leaders.parent(self, root, rank)).collect();
        let (mut children, mut starts) = (Vec::new(), [0; TREE_STEPS + 1]);
        for step in 0..TREE_STEPS {
            let is_child = |&child: &u32| parents[child as usize] == Some((rank, step as u32));
            children.extend((0..parents.len() as u32).filter(is_child));
            starts[step + 1] = children.len();
        }
        let own = parents[rank as usize];
        Branching {
            parent: own.map(|(parent, _)| parent),
            step: own.map_or(0, |(_, step)| step),
            children: children.into(),
            starts,
        }
    }
}

/// First rank of each socket, of each L3 domain, and of each part of one. The root leads its own.
struct Leaders {
    of_socket: Vec<(u32, u32)>,
    of_l3: Vec<(u32, u32)>,
    of_part: Vec<(u32, u32)>,
}

impl Leaders {
    fn new(tree: &TreePlaces, root: u32) -> Leaders {
        let first = |key: &dyn Fn(u32) -> u32| {
            let all = (0..tree.places.len() as u32).map(|rank| (key(rank), rank));
            let mut leaders: Vec<(u32, u32)> = [(key(root), root)].into_iter().chain(all).collect();
            leaders.sort_by_key(|&(key, _)| key);
            leaders.dedup_by_key(|&mut (key, _)| key);
            leaders
        };
        Leaders {
            of_socket: first(&|rank| tree.places[rank as usize].socket),
            of_l3: first(&|rank| tree.places[rank as usize].l3),
            of_part: first(&|rank| tree.parts[rank as usize]),
        }
    }

    /// Returns the parent of a rank, and which of its lines the rank reads; `None` for the root.
    fn parent(&self, tree: &TreePlaces, root: u32, rank: u32) -> Option<(u32, u32)> {
        let place = tree.places[rank as usize];
        let find = |leaders: &[(u32, u32)], key| {
            leaders.binary_search_by_key(&key, |&(key, _)| key).map_or(root, |at| leaders[at].1)
        };
        let (socket, l3) = (find(&self.of_socket, place.socket), find(&self.of_l3, place.l3));
        let part = find(&self.of_part, tree.parts[rank as usize]);
        // A leader also leads the smaller groups that it is in, because it has their lowest rank or is the root.
        match rank {
            _ if rank == root => None,
            _ if rank == socket => Some((root, 0)),
            _ if rank == l3 || (!tree.has_l3_leaders && l3 != socket) => Some((socket, 1)),
            _ if rank == part => Some((l3, 2)),
            _ => Some((part, 3)),
        }
    }
}
