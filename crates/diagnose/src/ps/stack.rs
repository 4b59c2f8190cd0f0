//! Finds where another process is: the executing function, and the line of its program that called it.
//!
//! `ptrace` stops the process while its registers and the top of its stack are read; it continues before symbols are
//! resolved. A word on the stack counts as a return address if it points into program code, right behind a call
//! instruction. This works for any build. A name needs a symbol, a line needs debug information.
#![allow(unsafe_code)]

use super::fortran::read_symbol;
use super::memory::read_memory;
use super::python::{describe_frames, find_interpreter};
use addr2line::Loader;
use object::{Object, ObjectSegment};
use std::fs;
use std::io;
use std::path::Path;

const STACK_BYTES: usize = 64 << 10;

/// Clock ticks of the kernel's accounting per second.
pub(super) fn ticks_per_second() -> f64 {
    // SAFETY: sysconf takes no pointers.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) as f64 }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Code {
    start: u64,
    end: u64,
    offset: u64,
    path: String,
}

/// Finds the function that a process executes, and the line of its own program that called it. If the process runs
/// Python, the frames of its first thread come first.
///
/// # Errors
/// The process may not be inspected, or the processor type is not supported.
pub(super) fn find_place(pid: i32) -> Result<String, String> {
    let interpreter = find_interpreter(pid);
    let (compiled, frames) = find_compiled_place(pid, || {
        interpreter.as_ref().map(|interpreter| interpreter.read_frames(pid))
    })?;
    Ok(match frames {
        None => compiled,
        Some(Ok(frames)) => {
            format!("{}; its compiled code is in {compiled}", describe_frames(&frames))
        }
        Some(Err(why)) => format!("{compiled} ({why})"),
    })
}

/// Finds the compiled function that a process executes. Calls `act` while the process is stopped.
fn find_compiled_place<T>(pid: i32, act: impl FnOnce() -> T) -> Result<(String, T), String> {
    let program = fs::read_link(format!("/proc/{pid}/exe")).map_err(|e| e.to_string())?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).map_err(|e| e.to_string())?;
    let code = parse_maps(&maps);
    let (place, stack, acted) = with_stopped(pid, |registers| {
        let (place, top) = place_and_top(registers);
        (place, read_memory(pid, top, STACK_BYTES), act())
    })?;
    let program = program.to_string_lossy();
    let innermost = code.iter().find(|c| c.contains(place));
    if innermost.is_some_and(|c| c.path == program) {
        return Ok((name_place(innermost, place), acted));
    }
    let words = stack.chunks_exact(8).filter_map(|w| Some(u64::from_le_bytes(w.try_into().ok()?)));
    let returns = words.filter(|&word| {
        let own = code.iter().any(|c| c.contains(word) && c.path == program);
        own && follows_call(pid, word)
    });
    let mut named = returns.map(|word| {
        let found = code.iter().find(|c| c.contains(word));
        name_place(found, word - 1)
    });
    let inner = name_place(innermost, place);
    let place = match named.next() {
        Some(outer) => format!("{inner}, called by {outer}"),
        None => inner,
    };
    Ok((place, acted))
}

impl Code {
    fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

fn parse_maps(text: &str) -> Vec<Code> {
    let parse = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let access = fields.next()?;
        let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
        let path = line.get(line.find('/')?..)?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        access.contains('x').then_some(Code {
            start: hex(start)?,
            end: hex(end)?,
            offset,
            path: path.to_owned(),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Function, file and line of an address, as far as the file has them.
fn name_place(code: Option<&Code>, address: u64) -> String {
    let Some(code) = code else {
        return format!("code without a file, at {address:#x}");
    };
    let file = Path::new(&code.path);
    let short = file.file_name().unwrap_or_default().to_string_lossy();
    let unknown = || format!("{short} at {:#x}", address - code.start + code.offset);
    let Ok(loader) = Loader::new(file) else {
        return unknown();
    };
    let at = to_static(&fs::read(file).unwrap_or_default(), code, address);
    let function = loader.find_frames(at).ok().and_then(|mut frames| {
        let frame = frames.next().ok()??;
        Some(frame.function?.demangle().ok()?.into_owned())
    });
    let function = function.or_else(|| loader.find_symbol(at).map(str::to_owned));
    let function = function.map(|symbol| read_symbol(&symbol).unwrap_or(symbol));
    let line = loader.find_location(at).ok().flatten();
    let line = line.and_then(|l| Some(format!("{}:{}", l.file?, l.line?)));
    match (function, line) {
        (Some(function), Some(line)) => format!("{function} ({line})"),
        (Some(function), None) => format!("{function} ({short})"),
        (None, _) => unknown(),
    }
}

/// Converts an address to that in the ELF file, by the segment that holds its file offset.
fn to_static(elf: &[u8], code: &Code, address: u64) -> u64 {
    let in_file = address - code.start + code.offset;
    let Ok(file) = object::File::parse(elf) else {
        return in_file;
    };
    let found = file.segments().find_map(|segment| {
        let (offset, bytes) = segment.file_range();
        let within = in_file.checked_sub(offset).filter(|at| *at < bytes)?;
        Some(segment.address().wrapping_add(within))
    });
    found.unwrap_or(in_file)
}

#[cfg(target_arch = "x86_64")]
type Registers = libc::user_regs_struct;
#[cfg(not(target_arch = "x86_64"))]
type Registers = ();

/// Program counter and stack pointer.
fn place_and_top(registers: &Registers) -> (u64, u64) {
    #[cfg(target_arch = "x86_64")]
    return (registers.rip, registers.rsp);
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = registers;
        (0, 0)
    }
}

/// Stops a process, passes its registers to `act`, and continues it.
fn with_stopped<T>(pid: i32, act: impl FnOnce(&Registers) -> T) -> Result<T, String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("stacks can be read only on x86-64".to_owned());
    }
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: each call gets the arguments that ptrace(2) names; the structure outlives the call.
    unsafe {
        if libc::ptrace(libc::PTRACE_SEIZE, pid, none, none) != 0 {
            return Err(explain_refusal(&io::Error::last_os_error()));
        }
        let result = read_registers(pid).map(|registers| act(&registers));
        libc::ptrace(libc::PTRACE_DETACH, pid, none, none);
        result.map_err(|e| e.to_string())
    }
}

/// # Safety
/// The process has been seized.
unsafe fn read_registers(pid: i32) -> io::Result<Registers> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: each call gets the arguments that ptrace(2) names; all zeros is a valid register structure, which
    // outlives the call.
    unsafe {
        if libc::ptrace(libc::PTRACE_INTERRUPT, pid, none, none) != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut status = 0;
        if libc::waitpid(pid, &mut status, libc::__WALL) != pid {
            return Err(io::Error::last_os_error());
        }
        let mut registers: Registers = std::mem::zeroed();
        #[cfg(target_arch = "x86_64")]
        if libc::ptrace(libc::PTRACE_GETREGS, pid, none, &raw mut registers) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(registers)
    }
}

fn explain_refusal(cause: &io::Error) -> String {
    match cause.raw_os_error() {
        Some(libc::EPERM) => "the kernel refuses ptrace: detach other debuggers, or set \
            /proc/sys/kernel/yama/ptrace_scope to 0"
            .to_owned(),
        _ => cause.to_string(),
    }
}

/// Whether the bytes before an address in another process are a call (x86-64: E8 with a distance, or FF /2).
fn follows_call(pid: i32, address: u64) -> bool {
    let Some(from) = address.checked_sub(7) else {
        return false;
    };
    let before = read_memory(pid, from, 7);
    let [a, b, c, d, e, f, g] = before[..] else {
        return false;
    };
    let is_indirect = |opcode: u8, mode: u8| opcode == 0xff && mode >> 3 & 7 == 2;
    let far = [(a, b), (b, c), (c, d), (d, e), (e, f), (f, g)];
    c == 0xe8 || far.iter().any(|&(opcode, mode)| is_indirect(opcode, mode))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn maps__give_the_code_of_files() {
        let text = "55d0-55e0 r-xp 00002000 08:01 12   /usr/bin/a b\n\
                    55e0-55f0 rw-p 00003000 08:01 12   /usr/bin/a b\n\
                    7f00-7f10 r-xp 00000000 00:00 0    [vdso]\nx\n";
        let code =
            Code { start: 0x55d0, end: 0x55e0, offset: 0x2000, path: "/usr/bin/a b".to_owned() };
        assert_eq!(parse_maps(text), [code]);
    }

    #[test]
    fn place__has_the_name_of_its_function() {
        let own = std::process::id() as i32;
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let code = parse_maps(&maps);
        let address = place__has_the_name_of_its_function as fn() as usize as u64;
        let found = code.iter().find(|c| c.contains(address));
        let name = name_place(found, address);
        assert!(name.contains("place__has_the_name_of_its_function"), "{name}");
        assert!(name.contains("stack.rs:"), "{name}");
        let bytes = 7_u64.to_le_bytes();
        assert_eq!(read_memory(own, bytes.as_ptr() as u64, 8), bytes);
        assert!(read_memory(own, 0, 8).is_empty());
        assert!(name_place(None, 1).contains("0x1"));
    }

    #[test]
    fn process__that_is_another_is_stopped_read_and_goes_on() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id() as i32;
        let place = find_place(pid);
        // The inspection must not have ended the child, nor left it stopped.
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
        if let Err(why) = place {
            assert!(why.contains("ptrace"), "{why}");
        }
        assert!(find_place(0).is_err());
    }
}
