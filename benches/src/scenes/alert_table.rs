//! The drill of alerts as a table: what is broken, which alerts must fire, which others may follow, and which stay on.
//!
//! `tests/deploy.rs` compares it with the rules and with the pages in `docs/runbooks`.

/// What is broken from outside of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    ExpiringCertificate,
    FrozenNode,
    AnchorBacklog,
    UnavailableDatabase,
    SilentBank,
    LowBalance,
    UsedLimit,
    PriceOutsideItsBand,
    RefusedDeletion,
    MissingTable,
    RefusedRow,
    UnwritableStep,
    SlowCommits,
    FullQueue,
    HeldEndpoint,
    HeldFeed,
    HeldFigures,
    HeldLeases,
    HeldReads,
    HeldLedgerCheck,
    HeldTransactions,
    ExpensiveGas,
    ChangedBalance,
    EndedProcess,
    RefusedFixOrder,
    SlowFixOrders,
    DisagreeingEndpoints,
    UnreadableList,
    SilentSigner,
    FullBacklog,
    UnreadableFile,
    BankCharge,
    ReturnedPayment,
    Contradiction,
    OverduePayout,
    Debt,
    OtherTerms,
    LostFill,
    DeepFork,
}

/// The sandbox that a cause needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SceneKind {
    /// As it is.
    Plain,
    /// With bank files, a screening list, a remote signer and a second endpoint of the chain.
    Equipped,
}

#[derive(Debug, Clone, Copy)]
pub struct Expected {
    pub cause: Cause,
    pub name: &'static str,
    pub ground: SceneKind,
    /// All of these fire, and their pages are carried out.
    pub alerts: &'static [&'static str],
    /// These may fire, too; no other may.
    pub may_follow: &'static [&'static str],
    /// These may be on after the remedy, until the sandbox ends.
    pub stays: &'static [&'static str],
}

const fn row(
    cause: Cause,
    ground: SceneKind,
    name: &'static str,
    alerts: &'static [&'static str],
    may_follow: &'static [&'static str],
) -> Expected {
    Expected { cause, name, ground, alerts, may_follow, stays: &[] }
}

impl Expected {
    const fn leaving(self, stays: &'static [&'static str]) -> Self {
        Self { stays, ..self }
    }
}

use Cause as C;
use SceneKind::{Equipped, Plain};

/// So many causes, the first ones, are the short form of the drill.
pub const SHORT: usize = 5;

/// In the order of the drill: those that leave traces are the last ones of their sandbox.
pub const CAUSES: [Expected; 39] = [
    row(
        C::ExpiringCertificate,
        Plain,
        "a certificate that expires tomorrow",
        &["DvpCertificateExpires"],
        &[],
    ),
    row(
        C::FrozenNode,
        Plain,
        "the chain's node is suspended",
        &["DvpChainStalled"],
        &["DvpLeaseWithoutOwner", "DvpPriceRefused"],
    ),
    row(C::AnchorBacklog, Plain, "the anchor's contract refuses every call", &["DvpAnchorBacklog"], &[]),
    row(
        C::UnavailableDatabase,
        Plain,
        "the database's processes are suspended",
        &["DvpDatabaseUnavailable"],
        &["DvpFiguresStale", "DvpLeaseWithoutOwner"],
    ),
    row(C::SilentBank, Plain, "the bank takes a payment and never answers", &["DvpRailSilent"], &[]),
    row(
        C::LowBalance,
        Plain,
        "the relayer's account has one wei, and an order waits for it",
        &["DvpRelayerLowBalance", "DvpRelayerStuck", "DvpSettlementSlow"],
        &["DvpCommandsWaiting"],
    ),
    row(C::UsedLimit, Plain, "a limit that one order nearly uses up", &["DvpLimitNearlyUsed"], &[]),
    row(C::PriceOutsideItsBand, Plain, "a band that no price is in", &["DvpPriceRefused"], &[]),
    row(C::RefusedDeletion, Plain, "the database refuses a deletion by age", &["DvpRetentionFails"], &[]),
    row(C::MissingTable, Plain, "the table of receipts is missing", &["DvpInternalErrors"], &[]),
    row(
        C::RefusedRow,
        Plain,
        "the database refuses an intent's data",
        &["DvpDataRefused", "DvpAcceptanceFailing"],
        &["DvpInternalErrors"],
    ),
    row(
        C::UnwritableStep,
        Plain,
        "the database refuses the steps of an order",
        &["DvpUnwritableWork"],
        &["DvpDataRefused", "DvpSettlementSlow"],
    ),
    row(
        C::SlowCommits,
        Plain,
        "commits of orders take 2 s",
        &["DvpAcceptanceSlow", "DvpCommitSlow"],
        &["DvpSettlementSlow"],
    ),
    row(
        C::FullQueue,
        Plain,
        "a partner sends more orders than its share of the queue takes",
        &["DvpQueueFull"],
        &["DvpAcceptanceFailing", "DvpAcceptanceSlow", "DvpCommitSlow", "DvpSettlementSlow"],
    ),
    row(
        C::HeldEndpoint,
        Plain,
        "a webhook endpoint is leased by nobody that sends",
        &["DvpWebhooksBehind"],
        &[],
    ),
    row(
        C::HeldFeed,
        Plain,
        "the webhooks' place in the feed is locked",
        &["DvpFeedBehind"],
        &["DvpWebhooksBehind"],
    ),
    row(
        C::HeldFigures,
        Plain,
        "the queue of webhooks is locked",
        &["DvpFiguresStale"],
        &["DvpFeedBehind", "DvpWebhooksBehind"],
    ),
    row(
        C::HeldLeases,
        Plain,
        "the leases are locked",
        &["DvpLeaseWithoutOwner"],
        &["DvpChainStalled", "DvpCommandsWaiting", "DvpFiguresStale", "DvpSettlementSlow"],
    ),
    row(
        C::HeldReads,
        Plain,
        "the executions are locked, and many read them",
        &["DvpPoolExhausted"],
        &["DvpCommitSlow", "DvpFiguresStale", "DvpInternalErrors", "DvpSettlementSlow"],
    ),
    row(
        C::HeldLedgerCheck,
        Plain,
        "the ledger's balances are locked",
        &["DvpLedgerUnchecked"],
        &["DvpCommitSlow", "DvpSettlementSlow"],
    ),
    row(
        C::HeldTransactions,
        Plain,
        "the table of transactions is locked, and an order waits for it",
        &["DvpCommandsWaiting"],
        &["DvpChainStalled", "DvpLeaseWithoutOwner", "DvpRelayerStuck", "DvpSettlementSlow"],
    ),
    row(
        C::ExpensiveGas,
        Plain,
        "gas costs more than the cap",
        &["DvpRelayerFeeCapped"],
        &["DvpCommandsWaiting", "DvpRelayerStuck", "DvpSettlementSlow"],
    ),
    row(
        C::ChangedBalance,
        Plain,
        "a balance is changed past the database's checks",
        &["DvpLedgerWrong"],
        &[],
    ),
    // A killed process keeps its leases until they end, which may be after its restart.
    row(C::EndedProcess, Plain, "the process is gone", &["DvpDown"], &["DvpLeaseWithoutOwner"]),
    row(
        C::RefusedFixOrder,
        Equipped,
        "the database refuses the orders of a FIX session",
        &["DvpDataRefused", "DvpAcceptanceFailing"],
        &[],
    ),
    row(
        C::SlowFixOrders,
        Equipped,
        "commits of orders over FIX take 2 s",
        &["DvpAcceptanceSlow", "DvpCommitSlow"],
        &["DvpSettlementSlow"],
    ),
    row(
        C::DisagreeingEndpoints,
        Equipped,
        "an endpoint returns a block without its events",
        &["DvpChainEndpointsDisagree"],
        &["DvpSettlementSlow"],
    ),
    row(C::UnreadableList, Equipped, "the screening list is gone", &["DvpScreeningFails"], &[]),
    row(
        C::SilentSigner,
        Equipped,
        "the remote signer does not answer",
        &["DvpSignerDown"],
        &["DvpCommandsWaiting", "DvpSettlementSlow"],
    ),
    row(
        C::FullBacklog,
        Equipped,
        "a hundred thousand commands wait for the chain",
        &["DvpOrdersRefusedForBacklog"],
        &[],
    ),
    row(C::UnreadableFile, Equipped, "the bank sends a file that nobody can read", &["DvpBankAlarm"], &[]),
    row(C::BankCharge, Equipped, "the bank charges a fee that nobody has booked", &["DvpBreak"], &[]),
    row(
        C::ReturnedPayment,
        Equipped,
        "the bank pays, and returns the payment",
        &["DvpPaymentReturned"],
        &["DvpBankAlarm", "DvpBreak"],
    ),
    row(
        C::Contradiction,
        Equipped,
        "the bank says paid, and then refused",
        &["DvpPaymentContradicted"],
        &["DvpBankAlarm", "DvpBreak"],
    ),
    row(
        C::OverduePayout,
        Equipped,
        "a payout without an answer is past its time",
        &["DvpPayoutOverdue"],
        &["DvpBankAlarm", "DvpBreak"],
    ),
    row(
        C::Debt,
        Equipped,
        "a lock is settled while its payout has no answer",
        &["DvpDebt"],
        &["DvpBankAlarm", "DvpBreak", "DvpPayoutOverdue"],
    ),
    row(
        C::OtherTerms,
        Equipped,
        "the chain reports another amount than the order's",
        &["DvpFactDiffers"],
        &["DvpBreak", "DvpSettlementSlow"],
    )
    .leaving(&["DvpBreak", "DvpSettlementSlow"]),
    row(
        C::LostFill,
        Equipped,
        "a fork takes back the commitment to a payout",
        &["DvpFillLost"],
        &["DvpBreak", "DvpPayoutOverdue"],
    )
    .leaving(&["DvpBreak"]),
    row(
        C::DeepFork,
        Equipped,
        "a fork replaces final blocks",
        &["DvpChainHalted"],
        &["DvpBreak", "DvpChainStalled", "DvpCommandsWaiting", "DvpSettlementSlow", "DvpUnwritableWork"],
    )
    .leaving(&["DvpBreak"]),
];
