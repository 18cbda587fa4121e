//! Indicative prices of a symbol: once, and of a subscription whenever they have changed; and quotes of both sides.

use std::time::{Duration, Instant};

use dvp_fix::codec::Message;
use dvp_testing::market::Price;

use super::harness::{FIX_42, FixHarness, LIMIT, VERSIONS, order};

/// Of both sides: types, prices, amounts and levels, one after the other.
const BOTH: &str = "267=2|269=0|269=1|146=1|55=USDC/USD";

/// The values of a repeated tag.
fn all(message: &Message, tag: u32) -> Vec<String> {
    let fields = message.fields().iter().filter(|field| field.tag == tag);
    fields.map(|field| String::from_utf8_lossy(message.value(field)).into_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prices_are_shown_once_and_again_when_they_have_changed() {
    let price = Price::of("USDC", "USD", "1");
    let harness = FixHarness::priced(&price).await;
    let gateway = harness.gateway().await;
    for version in VERSIONS {
        let mut client = gateway.client_of(version).await;
        let once = client.ask("V", &format!("262=once|263=0|264=0|{BOTH}"), "W").await;
        let is_42 = version == FIX_42;
        assert_eq!((once.text(262), once.text(55)), (Some("once"), Some("USDC/USD")), "{once:?}");
        let twice = client.ask("V", "262=t|263=0|264=0|267=3|269=0|269=1|269=0|146=1|55=USDC/USD", "W").await;
        assert_eq!(all(&twice, 270), all(&once, 270), "a type counts once");
        let (sizes, bids) = (all(&once, 271), all(&once, 270));
        // A million is more than an order may have; nobody sells USDC for dollars.
        assert_eq!(sizes.iter().max_by_key(|size| size.len()).unwrap(), "100000", "{once:?}");
        assert_eq!(all(&once, 269).last().unwrap(), "1", "{once:?}");
        assert_eq!((once.text(276), bids.len() - sizes.len()), (Some("B"), usize::from(is_42)), "{once:?}");
        let levels: Vec<f64> = bids[..sizes.len()].iter().map(|bid| bid.parse().unwrap()).collect();
        assert!(levels.is_sorted_by(|one, next| one > next), "the best price first: {once:?}");
        let one = client.ask("V", "262=s|263=1|264=1|265=0|267=1|269=0|146=1|55=USDC/USD", "W").await;
        assert_eq!((all(&one, 270), one.text(268)), (vec![bids[0].clone()], Some("1")), "{one:?}");

        let began = Instant::now();
        price.set(&harness.engine, "0.9");
        let changed = client.expect("W").await;
        assert!(all(&changed, 270)[0] < bids[0], "{changed:?}");
        price.set(&harness.engine, "0.95");
        price.set(&harness.engine, "1");
        let back = client.expect("W").await;
        assert_eq!((all(&back, 270), back.text(262)), (vec![bids[0].clone()], Some("s")), "{back:?}");
        // At most one snapshot a second.
        assert!(began.elapsed() > Duration::from_secs(1), "{:?}", began.elapsed());
        client.send("V", "262=s|263=2|264=1|267=1|269=0|146=1|55=USDC/USD").await;
        price.set(&harness.engine, "0.9");
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        // Orders are answered as ever, and nothing else comes.
        client.send("D", &order("after", "00000008", LIMIT)).await;
        assert_eq!(client.expect("8").await.text(11), Some("after"));
        price.set(&harness.engine, "1");
        // What a peer has missed of them is not sent again.
        client.send("2", "7=1|16=0").await;
        assert_eq!(client.expect("4").await.text(123), Some("Y"));
        let again = client.expect("8").await;
        assert_eq!((again.text(11), again.text(43)), (Some("after"), Some("Y")), "{again:?}");
    }
    assert_eq!(harness.count("select count(*) from fix_outbound where msg_type = 'W'").await, 15);
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_cannot_be_served_is_refused_with_its_reason() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    for version in VERSIONS {
        let mut client = gateway.client_of(version).await;
        client.ask("V", &format!("262=s1|263=1|264=0|265=0|{BOTH}"), "W").await;
        for (body, reason) in [
            ("262=a|263=0|264=0|267=1|269=0|146=1|55=GOLD/USD", "0"),
            ("262=a|263=0|264=0|267=1|269=0|146=1|55=USD/USD", "0"),
            ("262=a|263=0|264=0|267=1|269=0|146=2|55=USDC/USD|55=USDC/USD", "0"),
            ("262=s1|263=0|264=0|267=1|269=0|146=1|55=USDC/USD", "1"),
            ("262=none|263=2|264=0|267=1|269=0|146=1|55=USDC/USD", "1"),
            ("262=a|263=1|264=0|265=1|267=1|269=0|146=1|55=USDC/USD", "6"),
            ("262=a|263=1|264=0|267=1|269=0|146=1|55=USDC/USD", "6"),
            ("262=a|263=0|264=0|267=1|269=2|146=1|55=USDC/USD", "8"),
        ] {
            let refused = client.ask("V", body, "Y").await;
            let id = body.split('|').next().unwrap().trim_start_matches("262=");
            assert_eq!(
                (refused.text(281), refused.text(262)),
                (Some(reason), Some(id)),
                "{body}: {refused:?}"
            );
            assert!(refused.text(58).is_some(), "{refused:?}");
        }
        for n in 2..=20 {
            client.ask("V", &format!("262=s{n}|263=1|264=1|265=0|{BOTH}"), "W").await;
        }
        let refused = client.ask("V", &format!("262=s21|263=1|264=1|265=0|{BOTH}"), "Y").await;
        assert_eq!(refused.text(281), Some("2"), "{refused:?}");
        // They end with the connection.
        client.log_out().await;
        client.reconnect(gateway.addr).await;
        client.log_on(version.2).await;
        client.ask("V", &format!("262=s1|263=1|264=1|265=0|{BOTH}"), "W").await;
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quote_of_both_sides_is_indicative() {
    let harness = FixHarness::new().await;
    let gateway = harness.gateway().await;
    for version in &VERSIONS[1..] {
        let mut client = gateway.client_of(*version).await;
        let firm = client.ask("R", "131=f|146=1|55=USDC/USD|54=2|38=100", "S").await;
        for kind in ["", "|537=0"] {
            let quote = client.ask("R", &format!("131=q|146=1|55=USDC/USD|38=100{kind}"), "S").await;
            assert_eq!((quote.text(537), quote.text(131)), (Some("0"), Some("q")), "{quote:?}");
            assert_eq!((quote.text(132), quote.text(134)), (firm.text(132), Some("100")), "{quote:?}");
            assert_eq!((quote.text(133), quote.text(62)), (None, None), "nobody sells, and nothing is held");
            let id = quote.text(117).unwrap();
            let refused = client.ask("D", &order("d", "00000008", &format!("40=D|117={id}")), "8").await;
            assert_eq!(refused.text(39), Some("8"), "{refused:?}");
        }
        for body in ["54=2|38=100|537=0", "38=100|537=1"] {
            let refused = client.ask("R", &format!("131=q|146=1|55=USDC/USD|{body}"), "AG").await;
            assert_eq!(refused.text(658), Some("99"), "{refused:?}");
        }
    }
    assert_eq!(harness.count("select count(*) from firm_quote").await, 2);
    gateway.stop().await;
}
