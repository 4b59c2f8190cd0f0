//! Measures the time of a full explanation, from the start of the process to its end. It runs each command of
//! docs/explained.md that needs no device, as text and with a page. Build: `cargo build --profile quick -p
//! fastpath-toolbox -p fastpath-explain --bin fastpath --example explanations`. Run:
//! `target/quick/examples/explanations target/quick/fastpath`.

use std::error::Error;
use std::process::{Command, Stdio};
use std::time::Instant;

const PAGE: &str = include_str!("../../../docs/explained.md");
const RUNS: usize = 25;

fn time_ms(program: &str, words: &[&str]) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    let status = Command::new(program)
        .args(words)
        .args(["--html", "/dev/null"])
        .stdout(Stdio::null())
        .status()?;
    let took = start.elapsed().as_secs_f64() * 1e3;
    match status.success() {
        true => Ok(took),
        false => Err(format!("{words:?}: {status}").into()),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let program = std::env::args().nth(1).ok_or("expected: the path of fastpath")?;
    let commands =
        ["bandwidth", "latency", "cliff"].map(|what| format!("fastpath explain {what} "));
    let is_whole = |line: &&str| commands.iter().any(|command| line.starts_with(command));
    let (mut slowest, mut count) = (0.0f64, 0);
    for line in PAGE.lines().filter(is_whole) {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        let mut times = Vec::new();
        for _ in 0..RUNS {
            times.push(time_ms(&program, &words)?);
        }
        times.sort_by(f64::total_cmp);
        let (least, median, most) = (times[0], times[RUNS / 2], times[RUNS - 1]);
        println!("{least:6.1} {median:6.1} {most:6.1} ms  {}", words.join(" "));
        (slowest, count) = (slowest.max(median), count + 1);
    }
    println!(
        "{count} commands, least, median and most of {RUNS} runs; slowest median {slowest:.1} ms"
    );
    Ok(())
}
