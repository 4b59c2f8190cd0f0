#![allow(non_snake_case)]

use super::lines::LineTable;
use super::*;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Programs of the supported versions on the path and in pyenv's folder, by minor version.
fn list_interpreters() -> BTreeMap<u32, PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let versions = fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    // A launcher of pyenv exists for every version, and fails for those that are not selected.
    folders.retain(|folder| !folder.ends_with("shims"));
    let program = |minor| {
        let mut places = folders.iter().map(|folder| folder.join(format!("python3.{minor}")));
        places.find(|place| place.is_file()).map(|place| (minor, place))
    };
    (9..=14).filter_map(program).collect()
}

const PROGRAM: &str = "
import sys, threading, time

def wait(seconds):
    time.sleep(0 *
               seconds)
    print('ready', flush=True)
    for name in 'a':
        time.sleep(
            seconds)

class Gr\u{f6}\u{df}e:
    def compute(self):
        list(map(wait, [20]))

threading.Thread(target=time.sleep, args=[60], daemon=True).start()
Gr\u{f6}\u{df}e().compute()
";

#[test]
fn frames__of_every_interpreter_here__are_read_from_outside() {
    let folder = std::env::temp_dir().join(format!("fastpath-python-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let script = folder.join("pr\u{f6}gram.py");
    fs::write(&script, PROGRAM).unwrap();
    let found = list_interpreters();
    assert!(!found.is_empty(), "no Python 3.9 to 3.14 is installed; tests/setup installs python3");
    for (&minor, program) in &found {
        let mut child = Command::new(program).arg(&script).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let pid = child.id() as i32;
        let interpreter = find_interpreter(pid).expect("the process runs Python");
        assert_eq!(interpreter.minor, minor);
        // The thread is about to sleep in the last line of the loop.
        let mut frames = interpreter.read_frames(pid);
        while child.try_wait().unwrap().is_none() {
            let is_there = |frames: &Vec<PythonFrame>| frames[0].line == Some(9);
            if frames.as_ref().is_ok_and(is_there) {
                break;
            }
            frames = interpreter.read_frames(pid);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let frames = frames.unwrap();
        let file = script.display();
        let class = if minor < 11 { "" } else { "Gr\u{f6}\u{df}e." };
        assert_eq!(
            describe_frames(&frames),
            format!(
                "wait ({file}:9), called by {class}compute ({file}:14), called by <module> \
                 ({file}:17)"
            ),
            "{}",
            program.display()
        );
        println!("read frames of {}", program.display());
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn process__without_python__has_no_interpreter() {
    assert!(find_interpreter(std::process::id() as i32).is_none());
    assert!(find_interpreter(0).is_none());
}

#[test]
fn layout__of_another_version_or_build__is_refused() {
    let offsets = |version: u64, is_free: u64| {
        move |words: usize| {
            let head = [u64::from_le_bytes(*b"xdebugpy"), version, is_free];
            Some(head.into_iter().chain(3..).take(words).collect::<Vec<u64>>())
        }
    };
    for minor in [8, 15] {
        assert!(Layout::of(minor, |_| None).unwrap_err().contains("are not known"));
    }
    assert!(Layout::of(9, |_| None).is_ok());
    assert!(Layout::of(13, |_| None).unwrap_err().contains("cannot be read"));
    assert!(Layout::of(13, offsets(0x030d_00f0, 1)).unwrap_err().contains("free-threaded"));
    assert!(Layout::of(13, offsets(0x030e_00f0, 0)).unwrap_err().contains("not those"));
    let layout = Layout::of(13, offsets(0x030d_00f0, 0)).unwrap();
    assert_eq!((layout.interpreters, layout.threads, layout.code_start), (5, 9, Some(43)));
}

#[test]
fn line__of_every_format() {
    let bytes = |offset| LineTable::Bytes.find(&[0, 1, 6, 2, 4, 0xff], 10, offset);
    assert_eq!([0, 5, 6, 9, 10, 99].map(bytes), [11, 11, 13, 13, 12, 12].map(Some));
    let ranges = |offset| LineTable::Ranges.find(&[4, 1, 2, 0x80, 0, 3, 2, 1], 10, offset);
    assert_eq!([0, 1, 2, 3, 4].map(ranges), [Some(11), Some(11), None, Some(15), None]);
    // Two instructions in the next line, one without a line, one in the line before.
    let table = [0x80 | 11 << 3 | 1, 0, 0, 0x80 | 15 << 3, 0x80 | 13 << 3, 3];
    let locations = |offset| LineTable::Locations.find(&table, 10, offset);
    assert_eq!([0, 2, 4, 6, 8].map(locations), [Some(11), Some(11), None, Some(10), None]);
    // The long form: a line 36 later, a last line, and two columns.
    let table = [0x80 | 11 << 3 | 1, 0, 0, 0x80 | 14 << 3, 0x48, 1, 1, 0, 0, 0x80 | 13 << 3, 3];
    let locations = |offset| LineTable::Locations.find(&table, 10, offset);
    assert_eq!([0, 2, 4, 6, 8].map(locations), [Some(11), Some(11), Some(47), Some(46), None]);
    // Lines out of range, as in memory that changes while it is read: twice the largest increment.
    let most = [0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x0f];
    let table = [&[0x80 | 13 << 3][..], &most, &[0x80 | 13 << 3], &most].concat();
    assert_eq!(LineTable::Locations.find(&table, 10, 2), None);
}
