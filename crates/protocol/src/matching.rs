//! Tag matching (MPI-5.0 section 3.5): receives that wait, and messages nobody has asked for yet.
//!
//! Pure: no clock, no transport, no memory of a message; a request or a stored message is a `token`
//! here. Each peer has a list of posted receives and one of unexpected messages, so that a receive
//! that names its source looks at that source alone; receives from any source have a list of their
//! own, and an order number decides between the two. Nothing here is global to the process.

#![allow(unsafe_code)]

use crate::tag::{key_context, tag_matches};

/// Source of a receive that takes a message of any.
pub const ANY_PEER: u32 = u32::MAX;

/// What a receive asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// World rank of the source, or [`ANY_PEER`].
    pub peer: u32,
    /// Tag, or `tag::ANY_TAG`.
    pub tag: i32,
    /// Match key; with [`ANY_PEER`] its source part is 0 and does not count.
    pub key: u64,
}

impl Want {
    /// Whether a message satisfies this receive. Its peer has been compared by the caller's choice of list.
    #[inline]
    fn accepts(&self, key: u64, tag: i32) -> bool {
        let key = if self.peer == ANY_PEER {
            key_context(key)
        } else {
            key
        };
        self.key == key && tag_matches(self.tag, tag)
    }
}

/// Names an entry of the matcher until it is removed.
pub type NodeId = u32;

/// No entry.
pub const NIL: NodeId = 0;

#[derive(Clone, Copy, Default)]
struct Node {
    next: NodeId,
    prev: NodeId,
    all_next: NodeId,
    all_prev: NodeId,
    key: u64,
    order: u64,
    tag: i32,
    peer: u32,
    token: u32,
}

#[derive(Clone, Copy, Default)]
struct List {
    first: NodeId,
    last: NodeId,
}

#[derive(Clone, Copy, Default)]
struct PeerLists {
    posted: List,
    unexpected: List,
    /// Entries in both lists: 0 says that the peer's next message can be looked at directly.
    busy: u32,
}

/// The matching engine of one worker.
pub struct Matcher {
    peers: Vec<PeerLists>,
    any_source: List,
    any_source_count: u32,
    all_unexpected: List,
    nodes: Vec<Node>,
    free: NodeId,
    order: u64,
}

impl Matcher {
    /// An engine for messages of `peers` ranks.
    pub fn new(peers: u32) -> Self {
        Matcher {
            peers: vec![PeerLists::default(); peers as usize],
            any_source: List::default(),
            any_source_count: 0,
            all_unexpected: List::default(),
            nodes: vec![Node::default()],
            free: NIL,
            order: 0,
        }
    }

    /// Whether no receive waits that `peer`'s next message could match, and no message of it waits:
    /// then a receive may look at the next arrival without asking the lists.
    #[inline]
    pub fn is_quiet(&self, peer: u32) -> bool {
        self.lists(peer).busy == 0 && self.any_source_count == 0
    }

    /// Whether messages of `peer` wait that nobody has asked for.
    #[inline]
    pub fn has_unexpected(&self, peer: u32) -> bool {
        self.lists(peer).unexpected.first != NIL
    }

    #[inline]
    fn lists(&self, peer: u32) -> &PeerLists {
        debug_assert!((peer as usize) < self.peers.len());
        // SAFETY: peers are ranks of the job that the matcher was made for; they come from groups.
        unsafe { self.peers.get_unchecked(peer as usize) }
    }

    /// Whether any receive is posted.
    pub fn has_posted(&self) -> bool {
        self.any_source_count != 0 || self.peers.iter().any(|p| p.posted.first != NIL)
    }

    /// Posts a receive. The caller has looked for an unexpected message first.
    #[inline]
    pub fn post(&mut self, want: Want, token: u32) -> NodeId {
        if want.peer == ANY_PEER {
            // Named receives of before have a smaller order than this, those of later one as large.
            self.order += 1;
            let id = self.allocate(want.peer, want.key, want.tag, token);
            push_back(&mut self.nodes, &mut self.any_source, id);
            self.any_source_count += 1;
            return id;
        }
        self.post_named(want, token)
    }

    /// Posts a receive that names its source.
    #[inline(always)] // `bench/instructions` counts MPI_Irecv
    pub fn post_named(&mut self, want: Want, token: u32) -> NodeId {
        let id = self.allocate(want.peer, want.key, want.tag, token);
        // The two tables are read once: the stores below cannot move them, but the compiler cannot know.
        let lists = std::ptr::from_mut(peer_lists(&mut self.peers, want.peer));
        let nodes = self.nodes.as_mut_ptr();
        // SAFETY: `lists` and every id of a list lie in their tables, and no other reference is alive.
        unsafe {
            (*lists).busy += 1;
            let last = (*lists).posted.last;
            (*lists).posted.last = id;
            (*nodes.add(id as usize)).prev = last;
            match last {
                NIL => (*lists).posted.first = id,
                _ => (*nodes.add(last as usize)).next = id,
            }
        }
        id
    }

    /// Takes back a posted receive and returns its token.
    pub fn unpost(&mut self, id: NodeId) -> u32 {
        let peer = node(&mut self.nodes, id).peer;
        if peer == ANY_PEER {
            unlink(&mut self.nodes, &mut self.any_source, id);
            self.any_source_count -= 1;
        } else {
            let lists = peer_lists(&mut self.peers, peer);
            lists.busy -= 1;
            unlink(&mut self.nodes, &mut lists.posted, id);
        }
        self.release(id)
    }

    /// The earliest posted receive that a message satisfies is removed and its token returned.
    pub fn match_arrival(&mut self, peer: u32, key: u64, tag: i32) -> Option<u32> {
        let named = self.find_posted(self.lists(peer).posted, key, tag);
        let any = match self.any_source_count {
            0 => NIL,
            _ => self.find_posted(self.any_source, key, tag),
        };
        let id = match (named, any) {
            (NIL, NIL) => return None,
            (id, NIL) | (NIL, id) => id,
            (a, b) if self.nodes[a as usize].order < self.nodes[b as usize].order => a,
            (_, b) => b,
        };
        Some(self.unpost(id))
    }

    fn find_posted(&self, list: List, key: u64, tag: i32) -> NodeId {
        let mut id = list.first;
        while id != NIL {
            // SAFETY: as in `node`.
            let node = unsafe { self.nodes.get_unchecked(id as usize) };
            if (Want {
                peer: node.peer,
                tag: node.tag,
                key: node.key,
            })
            .accepts(key, tag)
            {
                return id;
            }
            id = node.next;
        }
        NIL
    }

    /// Stores a message that nobody has asked for.
    pub fn add_unexpected(&mut self, peer: u32, key: u64, tag: i32, token: u32) -> NodeId {
        let id = self.allocate(peer, key, tag, token);
        let lists = &mut self.peers[peer as usize];
        lists.busy += 1;
        push_back(&mut self.nodes, &mut lists.unexpected, id);
        let last = self.all_unexpected.last;
        self.nodes[id as usize].all_next = NIL;
        self.nodes[id as usize].all_prev = last;
        match last {
            NIL => self.all_unexpected.first = id,
            _ => self.nodes[last as usize].all_next = id,
        }
        self.all_unexpected.last = id;
        id
    }

    /// The earliest unexpected message that satisfies `want`, left where it is.
    pub fn find_unexpected(&self, want: &Want) -> Option<NodeId> {
        let named = want.peer != ANY_PEER;
        let mut id = match named {
            true => self.peers[want.peer as usize].unexpected.first,
            false => self.all_unexpected.first,
        };
        while id != NIL {
            let node = &self.nodes[id as usize];
            if want.accepts(node.key, node.tag) {
                return Some(id);
            }
            id = if named { node.next } else { node.all_next };
        }
        None
    }

    /// The token of an entry.
    pub fn token(&self, id: NodeId) -> u32 {
        self.nodes[id as usize].token
    }

    /// Removes an unexpected message and returns its token.
    pub fn remove_unexpected(&mut self, id: NodeId) -> u32 {
        let node = self.nodes[id as usize];
        let lists = &mut self.peers[node.peer as usize];
        lists.busy -= 1;
        unlink(&mut self.nodes, &mut lists.unexpected, id);
        match node.all_prev {
            NIL => self.all_unexpected.first = node.all_next,
            prev => self.nodes[prev as usize].all_next = node.all_next,
        }
        match node.all_next {
            NIL => self.all_unexpected.last = node.all_prev,
            next => self.nodes[next as usize].all_prev = node.all_prev,
        }
        self.release(id)
    }

    /// An entry in no list.
    #[inline]
    fn allocate(&mut self, peer: u32, key: u64, tag: i32, token: u32) -> NodeId {
        if self.free == NIL {
            self.grow();
        }
        let id = self.free;
        let order = self.order;
        let node = node(&mut self.nodes, id);
        self.free = node.next;
        node.next = NIL;
        node.key = key;
        node.order = order;
        node.tag = tag;
        node.peer = peer;
        node.token = token;
        id
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.nodes.push(Node::default());
        self.free = (self.nodes.len() - 1) as NodeId;
    }

    #[inline]
    fn release(&mut self, id: NodeId) -> u32 {
        let node = node(&mut self.nodes, id);
        node.next = self.free;
        self.free = id;
        node.token
    }
}

#[inline]
fn node(nodes: &mut [Node], id: NodeId) -> &mut Node {
    debug_assert!(id != NIL && (id as usize) < nodes.len());
    // SAFETY: ids come from `allocate`, which took them from this vector, and it never shrinks.
    unsafe { nodes.get_unchecked_mut(id as usize) }
}

#[inline]
fn peer_lists(peers: &mut [PeerLists], peer: u32) -> &mut PeerLists {
    debug_assert!((peer as usize) < peers.len());
    // SAFETY: as in `Matcher::lists`.
    unsafe { peers.get_unchecked_mut(peer as usize) }
}

#[inline]
fn push_back(nodes: &mut [Node], list: &mut List, id: NodeId) {
    let last = list.last;
    node(nodes, id).prev = last;
    match last {
        NIL => list.first = id,
        _ => node(nodes, last).next = id,
    }
    list.last = id;
}

#[inline]
fn unlink(nodes: &mut [Node], list: &mut List, id: NodeId) {
    let Node { next, prev, .. } = *node(nodes, id);
    match prev {
        NIL => list.first = next,
        _ => node(nodes, prev).next = next,
    }
    match next {
        NIL => list.last = prev,
        _ => node(nodes, next).prev = prev,
    }
}
