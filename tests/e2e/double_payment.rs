//! The user tries to get the tokens back at every moment, while the bank takes days: never both. Funds committed to a
//! payout that failed are returned by two operators.

use std::sync::Arc;
use std::time::Duration;

use alloy::eips::BlockId;
use alloy::primitives::{Address, B256, U256};
use alloy::providers::{DynProvider, Provider, ProviderBuilder};
use alloy::rpc::types::TransactionRequest;
use alloy::signers::SignerSync as _;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{SolCall, SolStruct as _, SolValue, eip712_domain};
use dvp_chain_indexer::contracts::{escrow::Escrow, settler::IntentSettler, token::TestToken};
use dvp_chain_indexer::orders;
use dvp_domain::chain::ChainCommand;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::sync::Mutex;

use crate::partner::Partner;
use crate::served::{Ground, ServedProcess};
use crate::wait::{answer, until};

alloy::sol! {
    /// The message that two operators sign.
    struct ReturnFunds {
        bytes32 intentId;
        uint256 deadline;
    }
}

const HOUR: u64 = 3600;
/// The console's configured address.
const CONSOLE: &str = "http://localhost:8081";
const FUNDS: u64 = 1_000_000_000;
const ORDERED: u64 = 100_000_000;

/// Wants the tokens back, and takes them when the contracts let him.
struct User {
    node: DynProvider,
    wallet: Address,
    settler: Address,
    escrow: Address,
    token: Address,
    database: String,
    /// Calls that went through.
    went_through: Mutex<Vec<&'static str>>,
}

impl User {
    fn of(ground: &Ground) -> Self {
        let deployment = &ground.deployment;
        let node = ProviderBuilder::new().connect_http(ground.anvil.rpc_url().parse().unwrap()).erased();
        Self {
            node,
            wallet: ground.wallet.address(),
            settler: deployment.settler,
            escrow: deployment.escrow,
            token: deployment.tokens[0].address,
            database: ground.database.url().to_owned(),
            went_through: Mutex::default(),
        }
    }

    async fn conn(&self) -> PgConnection {
        PgConnection::connect(&self.database).await.unwrap()
    }

    async fn balance(&self) -> u64 {
        let call = TestToken::balanceOfCall { account: self.wallet }.abi_encode();
        let request = TransactionRequest::default().to(self.token).input(call.into());
        U256::from_be_slice(&self.node.call(request).await.unwrap()).to::<u64>()
    }

    /// The chain's clock goes on by so much.
    async fn wait(&self, secs: u64) {
        let _: Value = self.node.raw_request("evm_increaseTime".into(), json!([secs])).await.unwrap();
        let _: Value = self.node.raw_request("evm_mine".into(), json!([])).await.unwrap();
    }

    /// Cancels or refunds the locked funds, if possible now.
    async fn try_to_get_it_back(&self, conn: &mut PgConnection) {
        let created: Option<(Value,)> =
            sqlx::query_as("select payload from chain_command where kind = 'create'")
                .fetch_optional(conn)
                .await
                .unwrap();
        let Some((payload,)) = created else { return };
        let ChainCommand::Create(create) = serde_json::from_value(payload).unwrap() else { return };
        let (id, order): (B256, _) = (create.entity.parse().unwrap(), orders::order(&create).unwrap());
        let cancel = IntentSettler::cancelCall { intentId: id, order: order.clone() }.abi_encode();
        let refund = [&Escrow::refundCall::SELECTOR[..], &(id, order).abi_encode_params()].concat();
        for (what, to, call) in [("cancel", self.settler, cancel), ("refund", self.escrow, refund)] {
            let request = TransactionRequest::default().from(self.wallet).to(to).input(call.into());
            if self.node.call(request.clone()).await.is_ok() {
                let sent: Result<B256, _> =
                    self.node.raw_request("eth_sendTransaction".into(), json!([request])).await;
                if let Ok(hash) = sent
                    && self.succeeded(hash).await
                {
                    self.went_through.lock().await.push(what);
                }
            }
        }
    }

    async fn succeeded(&self, hash: B256) -> bool {
        loop {
            if let Some(receipt) = self.node.get_transaction_receipt(hash).await.unwrap() {
                return receipt.status();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Again and again.
    fn keeps_trying(self: &Arc<Self>) -> tokio::task::JoinHandle<()> {
        let user = Arc::clone(self);
        tokio::spawn(async move {
            let mut conn = user.conn().await;
            loop {
                user.try_to_get_it_back(&mut conn).await;
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
        })
    }

    async fn until(&self, reference: &str, states: &[&str]) {
        let mut conn = self.conn().await;
        let now = async || -> String {
            let state = sqlx::query_scalar("select state_name from execution where reference = $1");
            state.bind(reference).fetch_one(&mut conn).await.unwrap()
        };
        answer(now, |now| states.contains(&now.as_str())).await;
    }

    /// How often the simulated bank has paid.
    async fn payments(&self) -> i64 {
        let sql = "select coalesce(sum(executed), 0)::int8 from simulated_rail where leg = 'payout'";
        sqlx::query_scalar(sql).fetch_one(&mut self.conn().await).await.unwrap()
    }
}

/// A service whose orders wait long for their bank, and an order of a user who wants the tokens back.
async fn ordered(account: &str) -> (Ground, ServedProcess, Arc<User>, String) {
    let ground = Ground::prepare().await;
    let margin = "timelock_margin = \"20d\"".to_owned();
    let config = ground.configured(&[("timelock_margin = \"1d\"", margin)]);
    let console = format!("[console]\nlisten = \"127.0.0.1:0\"\nurl = \"{CONSOLE}\"\n");
    ground.write("dvp.toml", &format!("{config}{console}"));
    let keys = ground.furnish();
    // A conversion that takes two seconds takes ten.
    let mut conn = PgConnection::connect(ground.database.url()).await.unwrap();
    sqlx::raw_sql(
        "create function later() returns trigger language plpgsql as \
         $$ begin new.first_call := new.first_call + interval '8 s'; return new; end $$; \
         create trigger later before insert on simulated_rail for each row when (new.leg = 'offramp') \
         execute function later()",
    )
    .execute(&mut conn)
    .await
    .unwrap();
    let mut served = ground.serve("api,fix,indexer,worker,console");
    let http = served.ready().await.unwrap();
    let user = Arc::new(User::of(&ground));
    assert_eq!(user.balance().await, FUNDS);
    let service = Box::new(ground.seen_by_a_partner(http, &keys));
    let partner = Partner::of(&service);
    let order = partner.order(&service, 0, account).await;
    let accepted = partner.submit_accepted(&order).await;
    let reference = accepted["reference"].as_str().unwrap().to_owned();
    (ground, served, user, reference)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payout_of_three_days_is_paid_once_and_never_refunded() {
    // A bank that says nothing until an operator finds out.
    let (ground, served, user, reference) = ordered("000123450007").await;
    let trying = user.keeps_trying();
    user.until(&reference, &["paying"]).await;
    let mut conn = user.conn().await;
    for _ in 0..12 {
        user.wait(6 * HOUR).await;
        user.try_to_get_it_back(&mut conn).await;
    }
    assert_eq!(*user.went_through.lock().await, [""; 0]);
    assert_eq!(user.balance().await, FUNDS - ORDERED);
    let words = ["execution", "resolve", "--action", "mark-paid", "--leg", "payout", "--provider-reference"];
    let words = [&words[..], &["B1", "--reason", "statement", "--evidence", "17"]].concat();
    let words = [&words[..], &["--as", "jo", "--reference", &reference, "--confirm"]].concat();
    assert!(ground.refused(&[&words[..], &["exe_other"]].concat()).contains("nothing was decided"));
    let requested = ground.said(&[&words[..], &[&reference]].concat());
    let id = requested["approval"].as_str().unwrap();
    let words = ["approval", "approve", "--id", id, "--as", "kim"];
    until("the decision", async || ground.did(&words)).await;
    user.until(&reference, &["completed"]).await;
    user.wait(30 * 24 * HOUR).await;
    user.try_to_get_it_back(&mut conn).await;
    trying.abort();
    assert_eq!(*user.went_through.lock().await, [""; 0]);
    assert_eq!(user.balance().await, FUNDS - ORDERED, "paid, and not refunded");
    drop(served);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_cancels_before_the_commitment_is_not_paid() {
    // The conversion takes a while.
    let (_ground, served, user, reference) = ordered("000123450006").await;
    user.until(&reference, &["converting"]).await;
    user.wait(HOUR + 60).await;
    let trying = user.keeps_trying();
    // It is seen while the conversion goes on, or by the commitment that comes too late.
    user.until(&reference, &["conversion_failed", "payout_failed"]).await;
    trying.abort();
    assert_eq!(*user.went_through.lock().await, ["cancel"]);
    assert_eq!((user.balance().await, user.payments().await), (FUNDS, 0), "refunded, and not paid");
    drop(served);
}

/// An operator's signature for the return of an order's funds.
fn signed(ground: &Ground, operator: &PrivateKeySigner, entity: &str, deadline: u64) -> String {
    let domain = eip712_domain! {
        name: "IntentSettler",
        version: "1",
        chain_id: ground.deployment.chain_id,
        verifying_contract: ground.deployment.settler,
    };
    let message = ReturnFunds { intentId: entity.parse().unwrap(), deadline: U256::from(deadline) };
    let signature = operator.sign_hash_sync(&message.eip712_signing_hash(&domain)).unwrap();
    format!("0x{}", hex::encode(signature.as_bytes()))
}

/// The words with these signatures.
fn signed_by<'a>(words: &[&'a str], signatures: &[&'a str]) -> Vec<&'a str> {
    let given = signatures.iter().flat_map(|signature| ["--signature", signature]);
    words.iter().copied().chain(given).collect()
}

/// An operator of the console brings both signatures.
async fn return_over_the_console(
    ground: &Ground,
    served: &ServedProcess,
    user: &User,
    reference: &str,
    signed_deadline: &str,
    [first, second]: [&str; 2],
) {
    let words = ["operator", "add", "--name", "pat", "--roles", "operator", "--as", "test"];
    let added = ground.said(&words);
    // As in a sandbox the link is as good as an authentication, so that the operator needs no passkey.
    sqlx::query("update operator_link set reusable = true").execute(&mut user.conn().await).await.unwrap();
    let at = served.address("console=Some(").unwrap();
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let post = |path: String, form: Vec<(&'static str, String)>| {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let request = client.post(format!("http://{at}{path}")).header("origin", CONSOLE);
        request.header("content-type", "application/x-www-form-urlencoded").body(body)
    };
    let token = added["token"].as_str().unwrap().to_owned();
    let signed_in = post("/login".to_owned(), vec![("token", token)]).send().await.unwrap();
    let cookie = signed_in.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let path = format!("/orders/{reference}");
    let page = client.get(format!("http://{at}{path}")).header("cookie", &cookie).send().await.unwrap();
    let page = page.text().await.unwrap();
    assert!(page.contains("Return the committed funds"), "{page}");
    let version: String =
        page.split_once("seen-version=").unwrap().1.chars().take_while(char::is_ascii_digit).collect();
    let form = |second: &str| {
        vec![
            ("action", "return".to_owned()),
            ("reference", reference.to_owned()),
            ("confirm", reference.to_owned()),
            ("seen-version", version.clone()),
            ("signed-deadline", signed_deadline.to_owned()),
            ("signature", format!("{first}\n{second}")),
            ("reason", "the bank refused it".to_owned()),
            ("evidence", "statement 17".to_owned()),
        ]
    };
    let path = "/act/execution/resolve".to_owned();
    let one = post(path.clone(), form(first)).header("cookie", &cookie).send().await.unwrap();
    assert_eq!(one.status(), 409, "one operator twice");
    let both = post(path, form(second)).header("cookie", &cookie).send().await.unwrap();
    assert_eq!(both.status(), 303, "{}", both.text().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn committed_funds_are_returned_by_two_operators_only() {
    // The bank refuses the payout after the commitment.
    let (ground, served, user, reference) = ordered("000123450002").await;
    user.until(&reference, &["payout_failed"]).await;
    let shown = ground.said(&["execution", "show", "--reference", &reference]);
    assert_eq!(shown["state"]["lock"]["filled"], true, "{shown}");
    assert_eq!(user.balance().await, FUNDS - ORDERED);
    let entity = shown["chain"][0]["entity"].as_str().unwrap();
    let now = user.node.get_block(BlockId::latest()).await.unwrap().unwrap().header.timestamp;
    let deadline = now + HOUR;
    let [jo, mika] = ground.operators.each_ref().map(|operator| signed(&ground, operator, entity, deadline));
    let no_operator = signed(&ground, &ground.wallet, entity, deadline);
    let signed_deadline = deadline.to_string();
    let fixed = ["execution", "resolve", "--action", "return", "--signed-deadline", &signed_deadline];
    let why = ["--as", "jo", "--reason", "the bank refused it", "--evidence", "statement 17"];
    let fixed = [&fixed[..], &why, &["--reference", &reference, "--confirm", &reference]].concat();
    let refused = |signatures: &[&str]| ground.refused(&signed_by(&fixed, signatures));
    assert!(refused(&[&jo]).contains("needed twice"), "one operator alone");
    assert!(refused(&[&jo, &jo]).contains("two operators sign"), "one operator twice");
    // The contract refuses a signer that is no operator, and the command's failure is listed.
    assert!(ground.did(&signed_by(&fixed, &[&jo, &no_operator])));
    let listed = async || ground.printed(&["chain", "command", "list"]);
    answer(listed, |listed| listed.contains("NotTwoOperators")).await;
    assert_eq!(user.balance().await, FUNDS - ORDERED);

    return_over_the_console(&ground, &served, &user, &reference, &signed_deadline, [&mika, &jo]).await;
    answer(async || user.balance().await, |balance| *balance == FUNDS).await;
    let returned = async || ground.said(&["execution", "show", "--reference", &reference]);
    answer(returned, |shown| shown["state"]["lock"]["refund_tx"].is_string()).await;
    for held in [
        "select coalesce(sum(amount), 0)::int8 from ledger_entry where owner_kind = 'escrow' and asset = 'USDC'",
        "select coalesce(sum(amount), 0)::int8 from ledger_entry where owner_kind = 'house' and asset = 'USDC'",
    ] {
        assert_eq!(ground.one::<i64>(held).await, 0, "{held}");
    }
    // What the desk has converted was sold back.
    for operator in ["jo", "kim"] {
        let close = ["execution", "resolve", "--action", "close-conversion", "--provider-reference", "T-1"];
        let which = ["--reference", &reference, "--confirm", &reference, "--as", operator];
        let why = ["--reason", "sold back", "--evidence", "ticket 18"];
        assert!(ground.did(&[&close[..], &which, &why].concat()), "{operator} closes the position");
    }
    until("books that agree", async || ground.did(&["reconcile"])).await;
    assert_eq!(user.payments().await, 0, "and the beneficiary was never paid");
    for signatures in [&[jo.as_str()] as &[&str], &[&jo, &jo], &[&jo, &mika]] {
        refused(signatures);
    }
    assert_eq!(user.balance().await, FUNDS);
    drop(served);
}
