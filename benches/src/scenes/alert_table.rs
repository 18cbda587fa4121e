//! The drill of alerts as a table: what is broken, which alerts must fire, which others may follow, and which stay on.
//!
//! `tests/deploy.rs` compares it with the rules and with the pages in `docs/runbooks`.

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
    OtherConfiguration,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SceneKind {
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

/// A cause in a sandbox as it is.
const fn plain(cause: Cause, name: &'static str) -> Expected {
    Expected { cause, name, ground: SceneKind::Plain, alerts: &[], may_follow: &[], stays: &[] }
}

const fn equipped(cause: Cause, name: &'static str) -> Expected {
    Expected { ground: SceneKind::Equipped, ..plain(cause, name) }
}

impl Expected {
    const fn raises(self, alerts: &'static [&'static str]) -> Self {
        Self { alerts, ..self }
    }

    const fn may_follow(self, may_follow: &'static [&'static str]) -> Self {
        Self { may_follow, ..self }
    }

    const fn leaves(self, stays: &'static [&'static str]) -> Self {
        Self { stays, ..self }
    }
}

use Cause as C;

/// So many causes, the first ones, are the short form of the drill.
pub const SHORT: usize = 5;

/// In the order of the drill: those that leave traces are the last ones of their sandbox.
pub const CAUSES: [Expected; 40] = [
    plain(C::ExpiringCertificate, "a certificate that expires tomorrow").raises(&["DvpCertificateExpires"]),
    plain(C::FrozenNode, "the chain's node is suspended")
        .raises(&["DvpChainStalled"])
        .may_follow(&["DvpLeaseWithoutOwner", "DvpPriceRefused"]),
    plain(C::AnchorBacklog, "the anchor's contract refuses every call").raises(&["DvpAnchorBacklog"]),
    plain(C::UnavailableDatabase, "the database's processes are suspended")
        .raises(&["DvpDatabaseUnavailable"])
        .may_follow(&["DvpFiguresStale", "DvpLeaseWithoutOwner"]),
    plain(C::SilentBank, "the bank takes a payment and never answers").raises(&["DvpRailSilent"]),
    plain(C::LowBalance, "the relayer's account has one wei, and an order waits for it")
        .raises(&["DvpRelayerLowBalance", "DvpRelayerStuck", "DvpSettlementSlow"])
        .may_follow(&["DvpCommandsWaiting"]),
    plain(C::UsedLimit, "a limit that one order nearly uses up").raises(&["DvpLimitNearlyUsed"]),
    plain(C::PriceOutsideItsBand, "a band that no price is in").raises(&["DvpPriceRefused"]),
    plain(C::RefusedDeletion, "the database refuses a deletion by age").raises(&["DvpRetentionFails"]),
    plain(C::MissingTable, "the table of receipts is missing").raises(&["DvpInternalErrors"]),
    plain(C::RefusedRow, "the database refuses an intent's data")
        .raises(&["DvpDataRefused", "DvpAcceptanceFailing"])
        .may_follow(&["DvpInternalErrors"]),
    plain(C::UnwritableStep, "the database refuses the steps of an order")
        .raises(&["DvpUnwritableWork"])
        .may_follow(&["DvpDataRefused", "DvpSettlementSlow"]),
    plain(C::SlowCommits, "commits of orders take 2 s")
        .raises(&["DvpAcceptanceSlow", "DvpCommitSlow"])
        .may_follow(&["DvpSettlementSlow"]),
    plain(C::FullQueue, "a partner sends more orders than its share of the queue takes")
        .raises(&["DvpQueueFull"])
        .may_follow(&["DvpAcceptanceFailing", "DvpAcceptanceSlow", "DvpCommitSlow", "DvpSettlementSlow"]),
    plain(C::HeldEndpoint, "a webhook endpoint is leased by nobody that sends")
        .raises(&["DvpWebhooksBehind"]),
    plain(C::HeldFeed, "the webhooks' place in the feed is locked")
        .raises(&["DvpFeedBehind"])
        .may_follow(&["DvpWebhooksBehind"]),
    plain(C::HeldFigures, "the queue of webhooks is locked")
        .raises(&["DvpFiguresStale"])
        .may_follow(&["DvpFeedBehind", "DvpWebhooksBehind"]),
    plain(C::HeldLeases, "the leases are locked").raises(&["DvpLeaseWithoutOwner"]).may_follow(&[
        "DvpChainStalled",
        "DvpCommandsWaiting",
        "DvpFiguresStale",
        "DvpSettlementSlow",
    ]),
    plain(C::HeldReads, "the executions are locked, and many read them")
        .raises(&["DvpPoolExhausted"])
        .may_follow(&["DvpCommitSlow", "DvpFiguresStale", "DvpInternalErrors", "DvpSettlementSlow"]),
    plain(C::HeldLedgerCheck, "the ledger's balances are locked")
        .raises(&["DvpLedgerUnchecked"])
        .may_follow(&["DvpCommitSlow", "DvpSettlementSlow"]),
    plain(C::HeldTransactions, "the table of transactions is locked, and an order waits for it")
        .raises(&["DvpCommandsWaiting"])
        .may_follow(&["DvpChainStalled", "DvpLeaseWithoutOwner", "DvpRelayerStuck", "DvpSettlementSlow"]),
    plain(C::ExpensiveGas, "gas costs more than the cap").raises(&["DvpRelayerFeeCapped"]).may_follow(&[
        "DvpCommandsWaiting",
        "DvpRelayerStuck",
        "DvpSettlementSlow",
    ]),
    plain(C::ChangedBalance, "a balance is changed past the database's checks").raises(&["DvpLedgerWrong"]),
    plain(C::OtherConfiguration, "a process runs with another configuration")
        .raises(&["DvpConfigurationsDiffer"]),
    // A killed process keeps its leases until they end, which may be after its restart.
    plain(C::EndedProcess, "the process is gone").raises(&["DvpDown"]).may_follow(&["DvpLeaseWithoutOwner"]),
    equipped(C::RefusedFixOrder, "the database refuses the orders of a FIX session")
        .raises(&["DvpDataRefused", "DvpAcceptanceFailing"]),
    equipped(C::SlowFixOrders, "commits of orders over FIX take 2 s")
        .raises(&["DvpAcceptanceSlow", "DvpCommitSlow"])
        .may_follow(&["DvpSettlementSlow"]),
    equipped(C::DisagreeingEndpoints, "an endpoint returns a block without its events")
        .raises(&["DvpChainEndpointsDisagree"])
        .may_follow(&["DvpSettlementSlow"]),
    equipped(C::UnreadableList, "the screening list is gone").raises(&["DvpScreeningFails"]),
    equipped(C::SilentSigner, "the remote signer does not answer")
        .raises(&["DvpSignerDown"])
        .may_follow(&["DvpCommandsWaiting", "DvpSettlementSlow"]),
    equipped(C::FullBacklog, "a hundred thousand commands wait for the chain")
        .raises(&["DvpOrdersRefusedForBacklog"]),
    equipped(C::UnreadableFile, "the bank sends a file that nobody can read").raises(&["DvpBankAlarm"]),
    equipped(C::BankCharge, "the bank charges a fee that nobody has booked").raises(&["DvpBreak"]),
    equipped(C::ReturnedPayment, "the bank pays, and returns the payment")
        .raises(&["DvpPaymentReturned"])
        .may_follow(&["DvpBankAlarm", "DvpBreak"]),
    equipped(C::Contradiction, "the bank says paid, and then refused")
        .raises(&["DvpPaymentContradicted"])
        .may_follow(&["DvpBankAlarm", "DvpBreak"]),
    equipped(C::OverduePayout, "a payout without an answer is past its time")
        .raises(&["DvpPayoutOverdue"])
        .may_follow(&["DvpBankAlarm", "DvpBreak"]),
    equipped(C::Debt, "a lock is settled while its payout has no answer").raises(&["DvpDebt"]).may_follow(&[
        "DvpBankAlarm",
        "DvpBreak",
        "DvpPayoutOverdue",
    ]),
    equipped(C::OtherTerms, "the chain reports another amount than the order's")
        .raises(&["DvpFactDiffers"])
        .may_follow(&["DvpBreak", "DvpSettlementSlow"])
        .leaves(&["DvpBreak", "DvpSettlementSlow"]),
    equipped(C::LostFill, "a fork takes back the commitment to a payout")
        .raises(&["DvpFillLost"])
        .may_follow(&["DvpBreak", "DvpPayoutOverdue"])
        .leaves(&["DvpBreak"]),
    equipped(C::DeepFork, "a fork replaces final blocks")
        .raises(&["DvpChainHalted"])
        .may_follow(&[
            "DvpBreak",
            "DvpChainStalled",
            "DvpCommandsWaiting",
            "DvpSettlementSlow",
            "DvpUnwritableWork",
        ])
        .leaves(&["DvpBreak"]),
];
