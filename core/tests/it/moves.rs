//! A partner's move between two databases, ended anywhere and continued.

use std::collections::BTreeSet;
use std::time::Duration;

use dvp_core::approvals::ApprovalError;
use dvp_core::engine::SubmitCommand;
use dvp_core::ledger_operations::LedgerError;
use dvp_core::moves::{self, HeldBalance, MoveError, Side};
use dvp_core::reconciliation::{PATIENCE, compare_bank};
use dvp_core::requests::Maker;
use dvp_core::secrets::Vault;
use dvp_core::transfers::{self, Draft, Listed, RequestedTransfer, TransferError};
use dvp_core::webhooks::{self, Addressed, Command, CommandOutcome, WebhookError, WebhookRejection};
use dvp_core::writer::{IdempotencyPart, Outcome, Refusal, UsedKey};
use dvp_core::{approvals, keys, ledger_operations, partners};
use dvp_domain::environment::Environment;
use dvp_domain::ids::TransferId;
use dvp_domain::intent::IntentRequest;
use dvp_domain::ledger::Owner;
use dvp_domain::ledger::operation::{Adjusted, Direction, Operation};
use dvp_domain::money::Minor;
use dvp_domain::time::Timestamp;
use dvp_domain::transfer::Transfer;
use dvp_domain::transfer::message::Message;
use dvp_store::ledger::{Deposited, balances};
use dvp_store::moves::list_sessions;
use dvp_store::orders::feed;
use dvp_store::orders::idempotency::StoredResponse;
use dvp_store::orders::intents::Tenant;
use dvp_store::webhooks::Endpoint;
use dvp_store::{PgConnection, deployment};
use dvp_testing::Harness;
use dvp_testing::orders::order;
use dvp_testing::wait::wait_for;

use crate::personal_data::{complete, of_session};
use crate::scenes::{self, fix_session};
use crate::transfers::{MAKER, keys as transfer_keys, pending};

const NAME: &str = "mover";
pub(crate) const SHARED: [u8; 32] = [9; 32];

/// A partner's cell, and another one, to which it moves.
pub(crate) struct Cells {
    pub source: Harness,
    pub target: Harness,
    pub vaults: [Vault; 2],
    ids: [&'static str; 2],
    pub tenant: Tenant,
}

pub(crate) async fn cell(id: &str) -> Harness {
    let mut market = scenes::market().with_funds("north", "USD", 100_000_000_000);
    market.cell = id.parse().ok();
    let harness = Harness::new(market).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    deployment::stamp(&mut conn, Environment::Test).await.unwrap().unwrap();
    deployment::stamp_cell(&mut conn, id.parse().ok()).await.unwrap().unwrap();
    drop(conn);
    harness
}

impl Cells {
    pub(crate) async fn new() -> Self {
        let ids = ["00a", "00b"];
        let (source, target) = (cell(ids[0]).await, cell(ids[1]).await);
        let vaults = [1, 2].map(|byte| Vault::new([byte; 32]).with_shared(SHARED));
        let mut conn = source.pool().acquire().await.unwrap();
        let id = partners::create(&mut conn, NAME, partners::Tier::Standard, None).await.unwrap();
        drop(conn);
        Self { source, target, vaults, ids, tenant: Tenant { partner_id: id, livemode: false } }
    }

    /// The same cells for the way back.
    pub(crate) fn back(self) -> Self {
        let Self { source, target, vaults: [from, to], ids: [here, there], tenant } = self;
        Self { source: target, target: source, vaults: [to, from], ids: [there, here], tenant }
    }

    /// Two operators decide that it moves.
    pub(crate) async fn decide(&self) {
        decide(&self.source, self.ids[1]).await;
    }

    pub(crate) async fn run(&self) -> Result<moves::Progress, MoveError> {
        let [from, to] = &self.vaults;
        run_between([(&self.source, from), (&self.target, to)]).await
    }

    /// Runs the move by which the partner came to the source.
    pub(crate) async fn run_back(&self) -> Result<moves::Progress, MoveError> {
        let [from, to] = &self.vaults;
        run_between([(&self.target, to), (&self.source, from)]).await
    }

    pub(crate) async fn cancel(&self) -> Result<(), MoveError> {
        let mut source = self.source.pool().acquire().await.unwrap();
        let mut target = self.target.pool().acquire().await.unwrap();
        moves::cancel(&mut source, &mut target, NAME, "jo").await.map(|_| ())
    }

    pub(crate) async fn submit(
        &self,
        at: &Harness,
        request: IntentRequest,
        key: Option<IdempotencyPart>,
    ) -> Outcome {
        let command = SubmitCommand { tenant: self.tenant.clone(), request, idempotency: key, fix: None };
        at.engine.submit(command).await.unwrap().outcome
    }

    /// Whether a cell accepts a new order.
    pub(crate) async fn takes(&self, at: &Harness) -> bool {
        match self.submit(at, order("000123456789"), None).await {
            Outcome::Accepted(_) => true,
            Outcome::Refused(Refusal::PartnerMoving) => false,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn intents(&self, at: &Harness) -> BTreeSet<String> {
        let rows: Vec<(String,)> = sqlx::query_as("select intent_id from intent where partner_id = $1")
            .bind(&self.tenant.partner_id)
            .fetch_all(at.pool())
            .await
            .unwrap();
        rows.into_iter().map(|(id,)| id).collect()
    }
}

/// Two operators decide that the partner moves from here.
pub(crate) async fn decide(source: &Harness, target: &str) {
    let mut conn = source.pool().acquire().await.unwrap();
    let maker = Maker { operator: "jo", reason: "full", evidence: "plan 3" };
    let requested = moves::request(&mut conn, NAME, target.parse().unwrap(), maker).await.unwrap();
    approvals::approve(&mut conn, &requested.approval.id, "kim", "").await.unwrap();
}

pub(crate) async fn run_between([from, to]: [(&Harness, &Vault); 2]) -> Result<moves::Progress, MoveError> {
    let mut source = from.0.pool().acquire().await.unwrap();
    let mut target = to.0.pool().acquire().await.unwrap();
    let mut from = Side { conn: &mut source, vault: from.1 };
    let mut to = Side { conn: &mut target, vault: to.1 };
    moves::run(&mut from, &mut to, NAME, "jo").await
}

pub(crate) fn key_of(tenant: &Tenant, key: uuid::Uuid) -> IdempotencyPart {
    scenes::key_of(tenant, key, "/v1/intents")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_ended_anywhere_is_continued_and_never_are_both_cells_open() {
    ended_anywhere(&Cells::new().await).await;
}

/// A move whose runs end after ever more time: each is continued by the next.
pub(crate) async fn ended_anywhere(cells: &Cells) {
    let key = uuid::Uuid::new_v4();
    let first = order("000123456789");
    let part = key_of(&cells.tenant, key);
    let accepted = cells.submit(&cells.source, first.clone(), Some(part.clone())).await;
    assert!(matches!(accepted, Outcome::Accepted(_)), "{accepted:?}");
    cells.decide().await;
    // The first run may close the source however soon it is ended, so this is checked before.
    assert!(cells.takes(&cells.source).await);
    let (mut done, mut seen) = (None, BTreeSet::new());
    for millis in (0..).step_by(3) {
        let ended = tokio::time::timeout(Duration::from_millis(millis), cells.run()).await;
        if let Ok(progress) = ended {
            done = Some(progress.unwrap());
        }
        let here = cells.takes(&cells.source).await;
        let there = if cells.target.count("select count(*) from partner where name = 'mover'").await == 0 {
            false
        } else {
            cells.takes(&cells.target).await
        };
        assert!(!(here && there), "both cells are open after {millis} ms");
        seen.insert((here, there));
        if done.is_some() {
            break;
        }
    }
    let progress = done.unwrap();
    assert_eq!((progress.source_state.as_str(), progress.target_state.as_deref()), ("moved", Some("open")));
    assert!(seen.contains(&(false, true)), "{seen:?}");
    // All that the source accepted is known at the target: the same request is answered as it was, another one under the
    // same id is refused, and the source takes neither.
    assert!(cells.intents(&cells.source).await.is_subset(&cells.intents(&cells.target).await));
    let again = cells.submit(&cells.target, first.clone(), Some(part)).await;
    assert!(matches!(again, Outcome::KeyUsed(UsedKey::Replayed(StoredResponse { .. }))), "{again:?}");
    let other = key_of(&cells.tenant, uuid::Uuid::new_v4());
    let duplicate = cells.submit(&cells.target, first, Some(other)).await;
    assert!(matches!(duplicate, Outcome::Refused(Refusal::DuplicateIntent)), "{duplicate:?}");
    assert!(cells.run().await.is_ok(), "to run it again changes nothing");
    assert!(cells.takes(&cells.target).await && !cells.takes(&cells.source).await);
    assert!(matches!(cells.cancel().await, Err(MoveError::State { .. })));
    // Its steps are in both audit logs.
    let steps = "select count(*) from audit_entry where source = 'partner_move' and entry::jsonb ->> 'id' = \
                 (select id from partner_move order by number desc limit 1)";
    assert_eq!((cells.source.count(steps).await, cells.target.count(steps).await), (3, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_at_the_close_are_committed_before_it_and_copied_or_refused() {
    let cells = Cells::new().await;
    cells.decide().await;
    let submitting = async {
        let mut accepted = BTreeSet::new();
        loop {
            let orders: Vec<IntentRequest> = (0..16).map(|_| order("000123456789")).collect();
            let ids: Vec<String> = orders.iter().map(|order| order.intent_id.clone()).collect();
            let all = orders.into_iter().map(|order| cells.submit(&cells.source, order, None));
            let outcomes = futures_util::future::join_all(all).await;
            let mut is_closed = false;
            for (id, outcome) in ids.into_iter().zip(outcomes) {
                match outcome {
                    Outcome::Accepted(_) => {
                        accepted.insert(id);
                    }
                    Outcome::Refused(Refusal::PartnerMoving) => is_closed = true,
                    other => panic!("{other:?}"),
                }
            }
            if is_closed {
                return accepted;
            }
        }
    };
    let moving = async {
        let begun = "select count(*) from intent";
        wait_for("more than one round", async || (cells.source.count(begun).await > 16).then_some(())).await;
        cells.run().await.unwrap()
    };
    let (accepted, _) = tokio::join!(submitting, moving);
    assert!(accepted.len() > 16);
    assert_eq!(cells.intents(&cells.source).await, accepted);
    assert_eq!(cells.intents(&cells.target).await, accepted, "an accepted order is not known at the target");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deposit_is_posted_in_the_cell_that_accepts_the_partners_orders_and_in_no_other() {
    let cells = Cells::new().await;
    let owner = cells.owner();
    let deposit = |at: &Harness, id: &'static str| {
        let (pool, owner) = (at.pool().clone(), owner.clone());
        async move {
            let mut tx = pool.begin().await.unwrap();
            let noted = balances::deposit(&mut tx, id, &owner, "USD", Minor::new(500)).await.unwrap();
            tx.commit().await.unwrap();
            noted
        }
    };
    let held = async |at: &Harness| {
        let mut conn = at.pool().acquire().await.unwrap();
        balances::find(&mut conn, &owner, "USD").await.unwrap().available.get()
    };
    let mut conn = cells.source.pool().acquire().await.unwrap();
    let credit = Operation::Adjustment {
        account: Adjusted::Available(owner.clone()),
        asset: "USD".to_owned(),
        amount: Minor::new(40),
        direction: Direction::Credit,
    };
    let maker = Maker { operator: "jo", reason: "lost on its way", evidence: "ticket 7" };
    assert_eq!(deposit(&cells.source, "wire-0").await, Deposited::Posted);
    let before = ledger_operations::request(&mut conn, "A-1", &credit, maker).await.unwrap();
    // A deposit in progress keeps the partner open until it is there.
    let mut open = cells.source.pool().begin().await.unwrap();
    balances::deposit(&mut open, "wire-1", &owner, "USD", Minor::new(500)).await.unwrap();
    cells.decide().await;
    let (moving, ()) = tokio::join!(cells.run(), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        open.commit().await.unwrap();
    });
    let held_there = &moving.unwrap().balances;
    assert_eq!((held_there.len(), held_there[0].available_minor.as_str()), (1, "1000"));
    assert_eq!(deposit(&cells.source, "wire-2").await, Deposited::Closed);
    let approved = approvals::approve(&mut conn, &before.approval.id, "kim", "").await;
    assert!(
        matches!(approved, Err(ApprovalError::Ledger(LedgerError::PartnerMoved(_)))),
        "requested before the move: {approved:?}"
    );
    let after = ledger_operations::request(&mut conn, "A-2", &credit, maker).await;
    assert!(matches!(after, Err(LedgerError::PartnerMoved(_))), "{after:?}");
    drop(conn);
    assert_eq!(deposit(&cells.source, "wire-1").await, Deposited::Repeated, "an answer of before the close");
    assert_eq!(held(&cells.source).await, 1_000);
    assert_eq!(deposit(&cells.target, "wire-1").await, Deposited::Repeated, "it was posted at the source");
    assert_eq!(deposit(&cells.target, "wire-2").await, Deposited::Posted);
    assert_eq!(held(&cells.target).await, 500);
}

/// Asks something of a key's endpoint.
async fn ask(
    conn: &mut PgConnection,
    vault: &Vault,
    owner: &webhooks::Owner,
    addressed: Addressed,
    command: Command,
) -> Result<(), WebhookError> {
    let render = |_: &CommandOutcome| StoredResponse { status: 200, body: String::new() };
    webhooks::carry_out(conn, vault, owner, addressed, command, None, render).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_an_endpoint_is_copied_or_refused_and_the_cell_that_was_left_is_changed_by_its_name() {
    use Addressed::{PresentCell, ThisCell};
    let cells = Cells::new().await;
    let [from, to] = &cells.vaults;
    let mut conn = cells.source.pool().acquire().await.unwrap();
    let partner = &cells.tenant.partner_id;
    let key = keys::issue(&mut conn, from, partner, Environment::Test, &[]).await.unwrap();
    let owner = webhooks::Owner { key_id: key.key_id, tenant: cells.tenant.clone() };
    let register = || Command::Register {
        url: "https://one.example".to_owned(),
        subscribed_types: vec!["intent.accepted".to_owned()],
    };
    let redirect =
        |url: &str| Command::Update { url: Some(url.to_owned()), subscribed_types: None, is_active: None };
    ask(&mut conn, from, &owner, PresentCell, register()).await.unwrap();
    // A change in progress keeps the partner open until it is there.
    let mut open = cells.source.pool().begin().await.unwrap();
    ask(&mut open, from, &owner, PresentCell, redirect("https://two.example")).await.unwrap();
    cells.decide().await;
    let (moved, ()) = tokio::join!(cells.run(), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        open.commit().await.unwrap();
    });
    assert_eq!(moved.unwrap().source_state, "moved");
    let endpoint = async |at: &Harness| -> Endpoint {
        let mut conn = at.pool().acquire().await.unwrap();
        dvp_store::webhooks::find_by_key(&mut conn, &owner.key_id).await.unwrap().unwrap()
    };
    assert_eq!(endpoint(&cells.target).await.url, "https://two.example");

    // The map is not written yet: the source is still asked.
    let before = endpoint(&cells.source).await;
    let remove = Command::Remove { endpoint_id: before.id.clone() };
    for command in [Command::Rotate, redirect("https://three.example"), remove, register()] {
        let refused = ask(&mut conn, from, &owner, PresentCell, command.clone()).await;
        let is_refused = matches!(refused, Err(WebhookError::Refused(WebhookRejection::PartnerMoving)));
        assert!(is_refused, "{command:?}: {refused:?}");
    }
    assert_eq!(format!("{:?}", endpoint(&cells.source).await), format!("{before:?}"));
    // It delivers the events of its own orders, and is asked for them.
    ask(&mut conn, from, &owner, PresentCell, Command::Test { kind: None }).await.unwrap();
    ask(&mut conn, from, &owner, ThisCell, redirect("https://four.example")).await.unwrap();
    assert_eq!(endpoint(&cells.source).await.url, "https://four.example");
    let mut there = cells.target.pool().acquire().await.unwrap();
    ask(&mut there, to, &owner, PresentCell, Command::Rotate).await.unwrap();
    let rotated = endpoint(&cells.target).await;
    assert_eq!((rotated.url.as_str(), rotated.secrets.next.is_some()), ("https://two.example", true));
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_stay_keep_no_other_session_of_their_sender_out_of_the_map() {
    let cells = Cells::new().await;
    let session = fix_session(&cells.source, &cells.tenant, "MOVER").await;
    // An old one that is disabled, and one that has a report to make.
    for (begin, service, enabled) in [("FIX.4.2", "DVP", false), ("FIX.4.4", "COPY", true)] {
        sqlx::query(
            "insert into fix_session (session_id, partner_id, livemode, begin_string, client_comp_id, service_comp_id, \
                                      username, password_hash, password_key, enabled) \
             select $1 || ':' || $2 || '->MOVER', partner_id, livemode, $1, client_comp_id, $2, username, password_hash, \
                    password_key, $3 from fix_session where session_id = $4",
        )
        .bind(begin)
        .bind(service)
        .bind(enabled)
        .bind(&session)
        .execute(cells.source.pool())
        .await
        .unwrap();
    }
    for statement in [
        "update fix_session set password_key = 'cells'",
        "insert into fix_parked (session_id, cl_ord_id, message, received_at) values ('FIX.4.4:COPY->MOVER', 'C-1', '', now())",
    ] {
        sqlx::query(statement).execute(cells.source.pool()).await.unwrap();
    }
    cells.decide().await;
    cells.run().await.unwrap();
    let mapped = async |at: &Harness| {
        let mut conn = at.pool().acquire().await.unwrap();
        let (_, sessions) = dvp_store::moves::list_map(&mut conn).await.unwrap();
        sessions.into_iter().map(|one| (one.session_id, one.enabled)).collect::<Vec<_>>()
    };
    let stay = [("FIX.4.2:DVP->MOVER".to_owned(), false), ("FIX.4.4:COPY->MOVER".to_owned(), true)];
    assert_eq!(mapped(&cells.source).await, stay);
    assert_eq!(mapped(&cells.target).await, [(session, true)]);
}

impl Cells {
    pub(crate) fn owner(&self) -> Owner {
        Owner::Partner { id: self.tenant.partner_id.clone(), livemode: false }
    }

    async fn approve(&self, at: &Harness, request: &str) -> Result<(), ApprovalError> {
        let mut conn = at.pool().acquire().await.unwrap();
        let approved = approvals::approve(&mut conn, request, "kim", "").await.map(drop);
        at.check_books().await;
        approved
    }

    /// Prefunded money is sent from the source by two operators. Returns the document.
    async fn send(&self, usd: u128) -> String {
        let here = transfer_keys("00a");
        let (to, asset) = ("00b".parse().unwrap(), "USD".to_owned());
        let draft = Draft { to, owner: self.owner(), asset, amount: Minor::new(usd) };
        let mut conn = self.source.pool().acquire().await.unwrap();
        let (request, id) = pending(transfers::request_send(&mut conn, &here, &draft, MAKER).await);
        self.approve(&self.source, &request).await.unwrap();
        transfers::write_document(&mut conn, &here, &id).await.unwrap()
    }

    async fn request_receive(&self, document: &str) -> Result<RequestedTransfer, TransferError> {
        let mut conn = self.target.pool().acquire().await.unwrap();
        let listed = Listed { providers: Vec::new(), assets: vec!["USD".to_owned()] };
        transfers::request_receive(&mut conn, &transfer_keys("00b"), &listed, document, MAKER).await
    }

    /// What is available at the source and at the target.
    async fn held(&self) -> (u128, u128) {
        let mut held = Vec::new();
        for at in [&self.source, &self.target] {
            let mut conn = at.pool().acquire().await.unwrap();
            held.push(balances::find(&mut conn, &self.owner(), "USD").await.unwrap().available.get());
        }
        (held[0], held[1])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prefunded_money_follows_the_partner_by_transfers_and_is_spendable_in_one_cell() {
    let cells = Cells::new().await;
    let mut conn = cells.source.pool().acquire().await.unwrap();
    balances::deposit(&mut conn, "wire-1", &cells.owner(), "USD", Minor::new(500)).await.unwrap();
    // Before the move the target knows no such partner.
    let first = cells.send(100).await;
    let unknown = cells.request_receive(&first).await;
    assert!(matches!(unknown, Err(TransferError::Ledger(LedgerError::UnknownOwner(_)))), "{unknown:?}");
    // A key that cannot move keeps the partner closed at the target.
    let own = Vault::new([1; 32]);
    let old = keys::issue(&mut conn, &own, &cells.tenant.partner_id, Environment::Test, &[]).await.unwrap();
    cells.decide().await;
    assert!(matches!(cells.run().await, Err(MoveError::Obstacles(_))));
    let closed = cells.request_receive(&first).await;
    assert!(matches!(closed, Err(TransferError::Ledger(LedgerError::PartnerMoved(_)))), "{closed:?}");
    assert_eq!(cells.held().await, (400, 0));
    dvp_store::partners::revoke_key(&mut conn, &old.key_id).await.unwrap();
    let progress = cells.run().await.unwrap();
    let held = HeldBalance {
        asset: "USD".to_owned(),
        available_minor: "400".to_owned(),
        reserved_minor: "0".to_owned(),
    };
    assert_eq!((progress.target_state.as_deref(), progress.balances), (Some("open"), vec![held]));
    let (request, _) = pending(cells.request_receive(&first).await);
    cells.approve(&cells.target, &request).await.unwrap();
    assert_eq!(cells.held().await, (400, 100));

    // What the target refuses is the partner's again at the source, which it has left, and can be sent again.
    let (here, there) = (transfer_keys("00a"), transfer_keys("00b"));
    let second = cells.send(400).await;
    assert_eq!(cells.held().await, (0, 100));
    let mut at_target = cells.target.pool().acquire().await.unwrap();
    let (request, id) = pending(transfers::request_refuse(&mut at_target, &there, &second, MAKER).await);
    cells.approve(&cells.target, &request).await.unwrap();
    let refusal = transfers::write_document(&mut at_target, &there, &id).await.unwrap();
    let (request, _) = pending(transfers::request_take_back(&mut conn, &here, &refusal, MAKER).await);
    cells.approve(&cells.source, &request).await.unwrap();
    assert_eq!(cells.held().await, (400, 100));
    let third = cells.send(400).await;
    let (request, _) = pending(cells.request_receive(&third).await);
    cells.approve(&cells.target, &request).await.unwrap();
    assert_eq!(cells.held().await, (0, 500));
    for at in [&cells.source, &cells.target] {
        let report = compare_bank(at.pool(), Timestamp::from(chrono::Utc::now()), PATIENCE).await.unwrap();
        assert_eq!(report.unwrap().breaks, vec![]);
    }
    // The source's partner receives nothing any more.
    let back = Transfer {
        id: TransferId::from_unique("8"),
        from: there.cell,
        to: here.cell,
        owner: cells.owner(),
        asset: "USD".to_owned(),
        amount_minor: Minor::new(5),
        sent_at: Timestamp::from_millis(1_800_000_000_000),
    };
    let back = there.sign(&Message::Transfer { environment: Environment::Test, transfer: back }).unwrap();
    let refused = transfers::request_receive(&mut conn, &here, &Listed::default(), &back, MAKER).await;
    assert!(matches!(refused, Err(TransferError::Ledger(LedgerError::PartnerMoved(_)))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_sealed_anew_and_what_cannot_move_says_so() {
    let cells = Cells::new().await;
    let [from, to] = &cells.vaults;
    let mut conn = cells.source.pool().acquire().await.unwrap();
    let id = &cells.tenant.partner_id;
    assert!(matches!(cells.run().await, Err(MoveError::NotApproved)));
    // A key whose hash only this cell can make.
    let own = Vault::new([1; 32]);
    let old = keys::issue(&mut conn, &own, id, Environment::Test, &[]).await.unwrap();
    let issued = keys::issue(&mut conn, from, id, Environment::Test, &[]).await.unwrap();
    cells.decide().await;
    let Err(MoveError::Obstacles(named)) = cells.run().await else { panic!("it moved") };
    assert!(named.len() == 1 && named[0].contains(&old.key_id), "{named:?}");
    assert!(cells.takes(&cells.source).await, "what was refused closed nothing");
    // Ended and decided again.
    cells.cancel().await.unwrap();
    assert!(matches!(cells.run().await, Err(MoveError::NotApproved)));
    cells.decide().await;
    dvp_store::partners::revoke_key(&mut conn, &old.key_id).await.unwrap();
    cells.run().await.unwrap();

    let kept: (Vec<u8>, Vec<u8>) =
        sqlx::query_as("select key_hash, sealed_secret from api_key where partner_id = $1")
            .bind(id)
            .fetch_one(cells.target.pool())
            .await
            .unwrap();
    assert_eq!(kept.0, to.api_key_hash(&issued.api_key));
    assert_eq!(to.open(&issued.key_id, &kept.1).unwrap(), issued.signing_secret.as_bytes());
    assert!(from.open(&issued.key_id, &kept.1).is_err());
    let mut there = cells.target.pool().acquire().await.unwrap();
    let (mapped, _) = dvp_store::moves::list_map(&mut there).await.unwrap();
    assert_eq!(mapped, [issued.api_key.chars().take(26).collect::<String>()]);
    let (mapped, _) = dvp_store::moves::list_map(&mut conn).await.unwrap();
    assert_eq!(mapped, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_waits_for_reports_of_events_that_have_left_the_feed() {
    let harness = scenes::harness().await;
    harness.start_workers();
    let reference = harness.accept(order("000123456789")).await.reference;
    complete(&harness, &reference).await;
    of_session(&harness, &reference).await;
    let mut conn = harness.pool().acquire().await.unwrap();
    let aged = "update event set occurred_at = occurred_at - interval '16 days', \
                                 observed_at = observed_at - interval '16 days'";
    sqlx::query(aged).execute(&mut *conn).await.unwrap();
    while feed::trim(&mut conn, 1000).await.unwrap() > 0 {}
    assert_eq!(harness.count("select count(*) from event").await, 0);
    let mut is_busy = async |change: Option<&'static str>| {
        if let Some(change) = change {
            sqlx::query(change).execute(&mut *conn).await.unwrap();
        }
        let sessions = list_sessions(&mut conn, &harness.tenant.partner_id).await.unwrap();
        assert_eq!(sessions.len(), 1);
        sessions[0].is_busy
    };
    assert!(is_busy(None).await, "nothing is reported yet");
    let reported = "update fix_session set feed_position = (select position from feed_counter)";
    assert!(!is_busy(Some(reported)).await);
    let copies = "update fix_session set drop_copy = true, feed_position = feed_position - 1";
    let other = "delete from fix_order";
    assert!(is_busy(Some(copies)).await && is_busy(Some(other)).await, "the last event is not copied yet");
    assert!(!is_busy(Some(reported)).await);
}
