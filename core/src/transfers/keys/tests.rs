use dvp_domain::ids::TransferId;
use dvp_domain::ledger::Owner;
use dvp_domain::money::Minor;
use dvp_domain::time::Timestamp;
use dvp_domain::transfer::Transfer;

use super::*;

fn cell(text: &str) -> CellId {
    text.parse().unwrap()
}

/// The keys of a cell, which lists the others by their seeds.
fn keys(own: (&str, u8), peers: &[(&str, &[u8])]) -> CellKeys {
    let public = |seed: &u8| Ed25519KeyPair::from_seed_unchecked(&[*seed; 32]).unwrap();
    let listed = |seeds: &[u8]| -> Vec<PublicKey> {
        seeds.iter().map(|seed| hex::encode(public(seed).public_key()).parse().unwrap()).collect()
    };
    let peers = peers.iter().map(|(id, seeds)| (cell(id), listed(seeds))).collect();
    CellKeys::new(cell(own.0), Environment::Test, &[own.1; 32], Vec::new(), peers).unwrap()
}

fn sent(to: &str) -> Message {
    let transfer = Transfer {
        id: TransferId::from_unique("1"),
        from: cell("00a"),
        to: cell(to),
        owner: Owner::Provider("north".into()),
        asset: "USD".into(),
        amount_minor: Minor::new(5_000),
        sent_at: Timestamp::from_millis(1_800_000_000_000),
    };
    Message::Transfer { environment: Environment::Test, transfer }
}

#[test]
fn the_addressee_takes_what_the_author_signed_and_its_author_takes_it_back() {
    let (a, b) = (keys(("00a", 1), &[("00b", &[2])]), keys(("00b", 2), &[("00a", &[1])]));
    let document = a.sign(&sent("00b")).unwrap();
    assert_eq!(document, a.sign(&sent("00b")).unwrap(), "the same each time it is written");
    assert_eq!(b.open(&document), Ok(sent("00b")));
    assert_eq!(a.open(&document), Ok(sent("00b")));
    let spaced = serde_json::to_string_pretty(&serde_json::from_str::<Value>(&document).unwrap()).unwrap();
    assert_eq!(b.open(&spaced), Ok(sent("00b")));
}

#[test]
fn every_changed_byte_is_noticed() {
    let (a, b) = (keys(("00a", 1), &[("00b", &[2])]), keys(("00b", 2), &[("00a", &[1])]));
    let document = a.sign(&sent("00b")).unwrap();
    for place in 0..document.len() {
        let mut changed = document.clone().into_bytes();
        changed[place] ^= 1;
        let Ok(changed) = String::from_utf8(changed) else { continue };
        // An upper-case digit of the signature is the same digit.
        if changed.to_lowercase() != document {
            assert!(b.open(&changed).is_err(), "{changed}");
        }
    }
    let more = document.replace("\"5000\"", "\"50000\"");
    assert_eq!(b.open(&more), Err(DocumentError::WrongSignature(cell("00a"))));
}

#[test]
fn a_document_of_or_for_another_is_refused_by_name() {
    let a = keys(("00a", 1), &[("00b", &[2]), ("00c", &[3])]);
    let b = keys(("00b", 2), &[("00a", &[1]), ("00c", &[3])]);
    let for_c = a.sign(&sent("00c")).unwrap();
    assert_eq!(b.open(&for_c), Err(DocumentError::OtherAddressee(cell("00c"))));
    let stranger = keys(("00b", 2), &[("00c", &[3])]);
    let for_b = a.sign(&sent("00b")).unwrap();
    assert_eq!(stranger.open(&for_b), Err(DocumentError::UnknownCell(cell("00a"))));
    // 00c signs in the name of 00a.
    let forged = keys(("00c", 3), &[]).sign(&sent("00b")).unwrap();
    assert_eq!(b.open(&forged), Err(DocumentError::WrongSignature(cell("00a"))));
    let live = CellKeys { environment: Environment::Live, ..keys(("00b", 2), &[("00a", &[1])]) };
    let other = DocumentError::OtherEnvironment { found: "test", here: "live" };
    assert_eq!(live.open(&for_b), Err(other));
    for text in ["", "{}", "[]", r#"{"signed":{},"signature":"00"}"#] {
        assert!(matches!(b.open(text), Err(DocumentError::Malformed(_))), "{text}");
    }
    let long = format!("{for_b}{}", " ".repeat(DOCUMENT_BYTES_MAX));
    assert_eq!(b.open(&long), Err(DocumentError::TooLong { max: DOCUMENT_BYTES_MAX }));
}

#[test]
fn a_key_is_changed_while_documents_are_on_their_way() {
    let (old, new) = (keys(("00a", 1), &[("00b", &[2])]), keys(("00a", 7), &[("00b", &[2])]));
    let (early, late) = (old.sign(&sent("00b")).unwrap(), new.sign(&sent("00b")).unwrap());
    let both = keys(("00b", 2), &[("00a", &[1, 7])]);
    assert_eq!((both.open(&early), both.open(&late)), (Ok(sent("00b")), Ok(sent("00b"))));
    let one = keys(("00b", 2), &[("00a", &[7])]);
    assert_eq!(one.open(&early), Err(DocumentError::WrongSignature(cell("00a"))));
    assert_eq!(new.open(&early), Err(DocumentError::WrongSignature(cell("00a"))));
    let with_earlier = CellKeys { earlier: vec![old.public_key()], ..new };
    assert_eq!(with_earlier.open(&early), Ok(sent("00b")));
}
