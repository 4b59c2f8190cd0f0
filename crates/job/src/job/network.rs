//! Network addresses of ranks: this rank's socket, and the cards of its peers.

use super::Job;
use crate::network::{self, Listener, NetworkCard, Reach};
use fastpath_base::config::Config;

impl Job {
    /// Returns the socket on which this rank listens; `None` before [`Job::open_network`].
    pub fn listener(&self) -> Option<&Listener> {
        self.place.listener.get()
    }

    /// Opens this rank's listening socket, and publishes its address on the rank's page. The socket is new unless one
    /// was passed to the rank. Does nothing if the rank listens already.
    pub fn open_network(&self, config: &Config) -> Result<&Listener, String> {
        self.open_network_to(config, self.network_reach())
    }

    /// Opens the socket like [`Job::open_network`], but also for peers of other jobs, which may be on any host.
    pub fn open_network_to(&self, config: &Config, reach: Reach) -> Result<&Listener, String> {
        if let Some(listener) = self.place.listener.get() {
            return Ok(listener);
        }
        if self.secret() == [0; 32] {
            return Err("this system gives no random numbers (getrandom, /dev/urandom), so ranks \
                        cannot authenticate to each other over the network"
                .to_owned());
        }
        let told = self.network_card(self.rank());
        let is_told = told.is_some();
        let inherited = Some(&self.place.inherited[..]).filter(|fds| !fds.is_empty());
        let inherited = inherited.map(|fds| Listener::inherit(fds, told.map(|card| card.port)));
        let (listener, card) = match inherited {
            Some(Ok(listener)) if is_told => (listener, None),
            Some(Ok(listener)) => {
                let card = network::describe_inherited(config, reach, &listener)?;
                (listener, Some(card))
            }
            // No usable socket was inherited, for example because a program between launcher and rank closed it. No
            // port of this rank is published yet, so the rank can open a new socket.
            _ if !is_told => {
                let (listener, card) = network::open(config, reach, self.node_place().0)?;
                (listener, Some(card))
            }
            Some(Err(e)) => {
                return Err(format!(
                    "the socket that was opened for this rank is lost ({e}): check whether a \
                     program between launcher and rank closes inherited descriptors"
                ));
            }
            None => {
                return Err(
                    "the launcher passed this rank's address but no listening socket".to_owned()
                );
            }
        };
        if let Some(card) = card {
            self.own_page().network.store(&card.encode());
        }
        Ok(self.place.listener.get_or_init(|| listener))
    }

    /// Returns a rank's network address; `None` until it is known.
    pub fn network_card(&self, rank: usize) -> Option<NetworkCard> {
        NetworkCard::decode(&self.segment.network(rank)?)
    }

    /// Records the network address of a rank of another node. Called once, by the creator of the node's memory, or by
    /// one of its ranks that learns it later.
    pub fn learn_card(&self, rank: usize, card: &NetworkCard) {
        // If there is no memory for the card, a rank that tries to connect to `rank` reports the error.
        let _ = self.segment.learn_card(rank, &card.encode());
    }

    /// Returns the secret that proves on a network that a process is of this job.
    pub fn secret(&self) -> [u8; 32] {
        self.header().secret()
    }

    /// Returns which peers must be able to reach this rank.
    fn network_reach(&self) -> Reach {
        // Ranks of several nodes or hosts may have separate networks.
        let within = self.nodes() == 1 && !self.has_other_hosts();
        match within {
            true => Reach::Node,
            false => Reach::Network,
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::network::NetworkPlace;
    use fastpath_base::sync::Ordering;
    use std::net::TcpStream;

    #[test]
    fn open_network__tells_peers_where_the_rank_is() {
        let jobs = Job::in_process(2).unwrap();
        assert!(jobs[0].listener().is_none() && jobs[1].network_card(0).is_none());
        let config = Config::defaults();
        let port = jobs[0].open_network(&config).unwrap().port();
        assert_eq!(jobs[0].open_network(&config).unwrap().port(), port);
        let card = jobs[1].network_card(0).unwrap();
        assert_eq!(card.port, port);
        TcpStream::connect((card.addresses[0], card.port)).unwrap();
        assert_eq!(jobs[0].secret(), jobs[1].secret());
    }

    #[test]
    fn open_network__takes_over_the_socket_that_was_opened_for_the_rank() {
        let mut jobs = Job::in_process(2).unwrap();
        let config = Config::defaults();
        let (listener, card) = network::open(&config, Reach::Network, 2).unwrap();
        let port = listener.port();
        // An agent publishes the address and passes the socket on.
        jobs[1].learn_card(1, &card);
        jobs[1].place = NetworkPlace::inheriting(listener.fds());
        std::mem::forget(listener);
        assert_eq!(jobs[1].open_network(&config).unwrap().port(), port);
        assert_eq!(jobs[0].network_card(1), Some(card.clone()));
        // A socket lost after its address was published cannot be replaced.
        jobs[0].learn_card(0, &card);
        jobs[0].place = NetworkPlace::inheriting(vec![1_000_000]);
        let why = jobs[0].open_network(&config).unwrap_err();
        assert!(why.contains("is lost"), "{why}");
    }

    #[test]
    fn on_nodes__ranks_share_memory_with_those_of_their_node() {
        let jobs = Job::on_nodes(&[7, 7, 9]).unwrap();
        assert_eq!(jobs.iter().map(Job::rank).collect::<Vec<_>>(), [0, 1, 2]);
        let share = |a: usize, b: usize| jobs[a].is_node_peer(b);
        assert!(share(0, 1) && share(1, 0) && share(2, 2));
        assert!(!share(0, 2) && !share(1, 2) && !share(2, 0));
        jobs[0].own_page().app.store(5, Ordering::Relaxed);
        let seen = |by: usize| jobs[by].rank_page(0).unwrap().app.load(Ordering::Relaxed);
        assert_eq!((seen(1), seen(2)), (5, 0));
        assert!(jobs.iter().all(|job| job.nodes() == 2));
        assert!(jobs.iter().all(|job| job.secret() == jobs[0].secret()));
        let card =
            NetworkCard { host: "b".to_owned(), port: 7, addresses: vec![[10, 0, 0, 1].into()] };
        jobs[0].learn_card(2, &card);
        assert_eq!(jobs[1].network_card(2), Some(card));
        assert_eq!(jobs[2].network_card(2), None);
    }

    #[test]
    fn node_peer__is_who_has_its_page_here() {
        let jobs = Job::in_process(2).unwrap();
        assert!(jobs[0].is_node_peer(1) && !jobs[0].is_remote(1));
        assert_eq!(jobs[0].nodes(), 1);
        let page = jobs[0].rank_page(1).unwrap();
        page.elsewhere.store(1, Ordering::Relaxed);
        assert!(!jobs[0].is_node_peer(1) && jobs[0].is_remote(1));
        assert!(!jobs[0].is_node_peer(2));
    }
}
