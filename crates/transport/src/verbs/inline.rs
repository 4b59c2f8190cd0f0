//! Inline data: a payload that the processor copies to the descriptor. The adapter need not read it over the bus, and
//! the buffer may be reused as soon as the post returns.
//!
//! [`requested`] determines the requested size. The *granted* size, read from the queue pair, is the actual limit. An
//! outbound payload goes inline if all of it fits ([`decide`]). Reads and atomics have no outbound payload.

use super::device::DeviceContext;
use super::identity::DeviceIdentity;
use std::fmt;

/// Default of the requested inline size, in bytes: a message header and a short payload. On known adapters (mlx4,
/// mlx5), a descriptor for this size is at most four times as long as the smallest descriptor.
pub const DEFAULT_INLINE: u32 = 220;

/// Source of the requested size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The program requested it when it created the endpoint.
    Request,
    /// `FASTPATH_MAX_INLINE`.
    Environment,
    /// Size stored for this device by `fastpath tune inline`.
    Tuning,
    /// [`DEFAULT_INLINE`].
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Request => "request",
            Source::Environment => "FASTPATH_MAX_INLINE",
            Source::Tuning => "tuning",
            Source::Default => "default",
        })
    }
}

/// Inline size to request from a device, in bytes, and its source. The first argument with a size determines both.
pub fn requested(
    request: Option<u32>, environment: Option<u32>, tuning: Option<u32>,
) -> (u32, Source) {
    let first =
        [(request, Source::Request), (environment, Source::Environment), (tuning, Source::Tuning)]
            .into_iter()
            .find_map(|(value, source)| value.map(|value| (value, source)));
    first.unwrap_or((DEFAULT_INLINE, Source::Default))
}

/// Function that looks up the size stored for a device.
pub type Find<'a> = dyn Fn(&DeviceIdentity) -> Option<u32> + 'a;

/// Sources of the requested size, before a device is chosen.
#[derive(Clone, Copy, Default)]
pub struct Overrides<'a> {
    /// Size that the program requests, in bytes; `None` if it requests none.
    pub request: Option<u32>,
    /// Size from the user's variable, in bytes; `None` if it is not set.
    pub environment: Option<u32>,
    /// Stored size of the device; read only if neither `request` nor `environment` is set.
    pub stored: Option<&'a Find<'a>>,
}

impl Overrides<'_> {
    /// Inline size, in bytes, to request from this device, and the source of the size.
    pub fn settle(&self, context: &DeviceContext) -> (u32, Source) {
        let decided = self.request.is_some() || self.environment.is_some();
        let tuning = match self.stored {
            Some(find) if !decided => find(&DeviceIdentity::of(context)),
            _ => None,
        };
        requested(self.request, self.environment, tuning)
    }
}

/// Inline choice of one operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InlineChoice {
    /// Send inline if the payload fits.
    #[default]
    Auto,
    /// Send inline, or fail if the payload does not fit.
    Force,
    /// Never send inline.
    Forbid,
}

/// Reason why an operation with [`InlineChoice::Force`] is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InlineError {
    /// The payload has more bytes than were granted.
    TooLong {
        /// Bytes of the payload.
        bytes: u64,
        /// Bytes granted to the queue pair.
        granted: u32,
    },
    /// A read or an atomic has no outbound payload.
    NoPayload,
}

/// Whether a payload of `bytes` bytes goes inline.
///
/// # Errors
/// `choice` is `Force` and the payload cannot go inline.
#[inline]
pub fn decide(
    has_payload: bool, bytes: u64, granted: u32, choice: InlineChoice,
) -> Result<bool, InlineError> {
    let fits = has_payload && bytes <= granted as u64;
    match choice {
        InlineChoice::Auto => Ok(fits),
        InlineChoice::Forbid => Ok(false),
        InlineChoice::Force if fits => Ok(true),
        InlineChoice::Force if has_payload => Err(InlineError::TooLong { bytes, granted }),
        InlineChoice::Force => Err(InlineError::NoPayload),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn requested__the_first_that_is_there_decides() {
        let layers =
            [(Some(0), Source::Request), (Some(1), Source::Environment), (Some(2), Source::Tuning)];
        for present in 0..8 {
            let value = |index: usize| layers[index].0.filter(|_| present & (1 << index) != 0);
            let expected = (0..3)
                .find_map(|index| value(index).map(|bytes| (bytes, layers[index].1)))
                .unwrap_or((DEFAULT_INLINE, Source::Default));
            assert_eq!(requested(value(0), value(1), value(2)), expected, "{present:03b}");
        }
    }

    #[test]
    fn overrides__use_stored_values_only_by_default() {
        let context = super::super::fake::open();
        let asked = std::cell::RefCell::new(Vec::new());
        let find = |identity: &DeviceIdentity| {
            asked.borrow_mut().push(identity.name.clone());
            Some(96)
        };
        let of = |request, environment| {
            let overrides = Overrides { request, environment, stored: Some(&find) };
            overrides.settle(&context)
        };
        assert_eq!(of(Some(7), None), (7, Source::Request));
        assert_eq!(of(None, Some(8)), (8, Source::Environment));
        assert_eq!(asked.borrow().len(), 0);
        assert_eq!(of(None, None), (96, Source::Tuning));
        assert_eq!(*asked.borrow(), ["fake0"]);
        let nothing = Overrides::default().settle(&context);
        assert_eq!(nothing, (DEFAULT_INLINE, Source::Default));
    }

    #[test]
    fn decide__at_the_granted_size_and_one_more() {
        use InlineChoice::*;
        for granted in [0, 1, 28, 220, 448] {
            let g = granted as u64;
            let cases = [
                (g, Auto, Ok(true)),
                (g + 1, Auto, Ok(false)),
                (0, Auto, Ok(true)),
                (g, Forbid, Ok(false)),
                (0, Forbid, Ok(false)),
                (g, Force, Ok(true)),
                (g + 1, Force, Err(InlineError::TooLong { bytes: g + 1, granted })),
            ];
            for (bytes, choice, expected) in cases {
                assert_eq!(
                    decide(true, bytes, granted, choice),
                    expected,
                    "{bytes} of {granted} {choice:?}"
                );
            }
            for bytes in [0, 8, g] {
                assert_eq!(decide(false, bytes, granted, Auto), Ok(false));
                assert_eq!(decide(false, bytes, granted, Force), Err(InlineError::NoPayload));
            }
        }
    }
}
