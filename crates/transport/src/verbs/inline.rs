//! Inline data: a payload that the processor copies into the descriptor, so that the adapter need not
//! fetch it over the bus, and the buffer may be reused as soon as the post returns.
//!
//! How much is asked for is decided here ([`requested`]); what the device *granted* is read back from
//! the queue pair and is what counts. Each operation with an outbound payload goes inline when all of
//! it fits ([`decide`]); reads and atomics have none.

use super::device::DeviceContext;
use super::identity::Identity;
use std::fmt;

/// Asked for where nobody says anything, in bytes: the header of a message and the payload of a short one
/// fit, while on the adapters known (mlx4, mlx5) the descriptor grows to no more than four times the least.
pub const DEFAULT_INLINE: u32 = 220;

/// Who decided how much is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The program, when it made the endpoint.
    Request,
    /// `FASTPATH_MAX_INLINE`.
    Environment,
    /// What was stored for this device by `fastpath tune inline`.
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

/// How much inline data to ask a device for, in bytes, and who said so: the first of these that is there.
pub fn requested(
    request: Option<u32>, environment: Option<u32>, tuning: Option<u32>,
) -> (u32, Source) {
    let first =
        [(request, Source::Request), (environment, Source::Environment), (tuning, Source::Tuning)]
            .into_iter()
            .find_map(|(value, source)| value.map(|value| (value, source)));
    first.unwrap_or((DEFAULT_INLINE, Source::Default))
}

/// Finds the size that was stored for a device.
pub type Find<'a> = dyn Fn(&Identity) -> Option<u32> + 'a;

/// What is known of how much to ask for before a device is chosen.
#[derive(Clone, Copy, Default)]
pub struct Overrides<'a> {
    /// The program's request.
    pub request: Option<u32>,
    /// The user's variable.
    pub environment: Option<u32>,
    /// What was stored for the device; asked only where nobody above says anything.
    pub stored: Option<&'a Find<'a>>,
}

impl Overrides<'_> {
    /// How much to ask this device for, and who said so.
    pub fn settle(&self, context: &DeviceContext) -> (u32, Source) {
        let decided = self.request.is_some() || self.environment.is_some();
        let tuning = match self.stored {
            Some(find) if !decided => find(&Identity::of(context)),
            _ => None,
        };
        requested(self.request, self.environment, tuning)
    }
}

/// How one operation wants it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InlineChoice {
    /// Inline if it fits.
    #[default]
    Auto,
    /// Inline, or refused.
    Force,
    /// Never inline.
    Forbid,
}

/// Why an operation that must go inline cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InlineRefused {
    /// More bytes than were granted.
    TooLong {
        /// The payload.
        bytes: u64,
        /// What the queue pair was granted.
        granted: u32,
    },
    /// A read or an atomic: nothing goes out.
    NoPayload,
}

/// Whether a payload of `bytes` in all goes inline.
///
/// # Errors
/// It was to be forced and cannot be.
#[inline]
pub fn decide(
    has_payload: bool, bytes: u64, granted: u32, choice: InlineChoice,
) -> Result<bool, InlineRefused> {
    let fits = has_payload && bytes <= granted as u64;
    match choice {
        InlineChoice::Auto => Ok(fits),
        InlineChoice::Forbid => Ok(false),
        InlineChoice::Force if fits => Ok(true),
        InlineChoice::Force if has_payload => Err(InlineRefused::TooLong { bytes, granted }),
        InlineChoice::Force => Err(InlineRefused::NoPayload),
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
    fn overrides__ask_for_what_is_stored_only_where_nobody_says_anything() {
        let context = super::super::fake::open();
        let asked = std::cell::RefCell::new(Vec::new());
        let find = |identity: &Identity| {
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
                (g + 1, Force, Err(InlineRefused::TooLong { bytes: g + 1, granted })),
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
                assert_eq!(decide(false, bytes, granted, Force), Err(InlineRefused::NoPayload));
            }
        }
    }
}
