//! `fastpath explain probe`: measures copies between pinned memory and a GPU, and reads of host memory by the GPU. The
//! results are compared with the model's prediction for the link.
//!
//! The CUDA driver is opened at run time; the build does not need it.

mod cuda;

use anyhow::{Context, Result};
use fastpath_machine::pci::DevicePath;
use fastpath_machine::pci::function::PciFunction;
use fastpath_machine::pci::sysfs;
use fastpath_pcie::{Rate, RateUnit, StatedRate};

use super::Explanation;
use super::advice;
use super::findings::said;
use super::moves::{MoveDirection, Moves};
use super::options::{LinkOptions, LocalOptions};
use cuda::{CopyWay, Cuda};

/// Options of `fastpath explain probe`.
#[derive(clap::Args, Debug)]
pub struct ProbeOptions {
    /// GPU index, by the driver's count from 0
    #[arg(long, default_value_t = 0)]
    pub gpu: u32,
    /// Path of the driver's library
    #[arg(long, default_value = "libcuda.so.1", hide = true)]
    pub driver: String,
    /// The machine
    #[command(flatten)]
    pub here: LocalOptions,
}

/// Prefix of the error messages if nothing could be measured.
const NOTHING: &str = "nothing was measured";
/// Sizes of the copies, in bytes.
const SIZES: [usize; 6] = [64, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20];
const BATCHES: usize = 7;
/// Number of bytes that a batch of copies moves. A batch has at least one copy and at most `COPIES_MAX`.
const BATCH_BYTES: usize = 256 << 20;
const COPIES_MAX: usize = 1000;
/// Two numbers of chained reads of host memory. The difference of their times excludes the start of the GPU's kernel.
const READS: [u32; 2] = [256, 4352];

struct MeasuredCopy {
    bytes: usize,
    copies: usize,
    /// Time of a copy in the fastest and the median batch, in nanoseconds.
    quickest: f64,
    median: f64,
}

impl MeasuredCopy {
    fn rate(&self) -> Rate {
        Rate::from_bytes_per_s(self.bytes as f64 / self.quickest * 1e9)
    }
}

/// Measures and explains. Fails without a driver or a GPU of the given index, or if a call fails.
pub fn explain(options: &ProbeOptions) -> Result<Vec<Explanation>> {
    let cuda = Cuda::open(&options.driver).context(NOTHING)?;
    let gpu = cuda.use_gpu(options.gpu).context(NOTHING)?;
    let buffers = gpu.allocate(SIZES[SIZES.len() - 1]).context(NOTHING)?;
    let mut copies = Vec::new();
    for copy in [CopyWay::ToDevice, CopyWay::ToHost] {
        for bytes in SIZES {
            let mut batch = |count| buffers.time_copies(copy, bytes, count);
            copies.push((copy, measure(bytes, &mut batch).context(NOTHING)?));
        }
    }
    let read_ns = measure_reads(&mut |count| gpu.time_reads(count));
    let subject = sysfs::read_device(&options.here.sysfs, gpu.address()).unwrap_or_else(|e| {
        let mut device = PciFunction::new(gpu.address(), "");
        device.unread.push(format!("{e:#}"));
        DevicePath { device, source: "sysfs", ..DevicePath::default() }
    });
    let subject = DevicePath { copies: true, ..subject };
    let explanations = [CopyWay::ToDevice, CopyWay::ToHost].map(|copy| {
        let of_direction = copies.iter().filter(|(c, _)| *c == copy);
        let measured: Vec<&MeasuredCopy> = of_direction.map(|(_, m)| m).collect();
        explain_copies(&subject, gpu.name(), copy, &measured, &read_ns, &options.here.link)
    });
    explanations.into_iter().collect()
}

fn measure(bytes: usize, batch: &mut dyn FnMut(usize) -> Result<u64>) -> Result<MeasuredCopy> {
    let copies = (BATCH_BYTES / bytes).clamp(1, COPIES_MAX);
    batch(copies)?;
    let mut times = Vec::new();
    for _ in 0..BATCHES {
        times.push(batch(copies)? as f64 / copies as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(MeasuredCopy { bytes, copies, quickest: times[0], median: times[BATCHES / 2] })
}

/// Time of one read of host memory by the GPU, in nanoseconds: the fastest of several.
fn measure_reads(chain: &mut dyn FnMut(u32) -> Result<u64>) -> Result<f64> {
    chain(READS[0])?;
    let mut quickest = READS.map(|_| f64::INFINITY);
    for _ in 0..BATCHES {
        for (time, count) in quickest.iter_mut().zip(READS) {
            *time = time.min(chain(count)? as f64);
        }
    }
    Ok((quickest[1] - quickest[0]) / f64::from(READS[1] - READS[0]))
}

fn explain_copies(
    subject: &DevicePath, name: &str, copy: CopyWay, measured: &[&MeasuredCopy],
    read_ns: &Result<f64>, link: &LinkOptions,
) -> Result<Explanation> {
    let most = measured.iter().map(|m| m.rate());
    let most = most.fold(Rate::default(), |a, b| if b > a { b } else { a });
    Moves::of_options(link.direction, link.ratio)?;
    let (direction, way) = match copy {
        CopyWay::ToDevice => (MoveDirection::Read, "host to device"),
        CopyWay::ToHost => (MoveDirection::Write, "device to host"),
    };
    let asked = LinkOptions {
        direction: Some(direction),
        ratio: None,
        measured: Some(StatedRate {
            rate: most,
            unit: link.measured.map_or(RateUnit::GbytePerS, |m| m.unit),
        }),
        ..link.clone()
    };
    let mut made = advice::explain(subject, &asked)?;
    made.title = format!("{name} at {}: copies from {way}", subject.device.address);
    for m in measured {
        let rate = format!("{:.3} GB/s", m.rate().in_unit(RateUnit::GbytePerS));
        let source = format!(
            "measured: quickest of {BATCHES} batches of {} copies, {:.0} ns per copy; median of \
             the batches {:.0} ns",
            m.copies, m.quickest, m.median
        );
        made.input(&format!("copies of {} B", m.bytes), rate, source);
    }
    made.findings.push(match read_ns {
        Ok(ns) => said!(device "read-time", ns = format!("{ns:.0}")),
        Err(why) => said!(device "no-read-time", why),
    });
    Ok(made)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn copies__are_timed_by_their_quickest_batch() {
        // 50 GB/s, with each batch slower than the preceding batch.
        let mut calls = 0u64;
        let mut batch = |count: usize| {
            calls += 1;
            Ok((count * (1 << 20)) as u64 / 50 + 1000 * calls)
        };
        let found = measure(1 << 20, &mut batch).unwrap();
        assert_eq!((found.copies, calls), (256, BATCHES as u64 + 1));
        let rate = found.rate().in_unit(RateUnit::GbytePerS);
        assert!((rate / 50.0 - 1.0).abs() < 1e-3, "{rate}");
        assert!(found.median > found.quickest);
        assert_eq!(measure(64, &mut |_| Ok(1)).unwrap().copies, COPIES_MAX);
    }

    #[test]
    fn reads__are_free_of_the_start_of_the_kernel() {
        let ns = measure_reads(&mut |count| Ok(20_000 + u64::from(count) * 700)).unwrap();
        assert!((ns - 700.0).abs() < 1e-9, "{ns}");
    }

    #[test]
    fn probe__is_held_against_the_link() {
        let device = fastpath_machine::pci::lspci::parse(include_str!(
            "../../machine/src/pci/samples/gpu.txt"
        ))
        .unwrap();
        let subject =
            DevicePath { device: device[0].clone(), source: "sysfs", ..DevicePath::default() };
        let one = MeasuredCopy {
            bytes: 1 << 20,
            copies: 256,
            quickest: (1u64 << 20) as f64 / 14.3,
            median: (1u64 << 20) as f64 / 14.0,
        };
        let links = LinkOptions::default();
        let made =
            explain_copies(&subject, "a GPU", CopyWay::ToDevice, &[&one], &Ok(650.0), &links);
        let made = made.unwrap();
        assert_eq!(made.waterfalls.len(), 1);
        let ids: Vec<&str> = made.findings.iter().map(|f| f.id.as_str()).collect();
        assert!(ids.contains(&"agrees") && ids.contains(&"read-time"), "{ids:?}");
        let value = &made.inputs.last().unwrap().value;
        assert_eq!(value, "14.300 GB/s");
    }

    #[test]
    fn probe__names_no_cause_of_a_network() {
        let device = fastpath_machine::pci::lspci::parse(include_str!(
            "../../machine/src/pci/samples/gpu.txt"
        ))
        .unwrap();
        let device = device[0].clone();
        let subject = DevicePath { device, source: "sysfs", copies: true, ..DevicePath::default() };
        let one =
            MeasuredCopy { bytes: 1 << 20, copies: 256, quickest: 79_000.0, median: 79_000.0 };
        let links = LinkOptions::default();
        for copy in [CopyWay::ToDevice, CopyWay::ToHost] {
            let made =
                explain_copies(&subject, "a GPU", copy, &[&one], &Ok(650.0), &links).unwrap();
            let ids: Vec<&str> = made.findings.iter().map(|f| f.id.as_str()).collect();
            assert!(ids.contains(&"less") && ids.contains(&"far-memory"), "{ids:?}");
            assert!(!ids.contains(&"one-process") && !ids.contains(&"unit-error"), "{ids:?}");
            assert_eq!(ids.contains(&"read-completions"), copy == CopyWay::ToDevice, "{ids:?}");
            assert!(made.experiments.is_empty(), "{:?}", made.experiments);
        }
    }
}
