//! The metrics of interfaces, writer and orders.

use super::catalog::Kind::{Counter, Gauge, Histogram};
use super::catalog::Values::{self, Named, Of};
use super::catalog::{Metric, metric};

type Label = (&'static str, Values);

const SESSION: Label = ("session", Named("the FIX session"));

const STAGE: Label = (
    "stage",
    Of(&["resting", "accepted", "locking", "converting", "committing", "paying", "owing", "releasing"]),
);

const OUTCOME: Label =
    ("outcome", Of(&["completed", "conversion_failed", "payout_failed", "cancelled", "expired", "failed"]));

pub(super) const FIX: &[Metric] = &[
    metric("dvp_fix_connected", Gauge, &[SESSION], "1 while the session is logged on")
        .only("for a session that this process owns"),
    metric("dvp_fix_next_in_seq", Gauge, &[SESSION], "the next expected MsgSeqNum")
        .only("for a session that this process owns"),
    metric("dvp_fix_next_out_seq", Gauge, &[SESSION], "the next MsgSeqNum to send")
        .only("for a session that this process owns"),
    metric("dvp_fix_gap_open", Gauge, &[SESSION], "1 while messages of the peer are missing")
        .only("for a session that this process owns"),
    metric("dvp_fix_queued_bytes", Gauge, &[SESSION], "bytes that wait to be written to the peer")
        .only("for a session that this process owns"),
    metric(
        "dvp_fix_parked_orders",
        Gauge,
        &[SESSION],
        "orders that wait for a look-up of their wallet, 512 at most",
    )
    .only("after the session's first parked order"),
    metric("dvp_fix_resent_total", Counter, &[SESSION], "messages sent again")
        .only("for a session that this process owns"),
    metric(
        "dvp_fix_commit_seconds",
        Histogram,
        &[SESSION],
        "from a queued commit of the session to its acknowledgement",
    )
    .only("after the session's first commit"),
    metric(
        "dvp_fix_orders_total",
        Counter,
        &[("result", Of(&["answered", "unavailable", "data"]))],
        "NewOrderSingle(D) by what became of them: `answered` ones have a committed answer, `unavailable` ones were not committed or may be sent again, `data`: cannot be stored",
    ),
    metric(
        "dvp_fix_order_seconds",
        Histogram,
        &[],
        "from a NewOrderSingle(D) to its committed answer, a look-up of its wallet included",
    )
    .only("after the first order"),
    metric(
        "dvp_fix_rejects_total",
        Counter,
        &[
            SESSION,
            ("kind", Of(&["reject", "business_reject"])),
            ("reason", Named("the number in 373 or 380")),
        ],
        "rejects that were sent",
    )
    .only("after the first one"),
    metric(
        "dvp_fix_disconnects_total",
        Counter,
        &[
            SESSION,
            (
                "reason",
                Of(&[
                    "peer_closed",
                    "session_ended",
                    "slow_consumer",
                    "frame_too_long",
                    "rate_exceeded",
                    "store_failed",
                    "data_failed",
                    "taken_over",
                    "operator",
                    "draining",
                ]),
            ),
        ],
        "connections that ended",
    )
    .only("after the first one"),
    metric(
        "dvp_fix_store_failures_total",
        Counter,
        &[SESSION, ("kind", Of(&["data", "unavailable"]))],
        "commits and loads that failed; `data`: the same again fails in the same way",
    )
    .only("for a session that this process owns"),
    metric("dvp_fix_resets_delayed_total", Counter, &[SESSION], "resets of the numbers that had to wait")
        .only("after the first one"),
    metric(
        "dvp_fix_archive_messages_total",
        Counter,
        &[("result", Of(&["written", "left_out"]))],
        "messages of sessions by what became of them; `left_out`: the archive could not take them, the session went on",
    ),
    metric(
        "dvp_fix_connections_forwarded_total",
        Counter,
        &[],
        "connections that were forwarded to the process that owns their session",
    ),
    metric("dvp_fix_forwarded_connections", Gauge, &[], "connections that this process forwards now")
        .only("after the first forwarded connection"),
    metric(
        "dvp_fix_connections_refused_total",
        Counter,
        &[(
            "reason",
            Of(&[
                "too_slow",
                "not_a_proxy",
                "proxy_header",
                "address",
                "too_many",
                "tls",
                "no_logon",
                "no_session",
                "busy",
                "forward",
                "not_a_process",
                "disabled",
                "certificate",
                "credentials",
                "stale",
                "replayed",
                "locked",
                "unavailable",
                "new_password",
            ]),
        )],
        "connections that ended before a session",
    ),
    metric(
        "dvp_tls_certificate_not_after_timestamp_seconds",
        Gauge,
        &[("listener", Of(&["fix"]))],
        "when the first certificate of the listener's file expires, in Unix time",
    )
    .only("with a TLS listener"),
];

pub(super) const WRITER: &[Metric] = &[
    metric("dvp_writer_available", Gauge, &[], "0 while the database is unavailable, and until it is found"),
    metric(
        "dvp_writer_batch_age_seconds",
        Gauge,
        &[],
        "how long the batch that is being written has taken, every 0.5 s",
    ),
    metric(
        "dvp_writer_batch_seconds",
        Histogram,
        &[],
        "a batch from its beginning until every unit in it is answered",
    )
    .only("after a batch"),
    metric("dvp_writer_commit_seconds", Histogram, &[], "the COMMIT of a transaction").only("after a batch"),
    metric("dvp_writer_batch_units", Histogram, &[], "units of a batch").only("after a batch"),
    metric("dvp_writer_queued_seconds", Histogram, &[], "how long a unit waited for its batch")
        .only("after a batch"),
    metric(
        "dvp_writer_queued_units",
        Gauge,
        &[("class", Of(&["entry", "settlement", "suspect"]))],
        "units that wait",
    ),
    metric("dvp_writer_parked_units", Gauge, &[], "units that wait for a place in the queue"),
    metric(
        "dvp_writer_tenants_apart",
        Gauge,
        &[],
        "tenants whose units failed lately and share no batch with others",
    ),
    metric(
        "dvp_writer_refused_total",
        Counter,
        &[],
        "REST requests answered with 503 because their tenant's share of the queue is full",
    ),
    metric(
        "dvp_writer_transactions_total",
        Counter,
        &[("result", Of(&["committed", "again", "data", "conflict", "slow", "unavailable"]))],
        "transactions, `again` of batches that began early and were decided again",
    ),
    metric(
        "dvp_writer_failed_units_total",
        Counter,
        &[("kind", Of(&["data", "conflict", "slow", "stale", "unavailable"]))],
        "units answered with an error",
    ),
];

pub(super) const ORDERS: &[Metric] = &[
    metric("dvp_orders_total", Counter, &[("source", Of(&["rest", "fix"])), ("result", Of(&["accepted", "rejected", "refused", "repeated"])), ("reason", Named("the rejection's reason, `none` without one"))], "orders that were decided: `refused` ones without a decision, `repeated` ones had been answered before").only("after the first one"),
    metric("dvp_orders_open", Gauge, &[STAGE], "orders that have not ended"),
    metric("dvp_orders_oldest_seconds", Gauge, &[STAGE], "the longest time since the last event of an order of the stage, 0 without one"),
    metric("dvp_open_amount_minor", Gauge, &[("asset", Named("the asset"))], "what open orders pay, in minor units: money in flight").only("after the asset's first order"),
    metric("dvp_order_steps_total", Counter, &[STAGE, ("next", Named("the stage or outcome that follows"))], "steps from one stage to the next").only("after the first one"),
    metric("dvp_order_stage_seconds", Histogram, &[STAGE], "from the order's last event to the step that left the stage").only("after the first one"),
    metric("dvp_orders_ended_total", Counter, &[OUTCOME], "orders that ended"),
    metric("dvp_order_settlement_seconds", Histogram, &[OUTCOME], "from an order's acceptance to its end").only("after the first one"),
    metric("dvp_orders_refused_for_backlog_total", Counter, &[], "orders refused because their lock would be too late"),
    metric("dvp_limit_use_ratio", Gauge, &[("scope", Of(&["everything", "partner", "pair", "provider", "rail", "chain"])), ("period", Of(&["day", "open"]))], "the share of the scope's most used limit that is used, 1 for a limit that is used up"),
    metric("dvp_prices_refused", Gauge, &[("pair", Named("the pair")), ("source", Named("the configured source, or `reference`")), ("fault", Of(&["no_reference", "reference_outside", "above", "below", "no_average", "above_average", "below_average"]))], "1 for a price that is outside of its pair's band and not used, 0 once it is used again").only("after the first refusal"),
    metric("dvp_ranges_resting", Gauge, &[], "range orders that wait for the market, in the process that has them in memory").only("in that process"),
    metric("dvp_ranges_tested_total", Counter, &[], "resting orders that were tested against the market because a price or a time was reached"),
    metric("dvp_ranges_attempts_total", Counter, &[("result", Named("`ended`, `missed`, or what kept the order from its fill"))], "fills of resting orders that were tried").only("after the first one"),
    metric("dvp_demand_requests_total", Counter, &[("source", Named("the provider")), ("result", Of(&["answered", "failed"]))], "requests that sent the demand of resting orders to a subscribed provider").only("after the first one"),
    metric("dvp_screening_held", Gauge, &[], "orders that screening holds"),
    metric("dvp_screenings_total", Counter, &[("verdict", Of(&["pass", "hold", "fail"])), ("source", Of(&["list", "hook", "no_answer"]))], "screenings, repeated ones of held orders included"),
    metric("dvp_screening_list_failures_total", Counter, &[], "attempts to read a changed list that failed; the last list holds"),
    metric("dvp_wallets_known", Gauge, &[], "wallets and tokens in memory"),
    metric("dvp_wallet_facts_age_seconds", Gauge, &[], "age of the oldest of them"),
    metric("dvp_wallet_look_ups_waiting", Gauge, &[], "look-ups sent and not answered").only("after the first look-up"),
    metric("dvp_wallet_look_ups_total", Counter, &[("result", Of(&["found", "unavailable", "refused"]))], "look-ups that orders waited for; `refused`: the partner has too many waiting"),
];
