use proptest::prelude::*;

use super::*;
use crate::codec::{Encoding, Message, tests::wire};

const HEAD: &str = "34=2|49=ACME|52=20260101-00:00:00|56=DVP";
const ORDER: &str = "11=id|21=1|40=1|54=1|55=INTC|60=20260101-00:00:00";

fn check(rules: &Rules, begin_string: &str, text: &str) -> String {
    let message = Message::parse(&wire(&format!("8={begin_string}|{text}|"))).unwrap();
    match rules.check(message.view()) {
        Ok(()) => "ok".to_owned(),
        Err(fault) => {
            format!("{} {}", fault.reason.code(), fault.tag.unwrap_or_default()).trim_end().to_owned()
        }
    }
}

fn check44(text: &str) -> String {
    check(&Rules::strict("FIX.4.4", "FIX.4.4").unwrap(), "FIX.4.4", text)
}

#[test]
fn a_message_names_the_encoding_of_its_session_or_none() {
    for (encoding, other) in [(Encoding::Utf8, "ISO-8859-1"), (Encoding::Latin1, "UTF-8")] {
        for version in ["FIX.4.2", "FIX.4.4"] {
            let rules = Rules { encoding, ..Rules::strict(version, version).unwrap() };
            let named = |name: &str| check(&rules, version, &format!("35=0|{HEAD}|347={name}"));
            assert_eq!(named(encoding.as_str()), "ok");
            assert_eq!([other, "EUC-JP", "?"].map(named), ["5 347", "5 347", "5 347"]);
        }
    }
}

#[test]
fn each_fault_has_its_reason_and_tag() {
    let order = |extra: &str| format!("35=D|{HEAD}|{ORDER}{extra}");
    let cases = [
        (order(""), "ok"),
        (order("|38=002000.00"), "ok"),
        (format!("35=0|{HEAD}|999=HI"), "0 999"),
        (format!("35=0|{HEAD}|0=HI"), "0 0"),
        (format!("35=0|{HEAD}|-1=HI"), "0 -1"),
        (format!("35=0|{HEAD}|0112=HI"), "0 0112"),
        (format!("35=0|{HEAD}|5000=HI"), "0 5000"),
        (format!("35=0|{HEAD}|55=MSFT"), "2 55"),
        (format!("35=0|{HEAD}|112="), "4 112"),
        (format!("35=*|{HEAD}"), "11"),
        (format!("35=D|{HEAD}|40=1|54=1|55=X|60=20260101-00:00:00"), "1 11"),
        ("35=0|34=2|49=ACME|52=20260101-00:00:00".to_owned(), "1 56"),
        (order("|38=+200.00"), "6 38"),
        (order("|38=1e5"), "6 38"),
        (order("|126=20040415"), "6 126"),
        (order("|167=BOO"), "5 167"),
        (order("|18=1 G 2"), "ok"),
        (order("|18=1 ? 2"), "5 18"),
        (order("|40=2"), "13 40"),
        (order("|34=3"), "14 34"),
        (format!("35=D|55=INTC|{HEAD}|11=id|21=1|40=1|54=1|60=20260101-00:00:00"), "14 34"),
        (order("|386=3|336=A|336=B"), "16 386"),
        (order("|386=2|336=A|336=B"), "ok"),
        (order("|386=0"), "ok"),
        (order("|386=1|625=x|336=A"), "2 336"),
        (order("|453=2|448=A|447=D|452=1|802=1|523=s|803=1|448=B|447=D|452=1"), "ok"),
        (order("|453=1|448=A|447=D|452=1|802=2|523=s|803=1"), "16 802"),
        (order("|453=1|448=A|448=B"), "16 453"),
        (order("|453=1|448=A|447=D|447=D"), "13 447"),
        (order("|453=1|448=A|447=?"), "5 447"),
    ];
    for (text, expected) in cases {
        assert_eq!(check44(&text), expected, "{text}");
    }
}

#[test]
fn the_first_fault_is_reported() {
    // An unknown type before a missing field; a missing field before a bad value; 21 before 40.
    assert_eq!(check44("35=*|34=2"), "11");
    assert_eq!(check44(&format!("35=D|{HEAD}|21=9|40=1|54=1|55=X|60=20260101-00:00:00")), "1 11");
    assert_eq!(check44(&format!("35=D|{HEAD}|11=id|40=?|21=9|54=1|55=X|60=20260101-00:00:00")), "5 21");
    assert_eq!(check44(&format!("35=D|{HEAD}|11=id|21=9|40=1|54=1|55=X|60=20260101-00:00:00|34=2")), "14 34");
}

#[test]
fn fields_of_ours_extend_a_message() {
    let strict = Rules::strict("FIX.4.4", "FIX.4.4").unwrap();
    let ours = Rules { extra: &[("D", FieldDef { tag: 20001, kind: Kind::Integer, values: &[] })], ..strict };
    assert_eq!(check(&ours, "FIX.4.4", &format!("35=D|{HEAD}|{ORDER}|20001=7")), "ok");
    assert_eq!(check(&ours, "FIX.4.4", &format!("35=D|{HEAD}|{ORDER}|20001=x")), "6 20001");
    assert_eq!(check(&ours, "FIX.4.4", &format!("35=0|{HEAD}|20001=7")), "0 20001");
}

#[test]
fn versions_differ_where_the_standard_does() {
    let fix42 = Rules::strict("FIX.4.2", "FIX.4.2").unwrap();
    assert_eq!(check(&fix42, "FIX.4.2", &format!("35=D|{HEAD}|{ORDER}")), "ok");
    assert_eq!(check(&fix42, "FIX.4.2", &format!("35=D|{HEAD}|{}", ORDER.replace("21=1|", ""))), "1 21");
    assert_eq!(check(&fix42, "FIX.4.2", &format!("35=AF|{HEAD}")), "11");
    // The application may refuse it in words of its own.
    let later = Rules { later: &["AF"], ..fix42 };
    assert_eq!(check(&later, "FIX.4.2", &format!("35=AF|{HEAD}|584=m|585=7")), "ok");
    assert_eq!(check(&later, "FIX.4.2", "35=AF|34=2|49=A|56=B|584=m"), "1 52");
    assert_eq!(check(&later, "FIX.4.2", &format!("35=AG|{HEAD}")), "11");
    let fixt = Rules::strict("FIXT.1.1", "FIX.5.0SP2").unwrap();
    assert_eq!(check(&fixt, "FIXT.1.1", &format!("35=A|{HEAD}|98=0|108=30|1137=9")), "ok");
    assert_eq!(check(&fixt, "FIXT.1.1", &format!("35=A|{HEAD}|98=0|108=30")), "1 1137");
    assert_eq!(check(&fixt, "FIXT.1.1", &format!("35=D|{HEAD}|{ORDER}")), "ok");
    assert_eq!(check(&fixt, "FIXT.1.1", &format!("35=0|{HEAD}|999=x")), "0 999", "a field of 5.0 SP2 alone");
    assert_eq!(check(&fixt, "FIXT.1.1", &format!("35=0|{HEAD}|7=1")), "2 7");
    assert_eq!(check(&fixt, "FIXT.1.1", &format!("35=D|{HEAD}|{ORDER}|999=x")), "2 999");
    assert_eq!(check(&fixt, "FIXT.1.1", &format!("35=D|{HEAD}|{ORDER}|1128=9")), "14 1128");
    assert_eq!(check(&fixt, "FIXT.1.1", &format!("35=D|1128=9|{HEAD}|{ORDER}")), "ok");
}

#[test]
fn the_fast_path_accepts_valid_messages() {
    let rules = Rules::strict("FIX.4.4", "FIX.4.4").unwrap();
    let extra: &[(&str, FieldDef)] = &[("D", FieldDef { tag: 20001, kind: Kind::Integer, values: &[] })];
    for text in [
        format!("35=D|{HEAD}|{ORDER}|38=1.5|18=1 G 2|20001=7"),
        format!("35=0|{HEAD}|112=x"),
        format!("35=D|{HEAD}|{ORDER}|386=2|336=A|336=B|625=x|58=text"),
        format!("35=D|{HEAD}|{ORDER}|453=2|448=A|447=D|452=1|802=2|523=s|803=1|523=t|448=B|447=D|452=1|59=0"),
        format!("35=D|{HEAD}|{ORDER}|386=0|58=text"),
        format!("35=R|{HEAD}|131=q|146=1|55=USDC/USD|38=1"),
    ] {
        let message = Message::parse(&wire(&format!("8=FIX.4.4|{text}|"))).unwrap();
        assert!(Rules { extra, ..rules }.is_plainly_right(message.view()), "{text}");
    }
}

proptest! {
    #[test]
    fn the_fast_path_accepts_no_message_with_a_fault(
        version in prop::sample::select(vec![("FIX.4.2", "FIX.4.2"), ("FIX.4.4", "FIX.4.4"), ("FIXT.1.1", "FIX.5.0SP2")]),
        msg_type in prop::sample::select(vec!["D", "0", "A", "8", "AE", "*"]),
        (mut head, mut body) in (
            prop::sample::subsequence(HEAD.split('|').collect::<Vec<_>>(), 2..=4),
            prop::sample::subsequence(ORDER.split('|').collect::<Vec<_>>(), 3..=6),
        ),
        more in prop::collection::vec(prop::sample::select(vec![
            "38=1", "38=x", "54=9", "54=", "40=2", "18=1 G", "18=?", "5000=x", "20001=7", "20001=x", "453=1", "448=A", "0=x",
            "59=0", "43=Y", "97=Q", "627=1", "628=x", "89=s", "58=text", "999=x", "1128=9", "98=0", "108=30", "60=x",
        ]), 0..6),
        groups in prop::collection::vec(prop::sample::select(vec![
            "386=2", "386=1", "386=0", "336=A", "336=B", "625=x", "453=1", "453=2", "448=A", "447=D", "447=?", "452=1",
            "802=1", "802=2", "523=s", "803=1", "78=1", "79=a", "80=1", "58=y", "555=1", "600=L", "11=in", "34=5", "89=s",
        ]), 0..8),
        proper in prop::sample::subsequence(vec!["386=2|336=A|336=B", "453=1|448=A|447=D|452=1", "78=1|79=a|80=1",
            "453=2|448=A|447=D|452=1|802=1|523=s|803=1|448=B|447=D|452=1", "555=1|600=L"], 0..=2),
        shuffled in any::<bool>(),
    ) {
        body.extend(more);
        body.extend(proper);
        body.extend(groups);
        if shuffled {
            std::mem::swap(&mut head, &mut body);
        }
        let text = [head, body].concat().join("|");
        let extra: &[(&str, FieldDef)] = &[("D", FieldDef { tag: 20001, kind: Kind::Integer, values: &[] })];
        let rules = Rules { extra, ..Rules::strict(version.0, version.1).unwrap() };
        let message = Message::parse(&wire(&format!("8={}|35={msg_type}|{text}|", version.0))).unwrap();
        let exact = rules.check_exactly(message.view());
        prop_assert!(exact.is_ok() || !rules.is_plainly_right(message.view()), "{:?}: {:?}", message, exact);
    }
}
