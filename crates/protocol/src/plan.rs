//! Plan of a send: protocol, sizes of its parts, copy loop and timing, chosen once before the first byte leaves.
//!
//! [`Planner::plan_send`] makes the plan. A queued message is planned again ([`Planner::replan`]), because its lane may
//! have changed. `protocols` starts the send.

use crate::endpoint::Endpoint;
use crate::learning::{
    Arm, CopyCosts, EagerCopy, LEARN_MIN, Mirror, OCTAVES, PeerLearning, octave,
};
use crate::request::{MessagePhase, Request};
use crate::selection::Selection;
pub use crate::selection::thresholds::{LaneSizes, SendProtocol, Thresholds};
use fastpath_transport::Lane;

/// Largest message, in bytes, that leaves at once for any number of peers. A longer message leaves at once only if the
/// ring can hold `RING_MESSAGES` of its size.
const ALWAYS_EAGER: u64 = 32 << 10;
const RING_MESSAGES: u64 = 4;

/// Message for which a plan is made.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing {
    /// Length in bytes.
    pub bytes: u64,
    /// Whether the message is contiguous.
    pub contiguous: bool,
    /// Whether the send completes only when the receive has matched.
    pub synchronous: bool,
    /// Whether the receiver reads the message in place, by load and store.
    pub shared: bool,
    /// Whether more ranks are awake than the node has processors.
    pub crowded: bool,
    /// Whether the receiver's progress thread receives the message while its program computes.
    pub computes: bool,
}

/// Plan of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendPlan {
    /// Protocol of the first bytes.
    pub protocol: SendProtocol,
    /// How the message is copied: the sender's copy loop through the ring, or a copy without the ring.
    pub arm: Arm,
    /// Whether the message needs no request if there is space for all of it.
    pub immediate: bool,
    /// Whether the RTS carries the time when the send began.
    pub timed: bool,
    /// Whether the sender's and the receiver's copy of an immediate message are timed.
    pub times_copies: bool,
    /// Whether ranks share processors.
    pub crowded: bool,
    /// Bytes of each buffer, if the message is sent in several buffers.
    pub part: u32,
    /// Bytes of an announced message that leave before the receiver's answer, if no copy without the ring is offered.
    pub early: u32,
}

const _: () = assert!(size_of::<SendPlan>() <= 16);

impl SendPlan {
    /// Returns the plan of a contiguous message that is not timed and needs no learning.
    #[inline]
    pub(crate) fn plain(sizes: &LaneSizes, bytes: u64) -> SendPlan {
        SendPlan {
            protocol: sizes.protocol(bytes, true),
            arm: Arm::Vector,
            immediate: true,
            timed: false,
            times_copies: false,
            crowded: false,
            part: sizes.part as u32,
            early: 0,
        }
    }

    #[inline]
    pub(crate) fn copy(&self) -> EagerCopy {
        EagerCopy { by: self.arm.copy_loop(), timed: self.times_copies }
    }

    /// Returns the arm of the request that replaces an immediate message without space. If ranks share processors, the
    /// plan's copy loop was chosen only for the immediate message.
    fn request_arm(&self) -> Arm {
        match self.immediate && self.crowded {
            true => Arm::Vector,
            false => self.arm,
        }
    }

    pub(crate) fn store(&self, request: &mut Request) {
        (request.arm, request.sent_ns) = (self.request_arm() as u8, self.timed as u32);
    }
}

/// State with which sends are planned.
#[derive(Default)]
pub struct Planner {
    /// Sizes at which the protocols change.
    pub thresholds: Thresholds,
    pub(crate) selection: Box<Selection>,
    /// Arms that this rank tries for messages in the other direction, by octave of size.
    pub(crate) mirrors: [Mirror; OCTAVES],
    /// Costs of copies if ranks share processors.
    pub(crate) copy_costs: CopyCosts,
}

impl Planner {
    #[inline]
    pub(crate) fn plan_short(&self, lane: &Lane, bytes: u64) -> Option<SendPlan> {
        let is_short = bytes < LEARN_MIN && bytes <= self.thresholds.first;
        is_short.then(|| SendPlan::plain(&self.thresholds.sizes_on(lane), bytes))
    }

    #[inline(always)] // benchmark: callgrind of MPI_Send; a call would take 20 to 40 instructions
    pub(crate) fn plan_send(&mut self, endpoint: &mut Endpoint, message: Outgoing) -> SendPlan {
        let Outgoing { bytes, contiguous, synchronous, shared, crowded, .. } = message;
        let sizes = self.thresholds.sizes_on(&endpoint.lane);
        if !contiguous {
            return plan_request(&endpoint.lane, &sizes, bytes, (Arm::Vector, false), crowded);
        }
        let may_leave = bytes <= sizes.eager
            && !synchronous
            && !shared
            && has_space(&endpoint.lane, bytes, crowded);
        if may_leave && crowded {
            return self.plan_crowded(&endpoint.lane, bytes, &sizes);
        }
        let (arm, is_due) = self.choose_arm(endpoint, message);
        // A message in shared memory is read in place, whichever arm other messages take, so it is not timed.
        let timed = is_due && !shared;
        match may_leave && !timed {
            true => SendPlan { arm, ..SendPlan::plain(&sizes, bytes) },
            false => plan_request(&endpoint.lane, &sizes, bytes, (arm, timed), crowded),
        }
    }

    /// Plans the send of a request again, for the current lane. Arm and timing stay.
    pub(crate) fn replan(&self, lane: &Lane, request: &Request, crowded: bool) -> SendPlan {
        let arm = Arm::of(request.arm).unwrap_or(Arm::Vector);
        let (sizes, timed) = (self.thresholds.sizes_on(lane), request.sent_ns != 0);
        let plan = plan_request(lane, &sizes, request.bytes, (arm, timed), crowded);
        match request.phase {
            MessagePhase::Begun => plan,
            // An announced message continues in parts, even if a new lane could send it whole.
            _ => SendPlan { protocol: SendProtocol::Announced, ..plan },
        }
    }

    #[cold]
    #[inline(never)]
    fn plan_crowded(&mut self, lane: &Lane, bytes: u64, sizes: &LaneSizes) -> SendPlan {
        let copy = match self.learns(lane) {
            true => self.copy_costs.choose_eager(bytes),
            false => EagerCopy::PLAIN,
        };
        let plain = SendPlan::plain(sizes, bytes);
        SendPlan { arm: Arm::of_loop(copy.by), times_copies: copy.timed, crowded: true, ..plain }
    }

    #[inline]
    fn learns(&self, lane: &Lane) -> bool {
        self.selection.overrides.adapt && lane.is_same_host()
    }

    #[inline]
    fn choose_arm(&mut self, endpoint: &mut Endpoint, message: Outgoing) -> (Arm, bool) {
        let Outgoing { bytes, computes, .. } = message;
        if computes || message.crowded {
            return (self.choose_crowded(&endpoint.lane, bytes, computes), false);
        }
        if bytes < LEARN_MIN || !self.learns(&endpoint.lane) {
            return (self.first_arm(bytes), false);
        }
        let eager = bytes <= self.thresholds.first;
        let octave = octave(bytes);
        let mirrored = self.mirrors[octave].arm();
        let entry = self.learnt(endpoint).entry(octave);
        let (arm, is_due) = match mirrored {
            Some(arm) if !entry.is_trial() => (arm, false),
            _ => (entry.arm(), entry.is_due()),
        };
        match eager && !arm.is_ring() {
            // Send eagerly: the message leaves at once, so its sender need not wait.
            true => (Arm::Vector, false),
            false => (arm, is_due),
        }
    }

    /// Chooses the arm of a message if ranks share processors, where times depend on the scheduler.
    fn choose_crowded(&mut self, lane: &Lane, bytes: u64, computes: bool) -> Arm {
        if bytes < self.thresholds.crowded_copy && fits_ring(lane, bytes) {
            return Arm::Vector;
        }
        match self.learns(lane) && !computes {
            true => self.copy_costs.choose_arm(),
            // The arm with the fewest copies leaves most processor time to other ranks.
            false => Arm::Get,
        }
    }

    fn first_arm(&self, bytes: u64) -> Arm {
        match bytes >= self.thresholds.single_copy {
            true => Arm::Cooperative,
            false => Arm::Vector,
        }
    }

    pub(crate) fn learnt<'a>(&self, endpoint: &'a mut Endpoint) -> &'a mut PeerLearning {
        endpoint.learnt.get_or_insert_with(|| self.begin_learning())
    }

    #[cold]
    #[inline(never)]
    fn begin_learning(&self) -> Box<PeerLearning> {
        Box::new(PeerLearning::new(self.selection.kernel.is_ok(), |bytes| self.first_arm(bytes)))
    }

    #[inline]
    pub(crate) fn count(&mut self, endpoint: &mut Endpoint, bytes: u64, timed: bool) {
        self.mirrors[octave(bytes)].count();
        if let Some(learnt) = &mut endpoint.learnt {
            learnt.count(bytes, timed);
        }
    }
}

fn plan_request(
    lane: &Lane, sizes: &LaneSizes, bytes: u64, (arm, timed): (Arm, bool), crowded: bool,
) -> SendPlan {
    let early = match crowded && lane.is_same_host() && !fits_ring(lane, sizes.early) {
        true => sizes.early.min(ALWAYS_EAGER),
        false => sizes.early,
    };
    SendPlan {
        protocol: match timed {
            true => SendProtocol::Announced,
            false => sizes.protocol(bytes, false),
        },
        arm,
        immediate: false,
        timed,
        times_copies: false,
        crowded,
        part: sizes.part as u32,
        early: early.min(bytes) as u32,
    }
}

#[inline]
fn has_space(lane: &Lane, bytes: u64, crowded: bool) -> bool {
    match crowded {
        true => fits_ring(lane, bytes),
        false => bytes <= ALWAYS_EAGER || lane.has_share(bytes),
    }
}

/// Returns whether a message may leave at once if ranks share processors. The ring must hold several such messages,
/// because the receiver may wait for a processor.
fn fits_ring(lane: &Lane, bytes: u64) -> bool {
    bytes <= ALWAYS_EAGER || lane.has_share(RING_MESSAGES * bytes)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::endpoint::EagerTarget;
    use crate::request::{RequestKind, RequestPool};

    const KIB: u64 = 1024;

    fn endpoint() -> Endpoint {
        let early = EagerTarget::of_request(0, 0);
        let lane = Lane::Unconnected;
        Endpoint { lane, blocked: 0, declines: false, pending: None, early, learnt: None }
    }

    fn outgoing(bytes: u64) -> Outgoing {
        let (synchronous, shared, crowded, computes) = (false, false, false, false);
        Outgoing { bytes, contiguous: true, synchronous, shared, crowded, computes }
    }

    fn plan(message: Outgoing) -> SendPlan {
        Planner::default().plan_send(&mut endpoint(), message)
    }

    #[test]
    fn plan__goes_by_size() {
        let whole = plan(outgoing(8 * KIB));
        assert!(whole.protocol == SendProtocol::Whole && whole.immediate);
        let fragments = plan(outgoing(20 * KIB));
        assert!(fragments.protocol == SendProtocol::Fragments && fragments.immediate);
        assert_eq!(fragments.part, 16 << 10);
        let announced = plan(outgoing(100 * KIB));
        assert!(announced.protocol == SendProtocol::Announced && !announced.immediate);
        assert_eq!(announced.early, 64 << 10);
    }

    #[test]
    fn plan__of_what_needs_an_answer_or_packing__has_a_request() {
        let synchronous = plan(Outgoing { synchronous: true, ..outgoing(8 * KIB) });
        assert!(synchronous.protocol == SendProtocol::Whole && !synchronous.immediate);
        let scattered = plan(Outgoing { contiguous: false, ..outgoing(20 * KIB) });
        assert!(scattered.protocol == SendProtocol::Announced && !scattered.immediate);
    }

    #[test]
    fn plan__on_a_crowded_node__leaves_at_once_up_to_32_kib_alone() {
        let plan = |bytes| plan(Outgoing { crowded: true, ..outgoing(bytes) });
        assert!(plan(32 * KIB).immediate && plan(32 * KIB).crowded);
        let announced = plan(33 * KIB);
        assert!(announced.protocol == SendProtocol::Announced && !announced.immediate);
    }

    /// An immediate message without space gets a request's arm: `crowded_copy` exceeds every size that leaves at once.
    #[test]
    fn plan__on_a_crowded_node_without_space__has_the_arm_of_a_request() {
        let planner = Planner::default();
        assert!(planner.thresholds.crowded_copy > planner.thresholds.first);
        let immediate = plan(Outgoing { crowded: true, ..outgoing(32 * KIB) });
        assert_eq!(immediate.request_arm(), Arm::Vector);
        let announced = SendPlan { immediate: false, arm: Arm::Get, ..immediate };
        assert_eq!(announced.request_arm(), Arm::Get);
    }

    #[test]
    fn replan__keeps_what_was_announced() {
        let mut pool = RequestPool::new().unwrap();
        let id = pool.allocate(RequestKind::Send).unwrap();
        let request = pool.get_mut(id);
        request.bytes = 8 * KIB;
        let lane = Lane::Unconnected;
        let replan = |request: &Request| Planner::default().replan(&lane, request, false).protocol;
        assert_eq!(replan(request), SendProtocol::Whole);
        request.phase = MessagePhase::Announced;
        assert_eq!(replan(request), SendProtocol::Announced);
    }
}
