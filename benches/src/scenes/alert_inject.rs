//! How the causes of alerts are brought about, and what shows them.

use std::convert::Infallible;
use std::time::Duration;

use dvp_testing::signer::Manner;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::json;
use uuid::Uuid;

use super::alert_faults::{Suspended, call_node, expiring_certificate, refuse_anchors};
use super::alert_scene::{Cure, How, REPAIR, Scene};
use super::alert_table::Cause;
use super::endpoint::Lie;
use super::fix::FixClient;
use super::wait::until;
use crate::rpc::number;

/// How often a request is sent again while a cause lasts.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Payouts of locked tokens.
const PAYING: &str = "where state_name = 'paying'";

impl Scene {
    /// Brings a cause about. Returns what undoes it outside of the service, if anything does.
    pub async fn inject(&mut self, cause: Cause) -> Option<Cure> {
        Some(match cause {
            Cause::ExpiringCertificate => {
                let before = expiring_certificate(&self.sandbox);
                Cure::new("Replace the files of `[fix.tls]`.", How::Files(before))
            }
            Cause::FrozenNode => {
                let node = Suspended::node_of(&self.sandbox);
                Cure::new("Start the node, or name another endpoint in `rpc_urls`.", How::Resume(node))
            }
            Cause::UnavailableDatabase => {
                let database = Suspended::database_of(&self.sandbox);
                Cure::new("Start the primary, or wait for the new one.", How::Resume(database))
            }
            Cause::AnchorBacklog => {
                let before = refuse_anchors(&self.sandbox).await;
                self.token_order().await;
                let step = "Let anchors through again: gas below the cap, a contract and an account that the anchor takes.";
                Cure::new(step, How::Node("anvil_setCode", before))
            }
            Cause::SilentBank => {
                self.place_order_to("bene_silent:dest_10000007").await;
                return None;
            }
            Cause::FullQueue => self.slowing("intent").await,
            Cause::RefusedFixOrder => self.refusing("insert on fix_order", "each row", "22023").await,
            Cause::SlowFixOrders => self.slowing("fix_order").await,
            Cause::DisagreeingEndpoints => {
                self.equipment().endpoint.lie(Some(Lie::NoEvents));
                self.token_order().await;
                Cure::new(
                    "Take the wrong endpoint out of `rpc_urls`, or have its provider repair it.",
                    How::Endpoint,
                )
            }
            Cause::BankCharge => {
                self.place_order_to("000123456789").await;
                self.charge().await;
                return None;
            }
            Cause::LowBalance => {
                let relayer = self.relayer().await;
                call_node(&self.sandbox, "anvil_setBalance", json!([relayer, "0x1"])).await;
                self.token_order().await;
                let more = json!([relayer, "0x56bc75e2d63100000"]);
                Cure::new("Send gas to the account.", How::Node("anvil_setBalance", more))
            }
            Cause::UsedLimit => {
                let limit = ["--scope", "partner", "--target", "acme", "--asset", "USD", "--per", "day"];
                self.decide(&[&["limit", "set"], &limit[..], &["--amount-minor", "10500"]].concat());
                self.accepted().await;
                return None;
            }
            Cause::PriceOutsideItsBand => {
                let band = ["--pair", "USD/EUR", "--bps", "50", "--middle", "1.5"];
                self.decide(&[&["band", "set"], &band[..]].concat());
                self.submitted().await;
                return None;
            }
            Cause::SlowCommits => self.slowing("intent").await,
            Cause::RefusedRow => self.refusing("insert on intent", "each row", "22023").await,
            Cause::UnwritableStep => {
                let cure = self.refusing("update on execution", "each row", "23514").await;
                self.accepted().await;
                cure
            }
            Cause::RefusedDeletion => {
                self.refusing("delete on request_nonce", "each statement", "23514").await
            }
            Cause::MissingTable => {
                let reference = self.accepted().await;
                self.partner.wait_until(&reference, |execution| execution["status"] == "completed").await;
                self.run("alter table receipt rename to receipt_elsewhere").await;
                let path = format!("/v1/executions/{reference}/receipt");
                let (status, answer) = self.partner.get(&path).await;
                assert_eq!(status, 500, "{answer}");
                Cure::sql(REPAIR, "alter table receipt_elsewhere rename to receipt")
            }
            Cause::HeldEndpoint => {
                let request = json!({"url": "https://127.0.0.1:9/", "subscribedTypes": ["payout.completed"]});
                let (status, endpoint) = self.partner.post("/v1/webhook_endpoints", &request).await;
                assert!(status < 300, "{endpoint}");
                let hold = "insert into endpoint_lease (endpoint_id, owner, expires_at) \
                            select id, gen_random_uuid(), now() + interval '1 hour' from webhook_endpoint \
                            on conflict (endpoint_id) do update set owner = excluded.owner, \
                                fence = endpoint_lease.fence + 1, expires_at = excluded.expires_at";
                self.run(hold).await;
                self.accepted().await;
                let release = "update endpoint_lease set expires_at = now()";
                Cure::sql("End the process that holds the endpoint and does not send.", release)
            }
            Cause::HeldFeed => {
                let cure = self.locked("select 1 from webhook_dispatcher for update").await;
                self.accepted().await;
                cure
            }
            Cause::HeldFigures => self.locked("lock table webhook_queue in access exclusive mode").await,
            Cause::HeldLeases => self.locked("lock table lease in exclusive mode").await,
            Cause::HeldReads => self.locked("lock table execution in access exclusive mode").await,
            Cause::HeldLedgerCheck => {
                self.locked("lock table account_balance in access exclusive mode").await
            }
            Cause::HeldTransactions => {
                let cure = self.locked("lock table nonce_slot in exclusive mode").await;
                self.token_order().await;
                cure
            }
            Cause::ExpensiveGas => {
                let price = json!(["0x38d7ea4c68000"]);
                call_node(&self.sandbox, "anvil_setNextBlockBaseFeePerGas", price).await;
                self.token_order().await;
                let step = "Raise `fee_cap_wei`, or wait until gas is cheaper.";
                Cure::new(step, How::Node("anvil_setNextBlockBaseFeePerGas", json!(["0x3b9aca00"])))
            }
            Cause::ChangedBalance => {
                self.run(
                    "begin; set local session_replication_role = replica; \
                     update account_balance set available = available + 1 \
                     where owner_kind = 'partner' and asset = 'USD'; commit",
                )
                .await;
                return None;
            }
            Cause::OtherConfiguration => {
                let other = "insert into process (id, host, version, roles, configuration, seen_at) \
                             values (gen_random_uuid(), 'elsewhere', '0', '{api}', 'other', now() + interval '1 hour')";
                self.run(other).await;
                let alike = "delete from process where host = 'elsewhere'";
                Cure::sql("Start every process with the same configuration.", alike)
            }
            Cause::EndedProcess => {
                self.sandbox.kill().await;
                Cure::new("Start the process.", How::Start)
            }
            Cause::UnreadableList => {
                std::fs::remove_file(self.equipment().list()).unwrap();
                Cure::new("Restore the file, or start the service that screens.", How::List)
            }
            Cause::SilentSigner => {
                self.equipment().signer.answer(Manner::Hang);
                self.token_order().await;
                Cure::new("Start the signer, or put its access right.", How::Signer)
            }
            Cause::FullBacklog => {
                self.run(
                    "insert into chain_command (chain_id, reference, intent_id, entity, escrow, kind, payload, state) \
                     select 31337, 'drill-' || n, 'drill', decode(repeat('00', 32), 'hex'), \
                            decode(repeat('00', 20), 'hex'), 'fill', '{}', 'sent' \
                     from generate_series(1, 100000) n",
                )
                .await;
                let step = "Remove what holds the commands up, or add relayer accounts.";
                Cure::sql(step, "delete from chain_command where intent_id = 'drill'")
            }
            Cause::UnreadableFile => {
                let (elsewhere, inbox) =
                    (self.sandbox.dir().join("garbage"), self.sandbox.dir().join("bank/inbox"));
                std::fs::write(&elsewhere, "garbage \u{0} & <").unwrap();
                std::fs::rename(&elsewhere, inbox.join("garbage.xml")).unwrap();
                return None;
            }
            Cause::ReturnedPayment => {
                self.place_order_to("000123450013").await;
                return None;
            }
            Cause::Contradiction => {
                self.place_order_to("000123450010").await;
                return None;
            }
            Cause::OverduePayout => {
                self.unanswered_payout().await;
                self.run(&format!("update execution set state = jsonb_set(state, '{{lock,deadlines,overdue_at}}', '0'), version = version + 1 {PAYING}")).await;
                return None;
            }
            Cause::Debt => {
                self.unanswered_payout().await;
                self.run(&format!("update execution set state = jsonb_set(state, '{{lock,deadlines,settle_at}}', '0'), version = version + 1 {PAYING}")).await;
                return None;
            }
            Cause::OtherTerms => {
                self.run(
                    "create function cause() returns trigger language plpgsql as \
                     'begin update chain_command set payload = jsonb_set(payload, ''{amount}'', ''\"1\"'') \
                            where kind = ''create'' and state = ''sent''; return null; end'",
                )
                .await;
                self.run("create trigger cause after update on nonce_slot for each statement execute function cause()").await;
                self.token_order().await;
                let step = "Find who acts with the order's id, and take the role from it.";
                Cure::sql(step, "drop function cause cascade")
            }
            Cause::LostFill => {
                self.unanswered_payout().await;
                self.fork_before_the_fill().await;
                return None;
            }
            Cause::DeepFork => {
                // The node keeps too few states for a fork below the blocks that a sandbox takes for final.
                self.run("update chain_cursor set final_number = head_number, version = version + 1").await;
                call_node(&self.sandbox, "anvil_reorg", json!([4, []])).await;
                return None;
            }
        })
    }

    /// The bank takes a fee, and has not been asked about it for days.
    async fn charge(&self) {
        let line = json!({
            "currency": "USD", "amount": -350, "end_to_end_id": null, "bank_reference": "CHARGE-1",
            "text": "account fee", "at": chrono::Utc::now() - chrono::Duration::days(5),
        });
        let books = self.sandbox.dir().join("bank/bank/books/entries");
        std::fs::write(books.join(".charge"), line.to_string()).unwrap();
        std::fs::rename(books.join(".charge"), books.join("charge.json")).unwrap();
    }

    /// A payout of a lock that the bank never answers.
    async fn unanswered_payout(&mut self) {
        let before = self.paying().await;
        self.place_order_to("000123450007").await;
        until("the payout", async || self.paying().await != before).await;
    }

    async fn read_any(&self) {
        self.partner.get(&format!("/v1/executions/{}", Uuid::new_v4())).await;
    }

    async fn paying(&self) -> i64 {
        self.sandbox.one("select count(*) from execution where state_name = 'paying'").await
    }

    /// Replaces the newest fill's block, and those after it, by empty ones.
    async fn fork_before_the_fill(&self) {
        let newest = "select s.block_number from nonce_slot s join slot_command c using (chain_id, signer, nonce) \
                      join chain_command k on k.id = c.command_id where k.kind = 'fill' and s.block_number is not null \
                      order by s.block_number desc limit 1";
        let block = self.sandbox.one::<i64>(newest).await;
        let head = call_node(&self.sandbox, "eth_blockNumber", json!([])).await;
        let head = number(&head).unwrap().cast_signed();
        call_node(&self.sandbox, "anvil_reorg", json!([head - block + 1, []])).await;
    }

    /// Requests that show a cause, until this is dropped.
    pub async fn while_it_lasts(&self, cause: Cause) -> Infallible {
        match cause {
            Cause::SlowCommits | Cause::RefusedRow => loop {
                self.submitted().await;
                tokio::time::sleep(AGAIN_AFTER).await;
            },
            Cause::FullBacklog | Cause::UnreadableList => loop {
                let order = self.order_again().await;
                self.partner.submit(&order).await;
                tokio::time::sleep(AGAIN_AFTER).await;
            },
            // A rate limit refuses many of them.
            Cause::HeldReads => without_waiting(AGAIN_AFTER / 10, || self.read_any()).await,
            Cause::FullQueue => without_waiting(AGAIN_AFTER, || self.submitted()).await,
            Cause::RefusedFixOrder | Cause::SlowFixOrders => loop {
                let wallet = self.sandbox.text("/chain/wallets/0/address");
                let mut client = FixClient::log_on(&self.sandbox).await;
                client.buy_for_money(&Uuid::new_v4().to_string(), &wallet).await;
                tokio::time::sleep(AGAIN_AFTER).await;
            },
            _ => std::future::pending().await,
        }
    }
}

/// Requests that wait for long: new ones do not wait for these.
async fn without_waiting<F: Future<Output = ()>>(apart: Duration, request: impl Fn() -> F) -> Infallible {
    let (mut waiting, mut next) = (FuturesUnordered::new(), tokio::time::interval(apart));
    loop {
        tokio::select! {
            _ = next.tick() => waiting.push(request()),
            Some(()) = waiting.next() => {}
        }
    }
}
