//! The poisoned orders: for every field of an intent, values that an interface may accept and that something behind it may
//! fail on. A field that both interfaces have is poisoned over both.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};

use super::texts::{LINES, documents, longest};
use crate::dice::Dice;

/// An order in form, of which one field is poisoned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Template {
    /// With the details of a beneficiary for each rail.
    FiatToFiat,
    FiatExactOutput,
    FiatRange,
    TokenToFiat,
    TokenExactOutput,
    TokenRange,
    TokenToToken,
    FiatToToken,
    FiatToCoin,
    CoinToFiat,
    Legacy,
}

impl Template {
    pub(super) const fn has_permit(self) -> bool {
        matches!(self, Self::TokenToFiat | Self::TokenExactOutput | Self::TokenRange | Self::TokenToToken)
    }
}

#[derive(Debug, Clone)]
pub(super) enum Poisoned {
    Is(Value),
    /// From the moment at which the order is sent.
    MillisFromNow(i64),
    SecondsFromNow(i64),
    /// Behind an id that no other order has, cut to the longest identifier.
    Unique(String),
}

/// What the partner does once the order is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Nothing,
    EmptiesWallet,
    RevokesAllowance,
    UsesNonce,
    CancelsAfter(Duration),
}

/// JSON pointers that get the value.
pub(super) type Pointers = &'static [&'static str];

/// Where a field is over REST, and its tag over FIX, as far as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Field {
    pub pointers: Pointers,
    pub tag: u32,
}

impl Field {
    pub(super) const ID: Self = Self::new(&["/intentId"], 11);

    pub(super) const fn new(pointers: Pointers, tag: u32) -> Self {
        Self { pointers, tag }
    }

    const fn rest(pointers: Pointers) -> Self {
        Self::new(pointers, 0)
    }

    pub(super) const fn fix(tag: u32) -> Self {
        Self::new(&[], tag)
    }
}

/// An order whose field `at` has the value.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub template: Template,
    pub at: Field,
    pub value: Poisoned,
    pub then: Then,
}

impl Case {
    pub(super) const fn of(template: Template, at: Field, value: Poisoned) -> Self {
        Self { template, at, value, then: Then::Nothing }
    }

    pub(super) fn is(template: Template, at: Field, text: &str) -> Self {
        Self::of(template, at, Poisoned::Is(json!(text)))
    }

    /// An order that is in form.
    fn sound(template: Template, then: Then) -> Self {
        Self { then, ..Self::of(template, Field::ID, Poisoned::Unique(String::new())) }
    }

    pub(super) fn describe(&self) -> String {
        let value = match &self.value {
            Poisoned::Is(value) => value.to_string(),
            other => format!("{other:?}"),
        };
        let short: String = value.chars().take(80).collect();
        let Field { pointers, tag } = self.at;
        format!("{:?} {pointers:?} {tag} {short} {:?}", self.template, self.then)
    }
}

use Template::{
    CoinToFiat, FiatExactOutput, FiatRange, FiatToCoin, FiatToFiat, FiatToToken, Legacy, TokenExactOutput,
    TokenRange, TokenToFiat, TokenToToken,
};

/// Fields whose text is an identifier or a code.
const IDS: [(Template, Pointers, u32); 24] = [
    (FiatToFiat, &["/user"], 20_021),
    (CoinToFiat, &["/user"], 20_021),
    (FiatToFiat, &["/quoteId"], 117),
    (FiatToFiat, &["/outputRecipient"], 20_020),
    (FiatToToken, &["/outputRecipient"], 20_020),
    (FiatToFiat, &["/inputAsset/symbol"], 55),
    (FiatToFiat, &["/inputAsset/chain"], 0),
    (FiatToFiat, &["/inputAsset/currency"], 0),
    (FiatToFiat, &["/outputAsset/symbol"], 0),
    (FiatToFiat, &["/outputAsset/chain"], 0),
    (FiatToFiat, &["/outputAsset/currency"], 0),
    (FiatToFiat, &["/beneficiary/account"], 20_011),
    (FiatToToken, &["/outputAsset/address"], 0),
    (FiatToToken, &["/beneficiary/account"], 1),
    (TokenToFiat, &["/inputAsset/chain"], 0),
    (TokenToFiat, &["/inputAsset/address"], 0),
    (TokenToFiat, &["/beneficiary/account"], 20_011),
    (TokenToFiat, &["/outputRecipient"], 0),
    (TokenToFiat, &["/permit/token"], 0),
    (TokenToFiat, &["/permit/spender"], 0),
    (TokenToFiat, &["/permit/signature"], 20_003),
    (Legacy, &["/clientRef"], 0),
    (Legacy, &["/pair/source"], 0),
    (Legacy, &["/strategy"], 0),
];

/// Fields whose text is a line of any content.
const TEXTS: [(Template, Pointers, u32); 15] = [
    (FiatToFiat, &["/beneficiary/name"], 20_010),
    (TokenToFiat, &["/beneficiary/name"], 20_010),
    (FiatToFiat, &["/beneficiary/bank"], 20_015),
    (FiatToFiat, &["/beneficiary/swiftCode"], 20_014),
    (FiatToFiat, &["/beneficiary/country"], 20_012),
    (FiatToFiat, &["/beneficiary/address/line1"], 20_016),
    (FiatToFiat, &["/beneficiary/address/city"], 20_017),
    (FiatToFiat, &["/beneficiary/address/state"], 20_018),
    (FiatToFiat, &["/beneficiary/address/postalCode"], 20_019),
    (FiatToFiat, &["/metadata/senderKycHash"], 58),
    (FiatToFiat, &["/metadata/depositReference"], 0),
    (FiatToFiat, &["/metadata/currency"], 0),
    (FiatToFiat, &["/metadata/targetStablecoin"], 0),
    (FiatToFiat, &["/metadata/beneficiaryAccount"], 0),
    (FiatToFiat, &["/metadata/beneficiaryName"], 0),
];

const DOCUMENTS: [(Template, Pointers); 4] = [
    (FiatToFiat, &["/metadata"]),
    (FiatToFiat, &["/metadata/travelRuleData"]),
    (FiatToFiat, &["/beneficiary/travelRuleData"]),
    (TokenToFiat, &["/metadata"]),
];

const CHOICES: [(Template, Pointers, u32, &[&str]); 11] = [
    (FiatToFiat, &["/inputAsset/type"], 0, &["erc20", "native"]),
    (TokenToFiat, &["/outputAsset/type"], 0, &["erc20", "native"]),
    (FiatToFiat, &["/side"], 0, &["buy", "sell"]),
    (FiatExactOutput, &["/side"], 0, &["buy", "sell"]),
    (FiatToFiat, &["/actorType"], 0, &["retail"]),
    (TokenToFiat, &["/actorType"], 0, &["retail"]),
    (FiatToFiat, &["/settlementType"], 0, &["onchain", "offchain"]),
    (TokenToToken, &["/settlementType"], 0, &["offchain"]),
    (FiatToFiat, &["/beneficiary/payoutMethod"], 20_013, &["sepa", "ach", "swift"]),
    (FiatToFiat, &["/beneficiary/country"], 20_012, &["ZZ", "aq", "KP", ""]),
    (FiatToFiat, &["/beneficiary/swiftCode"], 20_014, &["nonsense!", "DEUTDEFF", "deutdeffxxx", "A"]),
];

const AMOUNTS: [(Template, Pointers); 14] = [
    (FiatToFiat, &["/inputAmountMinor"]),
    (FiatToFiat, &["/minOutputAmountMinor"]),
    (FiatToToken, &["/inputAmountMinor"]),
    (FiatToCoin, &["/inputAmountMinor"]),
    (FiatExactOutput, &["/output/targetAmountMinor", "/output/limitAmountMinor"]),
    (FiatExactOutput, &["/input/limitAmountMinor"]),
    (FiatRange, &["/output/targetAmountMinor"]),
    (FiatRange, &["/output/limitAmountMinor"]),
    (TokenRange, &["/output/targetAmountMinor"]),
    (TokenToFiat, &["/inputAmountMinor", "/permit/amountMinor"]),
    (TokenExactOutput, &["/output/targetAmountMinor", "/output/limitAmountMinor"]),
    (TokenToToken, &["/inputAmountMinor", "/permit/amountMinor"]),
    (CoinToFiat, &["/inputAmountMinor"]),
    (Legacy, &["/amount"]),
];

/// One minor unit, the first that is worth one of the output's, and the largest numbers of each width.
const NUMBERS: [&str; 10] = [
    "1",
    "2",
    "100",
    "0000000000000000000000000000000000000010000",
    "10001",
    "4294967296",
    "18446744073709551615",
    "99999999999999999999999999999999999999",
    "170141183460469231731687303715884105728",
    "340282366920938463463374607431768211455",
];

/// The end of the year 9999 is the latest time that has a form in ISO 8601.
const LATEST: u64 = 253_402_300_799;
const DEADLINES_MILLIS: [i64; 8] = [1, 40, 300, 1_000, 2_000, 5_000, 86_400_000, 31_622_400_000];
const DEADLINES_SECONDS: [i64; 7] = [0, 1, 2, 3, 10, 301, 31_622_400];
const CANCELLED_AFTER_MILLIS: [u64; 8] = [0, 5, 30, 120, 400, 1_000, 2_500, 6_000];
/// Accounts with which the simulated rails misbehave, by their last four digits.
const SIMULATED: [&str; 8] = ["0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008"];
/// And the bank in files: what it never answers is waited for as long as its rail allows, which is days.
const BANK: [&str; 9] = ["0001", "0002", "0003", "0004", "0005", "0009", "0010", "0011", "0012"];

pub(super) struct Addresses {
    pub recipients: Vec<String>,
    pub payees: Vec<String>,
}

/// The cases of REST: those of both interfaces, and those of fields and forms of its own.
pub(super) fn over_rest(addresses: &Addresses, has_bank: bool, dice: &mut Dice) -> Vec<Case> {
    all(addresses, has_bank, own(), |at| !at.pointers.is_empty(), dice)
}

/// All cases of an interface that has these fields: those that have stopped a loop before, then the others in an order that
/// the seed gives, one of each field before the second of any.
pub(super) fn all(
    addresses: &Addresses,
    has_bank: bool,
    own: Vec<Case>,
    is_there: impl Fn(Field) -> bool,
    dice: &mut Dice,
) -> Vec<Case> {
    let mut cases = texts();
    cases.extend(own);
    cases.extend(terms());
    cases.extend(misbehaving(has_bank));
    cases.extend(to_addresses(addresses));
    for template in [
        FiatToFiat,
        FiatRange,
        TokenToFiat,
        TokenExactOutput,
        TokenRange,
        TokenToToken,
        CoinToFiat,
        FiatToCoin,
    ] {
        cases.extend(aftermaths(template));
    }
    // Its lock is requested after ten seconds.
    let resting = || Case::is(TokenToFiat, Field::new(&["/beneficiary/account"], 20_011), "000123450008");
    cases.extend(cancelled().map(|then| Case { then, ..resting() }));
    let mut ordered = known(addresses, has_bank);
    ordered.extend(interleaved(cases, dice));
    ordered.retain(|case| is_there(case.at));
    ordered
}

/// Orders that once kept all others of their kind from their end.
fn known(Addresses { recipients, payees }: &Addresses, has_bank: bool) -> Vec<Case> {
    let to =
        |template, address: &String| Case::is(template, Field::new(&["/outputRecipient"], 20_020), address);
    // The zero address is the first one.
    let nobody = recipients.iter().take(1);
    let mut cases: Vec<Case> =
        nobody.flat_map(|zero| [to(FiatToToken, zero), to(TokenToToken, zero)]).collect();
    cases.extend(payees.iter().map(|payee| to(FiatToCoin, payee)));
    cases.extend([Then::EmptiesWallet, Then::UsesNonce].map(|then| Case::sound(TokenToFiat, then)));
    let account = if has_bank { "000123450004" } else { "000123450007" };
    cases.push(Case::is(FiatToFiat, Field::new(&["/beneficiary/account"], 20_011), account));
    cases
}

/// One of each field before the second of any, in an order that the seed gives; orders that are in form are apart.
fn interleaved(all: Vec<Case>, dice: &mut Dice) -> Vec<Case> {
    let mut groups: BTreeMap<(Field, bool), VecDeque<Case>> = BTreeMap::new();
    for one in all {
        groups.entry((one.at, one.then == Then::Nothing)).or_default().push_back(one);
    }
    for group in groups.values_mut() {
        dice.shuffle(group.make_contiguous());
    }
    let mut ordered = Vec::new();
    while !groups.is_empty() {
        let mut round: Vec<Case> = groups.values_mut().filter_map(VecDeque::pop_front).collect();
        dice.shuffle(&mut round);
        ordered.extend(round);
        groups.retain(|_, group| !group.is_empty());
    }
    ordered
}

fn texts() -> Vec<Case> {
    let mut cases = Vec::new();
    for field in [Field::ID, Field::rest(&["/clientReference"])] {
        let lines = LINES.map(str::to_owned).into_iter().chain(longest(128));
        cases.extend(lines.map(|line| Case::of(FiatToFiat, field, Poisoned::Unique(line))));
    }
    let ids = IDS.into_iter().map(|field| (field, 128));
    for ((template, pointers, tag), length) in ids.chain(TEXTS.into_iter().map(|field| (field, 1024))) {
        let field = Field::new(pointers, tag);
        cases.extend(LINES.map(|line| Case::is(template, field, line)));
        cases.extend(longest(length).map(|line| Case::is(template, field, &line)));
    }
    for (template, pointers, tag, values) in CHOICES {
        let field = Field::new(pointers, tag);
        cases.extend(values.iter().map(|value| Case::is(template, field, value)));
    }
    cases
}

/// Documents, amounts in minor units, and the older surface.
fn own() -> Vec<Case> {
    let mut cases = Vec::new();
    for (template, pointers) in DOCUMENTS {
        let documents = documents().into_iter().map(Poisoned::Is);
        cases.extend(documents.map(|one| Case::of(template, Field::rest(pointers), one)));
    }
    for (template, pointers) in AMOUNTS {
        cases.extend(NUMBERS.map(|number| Case::is(template, Field::rest(pointers), number)));
    }
    let number = |pointers, number: u64| Case::of(Legacy, Field::rest(pointers), Poisoned::Is(json!(number)));
    cases.extend([1_000, 1_001, 604_800_000].map(|millis| number(&["/constraints/ttlMs"], millis)));
    for bps in [0, 10_000] {
        cases.push(number(&["/constraints/maxSlippageBps"], bps));
        cases.push(number(&["/constraints/maxFeeBps"], bps));
    }
    let strategy = |name| Case::is(Legacy, Field::rest(&["/strategy"]), name);
    cases.extend(["instant", "optimized", "scheduled"].map(strategy));
    cases
}

/// Times, nonces and amounts of permits.
fn terms() -> Vec<Case> {
    let mut cases = Vec::new();
    for template in [FiatToFiat, FiatRange, FiatToToken, TokenToFiat, TokenRange, TokenToToken, CoinToFiat] {
        let at = |time| Case::of(template, Field::new(&["/deadline"], 126), time);
        // The coin is never deposited: such an order lasts until its deadline, or the path's.
        let last = if template == CoinToFiat { 6 } else { DEADLINES_MILLIS.len() };
        cases.extend(
            DEADLINES_MILLIS.into_iter().take(last).map(|millis| at(Poisoned::MillisFromNow(millis))),
        );
        if template != CoinToFiat {
            cases.push(at(Poisoned::Is(json!(LATEST * 1000 + 999))));
        }
    }
    for template in [TokenToFiat, TokenRange, TokenToToken] {
        let at = |time| Case::of(template, Field::new(&["/permit/deadline"], 20_002), time);
        cases.extend(DEADLINES_SECONDS.map(|seconds| at(Poisoned::SecondsFromNow(seconds))));
        cases.push(at(Poisoned::Is(json!(LATEST))));
        let nonce = |nonce| Case::is(template, Field::new(&["/permit/nonce"], 20_001), nonce);
        let nonces = ["1", "2", "18446744073709551615", "340282366920938463463374607431768211455"];
        cases.extend(nonces.map(nonce));
        let amount = |amount| Case::is(template, Field::new(&["/permit/amountMinor"], 20_004), amount);
        cases.extend(["1", "9999999", "340282366920938463463374607431768211455"].map(amount));
    }
    cases
}

fn misbehaving(has_bank: bool) -> Vec<Case> {
    let suffixes: &[&str] = if has_bank { &BANK } else { &SIMULATED };
    let mut cases = Vec::new();
    for template in [FiatToFiat, FiatRange, TokenToFiat, TokenRange] {
        for suffix in suffixes {
            let accounts = [format!("00012345{suffix}"), format!("bene_poisoned:dest_1000{suffix}")];
            let at = Field::new(&["/beneficiary/account"], 20_011);
            cases.extend(accounts.map(|account| Case::is(template, at, &account)));
        }
    }
    cases
}

fn to_addresses(Addresses { recipients, payees }: &Addresses) -> Vec<Case> {
    let all = || recipients.iter().chain(payees);
    let mut cases = Vec::new();
    for template in [FiatToCoin, FiatToToken, TokenToToken] {
        let at = Field::new(&["/outputRecipient"], 20_020);
        cases.extend(all().map(|address| Case::is(template, at, address)));
    }
    for pointers in [&["/permit/spender"] as Pointers, &["/permit/token"], &["/inputAsset/address"]] {
        cases.extend(all().take(8).map(|address| Case::is(TokenToFiat, Field::rest(pointers), address)));
    }
    for template in [CoinToFiat, TokenToFiat, FiatToToken] {
        cases.extend(all().map(|address| Case::is(template, Field::new(&["/user"], 20_021), address)));
    }
    cases
}

/// Orders that are in form, and cancelled or, if they have a permit, spoiled after their acceptance.
fn aftermaths(template: Template) -> impl Iterator<Item = Case> {
    let spoiled = [Then::EmptiesWallet, Then::RevokesAllowance, Then::UsesNonce];
    let spoiled = spoiled.into_iter().cycle().take(if template.has_permit() { 9 } else { 0 });
    spoiled.chain(cancelled()).map(move |then| Case::sound(template, then))
}

fn cancelled() -> impl Iterator<Item = Then> {
    CANCELLED_AFTER_MILLIS.into_iter().map(|millis| Then::CancelsAfter(Duration::from_millis(millis)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::hostile::rest_peers::{leaves, templates};

    fn addresses_of(recipients: [&str; 1], payees: [&str; 1]) -> Addresses {
        Addresses {
            recipients: recipients.map(str::to_owned).into(),
            payees: payees.map(str::to_owned).into(),
        }
    }

    #[test]
    fn one_of_each_field_comes_before_the_second_of_any_and_a_seed_repeats_the_order() {
        let addresses = addresses_of(["0x00"], ["0x01"]);
        let described = |seed| {
            let cases = over_rest(&addresses, false, &mut Dice::new(seed));
            cases.iter().map(Case::describe).collect::<Vec<_>>()
        };
        assert_eq!(described(7), described(7));
        assert_ne!(described(7), described(8));
        let cases = over_rest(&addresses, false, &mut Dice::new(7));
        let fields: BTreeSet<_> = cases.iter().map(|case| case.at).collect();
        let known = known(&addresses, false).len();
        let first: BTreeSet<_> =
            cases.iter().skip(known).take(fields.len() * 2).map(|case| case.at).collect();
        assert_eq!(fields, first);
    }

    /// Callers with hostile texts walk every field of the contract's section 2.5, and of the older surface's body.
    #[test]
    fn every_field_of_an_intent_has_poisoned_values() {
        let cases = over_rest(&addresses_of(["0x00"], ["0x01"]), false, &mut Dice::new(1));
        let poisoned: BTreeSet<&str> =
            cases.iter().flat_map(|case| case.at.pointers.iter().copied()).collect();
        let others = "/quoteId /outputAsset/address /outputAsset/chain /input/limitAmountMinor \
                      /output/targetAmountMinor /output/limitAmountMinor /constraints/ttlMs \
                      /constraints/maxSlippageBps /constraints/maxFeeBps";
        let bodies = templates().unwrap().into_iter().filter(|(path, _)| *path == "/v1/intents");
        let fields = bodies.flat_map(|(_, body)| leaves(&body));
        for field in fields.chain(others.split(' ').map(str::to_owned)) {
            // A pair's other side, and a word.
            let is_left_out = ["/pair/target", "/constraints/settlementPref"].contains(&field.as_str());
            let is_poisoned = poisoned.iter().any(|one| field.starts_with(one));
            assert!(is_poisoned || is_left_out, "{field}");
        }
    }
}
