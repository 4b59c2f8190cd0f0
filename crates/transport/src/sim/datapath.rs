//! Post, look and take operations of a simulated network.

use super::domain::{Network, SimFabric};
use super::wire::{Packet, SimMessage};
use crate::contract::{Header, Post};
use std::rc::Rc;

impl SimFabric {
    fn admit(&mut self, from: u32, to: u32) -> Post {
        if self.ports[to as usize].gone {
            return Post::PeerGone;
        }
        let room = self.room(from, to) > 0;
        let link = self.link(from, to);
        let promised = link.promised > 0;
        link.promised = link.promised.saturating_sub(1);
        let refuse = self.conditions.refuse;
        if !room || !promised && self.random.chance(refuse) {
            self.counts.refused += 1;
            return Post::NoResource;
        }
        Post::Done
    }

    fn room(&mut self, from: u32, to: u32) -> usize {
        let (slots, reliable) = (self.conditions.slots, self.conditions.reliable);
        let link = self.link(from, to);
        let used = if reliable { link.in_use } else { link.sender.in_flight() };
        if link.send_open { slots.saturating_sub(used) } else { 0 }
    }

    fn commit(&mut self, from: u32, to: u32, message: SimMessage) {
        self.counts.posted += 1;
        let message = Rc::new(message);
        let now = self.now_ns;
        if !self.conditions.reliable {
            if let Ok(seq) = self.link(from, to).sender.push(now, message.clone()) {
                self.send_badly(to, from, Packet::Data(seq, message), |port| &mut port.packets);
            }
            return;
        }
        if !self.reaches(from, to) {
            self.counts.astray += 1;
            return;
        }
        let drawn = match &mut self.machines {
            Some(machines) => {
                machines.post(now, from, to, message.data.len());
                u64::MAX // until the message is delivered
            }
            None => self.draw_arrival(),
        };
        let link = self.link(from, to);
        let at = link.queue.back().map_or(drawn, |(at, _)| drawn.max(*at));
        link.queue.push_back((at, message));
        link.in_use += 1;
    }

    fn reaches(&mut self, from: u32, to: u32) -> bool {
        let known = self.link(from, to).peer_number;
        let wireup = self.conditions.wireup;
        let end = self.link(to, from);
        !wireup || (end.recv_open && known == Some(end.number))
    }

    pub(super) fn progress(&mut self, me: u32) -> bool {
        let mut moved = false;
        let now = self.now_ns;
        while let Some(entry) = self.ports[me as usize].packets.first_entry()
            && entry.key().0 <= now
        {
            let (from, packet) = entry.remove();
            moved = true;
            if !self.reaches(from, me) {
                continue; // the sender retransmits it
            }
            match packet {
                Packet::Data(seq, message) => {
                    self.link(me, from).receiver.accept(seq, message);
                }
                Packet::Ack(ack) => {
                    self.link(me, from).sender.acknowledge(now, ack);
                }
            }
        }
        for peer in 0..self.ports.len() as u32 {
            while let Some((seq, message)) = self.link(me, peer).sender.resend(now) {
                let packet = Packet::Data(seq, message.clone());
                self.counts.resent += 1;
                self.send_badly(peer, me, packet, |port| &mut port.packets);
            }
            if self.link(me, peer).receiver.owes_ack() {
                let packet = Packet::Ack(self.link(me, peer).receiver.ack());
                self.send_badly(peer, me, packet, |port| &mut port.packets);
            }
        }
        moved
    }
}

impl Network {
    pub(super) fn post(
        &self, from: u32, to: u32, header: Header, len: usize, pack: impl FnOnce(*mut u8),
    ) -> Post {
        let answer = self.0.borrow_mut().admit(from, to);
        if answer != Post::Done {
            return answer;
        }
        let mut data = vec![0; len];
        pack(data.as_mut_ptr());
        let mut fabric = self.0.borrow_mut();
        // The contract delivers `aux` only with long payloads, so drop it otherwise.
        let aux = match len > fabric.conditions.short {
            true => header.aux,
            false => 0,
        };
        let header = Header { aux, ..header };
        fabric.commit(from, to, SimMessage { header, data });
        fabric.counts.unheeded += fabric.link(from, to).must_wake as u64;
        let wake = fabric.conditions.wake;
        let asleep = fabric.random.chance(wake);
        fabric.link(from, to).must_wake = asleep;
        if asleep { Post::Wake } else { Post::Done }
    }

    /// Whether there is room for `messages` messages now. If there is, the next posts succeed.
    pub(super) fn promise_room(&self, from: u32, to: u32, messages: u32) -> bool {
        let mut fabric = self.0.borrow_mut();
        let refuse = fabric.conditions.refuse;
        if fabric.room(from, to) < messages as usize || fabric.random.chance(refuse) {
            return false;
        }
        fabric.link(from, to).promised = messages;
        true
    }

    pub(super) fn wake(&self, from: u32, to: u32) -> Post {
        let mut fabric = self.0.borrow_mut();
        fabric.link(from, to).must_wake = false;
        match fabric.ports[to as usize].gone {
            true => Post::PeerGone,
            false => Post::Done,
        }
    }

    pub(super) fn look(&self, me: u32, peer: u32) -> Option<(Header, *const u8, usize)> {
        let mut fabric = self.0.borrow_mut();
        let (now, reliable) = (fabric.now_ns, fabric.conditions.reliable);
        if !fabric.link(me, peer).recv_open {
            return None;
        }
        let message = match reliable {
            true => match fabric.link(peer, me).queue.front() {
                Some((at, message)) if *at <= now => message,
                _ => return None,
            },
            false => fabric.link(me, peer).receiver.look()?,
        };
        Some((message.header, message.data.as_ptr(), message.data.len()))
    }

    pub(super) fn take(&self, me: u32, peer: u32) {
        let mut fabric = self.0.borrow_mut();
        if !fabric.conditions.reliable {
            fabric.link(me, peer).receiver.take();
            return;
        }
        fabric.link(peer, me).queue.pop_front();
        let due = fabric.conditions.slots.div_ceil(4);
        let link = fabric.link(me, peer);
        link.owed += 1;
        if link.owed >= due {
            drop(fabric);
            self.return_credits(me, peer);
        }
    }

    pub(super) fn return_credits(&self, me: u32, peer: u32) {
        let mut fabric = self.0.borrow_mut();
        let owed = std::mem::take(&mut fabric.link(me, peer).owed);
        let link = fabric.link(peer, me);
        link.in_use = link.in_use.saturating_sub(owed);
    }
}
