//! Accounts whose keys are in a token of SoftHSM2.

use crate::support::signing::{LIMIT, anchor_call, chain_of, deployment, sender};
use crate::support::{Running, vault};
use alloy::primitives::Address;
use alloy::providers::Provider;
use dvp_chain_indexer::signing::{Account, Pin, Pkcs11Config, SignError};
use dvp_testing::softhsm::{self, PIN, TOKEN, with_token};

fn in_token(label: &str, address: Address, pin: &str) -> Account {
    let config = Pkcs11Config {
        module: softhsm::module(),
        token: TOKEN.into(),
        key: label.into(),
        pin: Pin::from(pin),
        address,
        time_limit: LIMIT,
    };
    Account::pkcs11(config).unwrap()
}

fn in_a_token(name: &str, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    with_token(name, || runtime.block_on(test));
}

#[test]
fn a_key_in_a_token_signs_and_the_token_may_be_lost_in_between() {
    in_a_token("tokens::a_key_in_a_token_signs_and_the_token_may_be_lost_in_between", async {
        let address = softhsm::generate_key("relayer-1");
        let account = in_token("relayer-1", address, PIN);
        account.check().await.unwrap();
        let deployment = deployment();
        let mut hashes = std::collections::HashSet::new();
        // Of a random nonce, half of the signatures have a high s before it is made low.
        for _ in 0..16 {
            let signed = account.sign(anchor_call(&deployment, 1)).await.unwrap();
            assert_eq!(sender(&signed.raw), address);
            hashes.insert(signed.hash);
        }
        assert!(hashes.len() > 1, "a token's signatures of one transaction differ");
        // All sessions of a program are logged out together.
        softhsm::session().logout().unwrap();
        account.sign(anchor_call(&deployment, 2)).await.unwrap();
    });
}

#[test]
fn a_token_without_the_key_or_with_another_one_is_found_out() {
    in_a_token("tokens::a_token_without_the_key_or_with_another_one_is_found_out", async {
        let first = softhsm::generate_key("relayer-1");
        let other = softhsm::generate_key("relayer-2");
        let wrong = in_token("relayer-2", first, PIN).check().await.unwrap_err();
        assert!(
            matches!(wrong, SignError::WrongKey { expected, found } if expected == first && found == other)
        );
        let missing = in_token("relayer-3", first, PIN).check().await.unwrap_err();
        assert!(matches!(&missing, SignError::Unusable(why) if why.contains("relayer-3")), "{missing}");
        let nowhere = Pkcs11Config {
            module: "/nowhere/lib.so".into(),
            token: TOKEN.into(),
            key: "relayer-1".into(),
            pin: Pin::from(PIN),
            address: first,
            time_limit: LIMIT,
        };
        let absent = Account::pkcs11(Pkcs11Config {
            token: "other".into(),
            module: softhsm::module(),
            ..nowhere.clone()
        });
        let absent = absent.unwrap().check().await.unwrap_err();
        assert!(matches!(&absent, SignError::Unavailable(why) if why.contains("no token other")), "{absent}");
        let nowhere = Account::pkcs11(nowhere).unwrap().check().await.unwrap_err();
        assert!(matches!(&nowhere, SignError::Unusable(why) if why.contains("/nowhere")), "{nowhere}");
    });
}

#[test]
fn a_wrong_pin_is_tried_once() {
    in_a_token("tokens::a_wrong_pin_is_tried_once", async {
        let address = softhsm::generate_key("relayer-1");
        let account = in_token("relayer-1", address, "000000");
        let refused = account.check().await.unwrap_err();
        assert!(matches!(&refused, SignError::Unusable(why) if why.contains("PinIncorrect")), "{refused}");
        assert!(!refused.to_string().contains("000000"));
        // Not even the right PIN is tried now: whether it is right is not known before.
        for account in [account, in_token("relayer-1", address, PIN)] {
            let refused = account.check().await.unwrap_err();
            assert!(
                matches!(&refused, SignError::Unusable(why) if why.contains("after a restart")),
                "{refused}"
            );
        }
    });
}

#[test]
fn an_account_relays_by_a_token() {
    in_a_token("tokens::an_account_relays_by_a_token", async {
        let address = softhsm::generate_key("relayer-1");
        let chain = chain_of(address).await;
        let _tasks = Running::of(&chain, vec![in_token("relayer-1", address, PIN)], vault());
        let order = chain.scene.order(9).await;
        chain.command("two", chain.scene.create_command(&order)).await;
        chain.anchors(1..=4).await;
        chain.state("two", "create", "done").await;
        assert!(chain.scene.provider.get_transaction_count(address).await.unwrap() >= 2);
    });
}
