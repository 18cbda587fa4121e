//! Causes of the alerts that `alert_faults` does not raise, one after the other in a sandbox under a real Prometheus.
//!
//! The database, the chain, the bank and the signer are broken from outside of the service. Each cause must raise its
//! alerts, none of which fired before; alerts that follow from it may fire beside them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;

use crate::alert_prometheus::{Prometheus, Shorter};
use crate::alert_scene::Scene;

const SHORTER: [Shorter; 7] = [
    ("DvpSettlementSlow", "> 900", "> 10"),
    ("DvpCommandsWaiting", "> 120", "> 8"),
    ("DvpRelayerStuck", "> 300", "> 8"),
    ("DvpFiguresStale", "> 120", "> 15"),
    ("DvpWebhooksBehind", "> 300", "> 5"),
    ("DvpFeedBehind", "> 60", "> 5"),
    ("DvpLedgerUnchecked", "> 7200", "> 100"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    LowBalance,
    UsedLimit,
    PriceOutsideItsBand,
    RefusedDeletion,
    MissingTable,
    RefusedRow,
    UnwritableStep,
    SlowCommits,
    HeldEndpoint,
    HeldFeed,
    HeldFigures,
    HeldLeases,
    HeldReads,
    HeldLedgerCheck,
    HeldTransactions,
    ExpensiveGas,
    GiftToEscrow,
    ChangedBalance,
    EndedProcess,
    UnreadableList,
    SilentSigner,
    FullBacklog,
    UnreadableFile,
    ReturnedPayment,
    Contradiction,
    OverduePayout,
    Debt,
    OtherTerms,
    LostFill,
    DeepFork,
}

impl Cause {
    /// In a sandbox as it is. The last ones leave traces.
    pub(crate) const PLAIN: [Self; 19] = [
        Self::LowBalance,
        Self::UsedLimit,
        Self::PriceOutsideItsBand,
        Self::RefusedDeletion,
        Self::MissingTable,
        Self::RefusedRow,
        Self::UnwritableStep,
        Self::SlowCommits,
        Self::HeldEndpoint,
        Self::HeldFeed,
        Self::HeldFigures,
        Self::HeldLeases,
        Self::HeldReads,
        Self::HeldLedgerCheck,
        Self::HeldTransactions,
        Self::ExpensiveGas,
        Self::GiftToEscrow,
        Self::ChangedBalance,
        Self::EndedProcess,
    ];
    /// In a sandbox with bank files, a screening list and a remote signer. The last ones leave traces.
    pub(crate) const EQUIPPED: [Self; 11] = [
        Self::UnreadableList,
        Self::SilentSigner,
        Self::FullBacklog,
        Self::UnreadableFile,
        Self::ReturnedPayment,
        Self::Contradiction,
        Self::OverduePayout,
        Self::Debt,
        Self::OtherTerms,
        Self::LostFill,
        Self::DeepFork,
    ];

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::PLAIN.into_iter().chain(Self::EQUIPPED)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::LowBalance => "the relayer's account has one wei, and an order waits for it",
            Self::UsedLimit => "a limit that one order nearly uses up",
            Self::PriceOutsideItsBand => "a band that no price is in",
            Self::RefusedDeletion => "the database refuses a deletion by age",
            Self::MissingTable => "the table of receipts is missing",
            Self::RefusedRow => "the database refuses an intent's data",
            Self::UnwritableStep => "the database refuses the steps of an order",
            Self::SlowCommits => "commits of orders take 0.8 s",
            Self::HeldEndpoint => "a webhook endpoint is leased by nobody that sends",
            Self::HeldFeed => "the webhooks' place in the feed is locked",
            Self::HeldFigures => "the queue of webhooks is locked",
            Self::HeldLeases => "the leases are locked",
            Self::HeldReads => "the executions are locked, and many read them",
            Self::HeldLedgerCheck => "the ledger's balances are locked",
            Self::HeldTransactions => "the table of transactions is locked, and an order waits for it",
            Self::ExpensiveGas => "gas costs more than the cap",
            Self::GiftToEscrow => "the escrow has seven minor units that nobody locked",
            Self::ChangedBalance => "a balance is changed past the database's checks",
            Self::EndedProcess => "the process is gone",
            Self::UnreadableList => "the screening list is gone",
            Self::SilentSigner => "the remote signer does not answer",
            Self::FullBacklog => "a hundred thousand commands wait for the chain",
            Self::UnreadableFile => "the bank sends a file that nobody can read",
            Self::ReturnedPayment => "the bank pays, and returns the payment",
            Self::Contradiction => "the bank says paid, and then refused",
            Self::OverduePayout => "a payout without an answer is past its time",
            Self::Debt => "a lock is settled while its payout has no answer",
            Self::OtherTerms => "the chain reports another amount than the order's",
            Self::LostFill => "a fork takes back the commitment to a payout",
            Self::DeepFork => "a fork replaces final blocks",
        }
    }

    pub(crate) const fn alerts(self) -> &'static [&'static str] {
        match self {
            Self::LowBalance => &["DvpRelayerLowBalance", "DvpRelayerStuck", "DvpSettlementSlow"],
            Self::UsedLimit => &["DvpLimitNearlyUsed"],
            Self::PriceOutsideItsBand => &["DvpPriceRefused"],
            Self::RefusedDeletion => &["DvpRetentionFails"],
            Self::MissingTable => &["DvpInternalErrors"],
            Self::RefusedRow => &["DvpDataRefused", "DvpAcceptanceFailing"],
            Self::UnwritableStep => &["DvpUnwritableWork"],
            Self::SlowCommits => &["DvpAcceptanceSlow", "DvpCommitSlow"],
            Self::HeldEndpoint => &["DvpWebhooksBehind"],
            Self::HeldFeed => &["DvpFeedBehind"],
            Self::HeldFigures => &["DvpFiguresStale"],
            Self::HeldLeases => &["DvpLeaseWithoutOwner"],
            Self::HeldReads => &["DvpPoolExhausted"],
            Self::HeldLedgerCheck => &["DvpLedgerUnchecked"],
            Self::HeldTransactions => &["DvpCommandsWaiting"],
            Self::ExpensiveGas => &["DvpRelayerFeeCapped"],
            Self::GiftToEscrow => &["DvpBreak"],
            Self::ChangedBalance => &["DvpLedgerWrong"],
            Self::EndedProcess => &["DvpDown"],
            Self::UnreadableList => &["DvpScreeningFails"],
            Self::SilentSigner => &["DvpSignerDown"],
            Self::FullBacklog => &["DvpOrdersRefusedForBacklog"],
            Self::UnreadableFile => &["DvpBankAlarm"],
            Self::ReturnedPayment => &["DvpPaymentReturned"],
            Self::Contradiction => &["DvpPaymentContradicted"],
            Self::OverduePayout => &["DvpPayoutOverdue"],
            Self::Debt => &["DvpDebt"],
            Self::OtherTerms => &["DvpFactDiffers"],
            Self::LostFill => &["DvpFillLost"],
            Self::DeepFork => &["DvpChainHalted"],
        }
    }
}

/// One cause after the other, each in the sandbox that it needs. Returns how long each alert took.
pub(crate) async fn run(causes: &[Cause]) -> String {
    let (equipped, plain): (Vec<Cause>, Vec<Cause>) =
        causes.iter().copied().partition(|cause| Cause::EQUIPPED.contains(cause));
    let mut missed = Vec::new();
    let mut said = String::new();
    if !plain.is_empty() {
        run_in(Scene::plain().await, &plain, &mut said, &mut missed).await;
    }
    if !equipped.is_empty() {
        run_in(Scene::equipped().await, &equipped, &mut said, &mut missed).await;
    }
    assert!(missed.is_empty(), "{said}without their alerts: {missed:?}");
    said
}

/// One sandbox and one Prometheus.
async fn run_in(mut scene: Scene, causes: &[Cause], said: &mut String, missed: &mut Vec<&'static str>) {
    let expected: BTreeSet<&str> = Cause::all().flat_map(Cause::alerts).copied().collect();
    let prometheus = Prometheus::start(&scene.sandbox().text("/metrics"), &expected, &SHORTER).await;
    scene.partner.is_served().await;
    prometheus.wait_for(&[]).await;
    for cause in causes {
        // One that raises nothing does not hide the others.
        match AssertUnwindSafe(scene.one(*cause, &prometheus)).catch_unwind().await {
            Ok(line) => {
                let _ = writeln!(std::io::stderr(), "{line}");
                writeln!(said, "{line}").unwrap();
            }
            Err(_) => missed.push(cause.name()),
        }
    }
    drop(prometheus);
    scene.end().await;
}
