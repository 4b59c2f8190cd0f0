//! Units: identification of a figure's unit, and of mixed-up units.

use fastpath_pcie::{Bytes, MbPerS, MibPerS, Rate, RateUnit, StatedRate};

use super::super::findings::said;
use super::super::{Explanation, MIB_OVER_MB, percent};
use super::{BandwidthOptions, BandwidthSubject, Tool};

/// Interprets a figure in its true unit. A proof by the message rate applies to figures with the proved label.
/// Otherwise the tool decides: perftest divides by 2^20 and writes MB.
pub fn reinterpret(
    stated: StatedRate, tool: Option<Tool>, proved: Option<(RateUnit, RateUnit)>,
) -> StatedRate {
    if let Some((_, unit)) = proved.filter(|(written, _)| *written == stated.unit) {
        return StatedRate { rate: Rate::new(stated.value(), unit), unit };
    }
    match (tool, stated.unit) {
        (Some(Tool::Perftest), RateUnit::MbPerS) => {
            StatedRate { rate: MibPerS(stated.value()).into(), unit: RateUnit::MibPerS }
        }
        _ => stated,
    }
}

/// Mistaken conversions of 1 GB/s (10^9 bytes a second) that mix powers of ten and of two: the resulting number of
/// MB/s, and the explanation.
const MIXES: [(f64, &str); 3] = [
    (1_048_576.0 / 1e3, "1 GB was taken as 1024 * 1024 kB, but 1 MB as 1000 kB"),
    (1024.0, "1 GB was taken as 1024 MB"),
    (1_073_741_824.0 / 1e6, "1 GB was taken as 2^30 bytes, but 1 MB as 10^6"),
];

/// Returns the unit mix that turns the raw rate into the expectation, if there is one.
pub fn find_mix(expected: StatedRate, raw: Rate) -> Option<&'static str> {
    let matches_raw = (expected.rate / raw - 1.0).abs() < 5e-4;
    if matches_raw {
        return None;
    }
    let gigabytes = raw.bytes_per_s() / 1e9;
    // The expected figure may be rounded to a whole number, so tolerate half of one.
    let near = |&&(factor, _): &&(f64, &str)| (expected.value() - gigabytes * factor).abs() <= 0.51;
    MIXES.iter().find(near).map(|mix| mix.1)
}

/// Returns the figure that the tool printed beside the message rate.
fn printed(options: &BandwidthOptions) -> Option<StatedRate> {
    options.single.or(options.measured)
}

/// Returns the rate of `mpps` million messages of `size` bytes, and the unit in which it equals the printed figure.
fn read_unit(printed: StatedRate, mpps: f64, size: Bytes) -> (Rate, Option<RateUnit>) {
    let real = Rate::from_bytes_per_s(mpps * 1e6 * size.as_f64());
    let tells = |unit: &RateUnit| (real.in_unit(*unit) / printed.value() - 1.0).abs() < 2e-3;
    let units = [RateUnit::MbPerS, RateUnit::MibPerS];
    (real, units.into_iter().find(tells))
}

/// Returns the unit as written, and the unit that the message rate proves; None without a proof.
pub(super) fn prove(options: &BandwidthOptions) -> Option<(RateUnit, RateUnit)> {
    let printed = printed(options)?;
    let (_, unit) = read_unit(printed, options.message_rate?, options.size());
    Some((printed.unit, unit?))
}

pub(super) fn judge(
    options: &BandwidthOptions, subject: &BandwidthSubject, made: &mut Explanation,
) {
    let (raw, link) = (subject.link.raw(), &subject.link);
    if let Some(expected) = options.expected
        && let Some(how) = find_mix(expected, raw)
    {
        let (mb, mib) = (format!("{:.0}", MbPerS::from(raw)), MibPerS::from(raw));
        let gb = format!("{:.0}", raw.gb_per_s());
        made.findings.push(said!(bandwidth "unit-error", expected, how, link, gb, mb, mib));
    }
    let Some(printed) = printed(options) else {
        return;
    };
    if let Some(mpps) = options.message_rate {
        let (real, found) = read_unit(printed, mpps, subject.message.size);
        let why = format!(
            "{} * {mpps} million a second = {:.1} = {:.1}.",
            subject.message.size,
            real.mb_per_s(),
            real.mib_per_s()
        );
        made.findings.push(match found {
            Some(unit) if unit != printed.unit => {
                said!(bandwidth "printed-other", figure = printed.value(), unit, why)
            }
            Some(unit) => said!(bandwidth "printed-right", unit, why),
            None => said!(bandwidth "printed-none", why),
        });
    } else if printed.unit == RateUnit::MbPerS {
        made.findings.push(match options.tool {
            Some(Tool::Perftest) => said!(bandwidth "printed-perftest"),
            None => said!(bandwidth "printed-maybe", more = percent(MIB_OVER_MB)),
        });
    }
}
