//! Transfers of inventory between two cells, each with a database and an engine of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use dvp_core::approvals::{ApprovalError, approve, deny};
use dvp_core::ledger_operations::{self, LedgerError};
use dvp_core::reconciliation::wallets::{InFlight, TokenBalances, compare_wallets};
use dvp_core::reconciliation::{BooksPatience, PATIENCE, compare_bank};
use dvp_core::requests::Maker;
use dvp_core::transfers::keys::{CellKeys, DocumentError, PublicKey};
use dvp_core::transfers::{
    self, Draft, Listed, RequestedTransfer, TransferError, compare_with, confirm, list_for, write_document,
};
use dvp_domain::cell::CellId;
use dvp_domain::environment::Environment;
use dvp_domain::ids::TransferId;
use dvp_domain::ledger::Owner;
use dvp_domain::ledger::operation::Operation;
use dvp_domain::money::Minor;
use dvp_domain::time::Timestamp;
use dvp_domain::transfer::message::Message;
use dvp_domain::transfer::{Transfer, TransferFault, TransferState};
use dvp_store::StoreError;
use dvp_store::ledger::balances;
use dvp_store::reconcile::wallets::register;
use dvp_store::transfers as store;
use dvp_testing::Harness;

use crate::scenes;

pub(crate) const MAKER: Maker<'_> = Maker { operator: "jo", reason: "more orders there", evidence: "plan 7" };

/// A cell: its database, and its keys.
struct Cell {
    harness: Harness,
    keys: CellKeys,
}

fn id(text: &str) -> CellId {
    text.parse().unwrap()
}

fn keys_of(own: &str, seed: u8, peers: &BTreeMap<CellId, Vec<PublicKey>>) -> CellKeys {
    CellKeys::new(id(own), Environment::Test, &[seed; 32], Vec::new(), peers.clone()).unwrap()
}

/// The cells 00a to 00c know each other's keys.
pub(crate) fn keys(own: &str) -> CellKeys {
    let seeds = [("00a", 1), ("00b", 2), ("00c", 3)];
    let none = BTreeMap::new();
    let peers = seeds.iter().filter(|(cell, _)| *cell != own);
    let peers =
        peers.map(|(cell, seed)| (id(cell), vec![keys_of(cell, *seed, &none).public_key()])).collect();
    let (_, seed) = seeds.iter().find(|(cell, _)| *cell == own).unwrap();
    keys_of(own, *seed, &peers)
}

async fn cell(own: &str, usd: u128) -> Cell {
    Cell { harness: scenes::harness_with(usd).await, keys: keys(own) }
}

pub(crate) fn pending(requested: Result<RequestedTransfer, TransferError>) -> (String, TransferId) {
    match requested.unwrap() {
        RequestedTransfer::Pending { approval, .. } => (approval.id, approval.subject.parse().unwrap()),
        RequestedTransfer::Done(kept) => panic!("{kept:?}"),
    }
}

fn done(requested: Result<RequestedTransfer, TransferError>) -> TransferState {
    match requested.unwrap() {
        RequestedTransfer::Done(kept) => kept.known.state,
        RequestedTransfer::Pending { approval, .. } => panic!("{approval:?}"),
    }
}

impl Cell {
    async fn request_send(&self, to: &str, usd: u128) -> Result<RequestedTransfer, TransferError> {
        self.request_send_of(Owner::Provider("north".to_owned()), to, usd).await
    }

    async fn request_send_of(
        &self,
        owner: Owner,
        to: &str,
        usd: u128,
    ) -> Result<RequestedTransfer, TransferError> {
        let mut conn = self.harness.pool().acquire().await.unwrap();
        let draft = Draft { to: id(to), owner, asset: "USD".to_owned(), amount: Minor::new(usd) };
        transfers::request_send(&mut conn, &self.keys, &draft, MAKER).await
    }

    async fn request_receive(&self, document: &str) -> Result<RequestedTransfer, TransferError> {
        let mut conn = self.harness.pool().acquire().await.unwrap();
        transfers::request_receive(&mut conn, &self.keys, &Listed::default(), document, MAKER).await
    }

    async fn request_refuse(&self, document: &str) -> Result<RequestedTransfer, TransferError> {
        let mut conn = self.harness.pool().acquire().await.unwrap();
        transfers::request_refuse(&mut conn, &self.keys, document, MAKER).await
    }

    async fn request_take_back(&self, refusal: &str) -> Result<RequestedTransfer, TransferError> {
        let mut conn = self.harness.pool().acquire().await.unwrap();
        transfers::request_take_back(&mut conn, &self.keys, refusal, MAKER).await
    }

    async fn approve(&self, request: &str) -> Result<(), ApprovalError> {
        let mut conn = self.harness.pool().acquire().await.unwrap();
        let approved = approve(&mut conn, request, "mika", "seen").await.map(drop);
        self.harness.check_books().await;
        approved
    }

    async fn document(&self, id: &TransferId) -> Result<String, TransferError> {
        write_document(&mut self.harness.pool().acquire().await.unwrap(), &self.keys, id).await
    }

    /// Sends by two operators. Returns the id and the document.
    async fn send(&self, to: &str, usd: u128) -> (TransferId, String) {
        let (request, id) = pending(self.request_send(to, usd).await);
        self.approve(&request).await.unwrap();
        let document = self.document(&id).await.unwrap();
        (id, document)
    }

    /// Receives by two operators. Returns the receipt.
    async fn receive(&self, document: &str) -> String {
        let (request, id) = pending(self.request_receive(document).await);
        self.approve(&request).await.unwrap();
        self.document(&id).await.unwrap()
    }

    async fn refuse(&self, document: &str) -> String {
        let (request, id) = pending(self.request_refuse(document).await);
        self.approve(&request).await.unwrap();
        self.document(&id).await.unwrap()
    }

    async fn confirm(&self, receipt: &str) -> Result<TransferState, TransferError> {
        let mut conn = self.harness.pool().acquire().await.unwrap();
        confirm(&mut conn, &self.keys, receipt, "jo").await.map(|kept| kept.known.state)
    }

    async fn available(&self) -> u128 {
        let mut conn = self.harness.pool().acquire().await.unwrap();
        let north = Owner::Provider("north".into());
        balances::find(&mut conn, &north, "USD").await.unwrap().available.get()
    }

    async fn state_of(&self, id: &TransferId) -> Option<TransferState> {
        let mut conn = self.harness.pool().acquire().await.unwrap();
        store::find(&mut conn, id).await.unwrap().map(|kept| kept.known.state)
    }

    async fn state(&self, id: &TransferId) -> TransferState {
        self.state_of(id).await.unwrap()
    }

    async fn postings(&self, id: &TransferId) -> i64 {
        let count = sqlx::query_scalar("select count(distinct step) from ledger_entry where reference = $1");
        count.bind(id.as_str()).fetch_one(self.harness.pool()).await.unwrap()
    }

    /// The breaks of a comparison at a time from now, as `kind reference difference`.
    async fn breaks_in(&self, hours: i64) -> Vec<String> {
        let now = Timestamp::from(chrono::Utc::now()).plus_millis(hours * 3_600_000);
        let report = compare_bank(self.harness.pool(), now, PATIENCE).await.unwrap();
        let breaks = report.map(|report| report.breaks).unwrap_or_default();
        let line = |found: &dvp_domain::reconcile::Break| {
            let minor = found.difference.as_ref().map(|one| one.minor).unwrap_or_default();
            format!("{} {} {minor}", found.kind.as_str(), found.reference.as_deref().unwrap_or("-"))
        };
        breaks.iter().map(line).collect()
    }

    async fn list(&self, other: &Self) -> String {
        let mut conn = self.harness.pool().acquire().await.unwrap();
        list_for(&mut conn, &self.keys, other.keys.cell).await.unwrap()
    }

    /// What differs from the other cell's list: `kind id`; and how many agree and are in transit.
    async fn compared(&self, other: &Self, patience_ms: i64) -> (Vec<String>, usize, usize) {
        let list = other.list(self).await;
        let mut conn = self.harness.pool().acquire().await.unwrap();
        let (cell, found) = compare_with(&mut conn, &self.keys, &list, patience_ms).await.unwrap();
        assert_eq!(cell, other.keys.cell);
        let line = |one: &dvp_domain::transfer::compare::TransferDifference| {
            format!("{} {}", one.kind.as_str(), one.id)
        };
        (found.differences.iter().map(line).collect(), found.agreed, found.in_transit)
    }
}

const DAY_MS: i64 = 86_400_000;

/// Neither cell has a break, nor the comparison of the two a difference.
async fn both_are_clean(a: &Cell, b: &Cell, agreed: usize, in_transit: usize) {
    assert_eq!((a.breaks_in(0).await, b.breaks_in(0).await), (vec![], vec![]));
    assert_eq!(a.compared(b, DAY_MS).await, (vec![], agreed, in_transit));
    assert_eq!(b.compared(a, DAY_MS).await, (vec![], agreed, in_transit));
}

#[tokio::test(flavor = "multi_thread")]
async fn inventory_reaches_the_other_cell_once_by_two_operators_on_each_side() {
    let (a, b) = (cell("00a", 100).await, cell("00b", 7).await);
    let (request, id) = pending(a.request_send("00b", 60).await);
    assert_eq!(CellId::of_id(id.as_str()), Some(a.keys.cell), "{id}");
    assert_eq!(a.available().await, 100, "a request posts nothing");
    let mut conn = a.harness.pool().acquire().await.unwrap();
    let own = approve(&mut conn, &request, "JO", "").await;
    assert!(matches!(own, Err(ApprovalError::OwnRequest)), "{own:?}");
    assert!(matches!(a.document(&id).await, Err(TransferError::Unknown(_))), "nothing is committed");
    a.approve(&request).await.unwrap();
    assert!(matches!(a.approve(&request).await, Err(ApprovalError::Ended(_))));
    assert_eq!((a.available().await, a.harness.account("external", "USD").await), (40, "-40".to_owned()));
    // A crash before the document was written: it is written again, and is the same.
    let document = a.document(&id).await.unwrap();
    assert_eq!(document, a.document(&id).await.unwrap());
    both_are_clean(&a, &b, 0, 1).await;

    let (request, _) = pending(b.request_receive(&document).await);
    both_are_clean(&a, &b, 0, 1).await;
    assert!(matches!(b.document(&id).await, Err(TransferError::Undecided)));
    let again = b.request_receive(&document).await.unwrap();
    assert!(matches!(again, RequestedTransfer::Pending { repeated: true, .. }), "{again:?}");
    assert_eq!(b.available().await, 7);
    b.approve(&request).await.unwrap();
    assert_eq!(b.available().await, 67);
    both_are_clean(&a, &b, 0, 1).await;
    let receipt = b.document(&id).await.unwrap();
    assert_eq!(done(b.request_receive(&document).await), TransferState::Received);
    assert_eq!((receipt.clone(), b.available().await), (b.document(&id).await.unwrap(), 67));

    assert_eq!(a.confirm(&receipt).await.unwrap(), TransferState::Confirmed);
    assert_eq!(a.confirm(&receipt).await.unwrap(), TransferState::Confirmed);
    both_are_clean(&a, &b, 1, 0).await;
    assert_eq!((a.postings(&id).await, b.postings(&id).await), (1, 1));
    assert_eq!((a.available().await, b.available().await), (40, 67));
    let history = dvp_store::orders::operations::load_history(&mut conn, id.as_str()).await.unwrap();
    let actions: Vec<_> = history["operators"].as_array().unwrap().iter().map(|row| &row["action"]).collect();
    assert_eq!(actions, ["propose_send_transfer", "send_transfer", "confirm_transfer"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_final_and_the_sender_takes_it_back_by_it_alone_and_once() {
    let (a, b) = (cell("00a", 100).await, cell("00b", 7).await);
    let (id, document) = a.send("00b", 60).await;
    assert!(matches!(a.request_take_back(&document).await, Err(TransferError::Document(_))));
    let refusal = b.refuse(&document).await;
    both_are_clean(&a, &b, 0, 1).await;
    let late = b.request_receive(&document).await;
    assert!(matches!(late, Err(TransferError::Contradiction(_))), "{late:?}");
    assert_eq!(done(b.request_refuse(&document).await), TransferState::Refused);
    assert_eq!(b.available().await, 7);
    let other = a.confirm(&refusal).await;
    assert!(matches!(other, Err(TransferError::Document(DocumentError::OtherKind { .. }))), "{other:?}");

    let (request, _) = pending(a.request_take_back(&refusal).await);
    assert_eq!(a.available().await, 40);
    a.approve(&request).await.unwrap();
    assert_eq!(a.available().await, 100);
    assert_eq!(done(a.request_take_back(&refusal).await), TransferState::TakenBack);
    both_are_clean(&a, &b, 1, 0).await;
    assert_eq!((a.available().await, a.postings(&id).await, b.postings(&id).await), (100, 2, 0));
    assert_eq!(a.harness.account("external", "USD").await, "-100");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_was_changed_or_is_for_another_cell_posts_nothing() {
    let (a, b) = (cell("00a", 100).await, cell("00b", 7).await);
    let (id, document) = a.send("00b", 60).await;
    let doctored = document.replace("\"60\"", "\"600\"");
    assert_ne!(doctored, document);
    let refused = b.request_receive(&doctored).await;
    let wrong = DocumentError::WrongSignature(a.keys.cell);
    assert!(matches!(&refused, Err(TransferError::Document(error)) if *error == wrong), "{refused:?}");
    let (_, for_c) = a.send("00c", 5).await;
    let refused = b.request_receive(&for_c).await;
    let other = DocumentError::OtherAddressee("00c".parse().unwrap());
    assert!(matches!(&refused, Err(TransferError::Document(error)) if *error == other), "{refused:?}");
    // The sender does not receive its own.
    assert!(matches!(a.request_receive(&document).await, Err(TransferError::Document(_))));
    assert!(b.state_of(&id).await.is_none(), "nothing of it is kept");

    let receipt = b.receive(&document).await;
    // The same id with other content, though it is signed.
    let Message::Transfer { environment, transfer } = a.keys.open(&document).unwrap() else { panic!() };
    let more = Transfer { amount_minor: Minor::new(61), ..transfer.clone() };
    let signed = a.keys.sign(&Message::Transfer { environment, transfer: more.clone() }).unwrap();
    let refused = b.request_receive(&signed).await;
    assert!(matches!(refused, Err(TransferError::Conflict(_))), "{refused:?}");
    assert!(matches!(b.request_refuse(&signed).await, Err(TransferError::Conflict(_))));
    let at = transfer.sent_at;
    let receipt_of_more = b.keys.sign(&Message::Receipt { environment, transfer: more, at }).unwrap();
    assert!(matches!(a.confirm(&receipt_of_more).await, Err(TransferError::Conflict(_))));
    let unknown = Transfer { id: TransferId::from_unique("9"), ..transfer };
    let receipt_of_none = b.keys.sign(&Message::Receipt { environment, transfer: unknown, at }).unwrap();
    assert!(matches!(a.confirm(&receipt_of_none).await, Err(TransferError::Unknown(_))));
    assert!(matches!(b.confirm(&receipt).await, Err(TransferError::Document(_))), "its own receipt");
    assert_eq!((a.state(&id).await, b.available().await), (TransferState::Sent, 67));
    assert_eq!(a.confirm(&receipt).await.unwrap(), TransferState::Confirmed);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_sent_or_received_is_refused_when_it_is_requested_and_when_it_is_approved() {
    let (a, b) = (cell("00a", 100).await, cell("00b", 7).await);
    let short = a.request_send("00b", 101).await;
    assert!(matches!(short, Err(TransferError::Ledger(LedgerError::Short(_)))), "{short:?}");
    let nothing = a.request_send("00b", 0).await;
    assert!(matches!(nothing, Err(TransferError::Impossible(TransferFault::Nothing))), "{nothing:?}");
    let stranger = a.request_send("00d", 1).await;
    assert!(matches!(stranger, Err(TransferError::Document(DocumentError::UnknownCell(_)))), "{stranger:?}");
    // Two requests of one account, and an operation of the ledger on it.
    let (first, _) = pending(a.request_send("00b", 60).await);
    let (second, second_id) = pending(a.request_send("00b", 30).await);
    let mut conn = a.harness.pool().acquire().await.unwrap();
    let (owner, asset) = (Owner::Provider("north".into()), "USD".to_owned());
    let withdrawal = Operation::Withdrawal { owner, asset, amount: Minor::new(10) };
    let third = ledger_operations::request(&mut conn, "W-1", &withdrawal, MAKER).await.unwrap();
    a.approve(&first).await.unwrap();
    let moved = a.approve(&second).await;
    assert!(matches!(moved, Err(ApprovalError::Transfer(TransferError::Moved))), "{moved:?}");
    let moved = a.approve(&third.approval.id).await;
    assert!(matches!(moved, Err(ApprovalError::Ledger(LedgerError::Moved))), "{moved:?}");
    deny(&mut conn, &second, "jo", "no longer").await.unwrap();
    assert_eq!((a.available().await, a.state_of(&second_id).await), (40, None));

    let nobody = Transfer {
        id: TransferId::from_unique("7"),
        from: a.keys.cell,
        to: b.keys.cell,
        owner: Owner::Provider("nobody".into()),
        asset: "USD".into(),
        amount_minor: Minor::new(1),
        sent_at: Timestamp::from_millis(1_800_000_000_000),
    };
    let environment = Environment::Test;
    let document = a.keys.sign(&Message::Transfer { environment, transfer: nobody }).unwrap();
    let unknown = b.request_receive(&document).await;
    assert!(matches!(unknown, Err(TransferError::Ledger(LedgerError::UnknownOwner(_)))), "{unknown:?}");
    // The configuration of a new cell lists providers that its ledger does not know yet.
    let listed = Listed { providers: vec!["nobody".into()], assets: Vec::new() };
    let mut conn = b.harness.pool().acquire().await.unwrap();
    let known = transfers::request_receive(&mut conn, &b.keys, &listed, &document, MAKER).await;
    b.approve(&pending(known).0).await.unwrap();
    let mute = Maker { evidence: " ", ..MAKER };
    let refused = transfers::request_refuse(&mut conn, &b.keys, &document, mute).await;
    assert!(matches!(refused, Err(TransferError::NoReason)), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn receiving_and_refusing_at_once_has_one_end_and_so_has_the_sender() {
    for round in 0_u128..6 {
        let (a, b) = (cell("00a", 100).await, cell("00b", 7).await);
        let (id, document) = a.send("00b", 60).await;
        // Eight operators ask for either, and approve whatever they have asked for or find.
        let attempts = (0..8).map(|n| {
            let (b, document) = (&b, &document);
            async move {
                let is_refusal = (n + round) % 2 == 0;
                let requested = if is_refusal {
                    b.request_refuse(document).await
                } else {
                    b.request_receive(document).await
                };
                if let Ok(RequestedTransfer::Pending { approval, .. }) = requested {
                    let mut conn = b.harness.pool().acquire().await.unwrap();
                    drop(approve(&mut conn, &approval.id, "mika", "").await);
                }
            }
        });
        futures_util::future::join_all(attempts).await;
        let state = b.state(&id).await;
        let (held, posted) = (b.available().await, b.postings(&id).await);
        match state {
            TransferState::Received => assert_eq!((held, posted), (67, 1)),
            TransferState::Refused => assert_eq!((held, posted), (7, 0)),
            other => panic!("{other:?}"),
        }
        let answer = b.document(&id).await.unwrap();
        let ends = (0..4).map(|n| {
            let (a, answer) = (&a, &answer);
            async move {
                if n % 2 == 0 {
                    drop(a.confirm(answer).await);
                } else if let Ok(RequestedTransfer::Pending { approval, .. }) =
                    a.request_take_back(answer).await
                {
                    let mut conn = a.harness.pool().acquire().await.unwrap();
                    drop(approve(&mut conn, &approval.id, "mika", "").await);
                }
            }
        });
        futures_util::future::join_all(ends).await;
        let (ended, held) = (a.state(&id).await, a.available().await);
        match state {
            TransferState::Received => assert_eq!((ended, held), (TransferState::Confirmed, 40)),
            _ => assert_eq!((ended, held), (TransferState::TakenBack, 100)),
        }
        both_are_clean(&a, &b, 1, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_ends_once_and_never_changes_otherwise() {
    let a = cell("00a", 100).await;
    let (id, _) = a.send("00b", 60).await;
    let update = |to: TransferState| {
        let (pool, id) = (a.harness.pool().clone(), id.clone());
        tokio::spawn(async move {
            let mut conn = pool.acquire().await.unwrap();
            store::update_state(&mut conn, &id, (TransferState::Sent, to), Some("signed")).await.unwrap()
        })
    };
    let all: Vec<_> = [
        TransferState::Confirmed,
        TransferState::TakenBack,
        TransferState::Confirmed,
        TransferState::TakenBack,
    ]
    .map(update)
    .into();
    let mut changed = 0;
    for one in all {
        changed += usize::from(one.await.unwrap());
    }
    assert_eq!(changed, 1);
    for statement in [
        "update transfer set state = 'sent', answer = null",
        "update transfer set amount = 61",
        "delete from transfer",
        "truncate transfer",
    ] {
        let error = StoreError::from(sqlx::query(statement).execute(a.harness.pool()).await.unwrap_err());
        assert_eq!(error.constraint(), Some("transfer_stays"), "{statement}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_transfer_and_an_unexplained_unit_in_transit_are_breaks() {
    let (a, b) = (cell("00a", 100).await, cell("00b", 7).await);
    let (id, document) = a.send("00b", 60).await;
    pending(b.request_receive(&document).await);
    let overdue = vec![format!("transfer_overdue {id} 0")];
    let (in_time, late) = (4 * 24 - 1, 4 * 24 + 1);
    assert_eq!((a.breaks_in(in_time).await, b.breaks_in(in_time).await), (vec![], vec![]));
    assert_eq!((a.breaks_in(late).await, b.breaks_in(late).await), (overdue.clone(), overdue));
    let short = BooksPatience { transfer: Duration::ZERO, ..PATIENCE };
    let soon = Timestamp::from(chrono::Utc::now()).plus_millis(1_000);
    let report = compare_bank(a.harness.pool(), soon, short).await.unwrap().unwrap();
    assert_eq!((report.breaks.len(), report.transfers, report.accounts), (1, 1, 0));
    let (differences, ..) = a.compared(&b, -1).await;
    assert_eq!(differences, [format!("never_received {id}")]);

    let planted = "insert into ledger_entry (reference, step, line, reason, owner_kind, owner, part, asset, amount) \
                   values ('planted', 1, 1, 'deposit', 'external', 'transit:00b', 'total', 'USD', -1), \
                          ('planted', 1, 2, 'deposit', 'house', '', 'total', 'USD', 1)";
    sqlx::query(planted).execute(a.harness.pool()).await.unwrap();
    assert_eq!(a.breaks_in(0).await, ["transit_differs - 1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_restored_cell_has_lost_is_named_and_done_again_once() {
    let (a, b) = (cell("00a", 100).await, cell("00b", 7).await);
    let (id, document) = a.send("00b", 60).await;
    let receipt = b.receive(&document).await;
    assert_eq!(a.confirm(&receipt).await.unwrap(), TransferState::Confirmed);
    let (refused, refused_document) = a.send("00b", 20).await;
    let refusal = b.refuse(&refused_document).await;
    a.approve(&pending(a.request_take_back(&refusal).await).0).await.unwrap();
    both_are_clean(&a, &b, 2, 0).await;

    // The receiver's database is that of before both.
    let restored_b = cell("00b", 7).await;
    let mut named = vec![format!("receipt_lost {id}"), format!("refusal_lost {refused}")];
    named.sort();
    for found in [restored_b.compared(&a, DAY_MS).await, a.compared(&restored_b, DAY_MS).await] {
        let (mut differences, agreed, in_transit) = found;
        differences.sort();
        assert_eq!((&differences, agreed, in_transit), (&named, 0, 0));
    }
    let again = restored_b.receive(&document).await;
    restored_b.refuse(&refused_document).await;
    assert_eq!(
        a.confirm(&again).await.unwrap(),
        TransferState::Confirmed,
        "a receipt of another time is the same"
    );
    both_are_clean(&a, &restored_b, 2, 0).await;
    assert_eq!(restored_b.available().await, 67);

    // The sender's database is that of before both: what was refused needs nothing.
    let restored_a = cell("00a", 100).await;
    let (differences, agreed, _) = restored_a.compared(&b, DAY_MS).await;
    assert_eq!((differences, agreed), (vec![format!("never_sent {id}")], 1));
    assert!(matches!(restored_a.confirm(&receipt).await, Err(TransferError::Unknown(_))));
    let mut conn = restored_a.harness.pool().acquire().await.unwrap();
    let forged = b.keys.sign(&b.keys.open(&document).unwrap()).unwrap();
    let refused = transfers::request_send_again(&mut conn, &restored_a.keys, &forged, MAKER).await;
    assert!(matches!(refused, Err(TransferError::Document(_))), "{refused:?}");
    let requested = transfers::request_send_again(&mut conn, &restored_a.keys, &document, MAKER).await;
    restored_a.approve(&pending(requested).0).await.unwrap();
    let requested = transfers::request_send_again(&mut conn, &restored_a.keys, &document, MAKER).await;
    assert_eq!(done(requested), TransferState::Sent);
    assert_eq!(restored_a.document(&id).await.unwrap(), document);
    assert_eq!(restored_a.confirm(&receipt).await.unwrap(), TransferState::Confirmed);
    assert_eq!((restored_a.available().await, restored_a.postings(&id).await), (40, 1));
    assert_eq!(restored_a.compared(&b, DAY_MS).await, (vec![], 2, 0));
}

/// A chain with one token, of which one wallet holds an amount.
struct Wallet(i128);

impl TokenBalances for Wallet {
    type Error = StoreError;

    fn chain_id(&self) -> i64 {
        31_337
    }

    fn escrow(&self) -> String {
        "0xe5".to_owned()
    }

    async fn balance(&self, _: &str, address: &str) -> Result<i128, StoreError> {
        Ok(if address == "0xe5" { 0 } else { self.0 })
    }
}

/// Whether a wallet with an amount of USD in tokens agrees with the ledger at an age of the transfers.
async fn agrees(cell: &Cell, held: i128, age_hours: i64) -> bool {
    let now = Timestamp::from(chrono::Utc::now()).plus_millis(age_hours * 3_600_000);
    let mut conn = cell.harness.pool().acquire().await.unwrap();
    let mut in_flight = InFlight::default();
    in_flight.add_transfers(&mut conn, now, 4 * DAY_MS).await.unwrap();
    let report = compare_wallets(&mut conn, &Wallet(held), &in_flight, now).await.unwrap();
    report.balances.iter().all(|balance| balance.differs_since.is_none())
}

#[tokio::test(flavor = "multi_thread")]
async fn wallets_agree_before_during_and_after_a_transfer_to_the_unit() {
    let (a, b) = (cell("00a", 100).await, cell("00b", 7).await);
    for cell in [&a, &b] {
        let mut conn = cell.harness.pool().acquire().await.unwrap();
        let address = |digit: &str| format!("0x{}", digit.repeat(40));
        let wallets = [("north".to_owned(), address("1"))];
        register(&mut conn, &wallets, &[(31_337, "USD".into(), address("2"))]).await.unwrap();
    }
    assert!(agrees(&a, 100, 0).await && agrees(&b, 7, 0).await);
    let (id, document) = a.send("00b", 60).await;
    // The tokens are still here, or have left; nothing between, and not for ever.
    assert!(agrees(&a, 100, 0).await && agrees(&a, 40, 0).await);
    assert!(!agrees(&a, 99, 0).await && !agrees(&a, 41, 0).await && !agrees(&a, 39, 0).await);
    assert!(!agrees(&a, 100, 97).await && agrees(&a, 40, 97).await);
    assert!(!agrees(&b, 67, 0).await, "nobody has told the receiver");
    let (request, _) = pending(b.request_receive(&document).await);
    assert!(agrees(&b, 67, 0).await && agrees(&b, 7, 0).await && !agrees(&b, 66, 0).await);
    b.approve(&request).await.unwrap();
    assert!(agrees(&b, 67, 0).await && !agrees(&b, 7, 0).await);
    let receipt = b.document(&id).await.unwrap();
    a.confirm(&receipt).await.unwrap();
    assert!(agrees(&a, 40, 0).await && !agrees(&a, 100, 0).await);
}
