//! Actions and results of a caller at a port of a rank ([`RankPage::knock`](crate::RankPage::knock)).

/// Action of a caller at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRequest {
    /// Register the call.
    Comes = 0,
    /// Check whether the call was accepted.
    Asks = 1,
    /// Withdraw the call after a timeout.
    Leaves = 2,
}

/// State of a call at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The call is not registered: another caller is registered, or this caller has withdrawn its call.
    Waits = 1,
    /// The call is registered and not yet accepted.
    Stands = 2,
    /// The call is accepted.
    LetIn = 3,
}
