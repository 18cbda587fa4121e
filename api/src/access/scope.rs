//! The access that a route requires of its caller.

use dvp_domain::names::names;

names! {
    /// The permitted uses of a key.
    pub(crate) enum Scope {
        QuotesWrite = "quotes:write",
        IntentsWrite = "intents:write",
        ExecutionsRead = "executions:read",
        EventsRead = "events:read",
        ReportsRead = "reports:read",
        WebhooksWrite = "webhooks:write",
        RestingOrdersWrite = "resting_orders:write",
    }
}

/// Any one of these lets a key in.
pub(crate) type Scopes = &'static [Scope];

/// The credentials that a route requires.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Access {
    /// Open without a limit: health checks.
    Watched,
    /// Open, with a limit for each source.
    Open,
    Key(Scopes),
    /// The same, and the request signed.
    Signed(Scopes),
}
