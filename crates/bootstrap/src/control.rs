//! What ranks and the launcher say to each other while a job runs: processes to be started, names of services.
//!
//! The launcher listens on an abstract Unix socket whose name comes from the job's number. A rank connects when it has
//! something to ask, writes one [`Request`], and reads one [`Answer`]. Both look who the other one is.
//!
//! | module | holds |
//! |---|---|
//! | [`message`] | requests and answers as bytes (pure) |
//! | [`names`] | the services that are published (pure) |
//! | [`client`] | a rank's side of the socket |

pub mod client;
pub mod message;
pub mod names;

pub use message::{Answer, Cause, Foreign, Knocked, Program, Request, Visit, WorldFailure};
pub use names::Names;

/// Most bytes of a message without its length: far more than a kernel takes as arguments of one process.
pub const MESSAGE_MOST: usize = 16 << 20;

/// How the names of jobs' sockets begin.
const SOCKET_PREFIX: &str = "fastpath-";

/// The name of a job's socket, in the abstract namespace.
pub fn socket_name(job_id: u64) -> String {
    format!("{SOCKET_PREFIX}{job_id:016x}")
}

/// A message with its length in front.
pub fn frame(message: &[u8]) -> Vec<u8> {
    let mut framed = (message.len() as u32).to_le_bytes().to_vec();
    framed.extend_from_slice(message);
    framed
}

/// No message is so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// The message that `bytes` begin with, once all of it is there.
///
/// # Errors
/// It says that it is longer than any message.
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
