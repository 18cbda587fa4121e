//! The access that a route requires of its caller.

/// The permitted uses of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    QuotesWrite,
    IntentsWrite,
    ExecutionsRead,
    EventsRead,
    ReportsRead,
    WebhooksWrite,
    RestingOrdersWrite,
}

impl Scope {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::QuotesWrite => "quotes:write",
            Self::IntentsWrite => "intents:write",
            Self::ExecutionsRead => "executions:read",
            Self::EventsRead => "events:read",
            Self::ReportsRead => "reports:read",
            Self::WebhooksWrite => "webhooks:write",
            Self::RestingOrdersWrite => "resting_orders:write",
        }
    }
}

/// Any one of these lets a key in.
pub(crate) type Scopes = &'static [Scope];

/// The credentials that a route requires.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Access {
    /// Nothing.
    Open,
    /// An API key with one of the scopes.
    Key(Scopes),
    /// The same, and the request signed.
    Signed(Scopes),
}
