//! Permits as the guide says to sign them.

use alloy::primitives::Address;
use dvp_core::chain::permit::PermitDomain;
use dvp_domain::intent::Permit;
use dvp_domain::money::Minor;
use serde_json::{Value, json};

use crate::harness::{ApiHarness, Call};

#[test]
fn the_guides_permit_is_signed_as_it_says() {
    let guide = include_str!("../../../docs/api.md");
    let section = guide.split_once("\n## Signing a permit\n").unwrap().1.split("\n## ").next().unwrap();
    let block = |kind: &str| {
        let fence = format!("```{kind}\n");
        let blocks = section.split("```").skip(1).step_by(2).map(|block| format!("```{block}"));
        let blocks = blocks.filter_map(|block| block.strip_prefix(&fence).map(|text| text.trim().to_owned()));
        blocks.collect::<Vec<String>>()
    };
    let data: Value = serde_json::from_str(&block("json")[0]).unwrap();
    let [_, digest, signature] = block("").try_into().unwrap();
    let wallet = section.split_once("whose wallet is `").unwrap().1.split('`').next().unwrap();

    let (domain, message) = (&data["domain"], &data["message"]);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let number = |value: &Value| Minor::parse(value.as_str().unwrap()).unwrap();
    let address: Address = domain["verifyingContract"].as_str().unwrap().parse().unwrap();
    assert_eq!(domain["version"], PermitDomain::VERSION);
    let permits =
        PermitDomain::new(domain["name"].as_str().unwrap(), domain["chainId"].as_u64().unwrap(), address);
    let permit = Permit {
        token: text(&message["token"]),
        amount_minor: number(&message["amount"]),
        spender: text(&message["spender"]),
        nonce: number(&message["nonce"]),
        deadline: message["deadline"].as_u64().unwrap(),
        signature,
    };
    assert_eq!(format!("0x{}", hex::encode(permits.digest(&permit).unwrap())), digest);
    assert_eq!(permits.signer(&permit).unwrap().as_str(), wallet.to_lowercase());
    assert_eq!(block("js").len() + block("python").len(), 3);
}

#[tokio::test]
async fn chains_are_listed_with_the_domain_of_permits() {
    let harness = ApiHarness::new().await;
    let chains = harness.send(&Call::get(&harness.acme, "/v1/chains")).await.ok(200);
    let chain = &chains["chains"][0];
    let domain = &chain["permitDomain"];
    assert_eq!((&domain["name"], &domain["version"]), (&json!("Permit"), &json!("1")));
    assert_eq!(domain["chainId"], chain["chainId"]);
    assert!(domain["verifyingContract"].as_str().unwrap().starts_with("0x"), "{chains}");
}
