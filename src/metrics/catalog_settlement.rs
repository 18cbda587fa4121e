//! The metrics of settlement, chains, webhooks and books.

use dvp_core::chain::expected::FIELDS;

use super::catalog::Kind::{Counter, Gauge, Histogram};
use super::catalog::Values::{self, Named, Of};
use super::catalog::{Metric, metric};

type Label = (&'static str, Values);

const CHAIN_NAME: Label = ("chain", Named("the chain"));

const COMMAND: Label = (
    "kind",
    Of(&["create", "fill", "settle", "anchor", "transfer", "swap", "cancel", "return_filled", "refund"]),
);

const SIGNER: Label = ("signer", Of(&["local", "pkcs11", "remote", "aws_kms", "gcp_kms"]));

const LEG: Label = ("leg", Of(&["offramp", "payout"]));

const CALL: Label = ("call", Of(&["submit", "query"]));

const SUBJECT: Label = (
    "subject",
    Of(&[
        "partitions",
        "events",
        "deliveries",
        "webhook_log",
        "webhook_answers",
        "idempotency",
        "nonces",
        "permit_holds",
        "published_permits",
        "quote_requests",
        "firm_quotes",
        "fix_messages",
        "fix_archive",
        "notices",
        "transactions",
        "limit_usage",
        "open_changes",
        "console_sessions",
        "personal_data",
        "fix_accounts",
        "chain_work",
        "chain_strangers",
        "chain_orphans",
        "rail_calls",
        "bank_messages",
    ]),
);

pub(super) const SETTLEMENT: &[Metric] = &[
    metric(
        "dvp_rail_calls_total",
        Counter,
        &[
            LEG,
            CALL,
            ("result", Of(&["done", "in_progress", "failed", "never_seen", "unavailable", "unconfirmed"])),
        ],
        "calls of rails; `unconfirmed`: the outcome is not known",
    ),
    metric("dvp_rail_call_seconds", Histogram, &[LEG, CALL], "from a rail's call to its answer")
        .only("after the first one"),
    metric(
        "dvp_rail_contradictions_total",
        Counter,
        &[("by", Of(&["bank", "decision"]))],
        "later answers of the bank that contradict how an order ended or its answer to a recall, and decisions of operators that were contradicted before they were carried out",
    ),
    metric(
        "dvp_rail_wrong_answers_total",
        Counter,
        &[("rail", Of(&["http_desk"]))],
        "answers that break the rail's protocol",
    ),
    metric("dvp_payments_returned_total", Counter, &[], "payments that came back after they were paid"),
    metric(
        "dvp_payouts_overdue",
        Gauge,
        &[],
        "payouts of locked tokens without a final answer though their rail's longest time is over",
    ),
    metric(
        "dvp_debts",
        Gauge,
        &[],
        "outputs that are owed: settled before the payout's final answer, neither paid nor given back",
    ),
    metric(
        "dvp_bank_alarms",
        Gauge,
        &[("about", Of(&["payment", "file"]))],
        "open alarms about the bank's payments and files",
    )
    .only("with a bank"),
    metric("dvp_recalls_sent_total", Counter, &[], "recalls of payments that were sent to the bank"),
    metric(
        "dvp_recall_answers_total",
        Counter,
        &[("answer", Of(&["pending", "accepted", "partly_accepted", "rejected", "unrequested"]))],
        "the bank's answers to recalls that changed something; `unrequested`: to one that was never requested",
    ),
    metric(
        "dvp_workflow_effects_total",
        Counter,
        &[("from", Of(&["handed_over", "claimed"]))],
        "due work that this process began: handed over by its own commit, or claimed",
    ),
    metric(
        "dvp_workflow_suspects",
        Gauge,
        &[("kind", Of(&["effect", "fact"]))],
        "work that could not be written and is tried again later",
    ),
    metric(
        "dvp_workflow_unwritable_total",
        Counter,
        &[("kind", Of(&["effect", "fact"]))],
        "failed attempts at such work",
    ),
    metric(
        "dvp_workflow_differing_facts_total",
        Counter,
        &[("field", Of(&FIELDS))],
        "locks, swaps, fills and payments on the chain that differ from their order's terms; the order does not advance by them",
    ),
    metric(
        "dvp_workflow_lost_facts_total",
        Counter,
        &[("fact", Of(&["lock", "fill", "transfer"]))],
        "locks, commitments to a payout, and payments for locks on another chain, that orders counted on and a reorganization took back",
    ),
];

pub(super) const CHAIN: &[Metric] = &[
    metric(
        "dvp_chain_head_age_seconds",
        Gauge,
        &[CHAIN_NAME],
        "age of the newest block when the indexer last reached a node",
    )
    .only("for a chain that this process indexes"),
    metric("dvp_chain_head_timestamp_seconds", Gauge, &[CHAIN_NAME], "the newest block's time, in Unix time")
        .only("for a chain that this process indexes"),
    metric(
        "dvp_chain_indexer_state",
        Gauge,
        &[CHAIN_NAME, ("state", Of(&["backfilling", "following", "holding", "halted"]))],
        "1 for the indexer's state",
    ),
    metric(
        "dvp_chain_indexer_lag_blocks",
        Gauge,
        &[CHAIN_NAME],
        "blocks of the node that are not indexed yet",
    ),
    metric(
        "dvp_chain_indexer_silent_seconds",
        Gauge,
        &[CHAIN_NAME],
        "since the indexer last reported its state",
    ),
    metric(
        "dvp_chain_indexer_failures_total",
        Counter,
        &[CHAIN_NAME],
        "steps of the indexer that failed and were tried again",
    )
    .only("after the first one"),
    metric(
        "dvp_chain_disputed_blocks_total",
        Counter,
        &[CHAIN_NAME],
        "blocks whose events the endpoints return differently",
    )
    .only("for a chain whose indexer runs here"),
    metric("dvp_chain_fills_waiting", Gauge, &[CHAIN_NAME], "fills and ends of locks at the payout gate")
        .only("for a chain that this process indexes"),
    metric("dvp_chain_commands_waiting", Gauge, &[CHAIN_NAME, COMMAND], "commands without a transaction"),
    metric("dvp_chain_command_oldest_seconds", Gauge, &[CHAIN_NAME, COMMAND], "age of the oldest of them"),
    metric(
        "dvp_chain_commands_troubled",
        Gauge,
        &[CHAIN_NAME, COMMAND],
        "of them, those refused for a reason that is not final",
    ),
    metric("dvp_chain_command_refusals_total", Counter, &[CHAIN_NAME, COMMAND], "such refusals")
        .only("after the first one"),
    metric(
        "dvp_relayer_transactions_pending",
        Gauge,
        &[CHAIN_NAME],
        "transactions that are signed and not in a block",
    ),
    metric(
        "dvp_relayer_transaction_oldest_seconds",
        Gauge,
        &[CHAIN_NAME],
        "since the oldest of them was signed",
    ),
    metric(
        "dvp_relayer_balance_wei",
        Gauge,
        &[CHAIN_NAME, ("account", Named("the relayer account"))],
        "the account's balance for gas",
    )
    .only("for a chain whose relayer runs here"),
    metric("dvp_relayer_balance_low_wei", Gauge, &[CHAIN_NAME], "the configured least balance")
        .only("for a chain whose relayer runs here"),
    metric("dvp_signer_signatures_total", Counter, &[SIGNER, ("result", Of(&["signed", "refused", "unavailable", "unusable", "wrong"]))], "requested signatures; `refused`: by the signer's policy, `wrong`: of another key, with a high s, or none")
        .only("for a chain whose relayer runs here"),
    metric("dvp_signer_seconds", Histogram, &[SIGNER], "from a transaction to its verified signature, or to the failure")
        .only("for a chain whose relayer runs here"),
    metric(
        "dvp_signer_up",
        Gauge,
        &[CHAIN_NAME, ("account", Named("the relayer account"))],
        "0: the account's signer fails in this process, and the other accounts have its work; else 1",
    )
    .only("for an account that has signed here"),
    metric("dvp_relayer_base_fee_wei", Gauge, &[CHAIN_NAME], "the next block's base fee")
        .only("for a chain whose relayer runs here"),
    metric("dvp_relayer_tip_wei", Gauge, &[CHAIN_NAME], "the tip that recent blocks took")
        .only("for a chain whose relayer runs here"),
    metric(
        "dvp_relayer_fee_capped_total",
        Counter,
        &[CHAIN_NAME],
        "transactions that wait because gas costs more than `fee_cap_wei`",
    )
    .only("for a chain whose relayer runs here"),
    metric(
        "dvp_relayer_commands_per_window",
        Gauge,
        &[CHAIN_NAME],
        "the rate that is assumed for new locks, in commands within 30 s",
    ),
    metric("dvp_lock_wait_seconds", Gauge, &[CHAIN_NAME], "how long a new lock is expected to wait"),
    metric(
        "dvp_partner_closed_seconds",
        Gauge,
        &[],
        "how long the partner has been closed whose move between cells has not ended for the longest time",
    ),
];

pub(super) const WEBHOOKS: &[Metric] = &[
    metric("dvp_webhook_deliveries_pending", Gauge, &[], "queued deliveries of active endpoints"),
    metric("dvp_webhook_deliveries_retried", Gauge, &[], "of them, those that were attempted and failed"),
    metric(
        "dvp_webhook_overdue_seconds",
        Gauge,
        &[],
        "how long the delivery that is due for the longest time has been due",
    ),
    metric("dvp_webhook_endpoints_inactive", Gauge, &[], "endpoints that were deactivated"),
    metric(
        "dvp_webhook_attempts_total",
        Counter,
        &[(
            "result",
            Of(&[
                "delivered",
                "timeout",
                "address_refused",
                "url_refused",
                "dns",
                "no_route",
                "tls",
                "connect",
                "closed",
                "redirect",
                "status",
                "ours",
            ]),
        )],
        "attempts; `status`: another answer than 2xx, `ours`: this side's network failed",
    ),
    metric("dvp_webhook_attempt_seconds", Histogram, &[], "from an attempt's beginning to the answer's head")
        .only("after the first one"),
    metric("dvp_feed_position", Gauge, &[], "the position of the feed's last event"),
    metric(
        "dvp_feed_follower_position",
        Gauge,
        &[("follower", Of(&["webhooks", "fix"]))],
        "the position up to which deliveries were made (`webhooks`), or sessions were notified (`fix`, in each process with FIX)",
    ),
    metric(
        "dvp_feed_lag_seconds",
        Gauge,
        &[("follower", Of(&["webhooks"]))],
        "since the oldest event was recorded from which no deliveries were made, 0 without one",
    ),
    metric("dvp_retention_rows_total", Counter, &[SUBJECT], "expired rows that were deleted"),
    metric(
        "dvp_retention_failures_total",
        Counter,
        &[SUBJECT],
        "deletions, or the creation of `partitions`, that failed and are tried again",
    ),
];

pub(super) const BOOKS: &[Metric] = &[
    metric(
        "dvp_ledger_checks_total",
        Counter,
        &[],
        "checks of the ledger against itself that were carried out",
    ),
    metric(
        "dvp_ledger_whole_check_last_success_timestamp_seconds",
        Gauge,
        &[],
        "when a check last compared all entries, in Unix time; once a day; until the first one, when the process with the role `worker` was started",
    ),
    metric("dvp_ledger_check_failures_total", Counter, &[], "checks that could not be carried out"),
    metric(
        "dvp_ledger_check_last_success_timestamp_seconds",
        Gauge,
        &[],
        "when the process with the role `worker` last carried out a check, in Unix time; until its first one, when it was started",
    ),
    metric("dvp_ledger_disagreements", Gauge, &[], "balances that are not the sum of their entries")
        .only("in a process that has checked"),
    metric("dvp_ledger_unbalanced_assets", Gauge, &[], "assets whose entries do not sum to zero")
        .only("in a process that has checked"),
    metric(
        "dvp_reconciliation_breaks",
        Gauge,
        &[("compared", Named("`bank`, or a chain")), ("kind", Named("the kind of the break"))],
        "breaks of the last comparison",
    )
    .only("after a comparison"),
    metric(
        "dvp_reconciliation_in_transit",
        Gauge,
        &[("compared", Of(&["bank"]))],
        "postings without an entry in a bank statement and entries without a posting, on their way",
    )
    .only("after a comparison with a bank"),
    metric(
        "dvp_transfers_open",
        Gauge,
        &[("direction", Of(&["out", "in"]))],
        "transfers to or from other cells that have no end so far",
    )
    .only("once there was a transfer"),
    metric(
        "dvp_transfer_oldest_open_seconds",
        Gauge,
        &[("direction", Of(&["out", "in"]))],
        "age of the oldest transfer to or from another cell that has no end so far; 0 without one",
    )
    .only("once there was a transfer"),
    metric(
        "dvp_transfers_open_minor",
        Gauge,
        &[
            ("cell", Named("the other cell")),
            ("asset", Named("the asset")),
            ("direction", Of(&["out", "in"])),
        ],
        "minor units in transfers to or from another cell that have no end so far",
    )
    .only("once there was a transfer"),
];
