//! Text form of the results of `fastpath doctor --host`.

use std::net::IpAddr;

use fastpath_report::document::{Document, Table};

use super::super::show::describe_diagnostics;
use super::verdict::describe_outcome;
use super::{Examination, HostConnection, HostFacts, HostsReport, Speed};

pub(super) fn describe(examination: &Examination) -> Document {
    let report = &examination.report;
    let mut said = Document::default();
    for host in &report.hosts {
        describe_host(host, &mut said);
    }
    for used in &examination.used {
        describe_used(report, used, &mut said);
    }
    describe_calls(report, &mut said);
    describe_diagnostics(&examination.diagnostics, examination.healthy, &mut said);
    said
}

fn describe_host(host: &HostFacts, said: &mut Document) {
    said.heading(format!("host {}", host.name));
    said.pair("version", &host.version);
    let system = format!("Linux {}, {} processors", host.kernel, host.processors);
    said.pair("system", system);
    let locked = host.locked_memory;
    let locked = locked.map_or("unlimited".to_owned(), |bytes| format!("{bytes} bytes of"));
    let limits = format!("{} open files, {locked} locked memory", host.open_files);
    said.pair("limits", limits);
    for one in &host.interfaces {
        let mtu = one.mtu.map_or(String::new(), |mtu| format!(", MTU {mtu}"));
        let told = match host.told.contains(&one.address) {
            true => "",
            false => ", not passed to peers",
        };
        said.pair(&one.name, format!("{}{mtu}{told}", one.address));
    }
}

fn describe_used(report: &HostsReport, used: &HostConnection, said: &mut Document) {
    let name = |at: usize| report.hosts[at].name.as_str();
    let (dialer, peer) = (name(used.dialer), name(used.peer));
    said.heading(format!("{dialer} to {peer}"));
    let after = match used.after_s {
        0.0 => String::new(),
        seconds => format!(", after {seconds} s of waiting for addresses that do not answer"),
    };
    said.pair("a job would use", format!("{} to {}{after}", used.from, used.to));
    let is_it = |speed: &&Speed| speed.dialer == used.dialer && speed.peer == used.peer;
    let mut speeds = report.speeds.iter().filter_map(|speed| speed.as_ref().ok());
    let Some(speed) = speeds.find(is_it) else {
        return said.pair("measured", "nothing");
    };
    let [least, median] = speed.half_round_trip_us;
    let trips = format!("minimum {least:.1} us, median {median:.1} us");
    said.pair("half a round trip of 8 bytes, bare socket", trips);
    let [there, back] = speed.bandwidth_mb_s;
    said.pair("stream", format!("{there:.0} MB/s from {dialer}, {back:.0} MB/s from {peer}"));
    if let Some(mtu) = speed.path_mtu {
        said.pair("path MTU", format!("{mtu} bytes"));
    }
}

fn describe_calls(report: &HostsReport, said: &mut Document) {
    let mut table = Table::of("from<12|address<18|to<12|address<18|outcome<20");
    for (dialer, calls) in report.tried.iter().enumerate() {
        let name = |at: usize| report.hosts.get(at).map_or("?", |host| &host.name);
        for call in calls {
            let from = call.from.map_or("chosen by kernel".to_owned(), show_address);
            table.row([
                name(dialer).to_owned(),
                from,
                name(call.peer).to_owned(),
                show_address(call.to),
                describe_outcome(&call.outcome),
            ]);
        }
    }
    said.heading("connections by pair of addresses");
    said.table(table);
}

fn show_address(address: IpAddr) -> String {
    address.to_string()
}
