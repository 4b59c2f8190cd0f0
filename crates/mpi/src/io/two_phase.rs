//! Two-phase access by a plan of crate `io`: ranks exchange the bytes of a window with aggregators, which read and
//! write the file.
//!
//! In each round a rank sends a request to every aggregator whose window overlaps the rank's share. The request lists
//! the rank's runs in the window: a few words, and a list if there are several runs. The bytes move as one message. An
//! aggregator receives it into its buffer, or sends it from there, with a datatype layout of the runs. A round takes
//! several requests if a view has more runs than a request holds, or if memory has gaps.
//!
//! **WINDOWS.** The memory of an access is readable or writable by its layout until the exchange ends. The aggregator's
//! buffer has space for each of its windows, and contains the bytes of the current window. Callers of [`run`] guarantee
//! both properties. The rounds guarantee that memory posted to a batch stays in place until the batch has finished.
#![allow(unsafe_code)]

use super::AccessFailure;
use crate::coll::fabric::{Batch, Fabric};
use crate::coll::vector::Vector;
use crate::common::consts::MPI_ERR_INTERN;
use crate::common::error::{Error, Result};
use fastpath_base::heap::may_fail;
use fastpath_io::{AccessPlan, Coverage, RUN_WORDS, RankAccess, StridedRun, View};
use fastpath_protocol::layout::{Layout, StructPart};
use std::ops::Range;
use std::sync::Arc;

const MOST_RUNS: usize = 1024;
/// Number of words of a request: number of runs, bytes, whether more requests follow, and the first run.
const ASK_WORDS: usize = 3 + RUN_WORDS;
/// Size, in bytes, of the stage for packed bytes, which is used if memory has gaps.
const STAGE_BYTES: usize = 1 << 20;
/// Minimum size, in bytes, of the stage's part for one aggregator.
const LEAST_STAGE: usize = 1 << 12;

/// The file as an aggregator uses it. A byte's index in a buffer is its distance from the start of the window.
pub(super) trait AggregatorFile {
    /// Writes the covered bytes of a window.
    ///
    /// # Safety
    /// The covered bytes are readable.
    unsafe fn write(
        &self, covered: &Coverage, from: *const u8,
    ) -> std::result::Result<(), AccessFailure>;

    /// Reads the covered bytes of a window. Errors: those of the system call, or the end of the file.
    ///
    /// # Safety
    /// The window is writable.
    unsafe fn read(
        &self, covered: &Coverage, to: *mut u8,
    ) -> std::result::Result<(), AccessFailure>;
}

/// One rank's part of a collective access.
pub(super) struct Task<'a> {
    pub(super) writes: bool,
    /// The rank's view, whose offsets ascend.
    pub(super) view: &'a View,
    /// Range of positions in the view.
    pub(super) range: Range<u64>,
    /// Memory with at least the bytes of the range.
    pub(super) memory: Vector<'a>,
}

struct Ask {
    index: usize,
    head: [u64; ASK_WORDS],
    /// List of all runs of the request if there are several; otherwise empty.
    list: Vec<u64>,
    /// Offset of the request's first byte in the packed bytes of the access.
    from: u64,
    bytes: u64,
}

struct PieceRequest {
    rank: u32,
    runs: Vec<StridedRun>,
    more: bool,
}

/// State of an access on one rank.
struct Exchange<'a, F, S> {
    f: &'a F,
    plan: &'a AccessPlan,
    shares: &'a [RankAccess],
    task: &'a Task<'a>,
    store: &'a S,
    buffer: *mut u8,
    /// Stage for packed bytes, divided among the aggregators; empty if memory has no gaps.
    stage: Vec<u8>,
    slot: usize,
    failed: Option<AccessFailure>,
}

/// Performs an access. The inner result is the outcome of this rank's work as an aggregator. Its errors do not change
/// the rounds.
///
/// # Safety
/// The memory of the task is readable or writable, as the access requires. All ranks have equal plans and shares.
pub(super) async unsafe fn run<F: Fabric, S: AggregatorFile>(
    f: &F, plan: &AccessPlan, shares: &[RankAccess], task: &Task<'_>, store: &S,
    buffer: &mut Vec<u8>,
) -> Result<std::result::Result<(), AccessFailure>> {
    buffer.reserve(buffer_bytes(plan, f.rank()));
    let (stage, slot) = make_stage(plan, task);
    let mut exchange = Exchange {
        f,
        plan,
        shares,
        task,
        store,
        buffer: buffer.as_mut_ptr(),
        stage,
        slot,
        failed: None,
    };
    for round in plan.busy_rounds(shares).into_iter().flatten() {
        // SAFETY: WINDOWS. The buffer has space for each window of this rank.
        unsafe { exchange.run_round(round).await? };
    }
    Ok(exchange.failed.map_or(Ok(()), Err))
}

pub(super) fn buffer_bytes(plan: &AccessPlan, rank: u32) -> usize {
    plan.index_of(rank).map_or(0, |index| plan.buffer_bytes(index) as usize)
}

/// Reserves the buffer of an aggregator. Returns whether memory suffices for the buffer and a window's coverage.
pub(super) fn reserve(plan: &AccessPlan, rank: u32, buffer: &mut Vec<u8>) -> bool {
    let bytes = buffer_bytes(plan, rank);
    may_fail(|| buffer.try_reserve_exact(bytes)).is_ok() && Coverage::has_room(bytes as u64)
}

/// Makes the stage for packed bytes. Returns the stage and the bytes of each aggregator's part.
fn make_stage(plan: &AccessPlan, task: &Task<'_>) -> (Vec<u8>, usize) {
    let aggregators = plan.aggregators().len().max(1);
    match task.memory.dense() {
        Some(_) => (Vec::new(), usize::MAX),
        None => {
            let slot = (STAGE_BYTES / aggregators).max(LEAST_STAGE);
            (vec![0; slot * aggregators], slot)
        }
    }
}

impl<F: Fabric, S: AggregatorFile> Exchange<'_, F, S> {
    /// Runs one round: requests, bytes and file access. Safety: see WINDOWS.
    async unsafe fn run_round(&mut self, round: u64) -> Result {
        let (plan, task, me) = (self.plan, self.task, self.f.rank());
        let windows: Vec<Range<i64>> =
            (0..plan.aggregators().len()).map(|index| plan.window(index, round)).collect();
        // Range still to be requested from each aggregator; `None` if nothing is left.
        let mut parts: Vec<Option<Range<u64>>> = windows
            .iter()
            .map(|window| {
                let meets = self.shares[me as usize].meets(window);
                meets.then(|| task.view.positions_in(window, task.range.clone()))
            })
            .collect();
        let window = plan.index_of(me).map_or(0..0, |index| windows[index].clone());
        let mut callers: Vec<u32> = (0..)
            .zip(self.shares)
            .filter_map(|(rank, share)| share.meets(&window).then_some(rank))
            .collect();
        let mut covered = None;
        while parts.iter().any(Option::is_some) || !callers.is_empty() {
            let asks = self.make_asks(&mut parts);
            // SAFETY: WINDOWS.
            unsafe {
                match task.writes {
                    true => self.take_step(&asks, &window, &mut callers, &mut covered).await?,
                    false => self.give_step(&asks, &window, &mut callers).await?,
                }
            }
        }
        if let Some(covered) = covered
            && self.failed.is_none()
        {
            // SAFETY: WINDOWS. The covered bytes have been received into the buffer.
            let written = unsafe { self.store.write(&covered, self.buffer) };
            self.failed = written.err();
        }
        Ok(())
    }

    /// Makes the next request to each aggregator with a range left, and removes the requested bytes from the range.
    fn make_asks(&self, parts: &mut [Option<Range<u64>>]) -> Vec<Ask> {
        let mut asks = Vec::new();
        for (index, part) in parts.iter_mut().enumerate() {
            let Some(rest) = part.take() else { continue };
            let len = (rest.end - rest.start).min(self.slot as u64);
            let (runs, bytes) = self.task.view.runs(rest.start, len, MOST_RUNS);
            let after = rest.start + bytes;
            let more = after < rest.end && bytes > 0;
            if more {
                *part = Some(after..rest.end);
            }
            let mut head = [0; ASK_WORDS];
            head[..3].copy_from_slice(&[runs.len() as u64, bytes, u64::from(more)]);
            let list: Vec<u64> = runs.iter().flat_map(|run| run.to_words()).collect();
            if let [first] = runs[..] {
                head[3..].copy_from_slice(&first.to_words());
            }
            asks.push(Ask {
                index,
                head,
                list: if runs.len() > 1 { list } else { Vec::new() },
                from: rest.start - self.task.range.start,
                bytes,
            });
        }
        asks
    }

    fn rank_of(&self, ask: &Ask) -> u32 {
        self.plan.aggregators()[ask.index]
    }

    /// Starts to send requests to other ranks.
    ///
    /// # Safety
    /// The requests stay in place until the batch has finished.
    unsafe fn send_asks(&self, asks: &[Ask], batch: &mut Batch<'_, F>) {
        for ask in asks {
            let to = self.rank_of(ask);
            if to != self.f.rank() {
                // SAFETY: WINDOWS.
                unsafe {
                    batch.send(to, words(&ask.head));
                    batch.send(to, words(&ask.list));
                }
            }
        }
    }

    /// Receives the requests of this step, and adds this rank's own request. Removes ranks without further requests
    /// from `callers`.
    async fn receive_asks(
        &self, asks: &[Ask], window: &Range<i64>, callers: &mut Vec<u32>,
    ) -> Result<Vec<PieceRequest>> {
        let me = self.f.rank();
        let own = asks.iter().find(|ask| self.rank_of(ask) == me);
        let mut heads = vec![[0; ASK_WORDS]; callers.len()];
        let mut batch = Batch::new(self.f);
        for (rank, head) in callers.iter().zip(&mut heads) {
            match own {
                Some(ask) if *rank == me => *head = ask.head,
                // SAFETY: WINDOWS: the words stay in place until the batch has finished.
                _ => unsafe { batch.recv(*rank, words_mut(head)) },
            }
        }
        batch.finish().await?;
        let mut lists = vec![Vec::new(); callers.len()];
        let mut batch = Batch::new(self.f);
        for ((rank, head), list) in callers.iter().zip(&heads).zip(&mut lists) {
            let number = usize::try_from(head[0]).unwrap_or(usize::MAX);
            if number > MOST_RUNS {
                return Err(refuse_ask(*rank));
            }
            *list = match (number, own) {
                (0, _) => Vec::new(),
                (1, _) => head[3..].to_vec(),
                (_, Some(ask)) if *rank == me => ask.list.clone(),
                _ => vec![0; number * RUN_WORDS],
            };
            if number > 1 && *rank != me {
                // SAFETY: WINDOWS: the lists stay in place until the batch has finished.
                unsafe { batch.recv(*rank, words_mut(list)) };
            }
        }
        batch.finish().await?;
        let asked = callers.iter().zip(&heads).zip(&lists);
        let asked: Result<Vec<PieceRequest>> =
            asked.map(|((rank, head), list)| read_ask(*rank, head, list, window)).collect();
        let asked = asked?;
        *callers = asked.iter().filter(|asked| asked.more).map(|asked| asked.rank).collect();
        Ok(asked)
    }

    /// Performs a step of a write: sends this rank's bytes to aggregators, receives other ranks' bytes into the buffer.
    ///
    /// # Safety
    /// See WINDOWS.
    async unsafe fn take_step(
        &mut self, asks: &[Ask], window: &Range<i64>, callers: &mut Vec<u32>,
        covered: &mut Option<Coverage>,
    ) -> Result {
        let me = self.f.rank();
        let mut sends = Batch::new(self.f);
        // SAFETY: WINDOWS: requests, memory and stage stay in place until the batch has finished.
        unsafe {
            self.send_asks(asks, &mut sends);
            for ask in asks {
                let data = self.pack(ask);
                if self.plan.aggregators()[ask.index] != me {
                    sends.send(self.plan.aggregators()[ask.index], data);
                }
            }
        }
        let asked = match self.receive_asks(asks, window, callers).await {
            Ok(asked) => asked,
            Err(error) => return sends.finish().await.and(Err(error)),
        };
        let layouts: Vec<Option<Arc<Layout>>> =
            asked.iter().map(|a| layout_of(a, window)).collect();
        let mut receives = Batch::new(self.f);
        for (from, layout) in asked.iter().zip(&layouts) {
            let Some(layout) = layout else { continue };
            let covered = covered.get_or_insert_with(|| Coverage::new(window.clone()));
            from.runs.iter().for_each(|run| covered.add(run));
            let place = Vector::at(self.buffer, 1, layout);
            match asks.iter().find(|ask| self.rank_of(ask) == me) {
                // SAFETY: WINDOWS: this rank's bytes are packed or in one piece, and the runs lie in the buffer.
                Some(ask) if from.rank == me => unsafe { self.packed(ask).copy_to(place)? },
                // SAFETY: WINDOWS: the runs lie in the buffer, which is not accessed until the batch has finished.
                _ => unsafe { receives.recv(from.rank, place) },
            }
        }
        let received = receives.finish().await;
        sends.finish().await.and(received)
    }

    /// Performs a step of a read: as an aggregator, reads the requested bytes and sends them to the requesting ranks.
    ///
    /// # Safety
    /// See WINDOWS.
    async unsafe fn give_step(
        &mut self, asks: &[Ask], window: &Range<i64>, callers: &mut Vec<u32>,
    ) -> Result {
        let me = self.f.rank();
        let (mut sends, mut receives) = (Batch::new(self.f), Batch::new(self.f));
        // SAFETY: WINDOWS: requests stay in place until the batch has finished.
        unsafe { self.send_asks(asks, &mut sends) };
        let asked = match self.receive_asks(asks, window, callers).await {
            Ok(asked) => asked,
            Err(error) => return sends.finish().await.and(Err(error)),
        };
        // Each aggregator sends its requests before its replies, so these receives cannot match a request.
        for ask in asks.iter().filter(|ask| self.rank_of(ask) != me) {
            // SAFETY: WINDOWS: memory and stage stay in place until the batch has finished.
            unsafe { receives.recv(self.rank_of(ask), self.packed(ask)) };
        }
        let layouts: Vec<Option<Arc<Layout>>> =
            asked.iter().map(|a| layout_of(a, window)).collect();
        // SAFETY: WINDOWS: the window is in the buffer.
        unsafe { self.read(&asked, window) };
        let mut answers = Batch::new(self.f);
        for (to, layout) in asked.iter().zip(&layouts) {
            let Some(layout) = layout else { continue };
            let place = Vector::at(self.buffer, 1, layout);
            match asks.iter().find(|ask| self.rank_of(ask) == me) {
                // SAFETY: WINDOWS: the runs lie in the buffer, and this rank's bytes go to the stage or to one piece of
                // memory.
                Some(ask) if to.rank == me => unsafe { place.copy_to(self.packed(ask))? },
                // SAFETY: WINDOWS: the runs lie in the buffer, which is only read until the batch has finished.
                _ => unsafe { answers.send(to.rank, place) },
            }
        }
        let received = receives.finish().await;
        let sent = sends.finish().await.and(answers.finish().await);
        // SAFETY: WINDOWS.
        unsafe { asks.iter().for_each(|ask| self.unpack(ask)) };
        received.and(sent)
    }

    /// Reads the requested bytes into the buffer; after an error, fills them with zeros.
    ///
    /// # Safety
    /// See WINDOWS.
    unsafe fn read(&mut self, asked: &[PieceRequest], window: &Range<i64>) {
        if asked.iter().all(|asked| asked.runs.is_empty()) {
            return;
        }
        let mut covered = Coverage::new(window.clone());
        let runs = asked.iter().flat_map(|asked| &asked.runs);
        runs.for_each(|run| covered.add(run));
        // SAFETY: WINDOWS.
        unsafe {
            if self.failed.is_none() {
                self.failed = self.store.read(&covered, self.buffer).err();
            }
            if self.failed.is_some() {
                self.buffer.write_bytes(0, (window.end - window.start) as usize);
            }
        }
    }

    /// Returns the bytes of a request as one piece of memory: those to send, or the place for received ones.
    fn packed(&self, ask: &Ask) -> Vector<'static> {
        let at = match self.task.memory.dense() {
            Some(at) => at.wrapping_add(ask.from as usize),
            None => self.stage.as_ptr().wrapping_add(ask.index * self.slot).cast_mut(),
        };
        Vector::raw(at, ask.bytes)
    }

    /// If memory has gaps, packs the bytes of a request into the stage. Returns the bytes as one piece.
    ///
    /// # Safety
    /// See WINDOWS. The memory is readable.
    unsafe fn pack(&mut self, ask: &Ask) -> Vector<'static> {
        let memory = &self.task.memory;
        if memory.dense().is_none() {
            let at = ask.index * self.slot;
            let to = &mut self.stage[at..at + ask.bytes as usize];
            // SAFETY: WINDOWS.
            unsafe { memory.layout.pack(memory.ptr, memory.count, ask.from, to) };
        }
        self.packed(ask)
    }

    /// If memory has gaps, unpacks the bytes of a request from the stage.
    ///
    /// # Safety
    /// See WINDOWS. The memory is writable.
    unsafe fn unpack(&self, ask: &Ask) {
        let memory = &self.task.memory;
        if memory.dense().is_none() {
            let at = ask.index * self.slot;
            let from = &self.stage[at..at + ask.bytes as usize];
            // SAFETY: WINDOWS.
            unsafe { memory.layout.unpack(memory.ptr, memory.count, ask.from, from) };
        }
    }
}

fn words(words: &[u64]) -> Vector<'static> {
    Vector::raw(words.as_ptr().cast(), size_of_val(words) as u64)
}

fn words_mut(words: &mut [u64]) -> Vector<'static> {
    Vector::raw(words.as_mut_ptr().cast(), size_of_val(words) as u64)
}

fn refuse_ask(rank: u32) -> Error {
    let text = format!("rank {rank} of the file requests bytes outside of the aggregator's window");
    Error::new(MPI_ERR_INTERN, text)
}

fn read_ask(rank: u32, head: &[u64], list: &[u64], window: &Range<i64>) -> Result<PieceRequest> {
    let runs: Option<Vec<StridedRun>> = list
        .chunks_exact(RUN_WORDS)
        .map(|run| StridedRun::from_words(run.try_into().ok()?, window))
        .collect();
    let runs = runs.ok_or_else(|| refuse_ask(rank))?;
    let bytes = runs.iter().fold(0u64, |sum, run| sum.saturating_add(run.bytes()));
    match bytes == head[1] {
        true => Ok(PieceRequest { rank, runs, more: head[2] != 0 }),
        false => Err(refuse_ask(rank)),
    }
}

/// Returns the layout of a request's runs in the buffer of a window; `None` without runs.
fn layout_of(asked: &PieceRequest, window: &Range<i64>) -> Option<Arc<Layout>> {
    let pieces: Option<Vec<Layout>> = asked
        .runs
        .iter()
        .map(|run| Layout::contiguous(run.len).ok()?.resized(0, run.stride.max(1)).ok())
        .collect();
    let pieces = pieces?;
    let parts = asked.runs.iter().zip(&pieces).map(|(run, layout)| StructPart {
        layout,
        count: run.count,
        displacement: run.offset - window.start,
    });
    let layout = Layout::structure(parts).ok()?;
    (layout.size() > 0).then(|| Arc::new(layout))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use crate::coll::fabric::drive;
    use crate::coll::simulator::{self, Mode};
    use fastpath_io::{Action, IoError, Switch, Tuning};
    use proptest::prelude::*;
    use std::sync::Mutex;

    /// A file in memory. A write that ends beyond byte `full` fails.
    struct Disk {
        bytes: Mutex<Vec<u8>>,
        full: usize,
    }

    impl AggregatorFile for Disk {
        unsafe fn write(
            &self, covered: &Coverage, from: *const u8,
        ) -> std::result::Result<(), AccessFailure> {
            let mut bytes = self.bytes.lock().unwrap();
            let mut result = Ok(());
            covered.for_each_stretch(|offset, len| {
                let (at, len) = (offset as usize, len as usize);
                if at + len > self.full {
                    let error = IoError {
                        action: Action::Write,
                        errno: libc::ENOSPC,
                        offset,
                        bytes: len as u64,
                    };
                    result = Err(AccessFailure::System(error));
                    return;
                }
                // SAFETY: WINDOWS.
                let data = unsafe {
                    let from = from.add((offset - covered.start()) as usize);
                    std::slice::from_raw_parts(from, len)
                };
                bytes[at..at + len].copy_from_slice(data);
            });
            result
        }

        unsafe fn read(
            &self, covered: &Coverage, to: *mut u8,
        ) -> std::result::Result<(), AccessFailure> {
            let bytes = self.bytes.lock().unwrap();
            covered.for_each_stretch(|offset, len| {
                let from = &bytes[offset as usize..][..len as usize];
                // SAFETY: WINDOWS.
                unsafe {
                    let to = to.add((offset - covered.start()) as usize);
                    to.copy_from_nonoverlapping(from.as_ptr(), from.len());
                }
            });
            Ok(())
        }
    }

    /// View and memory of a rank. Pieces have `len` bytes, with `hole` bytes between them in the file and `gap` bytes
    /// in memory.
    #[derive(Debug, Clone)]
    struct RankPart {
        displacement: i64,
        len: u64,
        hole: u64,
        from: u64,
        bytes: u64,
        gap: u64,
    }

    impl RankPart {
        fn view(&self) -> View {
            let piece = Layout::contiguous(self.len).unwrap();
            let tile = piece.resized(0, (self.len + self.hole) as i64).unwrap();
            View::new(self.displacement, Arc::new(tile))
        }

        fn offsets(&self) -> Vec<usize> {
            let mut all = vec![];
            self.view().for_each_piece(self.from, self.bytes, |at, len| {
                all.extend(at as usize..at as usize + len as usize)
            });
            all
        }

        fn share(&self, rank: u32) -> RankAccess {
            let offsets = self.offsets();
            RankAccess {
                low: offsets.first().map_or(0, |&at| at as i64),
                high: offsets.last().map_or(0, |&at| at as i64 + 1),
                bytes: self.bytes,
                piece: self.len,
                node: rank / 2,
            }
        }
    }

    fn byte(rank: usize, index: usize) -> u8 {
        (rank * 67 + index * 7 + index / 251) as u8 | 1
    }

    const SIZE: usize = 20_000;

    /// Runs an access on all ranks. Returns each rank's memory, and whether its access succeeded.
    fn access(
        parts: &[RankPart], tuning: &Tuning, mode: Mode, writes: bool, disk: &Disk,
    ) -> Vec<(Vec<u8>, bool)> {
        let shares: Vec<RankAccess> =
            (0..).zip(parts).map(|(rank, part)| part.share(rank)).collect();
        let Some(plan) = AccessPlan::make(&shares, tuning) else {
            return vec![];
        };
        simulator::run(parts.len() as u32, mode, |f| {
            let part = &parts[f.rank() as usize];
            let element = Layout::contiguous(3).unwrap().resized(0, 3 + part.gap as i64).unwrap();
            let element = Arc::new(element);
            let count = part.bytes / 3;
            let mut memory = vec![0; (count * (3 + part.gap)) as usize + 1];
            let packed: Vec<u8> =
                (0..part.bytes as usize).map(|i| byte(f.rank() as usize, i)).collect();
            let view = part.view();
            // SAFETY: the memory holds the elements.
            let ended = unsafe {
                if writes {
                    element.unpack(memory.as_mut_ptr(), count, 0, &packed);
                }
                let task = Task {
                    writes,
                    view: &view,
                    range: part.from..part.from + part.bytes,
                    memory: Vector::at(memory.as_mut_ptr(), count, &element),
                };
                drive(run(f, &plan, &shares, &task, disk, &mut Vec::new())).unwrap()
            };
            let mut back = vec![0; part.bytes as usize];
            // SAFETY: the memory holds `count` elements, which have at least the packed bytes of `back`.
            unsafe { element.pack(memory.as_ptr(), count, 0, &mut back) };
            (back, ended.is_ok())
        })
    }

    fn any_part() -> impl Strategy<Value = RankPart> {
        (0i64..300, 1u64..40, 0u64..60, 0u64..100, 0u64..120, 0u64..3).prop_map(
            |(displacement, len, hole, from, count, gap)| RankPart {
                displacement,
                len,
                hole,
                from,
                bytes: count * 3,
                gap,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]
        #[test]
        fn two_phase__agrees_with_a_map_of_bytes(
            parts in prop::collection::vec(any_part(), 2..5), apart in any::<bool>(), eager in any::<bool>(),
            buffer in 1u64..3000, align in 1u64..200, aggregators in 0u64..5,
        ) {
            let mut parts = parts;
            if apart {
                // The pieces of each rank lie in the holes of other ranks.
                let (len, ranks) = (parts[0].len, parts.len() as u64);
                for (rank, part) in (0..).zip(&mut parts) {
                    part.len = len;
                    part.hole = len * (ranks - 1) + 5;
                    part.displacement = rank * len as i64;
                }
            } else {
                // The pieces of each rank lie behind those of lower ranks.
                for (rank, part) in (0..).zip(&mut parts) {
                    part.displacement += rank * 20_000;
                    part.bytes = part.bytes.min(150);
                    part.from = part.from.min(30);
                }
            }
            let buffer = if apart { buffer } else { buffer.max(500) };
            let tuning = Tuning { switch: Switch::Enabled, buffer, align, aggregators, worthwhile: 0 };
            let mode = if eager { Mode::Eager } else { Mode::Rendezvous };
            let disk = Disk { bytes: Mutex::new(vec![0; 200_000]), full: usize::MAX };
            let mut model = vec![0; 200_000];
            for (rank, part) in parts.iter().enumerate() {
                for (index, at) in part.offsets().into_iter().enumerate() {
                    model[at] = byte(rank, index);
                }
            }
            let ended = access(&parts, &tuning, mode, true, &disk);
            prop_assert!(ended.iter().all(|(_, is_ok)| *is_ok));
            if !ended.is_empty() {
                prop_assert!(*disk.bytes.lock().unwrap() == model);
            }
            for (rank, (back, is_ok)) in access(&parts, &tuning, mode, false, &disk).into_iter().enumerate() {
                let expected: Vec<u8> = (0..back.len()).map(|i| byte(rank, i)).collect();
                prop_assert!(is_ok && back == expected, "rank {} reads something else", rank);
            }
        }
    }

    proptest! {
        #[test]
        fn fuzz__asks_of_any_words_are_read_or_refused(
            head in prop::collection::vec(0u64..400, ASK_WORDS),
            list in prop::collection::vec(prop_oneof![any::<u64>(), 0u64..200], 0..5 * RUN_WORDS), end in 0i64..300,
        ) {
            let window = 10..10 + end;
            if let Ok(asked) = read_ask(3, &head, &list, &window) {
                let bytes: u64 = asked.runs.iter().map(StridedRun::bytes).sum();
                prop_assert_eq!(bytes, head[1]);
                let size = layout_of(&asked, &window).map_or(0, |layout| {
                    assert!(layout.true_lb() >= 0 && layout.true_lb() + layout.true_extent() <= end);
                    layout.size()
                });
                prop_assert_eq!(size, bytes);
            }
        }
    }

    #[test]
    fn two_phase__of_a_full_disk_goes_through_all_rounds() {
        let part = |rank: i64| RankPart {
            displacement: rank * 8,
            len: 8,
            hole: 24,
            from: 0,
            bytes: 2400,
            gap: 0,
        };
        let parts: Vec<RankPart> = (0..4).map(part).collect();
        let tuning = Tuning {
            switch: Switch::Enabled,
            buffer: 512,
            aggregators: 2,
            align: 1,
            worthwhile: 0,
        };
        let disk = Disk { bytes: Mutex::new(vec![0; SIZE]), full: 7000 };
        let ended = access(&parts, &tuning, Mode::Rendezvous, true, &disk);
        let failed: Vec<bool> = ended.iter().map(|(_, is_ok)| !is_ok).collect();
        // The two aggregators are ranks 0 and 2. The domain of rank 2 ends behind the end of the disk.
        assert_eq!(failed, [false, false, true, false]);
    }

    #[test]
    fn two_phase__takes_several_asks_for_an_uneven_view() {
        // Pieces at unequal distances are separate runs, more than a request holds.
        let piece = Layout::contiguous(2).unwrap();
        let places = (0..3000i64).map(|i| i * 4 + (i % 7) / 3);
        let uneven = Arc::new(Layout::indexed(&piece, 1, places).unwrap());
        let disk = Disk { bytes: Mutex::new(vec![0; SIZE]), full: usize::MAX };
        let view = |rank: u32| View::new(i64::from(rank) * 2000, uneven.clone());
        let share = |rank| RankAccess {
            low: i64::from(rank) * 2000,
            high: i64::from(rank) * 2000 + uneven.true_extent(),
            bytes: 6000,
            piece: 2,
            node: 0,
        };
        let shares = [share(0), share(1)];
        let tuning = Tuning {
            switch: Switch::Enabled,
            buffer: 1 << 20,
            aggregators: 1,
            align: 1,
            worthwhile: 0,
        };
        let plan = AccessPlan::make(&shares, &tuning).unwrap();
        disk.bytes.lock().unwrap().iter_mut().enumerate().for_each(|(i, b)| *b = byte(0, i));
        let byte_layout = Arc::new(Layout::contiguous(1).unwrap());
        let read = simulator::run(2, Mode::Rendezvous, |f| {
            let mut memory = vec![0u8; 6000];
            let view = view(f.rank());
            let task = Task {
                writes: false,
                view: &view,
                range: 0..6000,
                memory: Vector::at(memory.as_mut_ptr(), 6000, &byte_layout),
            };
            let mut buffer = Vec::new();
            // SAFETY: the memory holds the elements.
            let ended = unsafe { run(f, &plan, &shares, &task, &disk, &mut buffer) };
            assert!(drive(ended).unwrap().is_ok());
            memory
        });
        for (rank, memory) in (0..).zip(read) {
            let mut expected = vec![];
            view(rank).for_each_piece(0, 6000, |at, len| {
                expected.extend((at..at + len as i64).map(|at| byte(0, at as usize)))
            });
            assert!(memory == expected);
        }
    }
}
