//! Accounts whose keys are in a remote signer, over TLS.

use crate::support::signing::{LIMIT, anchor_call, chain_of, deployment, sender};
use crate::support::{Chain, Running, anchor, eventually, key, until, vault};
use alloy::primitives::{Address, B256, Bytes, TxKind, keccak256};
use alloy::providers::Provider;
use alloy::sol_types::SolCall;
use dvp_chain_indexer::contracts::settler::IntentSettler;
use dvp_chain_indexer::deploy::Deployment;
use dvp_chain_indexer::relayer::Relayer;
use dvp_chain_indexer::relayer::functions::functions;
use dvp_chain_indexer::signing::{Account, Fees, RemoteConfig, SignError, Unsigned};
use dvp_testing::signer::{Manner, Policy, RemoteSigner};
use serde_json::json;
use std::time::Duration;

fn policy(deployment: &Deployment) -> Policy {
    let functions = functions(deployment).map(|function| (function.contract, function.selector));
    Policy {
        chain_id: deployment.chain_id,
        functions: functions.into(),
        fee_cap_wei: 500_000_000_000,
        per_minute: 1_000,
    }
}

fn remote(signer: &RemoteSigner, address: Address) -> RemoteConfig {
    RemoteConfig {
        url: signer.url().parse().unwrap(),
        address,
        ca: signer.file("ca.pem"),
        client_certificate: signer.file("client.pem"),
        client_key: signer.file("client.key"),
        time_limit: LIMIT,
    }
}

fn code(refusal: Result<impl std::fmt::Debug, SignError>) -> String {
    match refusal {
        Err(SignError::Refused { code, .. }) => code,
        other => format!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_signer_signs_what_its_policy_allows_and_nothing_else() {
    let (key, deployment) = (key(0x51), deployment());
    let signer = RemoteSigner::start(key.clone(), policy(&deployment)).await;
    let account = Account::remote(&remote(&signer, key.address())).unwrap();
    account.check().await.unwrap();
    let good = anchor_call(&deployment, 3);
    let signed = account.sign(good.clone()).await.unwrap();
    assert_eq!(sender(&signed.raw), key.address());
    assert_eq!(keccak256(&signed.raw), signed.hash);
    // An empty transaction to the own account uses up a nonce.
    let filler = Unsigned { to: TxKind::Call(key.address()), input: Bytes::new(), ..good.clone() };
    account.sign(filler).await.unwrap();

    let other_chain = Unsigned { chain_id: 1, ..good.clone() };
    assert_eq!(code(account.sign(other_chain).await), "chain_not_allowed");
    let other_contract = Unsigned { to: TxKind::Call(Address::repeat_byte(9)), ..good.clone() };
    assert_eq!(code(account.sign(other_contract).await), "contract_not_allowed");
    let create = Unsigned { to: TxKind::Create, ..good.clone() };
    assert_eq!(code(account.sign(create).await), "contract_not_allowed");
    // The contract is allowed, and a function of another of its roles is not.
    let grant = Unsigned {
        to: TxKind::Call(deployment.settler),
        input: IntentSettler::grantRoleCall { role: B256::ZERO, account: key.address() }.abi_encode().into(),
        ..good.clone()
    };
    assert_eq!(code(account.sign(grant).await), "function_not_allowed");
    let dear = Unsigned { fees: Fees { max_fee: 1 << 60, priority_fee: 1 }, ..good.clone() };
    assert_eq!(code(account.sign(dear).await), "fee_not_allowed");
    assert_eq!(signer.signed(), 2);

    // Over the rate the signer is not available, for now.
    signer.change_policy(|policy| policy.per_minute = 2);
    match account.sign(good.clone()).await {
        Err(SignError::Unavailable(why)) => assert!(why.contains("rate_exceeded"), "{why}"),
        other => panic!("{other:?}"),
    }
    signer.change_policy(|policy| policy.per_minute = 3);
    account.sign(good).await.unwrap();

    // Transactions that carry value are refused, though this client never makes one.
    let value = json!({
        "address": key.address(), "chainId": "31337", "nonce": "1", "to": deployment.anchor, "value": "1",
        "data": "0x", "gasLimit": "21000", "maxFeePerGas": "1", "maxPriorityFeePerGas": "1",
    });
    let identity = [std::fs::read(signer.file("client.pem")), std::fs::read(signer.file("client.key"))];
    let identity = identity.map(Result::unwrap).concat();
    let client = reqwest::Client::builder()
        .tls_certs_only([
            reqwest::Certificate::from_pem(&std::fs::read(signer.file("ca.pem")).unwrap()).unwrap()
        ])
        .identity(reqwest::Identity::from_pem(&identity).unwrap())
        .build()
        .unwrap();
    let url = format!("{}/v1/sign-transaction", signer.url());
    let answer = client.post(url).json(&value).send().await.unwrap();
    assert_eq!(answer.status(), 403);
    let said: serde_json::Value = answer.json().await.unwrap();
    assert_eq!(said["error"]["code"], "value_not_allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_of_a_remote_signer_prove_who_they_are() {
    let (key, deployment) = (key(0x51), deployment());
    let signer = RemoteSigner::start(key.clone(), policy(&deployment)).await;
    let good = remote(&signer, key.address());

    // A client without a certificate.
    let ca = std::fs::read(signer.file("ca.pem")).unwrap();
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(&ca).unwrap()])
        .build()
        .unwrap();
    client.get(format!("{}/v1/accounts", signer.url())).send().await.unwrap_err();

    // A certificate of another authority.
    let stranger = RemoteConfig {
        client_certificate: signer.file("stranger.pem"),
        client_key: signer.file("stranger.key"),
        ..good.clone()
    };
    let account = Account::remote(&stranger).unwrap();
    assert!(matches!(account.check().await, Err(SignError::Unavailable(_))));
    let refused = account.sign(anchor_call(&deployment, 1)).await;
    assert!(matches!(refused, Err(SignError::Unavailable(_))), "{refused:?}");

    // A signer of another authority, and one of another name.
    let mistaken = RemoteConfig { ca: signer.file("other-ca.pem"), ..good.clone() };
    let said = Account::remote(&mistaken).unwrap().check().await.unwrap_err().to_string();
    assert!(said.contains("invalid peer certificate"), "{said}");
    let address = signer.url().replace("localhost", "127.0.0.1");
    let renamed = RemoteConfig { url: address.parse().unwrap(), ..good.clone() };
    let said = Account::remote(&renamed).unwrap().check().await.unwrap_err().to_string();
    assert!(said.contains("certificate"), "{said}");
    assert_eq!(signer.signed(), 0);

    // A signer without the account's key.
    let other = RemoteConfig { address: Address::repeat_byte(1), ..good.clone() };
    let account = Account::remote(&other).unwrap();
    assert!(matches!(account.check().await, Err(SignError::Unusable(_))));
    let refused = account.sign(anchor_call(&deployment, 1)).await;
    assert!(matches!(refused, Err(SignError::Unusable(_))), "{refused:?}");

    // Settings that cannot be used name their field.
    let field = |config: RemoteConfig| Account::remote(&config).unwrap_err().field;
    assert_eq!(field(RemoteConfig { url: "http://localhost:1".parse().unwrap(), ..good.clone() }), "url");
    assert_eq!(field(RemoteConfig { url: "https://a:b@localhost".parse().unwrap(), ..good.clone() }), "url");
    assert_eq!(field(RemoteConfig { ca: "/nowhere".into(), ..good.clone() }), "ca");
    let key_file = signer.file("client.key");
    assert_eq!(field(RemoteConfig { client_certificate: key_file, ..good.clone() }), "client_certificate");
    assert_eq!(field(RemoteConfig { client_key: signer.file("client.pem"), ..good.clone() }), "client_key");
    assert_eq!(field(RemoteConfig { client_key: signer.file("stranger.key"), ..good }), "client_key");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_signer_that_lies_or_hangs_is_found_out() {
    let (key, deployment) = (key(0x51), deployment());
    let signer = RemoteSigner::start(key.clone(), policy(&deployment)).await;
    let account = Account::remote(&remote(&signer, key.address())).unwrap();
    let answer = async |manner| {
        signer.answer(manner);
        account.sign(anchor_call(&deployment, 1)).await.unwrap_err()
    };
    assert!(matches!(answer(Manner::OtherKey).await, SignError::WrongKey { .. }));
    assert!(matches!(answer(Manner::OtherTransaction).await, SignError::WrongKey { .. }));
    assert!(matches!(answer(Manner::HighS).await, SignError::HighS));
    assert!(matches!(answer(Manner::Garbage).await, SignError::Malformed(_)));
    assert!(matches!(answer(Manner::NoJson).await, SignError::Malformed(_)));
    assert!(matches!(answer(Manner::Endless).await, SignError::Malformed(_)));
    assert!(matches!(answer(Manner::Broken).await, SignError::Unavailable(_)));
    let impatient = RemoteConfig { time_limit: Duration::from_millis(200), ..remote(&signer, key.address()) };
    signer.answer(Manner::Hang);
    let hanging = Account::remote(&impatient).unwrap();
    assert!(matches!(hanging.sign(anchor_call(&deployment, 1)).await, Err(SignError::TimedOut(_))));
    assert!(matches!(hanging.check().await, Err(SignError::TimedOut(_))));
}

async fn stored(chain: &Chain) -> i64 {
    chain.one("select count(*) from tx_attempt").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_relays_by_a_remote_signer_and_stores_no_transaction_without_its_signature() {
    let key = key(0x52);
    let chain = chain_of(key.address()).await;
    let signer = RemoteSigner::start(key.clone(), policy(&chain.scene.deployment)).await;
    let account = Account::remote(&remote(&signer, key.address())).unwrap();

    // Not one lie reaches the database.
    let mut relayer = chain.relayer_of(account.clone());
    let lease = chain.lease("signer").await;
    chain.command("one", anchor(1)).await;
    for lie in Manner::LIES {
        signer.answer(lie);
        let before = signer.signed();
        until(&format!("a transaction is signed wrongly: {lie:?}"), async || {
            relayer.turn(&lease).await.unwrap();
            signer.signed() > before
        })
        .await;
        assert_eq!(stored(&chain).await, 0, "{lie:?}");
    }
    // A refused command waits, and is shown with the reason; other kinds go on.
    signer.answer(Manner::Honest);
    signer.change_policy(|policy| policy.functions.clear());
    let reason = eventually("the refusal is recorded", async || {
        relayer.turn(&lease).await.unwrap();
        chain.one::<Option<String>>("select trouble from chain_command").await
    })
    .await;
    assert!(reason.contains("contract_not_allowed"), "{reason}");
    assert_eq!(stored(&chain).await, 0);
    drop(relayer);

    let allowed = policy(&chain.scene.deployment);
    signer.change_policy(|policy| *policy = allowed);
    let _tasks = Running::of(&chain, vec![account], vault());
    let order = chain.scene.order(9).await;
    chain.command("two", chain.scene.create_command(&order)).await;
    chain.anchors(2..=5).await;
    chain.state("one", "anchor", "done").await;
    chain.state("two", "create", "done").await;
    let nonce = chain.scene.provider.get_transaction_count(key.address()).await.unwrap();
    assert!(nonce >= 2, "{nonce} transactions");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_accounts_take_over_from_a_signer_that_hangs_until_it_answers_again() {
    let key = key(0x53);
    let chain = chain_of(key.address()).await;
    let signer = RemoteSigner::start(key.clone(), policy(&chain.scene.deployment)).await;
    let config = RemoteConfig { time_limit: Duration::from_millis(500), ..remote(&signer, key.address()) };
    let hanging = Account::remote(&config).unwrap();
    signer.answer(Manner::Hang);
    let local: Account = chain.scene.relayer.clone().into();
    let _tasks = Running::of(&chain, vec![hanging, local], vault());
    chain.anchors(1..=8).await;
    let provider = &chain.scene.provider;
    assert_eq!(provider.get_transaction_count(key.address()).await.unwrap(), 0);
    // It comes back by itself, and takes its share.
    signer.answer(Manner::Honest);
    let mut byte = 100;
    until("the signer is used again", async || {
        byte += 1;
        chain.anchors(std::iter::once(byte)).await;
        provider.get_transaction_count(key.address()).await.unwrap() > 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_holds_no_connection_of_the_database() {
    let key = key(0x54);
    let chain = chain_of(key.address()).await;
    let signer = RemoteSigner::start(key.clone(), policy(&chain.scene.deployment)).await;
    let account = Account::remote(&remote(&signer, key.address())).unwrap();
    signer.answer(Manner::Hang);
    chain.command("one", anchor(1)).await;
    // A pool of its own, so that every connection in use is the relayer's.
    let options = (*chain.pool().connect_options()).clone();
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    let mut relayer = Relayer::new(pool.clone(), chain.config.clone(), account, vault()).unwrap();
    let lease = chain.lease("signer").await;
    let turning = tokio::spawn(async move { relayer.turn(&lease).await });
    until("the signature is waited for", async || signer.signed() > 0).await;
    let one: i32 = sqlx::query_scalar("select 1").fetch_one(&pool).await.unwrap();
    assert_eq!(one, 1);
    let open: i64 = sqlx::query_scalar(
        "select count(*) from pg_stat_activity
         where datname = current_database() and state like 'idle in transaction%'",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(open, 0);
    turning.abort();
}
