//! The console in a browser over real outcomes: the page of each shows what happened.

use std::collections::BTreeSet;

use dvp_benches::history::{self, HistorySize};
use dvp_benches::screens::{self, TOKEN};
use dvp_testing::Harness;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::browser::Browser;
use crate::console::check;

/// An order, and what is recorded of it.
#[derive(sqlx::FromRow)]
struct Recorded {
    reference: String,
    state: String,
    events: Vec<String>,
    postings: i64,
    payments: i64,
    messages: i64,
    calls: i64,
    commands: i64,
    transactions: i64,
}

/// One order of each state and each pair of assets.
const OF_EVERY_OUTCOME: &str = "\
    select e.reference, e.state_name as state, \
           array(select v.type from event_record v where v.reference = e.reference order by v.type) as events, \
           (select count(distinct l.step) from ledger_entry l where l.reference = e.reference) as postings, \
           (select count(*) from bank_payment b where b.execution = e.reference) as payments, \
           (select count(*) from bank_message b where b.execution = e.reference) as messages, \
           (select count(*) from rail_call r where r.reference = e.reference) \
           + (select count(*) from effect w where w.reference = e.reference) as calls, \
           (select count(*) from chain_command c where c.reference = e.reference) as commands, \
           (select count(*) from chain_command c join slot_command s on s.command_id = c.id \
                join tx_attempt a on (a.chain_id, a.signer, a.nonce) = (s.chain_id, s.signer, s.nonce) \
            where c.reference = e.reference) as transactions \
    from (select distinct on (state_name, terms #>> '{input,asset}', terms #>> '{output,asset}') * \
          from execution order by state_name, terms #>> '{input,asset}', terms #>> '{output,asset}', accepted_at) e";

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_every_outcome_shows_all_that_happened() {
    let (harness, browser) = tokio::join!(Harness::new(history::market()), Browser::start());
    history::fill(&harness, HistorySize { ended: 1_500, open: 60 }).await.unwrap();
    let stop = CancellationToken::new();
    let origin = screens::serve(&harness, stop.clone()).await.unwrap();
    browser.open(&format!("{origin}/login?token={TOKEN}&next=/")).await;
    browser.wait_for("document.querySelector('main[id=main]') && document.readyState === 'complete'").await;
    let orders: Vec<Recorded> = sqlx::query_as(OF_EVERY_OUTCOME).fetch_all(harness.pool()).await.unwrap();
    let states: BTreeSet<&str> = orders.iter().map(|order| order.state.as_str()).collect();
    let expected = [
        "accepted",
        "cancelled",
        "completed",
        "conversion_failed",
        "expired",
        "failed",
        "locking",
        "paying",
        "payout_failed",
        "reversed",
    ];
    assert_eq!(states, BTreeSet::from(expected));
    assert!(orders.len() > 14, "{} orders", orders.len());
    let mut complete = 0;
    for order in &orders {
        let Recorded {
            reference,
            state,
            events,
            postings,
            payments,
            messages,
            calls,
            commands,
            transactions,
        } = order;
        browser.open(&format!("{origin}/orders/{reference}")).await;
        let shown = format!(
            "document.querySelector('.heading .state')?.textContent === {}",
            json!(state.replace('_', " "))
        );
        browser.wait_for(&shown).await;
        let lines = "[...document.querySelectorAll('.timeline > li')].map(line => \
                     [line.querySelector('.kind').textContent, line.querySelector('strong').textContent])";
        let lines = browser.value(lines).await;
        let of = |kind: &str| -> Vec<String> {
            let lines = lines.as_array().unwrap().iter().filter(|line| line[0] == kind);
            let mut titles: Vec<String> = lines.map(|line| line[1].as_str().unwrap().to_owned()).collect();
            titles.sort();
            titles
        };
        let count = |kind: &str| i64::try_from(of(kind).len()).unwrap();
        assert!(!events.is_empty(), "{reference} has no event");
        assert_eq!(of("event"), *events, "{state}: {reference}");
        assert_eq!(count("ledger"), *postings, "{state}: {reference}: {lines}");
        assert_eq!(count("bank"), payments + messages, "{state}: {reference}: {lines}");
        assert_eq!(count("rail"), *calls, "{state}: {reference}: {lines}");
        let signed = of("chain").iter().filter(|title| title.contains("transaction signed")).count();
        assert_eq!(i64::try_from(signed).unwrap(), *transactions, "{state}: {reference}: {lines}");
        assert_eq!(count("chain") > 0, *commands > 0, "{state}: {reference}: {lines}");
        complete += i32::from(*postings > 0 && *payments > 0 && *commands > 0);
        check(&browser, &format!("{state} {reference}")).await;
    }
    assert!(complete > 2, "{complete} orders have postings, payments and commands");
    stop.cancel();
}
