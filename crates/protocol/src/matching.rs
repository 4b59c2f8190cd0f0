//! Tag matching (MPI-5.0 section 3.5): receives that wait, and messages nobody has asked for yet.
//!
//! Pure: no clock, no transport, no memory of a message. Each peer has a list of posted receives and one
//! of unexpected messages, so that a receive that names its source looks at that source alone; receives
//! from any source have a list of their own, and an order number decides between the two. Posted
//! requests are linked where they lie, so that posting writes nothing twice; a stored message is a
//! `token` here. Nothing is global to the process.

#![allow(unsafe_code)]

use crate::request::{Request, RequestId};
use crate::tag::{key_context, tag_matches};
use std::ptr;

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

/// Names an unexpected message until it is removed.
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
    tag: i32,
    peer: u32,
    token: u32,
}

#[derive(Clone, Copy, Default)]
struct List {
    first: NodeId,
    last: NodeId,
}

/// Posted receives in the order of their posting.
#[repr(C)]
#[derive(Clone, Copy)]
struct PostedList {
    first: *mut Request,
    /// The `next` of the last one, or `first` of this list: posting needs no case for an empty list.
    end: *mut *mut Request,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct PeerLists {
    posted: PostedList,
    unexpected: List,
    /// Entries in both lists: 0 says that the peer's next message can be looked at directly.
    busy: u32,
}

const _: () = assert!(size_of::<PeerLists>() == 32);

/// The matching engine of one worker.
pub struct Matcher {
    /// One for each peer, then one for receives from any source.
    peers: Vec<PeerLists>,
    any_source_count: u32,
    all_unexpected: List,
    nodes: Vec<Node>,
    free: NodeId,
    order: u64,
}

impl Matcher {
    /// An engine for messages of `peers` ranks.
    pub fn new(peers: u32) -> Self {
        let empty = PeerLists {
            posted: PostedList {
                first: ptr::null_mut(),
                end: ptr::null_mut(),
            },
            unexpected: List::default(),
            busy: 0,
        };
        // The lists point into this memory, which stays where it is when the matcher moves.
        let mut all = vec![empty; peers as usize + 1];
        let base = all.as_mut_ptr();
        for index in 0..all.len() {
            // SAFETY: inside the vector.
            unsafe { (*base.add(index)).posted.end = &raw mut (*base.add(index)).posted.first };
        }
        Matcher {
            peers: all,
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
        self.peers.iter().any(|p| !p.posted.first.is_null())
    }

    /// Posts a receive: its `peer`, `key` and `tag` say what it wants. The caller has looked for an
    /// unexpected message first.
    ///
    /// # Safety
    /// The request is valid and not posted, and stays where it is until it is matched or taken back.
    #[inline]
    pub unsafe fn post(&mut self, request: *mut Request) {
        // SAFETY: the caller's.
        unsafe {
            (*request).posted = true;
            if (*request).peer != ANY_PEER {
                return self.post_named(request);
            }
            // Named receives of before have a smaller order than this, those of later one as large.
            self.order += 1;
            self.any_source_count += 1;
            let list = self.peers.len() - 1;
            self.append(list, request);
        }
    }

    /// Posts a receive that names its source.
    ///
    /// # Safety
    /// As [`Matcher::post`], but that the request says already that it is posted.
    #[inline(always)] // `fastpath bench instructions` counts MPI_Irecv
    pub unsafe fn post_named(&mut self, request: *mut Request) {
        // SAFETY: the caller's.
        unsafe { self.append((*request).peer as usize, request) }
    }

    /// # Safety
    /// As [`Matcher::post`]; `list` is an index of `peers`.
    #[inline(always)] // see `post_named`
    unsafe fn append(&mut self, list: usize, request: *mut Request) {
        debug_assert!(list < self.peers.len());
        // SAFETY: the caller's; `end` is the place that names the next one.
        unsafe {
            let lists = self.peers.as_mut_ptr().add(list);
            let end = (*lists).posted.end;
            (*request).next = ptr::null_mut();
            (*request).link = end;
            (*request).order = self.order;
            *end = request;
            (*lists).posted.end = &raw mut (*request).next;
            (*lists).busy += 1;
        }
    }

    /// Takes back a posted receive.
    ///
    /// # Safety
    /// The request is posted here.
    #[inline]
    pub unsafe fn unpost(&mut self, request: *mut Request) {
        // SAFETY: a posted request's links are valid, and its peer is an index.
        unsafe {
            let list = match (*request).peer {
                ANY_PEER => {
                    self.any_source_count -= 1;
                    self.peers.len() - 1
                }
                peer => peer as usize,
            };
            let lists = self.peers.as_mut_ptr().add(list);
            let (next, link) = ((*request).next, (*request).link);
            *link = next;
            match next.is_null() {
                true => (*lists).posted.end = link,
                false => (*next).link = link,
            }
            (*lists).busy -= 1;
            (*request).posted = false;
        }
    }

    /// The earliest receive posted to `peer`, unless receives from any source wait as well.
    #[inline(always)] // see `drain`
    pub fn first_posted(&self, peer: u32) -> Option<*mut Request> {
        let first = self.lists(peer).posted.first;
        (self.any_source_count == 0 && !first.is_null()).then_some(first)
    }

    /// Removes what [`Matcher::first_posted`] has shown.
    ///
    /// # Safety
    /// It has just shown it.
    #[inline(always)] // see `drain`
    pub unsafe fn unpost_first(&mut self, peer: u32) {
        // SAFETY: the caller's: the list of `peer` is not empty.
        unsafe {
            let lists = self.peers.as_mut_ptr().add(peer as usize);
            let first = (*lists).posted.first;
            let next = (*first).next;
            let link = &raw mut (*lists).posted.first;
            *link = next;
            match next.is_null() {
                true => (*lists).posted.end = link,
                false => (*next).link = link,
            }
            (*lists).busy -= 1;
            (*first).posted = false;
        }
    }

    /// The earliest posted receive that a message satisfies is removed and returned.
    #[inline]
    pub fn match_arrival(&mut self, peer: u32, key: u64, tag: i32) -> Option<RequestId> {
        let found = self.find_posted(peer, key, tag)?;
        // SAFETY: what lies in the lists is valid, by the contract of `post`.
        unsafe {
            self.unpost(found);
            Some((*found).id())
        }
    }

    /// The earliest posted receive that a message satisfies, left where it is.
    #[inline]
    pub fn find_posted(&self, peer: u32, key: u64, tag: i32) -> Option<*mut Request> {
        // SAFETY: what lies in the lists is valid, by the contract of `post`.
        unsafe {
            let mut found = find_posted(self.lists(peer).posted, key, tag);
            if self.any_source_count != 0 {
                let any = find_posted(self.peers[self.peers.len() - 1].posted, key, tag);
                if found.is_null() || (!any.is_null() && (*any).order <= (*found).order) {
                    found = any;
                }
            }
            (!found.is_null()).then_some(found)
        }
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

    /// The unexpected messages of a peer, oldest first.
    pub fn unexpected_of(&self, peer: u32) -> impl Iterator<Item = NodeId> {
        let listed = |id: NodeId| (id != NIL).then_some(id);
        let first = listed(self.lists(peer).unexpected.first);
        std::iter::successors(first, move |&id| listed(self.nodes[id as usize].next))
    }

    /// The tokens of all unexpected messages, in the order of their arrival.
    pub fn all_unexpected(&self) -> impl Iterator<Item = u32> {
        let listed = |id: NodeId| (id != NIL).then_some(id);
        let first = listed(self.all_unexpected.first);
        let nodes =
            std::iter::successors(first, move |&id| listed(self.nodes[id as usize].all_next));
        nodes.map(|id| self.token(id))
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
        let node = node(&mut self.nodes, id);
        self.free = node.next;
        node.next = NIL;
        node.key = key;
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

/// The first receive of a list that a message satisfies, or null.
///
/// # Safety
/// The list's requests are valid.
#[inline]
unsafe fn find_posted(list: PostedList, key: u64, tag: i32) -> *mut Request {
    let mut at = list.first;
    // SAFETY: the caller's.
    while let Some(request) = unsafe { at.as_ref() } {
        let want = Want {
            peer: request.peer,
            tag: request.tag,
            key: request.key,
        };
        if want.accepts(key, tag) {
            break;
        }
        at = request.next;
    }
    at
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

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::request::{Kind, RequestPool};
    use crate::tag::{ANY_TAG, Context};
    use proptest::prelude::*;

    const PEERS: u32 = 3;

    #[derive(Debug, Clone)]
    enum Step {
        /// From a peer, or from any where it is `PEERS`; any tag where it is 2.
        Post {
            from: u32,
            context: u32,
            tag: i32,
        },
        /// Takes back one of those that wait.
        Unpost(usize),
        Arrive {
            peer: u32,
            context: u32,
            tag: i32,
        },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => (0..=PEERS, 0_u32..2, 0_i32..3).prop_map(|(from, context, tag)| Step::Post { from, context, tag }),
            1 => any::<usize>().prop_map(Step::Unpost),
            4 => (0..PEERS, 0_u32..2, 0_i32..2).prop_map(|(peer, context, tag)| Step::Arrive { peer, context, tag }),
        ]
    }

    fn key(context: u32, source: u32) -> u64 {
        Context::from_leader(0, 4 + context).key(source)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        /// Posted receives in one list in the order of their posting, searched from its start.
        #[test]
        fn posted__match_as_in_one_list(steps in prop::collection::vec(step(), 0..120)) {
            let mut matcher = Matcher::new(PEERS);
            let mut pool = RequestPool::new().expect("address space");
            let mut waiting: Vec<(RequestId, Want)> = Vec::new();
            for step in steps {
                match step {
                    Step::Post { from, context, tag } => {
                        let any = from == PEERS;
                        let want = Want {
                            peer: if any { ANY_PEER } else { from },
                            tag: if tag == 2 { ANY_TAG } else { tag },
                            key: key(context, if any { 0 } else { from }),
                        };
                        let id = pool.allocate(Kind::Recv).expect("a request");
                        let request = pool.get(id);
                        (request.peer, request.tag, request.key) = (want.peer, want.tag, want.key);
                        // SAFETY: it stays in its pool.
                        unsafe { matcher.post(pool.address(id)) };
                        waiting.push((id, want));
                    }
                    Step::Unpost(index) if !waiting.is_empty() => {
                        let (id, _) = waiting.remove(index % waiting.len());
                        // SAFETY: it waits.
                        unsafe { matcher.unpost(pool.address(id)) };
                        pool.free(id);
                    }
                    Step::Unpost(_) => {}
                    Step::Arrive { peer, context, tag } => {
                        let key = key(context, peer);
                        let expected = waiting
                            .iter()
                            .position(|(_, want)| (want.peer == ANY_PEER || want.peer == peer) && want.accepts(key, tag));
                        let expected = expected.map(|index| waiting.remove(index).0);
                        prop_assert_eq!(matcher.match_arrival(peer, key, tag), expected);
                        if let Some(id) = expected {
                            prop_assert!(!pool.get(id).posted);
                            pool.free(id);
                        }
                    }
                }
                for peer in 0..PEERS {
                    let quiet = !waiting.iter().any(|(_, want)| want.peer == peer || want.peer == ANY_PEER);
                    prop_assert_eq!(matcher.is_quiet(peer), quiet);
                }
                prop_assert_eq!(matcher.has_posted(), !waiting.is_empty());
            }
        }
    }
}
