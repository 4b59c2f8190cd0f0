//! Messages between ranks and the launcher of a running job: spawns, and names of services.
//!
//! The launcher listens on an abstract Unix socket, named by the job's number. A rank connects for each request, writes
//! one [`Request`], and reads one [`Answer`]. Each side checks that the other one belongs to the same user.
//!
//! | module | contents |
//! |---|---|
//! | [`message`] | requests and answers as bytes (pure) |
//! | [`names`] | published services (pure) |
//! | [`client`] | a rank's side of the socket |

pub mod client;
pub mod message;
pub mod names;

pub use fastpath_segment::{CallOutcome, PortRequest};
pub use message::{Answer, Cause, Foreign, Program, Request, WorldFailure};
pub use names::ServiceNames;

/// Largest message, in bytes, without its length prefix. Far above the kernel's limit on a process's arguments.
pub const MESSAGE_MOST: usize = 16 << 20;

const SOCKET_PREFIX: &str = "fastpath-";

/// Returns the name of a job's socket in the abstract namespace.
pub fn socket_name(job_id: u64) -> String {
    format!("{SOCKET_PREFIX}{job_id:016x}")
}

/// Returns the message, preceded by its length.
pub fn frame(message: &[u8]) -> Vec<u8> {
    let mut framed = (message.len() as u32).to_le_bytes().to_vec();
    framed.extend_from_slice(message);
    framed
}

/// Error of a length above [`MESSAGE_MOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Returns the message at the start of `bytes`; `None` until all of it has arrived.
///
/// # Errors
/// The stated length is above [`MESSAGE_MOST`].
pub fn unframe(bytes: &[u8]) -> Result<Option<&[u8]>, TooLong> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    match u32::from_le_bytes(*length) as usize {
        length if length > MESSAGE_MOST => Err(TooLong),
        length => Ok(rest.get(..length)),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn frame__is_whole_or_not_there_yet() {
        let framed = frame(b"abc");
        for end in 0..framed.len() {
            assert_eq!(unframe(&framed[..end]), Ok(None));
        }
        assert_eq!(unframe(&framed), Ok(Some(&b"abc"[..])));
        assert_eq!(unframe(&frame(b"")), Ok(Some(&b""[..])));
        assert_eq!(unframe(&u32::MAX.to_le_bytes()), Err(TooLong));
    }
}
