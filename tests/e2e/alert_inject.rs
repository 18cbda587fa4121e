//! How the causes of alerts are brought about, and what shows them.

use std::time::{Duration, Instant};

use alloy::primitives::{Address, B256, U256, keccak256};
use alloy::sol_types::SolValue;
use dvp_testing::signer::Manner;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::json;
use uuid::Uuid;

use crate::alert_causes::Cause;
use crate::alert_faults::call_node;
use crate::alert_scene::{Cure, Scene};

/// How often a request is sent again while a cause lasts.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Payouts of locked tokens.
const PAYING: &str = "where state_name = 'paying'";

impl Scene {
    pub(crate) async fn inject(&mut self, cause: Cause) -> Cure {
        match cause {
            Cause::LowBalance => {
                let relayer = self.relayer().await;
                call_node(self.sandbox(), "anvil_setBalance", json!([relayer, "0x1"])).await;
                self.token_order().await;
                Cure::Node("anvil_setBalance", json!([relayer, "0x56bc75e2d63100000"]))
            }
            Cause::UsedLimit => {
                let limit = ["--scope", "partner", "--target", "acme", "--asset", "USD", "--per", "day"];
                self.decide(&[&["limit", "set"], &limit[..], &["--amount-minor", "10500"]].concat());
                self.accepted().await;
                let remove = "update order_limit set amount = null where scope = 'partner'";
                Cure::Sql(remove.to_owned())
            }
            Cause::PriceOutsideItsBand => {
                let band = ["--pair", "USD/EUR", "--bps", "50", "--middle", "1.5"];
                self.decide(&[&["band", "set"], &band[..]].concat());
                self.submitted().await;
                Cure::Band
            }
            Cause::SlowCommits => {
                self.run(
                    "create function cause() returns trigger language plpgsql as \
                     'begin perform pg_sleep(0.8); return null; end'",
                )
                .await;
                self.run(
                    "create constraint trigger cause after insert on intent deferrable initially deferred \
                     for each row execute function cause()",
                )
                .await;
                Cure::Sql("drop function cause cascade".to_owned())
            }
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
                Cure::Sql("alter table receipt_elsewhere rename to receipt".to_owned())
            }
            Cause::HeldEndpoint => {
                let request = json!({"url": "https://127.0.0.1:9/", "subscribedTypes": ["payout.completed"]});
                let (status, endpoint) = self.partner.post("/v1/webhook_endpoints", &request).await;
                assert!(status < 300, "{endpoint}");
                let hold = "insert into endpoint_lease (endpoint_id, holder, leased_until) \
                            select id, gen_random_uuid(), now() + interval '1 hour' from webhook_endpoint \
                            on conflict (endpoint_id) do update set holder = excluded.holder, \
                                fence = endpoint_lease.fence + 1, leased_until = excluded.leased_until";
                self.run(hold).await;
                self.accepted().await;
                Cure::Sql("update webhook_endpoint set is_active = false".to_owned())
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
                call_node(self.sandbox(), "anvil_setNextBlockBaseFeePerGas", price).await;
                self.token_order().await;
                Cure::Node("anvil_setNextBlockBaseFeePerGas", json!(["0x3b9aca00"]))
            }
            Cause::GiftToEscrow => {
                // OpenZeppelin keeps balances in slot 0.
                let address = |pointer: &str| -> Address { self.sandbox().text(pointer).parse().unwrap() };
                let slot = keccak256((address("/chain/contracts/escrow"), U256::ZERO).abi_encode());
                let token = address("/chain/tokens/0/address");
                let before =
                    call_node(self.sandbox(), "eth_getStorageAt", json!([token, slot, "latest"])).await;
                let more = B256::from(U256::from(7));
                call_node(self.sandbox(), "anvil_setStorageAt", json!([token, slot, more])).await;
                Cure::Node("anvil_setStorageAt", json!([token, slot, before]))
            }
            Cause::ChangedBalance => {
                let change = |sign| {
                    format!(
                        "begin; set local session_replication_role = replica; \
                         update account_balance set available = available {sign} 1 \
                         where owner_kind = 'partner' and asset = 'USD'; commit"
                    )
                };
                self.run(&change("+")).await;
                Cure::Sql(change("-"))
            }
            Cause::EndedProcess => {
                self.kill();
                Cure::Nothing
            }
            Cause::UnreadableList => {
                std::fs::remove_file(self.equipment().list()).unwrap();
                Cure::List
            }
            Cause::SilentSigner => {
                self.equipment().signer.answer(Manner::Hang);
                self.token_order().await;
                Cure::Signer
            }
            Cause::FullBacklog => {
                self.run(
                    "insert into chain_command (chain_id, reference, intent_id, entity, kind, payload, state) \
                     select 31337, 'drill-' || n, 'drill', decode(repeat('00', 32), 'hex'), 'fill', '{}', 'sent' \
                     from generate_series(1, 100000) n",
                )
                .await;
                Cure::Sql("delete from chain_command where intent_id = 'drill'".to_owned())
            }
            Cause::UnreadableFile => {
                let (elsewhere, inbox) =
                    (self.sandbox().dir().join("garbage"), self.sandbox().dir().join("bank/inbox"));
                std::fs::write(&elsewhere, "garbage \u{0} & <").unwrap();
                std::fs::rename(&elsewhere, inbox.join("garbage.xml")).unwrap();
                Cure::Nothing
            }
            Cause::ReturnedPayment => {
                self.order_at_the_bank("000123450013").await;
                Cure::Nothing
            }
            Cause::Contradiction => {
                self.order_at_the_bank("000123450010").await;
                Cure::Nothing
            }
            Cause::OverduePayout => {
                self.unanswered_payout().await;
                self.run(&format!("update execution set state = jsonb_set(state, '{{lock,deadlines,overdue_at}}', '0'), version = version + 1 {PAYING}")).await;
                Cure::Nothing
            }
            Cause::Debt => {
                self.unanswered_payout().await;
                self.run(&format!("update execution set state = jsonb_set(state, '{{lock,deadlines,settle_at}}', '0'), version = version + 1 {PAYING}")).await;
                Cure::Nothing
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
                Cure::Sql("drop function cause cascade".to_owned())
            }
            Cause::LostFill => {
                self.unanswered_payout().await;
                self.fork_before_the_fill().await;
                Cure::Nothing
            }
            Cause::DeepFork => {
                // The node keeps too few states for a fork below the blocks that a sandbox takes for final.
                self.run("update chain_cursor set final_number = head_number, version = version + 1").await;
                call_node(self.sandbox(), "anvil_reorg", json!([4, []])).await;
                Cure::Nothing
            }
        }
    }

    async fn order_at_the_bank(&mut self, account: &str) {
        let order = self.order_to(account).await;
        let (status, answer) = self.partner.submit(&order).await;
        assert_eq!(status, 202, "{answer}");
    }

    /// A payout of a lock that the bank never answers.
    async fn unanswered_payout(&mut self) {
        let before = self.paying().await;
        self.order_at_the_bank("000123450007").await;
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.paying().await == before {
            assert!(Instant::now() < deadline, "the payout does not begin");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn read_any(&self) {
        self.partner.get(&format!("/v1/executions/{}", Uuid::new_v4())).await;
    }

    async fn paying(&self) -> Option<i64> {
        self.number("select count(*) from execution where state_name = 'paying'").await
    }

    /// Replaces the newest fill's block, and those after it, by empty ones.
    async fn fork_before_the_fill(&self) {
        let newest = "select s.block_number from nonce_slot s join slot_command c using (chain_id, signer, nonce) \
                      join chain_command k on k.id = c.command_id where k.kind = 'fill' and s.block_number is not null \
                      order by s.block_number desc limit 1";
        let block = self.number(newest).await.unwrap();
        let head = call_node(self.sandbox(), "eth_blockNumber", json!([])).await;
        let head = i64::from_str_radix(head.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
        call_node(self.sandbox(), "anvil_reorg", json!([head - block + 1, []])).await;
    }

    /// Requests that show a cause, until this is dropped.
    pub(crate) async fn while_it_lasts(&self, cause: Cause) {
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
            // A rate limit refuses many of them, and the others wait for long: new ones do not wait for these.
            Cause::HeldReads => {
                let (mut waiting, mut next) =
                    (FuturesUnordered::new(), tokio::time::interval(AGAIN_AFTER / 10));
                loop {
                    tokio::select! {
                        _ = next.tick() => waiting.push(self.read_any()),
                        Some(()) = waiting.next() => {}
                    }
                }
            }
            // What differs for less than a quarter of an hour counts as in transit.
            Cause::GiftToEscrow => loop {
                self.run("update wallet_balance set differs_since = differs_since - interval '1 hour'").await;
                tokio::time::sleep(AGAIN_AFTER).await;
            },
            _ => std::future::pending().await,
        }
    }
}
