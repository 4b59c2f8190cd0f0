//! Published cache-line latencies of hosts, and the costs of a line that several processors read.

use crate::coll_choice::line_plan::{CachePlace, LineCosts};

/// Cache-line costs of a host.
#[derive(Debug, Clone)]
pub(in super::super) struct Machine {
    pub(in super::super) name: &'static str,
    cores: u32,
    cores_of_an_l3: u32,
    cores_of_a_socket: u32,
    cores_of_a_row: u32,
    /// Latencies in ns: lower triangle of a symmetric matrix of rows.
    times: Vec<u32>,
    pub(in super::super) costs: SharedLineCosts,
}

/// Costs that a matrix of latencies lacks, in ns.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct SharedLineCosts {
    /// Time for each further line that a core collects.
    pub(in super::super) next_line: f64,
    /// Time for each further reader of a line.
    pub(in super::super) next_reader: f64,
    /// Time until a store is visible if a core of another socket has read the line.
    pub(in super::super) far_store: f64,
    /// Time of the instructions of one store or one load.
    pub(in super::super) instructions: f64,
    /// Time for each further adjacent line, from a core of the same socket and of another socket.
    pub(in super::super) adjacent: [f64; 2],
    /// Time for each line that a core copies inside its own cache.
    pub(in super::super) own: f64,
}

impl SharedLineCosts {
    /// Costs that fit flat broadcasts of XHC on Xeon hosts, without instructions and stores to lines with distant
    /// readers. For other processors no such data is known.
    pub(in super::super) const XEON: SharedLineCosts = SharedLineCosts {
        next_line: 24.0,
        next_reader: 3.0,
        far_store: 0.0,
        instructions: 0.0,
        adjacent: [7.5, 9.5],
        own: 3.0,
    };
}

impl Machine {
    pub(in super::super) fn epyc_9654() -> Machine {
        Machine::parse("EPYC 9654", include_str!("machines/epyc-9654.txt"))
    }

    pub(in super::super) fn epyc_9754() -> Machine {
        Machine::parse("EPYC 9754", include_str!("machines/epyc-9754.txt"))
    }

    pub(in super::super) fn xeon_8375c() -> Machine {
        Machine::parse("Xeon 8375C", include_str!("machines/xeon-8375c.txt"))
    }

    pub(in super::super) fn graviton3() -> Machine {
        Machine::parse("Graviton3", include_str!("machines/graviton3.txt"))
    }

    /// Makes a host of two equal sockets, of which each is one L3.
    pub(in super::super) fn two_sockets(
        name: &'static str, cores: u32, same_ns: u32, other_ns: u32, costs: SharedLineCosts,
    ) -> Machine {
        Machine {
            name,
            cores,
            cores_of_an_l3: cores / 2,
            cores_of_a_socket: cores / 2,
            cores_of_a_row: cores / 2,
            times: vec![same_ns, other_ns, same_ns],
            costs,
        }
    }

    fn parse(name: &'static str, text: &str) -> Machine {
        let mut words =
            text.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace);
        let mut number = |key| {
            assert_eq!(words.next(), Some(key));
            words.next().unwrap().parse::<u32>().unwrap()
        };
        let (sockets, cores) = (number("sockets"), number("cores"));
        let (cores_of_an_l3, cores_of_a_row) = (number("cores-of-an-l3"), number("cores-of-a-row"));
        let times: Vec<u32> = words.map(|word| word.parse().unwrap()).collect();
        let rows = (cores / cores_of_a_row) as usize;
        assert_eq!(times.len(), rows * (rows + 1) / 2);
        let costs = SharedLineCosts::XEON;
        let cores_of_a_socket = cores / sockets;
        Machine { name, cores, cores_of_an_l3, cores_of_a_socket, cores_of_a_row, times, costs }
    }

    pub(in super::super) fn cores(&self) -> u32 {
        self.cores
    }

    /// Returns the time from a store by a core until a spinning reader on another core sees it, in ns.
    pub(in super::super) fn latency(&self, a: u32, b: u32) -> f64 {
        let (a, b) = (a / self.cores_of_a_row, b / self.cores_of_a_row);
        let (low, high) = (a.min(b) as usize, a.max(b) as usize);
        f64::from(self.times[high * (high + 1) / 2 + low])
    }

    pub(in super::super) fn place(&self, core: u32) -> CachePlace {
        CachePlace { socket: core / self.cores_of_a_socket, l3: core / self.cores_of_an_l3 }
    }

    /// Returns the places of ranks on consecutive cores.
    pub(in super::super) fn places(&self, ranks: u32) -> Vec<CachePlace> {
        (0..ranks).map(|core| self.place(core)).collect()
    }

    /// Returns the median latencies between ranks on consecutive cores: within an L3, within a socket, and between
    /// sockets. A class without pairs has the time 0.
    pub(in super::super) fn medians(&self, ranks: u32) -> [f64; 3] {
        let mut classes = [const { Vec::new() }; 3];
        for (a, b) in (0..ranks).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let (one, other) = (self.place(a), self.place(b));
            let class = usize::from(one.l3 != other.l3) + usize::from(one.socket != other.socket);
            classes[class].push(self.latency(a, b));
        }
        classes.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times.get(times.len() / 2).copied().unwrap_or(0.0)
        })
    }

    /// Returns the costs from which a schedule of ranks on consecutive cores is made.
    pub(in super::super) fn line_costs(&self, ranks: u32) -> LineCosts {
        let [same_l3_ns, same_socket_ns, other_socket_ns] = self.medians(ranks);
        let SharedLineCosts { next_line: next_ns, next_reader: reader_ns, .. } = self.costs;
        LineCosts { same_l3_ns, same_socket_ns, other_socket_ns, next_ns, reader_ns }
    }
}
