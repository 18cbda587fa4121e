//! Accounts whose keys are in a key management service of a cloud.

use crate::support::key;
use crate::support::signing::{LIMIT, anchor_call, deployment, sender};
use alloy::consensus::TxEnvelope;
use alloy::eips::eip2718::Decodable2718;
use alloy::primitives::{Address, keccak256};
use dvp_chain_indexer::signing::{
    Account, AwsCredentials, AwsKmsConfig, GcpCredentials, GcpKmsConfig, SignError,
};
use dvp_testing::kms::{AWS_KEY, AWS_KEYS, GCP_KEY, Kms, KmsAnswer};
use std::time::Duration;

fn aws(kms: &Kms, address: Address) -> AwsKmsConfig {
    AwsKmsConfig {
        region: "eu-central-1".to_owned(),
        key: AWS_KEY.to_owned(),
        address,
        credentials: AwsCredentials::Keys {
            access_key_id: AWS_KEYS.0.to_owned(),
            secret_access_key: AWS_KEYS.1.to_owned(),
        },
        endpoint: Some(kms.url()),
        time_limit: LIMIT,
    }
}

fn gcp(kms: &Kms, address: Address) -> GcpKmsConfig {
    GcpKmsConfig {
        key: GCP_KEY.to_owned(),
        address,
        credentials: GcpCredentials::Machine { url: kms.url() },
        endpoint: Some(kms.url()),
        time_limit: LIMIT,
    }
}

fn both(kms: &Kms, address: Address) -> [Account; 2] {
    [Account::aws_kms(aws(kms, address)).unwrap(), Account::gcp_kms(gcp(kms, address)).unwrap()]
}

fn s_is_low(raw: &[u8]) -> bool {
    let tx = TxEnvelope::decode_2718(&mut &*raw).unwrap();
    tx.signature().normalize_s().is_none()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_signs_and_its_signatures_have_a_low_s() {
    let (key, deployment) = (key(0x61), deployment());
    let kms = Kms::start(key.clone()).await;
    for (account, kind) in both(&kms, key.address()).into_iter().zip(["aws_kms", "gcp_kms"]) {
        assert_eq!(account.kind(), kind);
        kms.answer(KmsAnswer::Honest);
        account.check().await.unwrap();
        let call = anchor_call(&deployment, 3);
        let signed = account.sign(call.clone()).await.unwrap();
        assert_eq!((sender(&signed.raw), keccak256(&signed.raw)), (key.address(), signed.hash));
        // Half of a service's signatures have a high s: ours is the other form of it.
        kms.answer(KmsAnswer::HighS);
        account.check().await.unwrap();
        let again = account.sign(call).await.unwrap();
        assert_eq!((again.hash, sender(&again.raw)), (signed.hash, key.address()));
        assert!(s_is_low(&again.raw));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_lies_or_hangs_is_found_out() {
    let (key, deployment) = (key(0x61), deployment());
    let kms = Kms::start(key.clone()).await;
    for account in both(&kms, key.address()) {
        let answer = async |manner| {
            kms.answer(manner);
            account.sign(anchor_call(&deployment, 1)).await.unwrap_err()
        };
        for manner in [KmsAnswer::OtherKey, KmsAnswer::OtherDigest] {
            assert!(matches!(answer(manner).await, SignError::WrongKey { .. }), "{manner:?}");
        }
        for manner in [KmsAnswer::Trailing, KmsAnswer::NoDer, KmsAnswer::Garbage, KmsAnswer::NoJson] {
            assert!(matches!(answer(manner).await, SignError::Malformed(_)), "{manner:?}");
        }
        for manner in [KmsAnswer::Broken, KmsAnswer::Throttled] {
            assert!(answer(manner).await.is_absence(), "{manner:?}");
        }
        assert!(matches!(answer(KmsAnswer::Denied).await, SignError::Unusable(_)));

        // The start compares the public key with the configured address before anything is signed.
        let asked = kms.signed();
        for (manner, is_expected) in [
            (
                KmsAnswer::OtherPublicKey,
                (|error| matches!(error, SignError::WrongKey { .. })) as fn(&_) -> bool,
            ),
            (KmsAnswer::OtherCurve, |error| matches!(error, SignError::Unusable(_))),
            (KmsAnswer::Denied, |error| matches!(error, SignError::Unusable(_))),
        ] {
            kms.answer(manner);
            let error = account.check().await.unwrap_err();
            assert!(is_expected(&error), "{manner:?}: {error}");
        }
        assert_eq!(kms.signed(), asked);
        kms.answer(KmsAnswer::Honest);
        account.check().await.unwrap();
    }
    kms.answer(KmsAnswer::Hang);
    let limit = Duration::from_millis(200);
    let impatient = [
        Account::aws_kms(AwsKmsConfig { time_limit: limit, ..aws(&kms, key.address()) }).unwrap(),
        Account::gcp_kms(GcpKmsConfig { time_limit: limit, ..gcp(&kms, key.address()) }).unwrap(),
    ];
    for hanging in impatient {
        assert!(matches!(hanging.sign(anchor_call(&deployment, 1)).await, Err(SignError::TimedOut(_))));
        assert!(matches!(hanging.check().await, Err(SignError::TimedOut(_))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_prove_who_they_are_by_keys_or_by_their_role() {
    let (key, deployment) = (key(0x61), deployment());
    let kms = Kms::start(key.clone()).await;
    let dir = tempfile::tempdir().unwrap();
    let (pod, account_file) = (dir.path().join("pod"), dir.path().join("account.json"));
    std::fs::write(&pod, "pod\n").unwrap();
    std::fs::write(&account_file, kms.service_account()).unwrap();
    let container =
        AwsCredentials::Container { url: format!("{}/container", kms.url()), token_file: Some(pod) };
    let with =
        |credentials| Account::aws_kms(AwsKmsConfig { credentials, ..aws(&kms, key.address()) }).unwrap();
    let file = GcpCredentials::File(account_file.clone());
    let accounts = [
        with(container),
        with(AwsCredentials::Machine { url: kms.url() }),
        Account::gcp_kms(GcpKmsConfig { credentials: file, ..gcp(&kms, key.address()) }).unwrap(),
        Account::gcp_kms(gcp(&kms, key.address())).unwrap(),
    ];
    for account in accounts {
        let before = kms.issued();
        account.check().await.unwrap();
        account.sign(anchor_call(&deployment, 1)).await.unwrap();
        assert_eq!(kms.issued(), before + 1, "credentials are kept until they expire");
        // Others were issued meanwhile, and these are withdrawn: an absence at most, and then there are new ones.
        let other = Account::gcp_kms(gcp(&kms, key.address())).unwrap();
        other.check().await.unwrap();
        if account.kind() == "gcp_kms" {
            assert!(account.check().await.unwrap_err().is_absence());
            account.check().await.unwrap();
        }
    }
    // Keys that the service does not know.
    let unknown = with(AwsCredentials::Keys { access_key_id: "AKIDX".into(), secret_access_key: "x".into() });
    assert!(matches!(unknown.check().await, Err(SignError::Unusable(_))));
    // A file that is no key names its field, and is not quoted.
    std::fs::write(&account_file, "{\"private_key\": \"hidden\"}").unwrap();
    let credentials = GcpCredentials::File(account_file);
    let error = Account::gcp_kms(GcpKmsConfig { credentials, ..gcp(&kms, key.address()) }).unwrap_err();
    assert_eq!(error.field, "service_account");
    assert!(!error.to_string().contains("hidden"));
}
