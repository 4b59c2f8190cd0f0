//! Carries out a plan of crate `io`: ranks send aggregators what they have in a window of the file, or get it from
//! there; aggregators write and read.
//!
//! In each round a rank tells every aggregator whose window its share meets which runs of the file it has there, by
//! an ask: a few words, and a list where there is more than one run. Its bytes follow, or come back, as one message,
//! which the aggregator receives into or sends from its buffer by the layout of the runs. A view with more runs than an
//! ask has room for, or memory with gaps, takes several asks a round.
//!
//! **WINDOWS.** The memory of an access is readable or writable as its layout says until the exchange ends. The
//! aggregator's buffer has room for each of its windows, and a window's bytes lie in it. What is posted to a batch
//! stays where it is until the batch has finished. [`run`] asks the first two of its caller; the rounds keep the last.
#![allow(unsafe_code)]

use super::Refused;
use crate::coll::fabric::{Batch, Fabric};
use crate::coll::vector::Vector;
use crate::common::consts::MPI_ERR_INTERN;
use crate::common::error::{Error, Result};
use fastpath_base::heap::may_fail;
use fastpath_io::{Coverage, Plan, RUN_WORDS, Run, Share, View};
use fastpath_protocol::layout::{Layout, Part};
use std::ops::Range;
use std::sync::Arc;

/// Runs of an ask, at most.
const MOST_RUNS: usize = 1024;
/// Words of an ask: number of runs, bytes, whether there are more, and the first run.
const ASK_WORDS: usize = 3 + RUN_WORDS;
/// Bytes that are packed or unpacked a round where memory has gaps.
const STAGE_BYTES: usize = 1 << 20;
/// The least of them for an aggregator.
const LEAST_STAGE: usize = 1 << 12;

/// A file as an aggregator uses it: the bytes of a window, at their distance from its start.
pub(super) trait Store {
    /// Writes what is covered.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Safety
    /// What is covered is readable.
    unsafe fn write(&self, covered: &Coverage, from: *const u8)
    -> std::result::Result<(), Refused>;

    /// Reads what is covered.
    ///
    /// # Errors
    /// The system's, or that the file has ended.
    ///
    /// # Safety
    /// The window is writable.
    unsafe fn read(&self, covered: &Coverage, to: *mut u8) -> std::result::Result<(), Refused>;
}

/// A rank's part of a collective access.
pub(super) struct Task<'a> {
    /// Whether the file is written.
    pub(super) writes: bool,
    /// An ascending view.
    pub(super) view: &'a View,
    /// The bytes of the view.
    pub(super) range: Range<u64>,
    /// The memory; it has the bytes of the range, and may have more.
    pub(super) memory: Vector<'a>,
}

/// What a rank asks of an aggregator.
struct Ask {
    /// Which aggregator.
    index: usize,
    head: [u64; ASK_WORDS],
    /// All runs, where there is more than one.
    list: Vec<u64>,
    /// Where its bytes begin in the access.
    from: u64,
    bytes: u64,
}

/// What an aggregator was asked by a rank.
struct Asked {
    rank: u32,
    runs: Vec<Run>,
    more: bool,
}

/// One rank's state of an access.
struct Exchange<'a, F, S> {
    f: &'a F,
    plan: &'a Plan,
    shares: &'a [Share],
    task: &'a Task<'a>,
    store: &'a S,
    /// Memory of a window.
    buffer: *mut u8,
    /// Memory for packed bytes, a part for each aggregator; empty where memory has no gaps.
    stage: Vec<u8>,
    slot: usize,
    failed: Option<Refused>,
}

/// Carries out an access. The result is that of this rank's reading and writing as an aggregator; all ranks go through
/// the same rounds whatever fails there.
///
/// # Errors
/// Those of communication.
///
/// # Safety
/// The memory of the task is readable or, to be read into, writable. All ranks have the same plan and shares.
pub(super) async unsafe fn run<F: Fabric, S: Store>(
    f: &F, plan: &Plan, shares: &[Share], task: &Task<'_>, store: &S, buffer: &mut Vec<u8>,
) -> Result<std::result::Result<(), Refused>> {
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
        // SAFETY: WINDOWS; the buffer has room for each window of this rank.
        unsafe { exchange.run_round(round).await? };
    }
    Ok(exchange.failed.map_or(Ok(()), Err))
}

/// Bytes of the buffer that a rank needs as an aggregator.
pub(super) fn buffer_bytes(plan: &Plan, rank: u32) -> usize {
    plan.index_of(rank).map_or(0, |index| plan.buffer_bytes(index) as usize)
}

/// Whether there is memory for the windows of a rank: the buffer, which is there then, and the bits of a window.
pub(super) fn reserve(plan: &Plan, rank: u32, buffer: &mut Vec<u8>) -> bool {
    let bytes = buffer_bytes(plan, rank);
    may_fail(|| buffer.try_reserve_exact(bytes)).is_ok() && Coverage::has_room(bytes as u64)
}

/// Memory for packed bytes, and how many of them each aggregator has.
fn make_stage(plan: &Plan, task: &Task<'_>) -> (Vec<u8>, usize) {
    let aggregators = plan.aggregators().len().max(1);
    match task.memory.dense() {
        Some(_) => (Vec::new(), usize::MAX),
        None => {
            let slot = (STAGE_BYTES / aggregators).max(LEAST_STAGE);
            (vec![0; slot * aggregators], slot)
        }
    }
}

impl<F: Fabric, S: Store> Exchange<'_, F, S> {
    /// # Safety
    /// As [`run`].
    async unsafe fn run_round(&mut self, round: u64) -> Result {
        let (plan, task, me) = (self.plan, self.task, self.f.rank());
        let windows: Vec<Range<i64>> =
            (0..plan.aggregators().len()).map(|index| plan.window(index, round)).collect();
        // What is still to be asked of each aggregator; none where there is nothing to say.
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
            // SAFETY: what is covered has been received.
            let written = unsafe { self.store.write(&covered, self.buffer) };
            self.failed = written.err();
        }
        Ok(())
    }

    /// The next ask for each aggregator that there is something to say to; takes it off its part.
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

    /// Starts to send asks to others.
    ///
    /// # Safety
    /// They stay until the batch has finished.
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

    /// What this aggregator is asked in this step, its own ask among it. Ranks that have no more are callers no longer.
    async fn receive_asks(
        &self, asks: &[Ask], window: &Range<i64>, callers: &mut Vec<u32>,
    ) -> Result<Vec<Asked>> {
        let me = self.f.rank();
        let own = asks.iter().find(|ask| self.rank_of(ask) == me);
        let mut heads = vec![[0; ASK_WORDS]; callers.len()];
        let mut batch = Batch::new(self.f);
        for (rank, head) in callers.iter().zip(&mut heads) {
            match own {
                Some(ask) if *rank == me => *head = ask.head,
                // SAFETY: the words stay until the batch has finished.
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
                // SAFETY: WINDOWS: the lists stay until the batch has finished, below.
                unsafe { batch.recv(*rank, words_mut(list)) };
            }
        }
        batch.finish().await?;
        let asked = callers.iter().zip(&heads).zip(&lists);
        let asked: Result<Vec<Asked>> =
            asked.map(|((rank, head), list)| read_ask(*rank, head, list, window)).collect();
        let asked = asked?;
        *callers = asked.iter().filter(|asked| asked.more).map(|asked| asked.rank).collect();
        Ok(asked)
    }

    /// A step of a write: bytes go to the aggregators, and those that others send come into the buffer.
    ///
    /// # Safety
    /// As [`run`].
    async unsafe fn take_step(
        &mut self, asks: &[Ask], window: &Range<i64>, callers: &mut Vec<u32>,
        covered: &mut Option<Coverage>,
    ) -> Result {
        let me = self.f.rank();
        let mut sends = Batch::new(self.f);
        // SAFETY: asks, memory and stage stay until the batch has finished.
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
                // SAFETY: own bytes, which have been packed or lie in one piece, and the buffer, in which a window is.
                Some(ask) if from.rank == me => unsafe { self.packed(ask).copy_to(place)? },
                // SAFETY: the runs lie in the window, and the buffer is not touched until the batch has finished.
                _ => unsafe { receives.recv(from.rank, place) },
            }
        }
        let received = receives.finish().await;
        sends.finish().await.and(received)
    }

    /// A step of a read: the aggregator reads what it is asked for, and its bytes go to those who asked.
    ///
    /// # Safety
    /// As [`run`].
    async unsafe fn give_step(
        &mut self, asks: &[Ask], window: &Range<i64>, callers: &mut Vec<u32>,
    ) -> Result {
        let me = self.f.rank();
        let (mut sends, mut receives) = (Batch::new(self.f), Batch::new(self.f));
        // SAFETY: asks stay until the batch has finished.
        unsafe { self.send_asks(asks, &mut sends) };
        let asked = match self.receive_asks(asks, window, callers).await {
            Ok(asked) => asked,
            Err(error) => return sends.finish().await.and(Err(error)),
        };
        // Another aggregator's ask comes before its answer.
        for ask in asks.iter().filter(|ask| self.rank_of(ask) != me) {
            // SAFETY: memory and stage stay until the batch has finished.
            unsafe { receives.recv(self.rank_of(ask), self.packed(ask)) };
        }
        let layouts: Vec<Option<Arc<Layout>>> =
            asked.iter().map(|a| layout_of(a, window)).collect();
        // SAFETY: the window lies in the buffer.
        unsafe { self.read(&asked, window) };
        let mut answers = Batch::new(self.f);
        for (to, layout) in asked.iter().zip(&layouts) {
            let Some(layout) = layout else { continue };
            let place = Vector::at(self.buffer, 1, layout);
            match asks.iter().find(|ask| self.rank_of(ask) == me) {
                // SAFETY: as in `take_step`.
                Some(ask) if to.rank == me => unsafe { place.copy_to(self.packed(ask))? },
                // SAFETY: WINDOWS: the place lies in the buffer, which is only read until the batch has finished.
                _ => unsafe { answers.send(to.rank, place) },
            }
        }
        let received = receives.finish().await;
        let sent = sends.finish().await.and(answers.finish().await);
        // SAFETY: WINDOWS.
        unsafe { asks.iter().for_each(|ask| self.unpack(ask)) };
        received.and(sent)
    }

    /// Reads what was asked for; zeros where that cannot be.
    ///
    /// # Safety
    /// The window lies in the buffer.
    unsafe fn read(&mut self, asked: &[Asked], window: &Range<i64>) {
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

    /// Where the bytes of an ask are, or come to, in one piece.
    fn packed(&self, ask: &Ask) -> Vector<'static> {
        let at = match self.task.memory.dense() {
            Some(at) => at.wrapping_add(ask.from as usize),
            None => self.stage.as_ptr().wrapping_add(ask.index * self.slot).cast_mut(),
        };
        Vector::raw(at, ask.bytes)
    }

    /// Packs the bytes of an ask where memory has gaps.
    ///
    /// # Safety
    /// The memory is readable.
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

    /// Unpacks the bytes of an ask where memory has gaps.
    ///
    /// # Safety
    /// The memory is writable.
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
    let text = format!("rank {rank} of the file asks for what does not lie in the window");
    Error::new(MPI_ERR_INTERN, text)
}

/// What a rank has asked, checked.
fn read_ask(rank: u32, head: &[u64], list: &[u64], window: &Range<i64>) -> Result<Asked> {
    let runs: Option<Vec<Run>> = list
        .chunks_exact(RUN_WORDS)
        .map(|run| Run::from_words(run.try_into().ok()?, window))
        .collect();
    let runs = runs.ok_or_else(|| refuse_ask(rank))?;
    let bytes = runs.iter().fold(0u64, |sum, run| sum.saturating_add(run.bytes()));
    match bytes == head[1] {
        true => Ok(Asked { rank, runs, more: head[2] != 0 }),
        false => Err(refuse_ask(rank)),
    }
}

/// The layout of runs in the memory of a window; None without runs.
fn layout_of(asked: &Asked, window: &Range<i64>) -> Option<Arc<Layout>> {
    let pieces: Option<Vec<Layout>> = asked
        .runs
        .iter()
        .map(|run| Layout::contiguous(run.len).ok()?.resized(0, run.stride.max(1)).ok())
        .collect();
    let pieces = pieces?;
    let parts = asked.runs.iter().zip(&pieces).map(|(run, layout)| Part {
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

    /// A file in memory; writes at or behind `full` fail.
    struct Disk {
        bytes: Mutex<Vec<u8>>,
        full: usize,
    }

    impl Store for Disk {
        unsafe fn write(
            &self, covered: &Coverage, from: *const u8,
        ) -> std::result::Result<(), Refused> {
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
                    result = Err(Refused::System(error));
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

        unsafe fn read(&self, covered: &Coverage, to: *mut u8) -> std::result::Result<(), Refused> {
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

    /// What a rank shows of the file, and its memory: pieces of `len` bytes, `gap` bytes between them.
    #[derive(Debug, Clone)]
    struct Part {
        displacement: i64,
        len: u64,
        hole: u64,
        from: u64,
        bytes: u64,
        gap: u64,
    }

    impl Part {
        fn view(&self) -> View {
            let piece = Layout::contiguous(self.len).unwrap();
            let tile = piece.resized(0, (self.len + self.hole) as i64).unwrap();
            View::new(self.displacement, Arc::new(tile))
        }

        /// Offsets in the file, in order.
        fn offsets(&self) -> Vec<usize> {
            let mut all = vec![];
            self.view().for_each_piece(self.from, self.bytes, |at, len| {
                all.extend(at as usize..at as usize + len as usize)
            });
            all
        }

        fn share(&self, rank: u32) -> Share {
            let offsets = self.offsets();
            Share {
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

    /// Runs an access of all ranks; what each rank's memory holds then, and what it returned.
    fn access(
        parts: &[Part], tuning: &Tuning, mode: Mode, writes: bool, disk: &Disk,
    ) -> Vec<(Vec<u8>, bool)> {
        let shares: Vec<Share> = (0..).zip(parts).map(|(rank, part)| part.share(rank)).collect();
        let Some(plan) = Plan::make(&shares, tuning) else {
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
            // SAFETY: the memory has room for the elements.
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
            // SAFETY: the memory has `count` elements, whose bytes in packed order are as many as `back` has, or more.
            unsafe { element.pack(memory.as_ptr(), count, 0, &mut back) };
            (back, ended.is_ok())
        })
    }

    fn any_part() -> impl Strategy<Value = Part> {
        (0i64..300, 1u64..40, 0u64..60, 0u64..100, 0u64..120, 0u64..3).prop_map(
            |(displacement, len, hole, from, count, gap)| Part {
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
                // Each rank's pieces lie in the holes of the others.
                let (len, ranks) = (parts[0].len, parts.len() as u64);
                for (rank, part) in (0..).zip(&mut parts) {
                    part.len = len;
                    part.hole = len * (ranks - 1) + 5;
                    part.displacement = rank * len as i64;
                }
            } else {
                // Or behind them.
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
                let bytes: u64 = asked.runs.iter().map(Run::bytes).sum();
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
        let part = |rank: i64| Part {
            displacement: rank * 8,
            len: 8,
            hole: 24,
            from: 0,
            bytes: 2400,
            gap: 0,
        };
        let parts: Vec<Part> = (0..4).map(part).collect();
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
        // One of the two aggregators, ranks 0 and 2, whose domain ends behind what there is room for.
        assert_eq!(failed, [false, false, true, false]);
    }

    #[test]
    fn two_phase__takes_several_asks_for_an_uneven_view() {
        // Pieces at growing distances: each is a run of its own, and there are more than an ask has room for.
        let piece = Layout::contiguous(2).unwrap();
        let places = (0..3000i64).map(|i| i * 4 + (i % 7) / 3);
        let uneven = Arc::new(Layout::indexed(&piece, 1, places).unwrap());
        let disk = Disk { bytes: Mutex::new(vec![0; SIZE]), full: usize::MAX };
        let view = |rank: u32| View::new(i64::from(rank) * 2000, uneven.clone());
        let share = |rank| Share {
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
        let plan = Plan::make(&shares, &tuning).unwrap();
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
            // SAFETY: the memory has room.
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
