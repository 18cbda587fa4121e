//! The poisoned orders over REST: for every field of an intent, values that the interface may accept and that something
//! behind it may fail on.

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

/// The value of a field.
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

/// An order whose field `at` has the value.
#[derive(Debug, Clone)]
pub(super) struct Case<F> {
    pub template: Template,
    pub at: F,
    pub value: Poisoned,
    pub then: Then,
}

/// JSON pointers that get the value.
pub(super) type Pointers = &'static [&'static str];

impl<F> Case<F> {
    pub(super) const fn of(template: Template, at: F, value: Poisoned) -> Self {
        Self { template, at, value, then: Then::Nothing }
    }
}

impl<F: std::fmt::Debug> Case<F> {
    pub(super) fn describe(&self) -> String {
        let value = match &self.value {
            Poisoned::Is(value) => value.to_string(),
            other => format!("{other:?}"),
        };
        let short: String = value.chars().take(80).collect();
        format!("{:?} {:?} {short} {:?}", self.template, self.at, self.then)
    }
}

/// Fields whose text is an identifier or a code.
const IDS: [(Template, &[&str]); 22] = {
    use Template::{FiatToFiat, FiatToToken, Legacy, TokenToFiat};
    [
        (FiatToFiat, &["/user"]),
        (FiatToFiat, &["/quoteId"]),
        (FiatToFiat, &["/outputRecipient"]),
        (FiatToFiat, &["/inputAsset/symbol"]),
        (FiatToFiat, &["/inputAsset/chain"]),
        (FiatToFiat, &["/inputAsset/currency"]),
        (FiatToFiat, &["/outputAsset/symbol"]),
        (FiatToFiat, &["/outputAsset/chain"]),
        (FiatToFiat, &["/outputAsset/currency"]),
        (FiatToFiat, &["/beneficiary/account"]),
        (FiatToToken, &["/outputAsset/address"]),
        (FiatToToken, &["/beneficiary/account"]),
        (TokenToFiat, &["/inputAsset/chain"]),
        (TokenToFiat, &["/inputAsset/address"]),
        (TokenToFiat, &["/beneficiary/account"]),
        (TokenToFiat, &["/outputRecipient"]),
        (TokenToFiat, &["/permit/token"]),
        (TokenToFiat, &["/permit/spender"]),
        (TokenToFiat, &["/permit/signature"]),
        (Legacy, &["/clientRef"]),
        (Legacy, &["/pair/source"]),
        (Legacy, &["/strategy"]),
    ]
};

/// Fields whose text is a line of any content.
const TEXTS: [(Template, &[&str]); 15] = {
    use Template::{FiatToFiat, TokenToFiat};
    [
        (FiatToFiat, &["/beneficiary/name"]),
        (TokenToFiat, &["/beneficiary/name"]),
        (FiatToFiat, &["/beneficiary/bank"]),
        (FiatToFiat, &["/beneficiary/swiftCode"]),
        (FiatToFiat, &["/beneficiary/country"]),
        (FiatToFiat, &["/beneficiary/address/line1"]),
        (FiatToFiat, &["/beneficiary/address/city"]),
        (FiatToFiat, &["/beneficiary/address/state"]),
        (FiatToFiat, &["/beneficiary/address/postalCode"]),
        (FiatToFiat, &["/metadata/senderKycHash"]),
        (FiatToFiat, &["/metadata/depositReference"]),
        (FiatToFiat, &["/metadata/currency"]),
        (FiatToFiat, &["/metadata/targetStablecoin"]),
        (FiatToFiat, &["/metadata/beneficiaryAccount"]),
        (FiatToFiat, &["/metadata/beneficiaryName"]),
    ]
};

const DOCUMENTS: [(Template, &[&str]); 4] = [
    (Template::FiatToFiat, &["/metadata"]),
    (Template::FiatToFiat, &["/metadata/travelRuleData"]),
    (Template::FiatToFiat, &["/beneficiary/travelRuleData"]),
    (Template::TokenToFiat, &["/metadata"]),
];

/// Fields with few values.
const CHOICES: [(Template, &[&str], &[&str]); 11] = [
    (Template::FiatToFiat, &["/inputAsset/type"], &["erc20", "native"]),
    (Template::TokenToFiat, &["/outputAsset/type"], &["erc20", "native"]),
    (Template::FiatToFiat, &["/side"], &["buy", "sell"]),
    (Template::FiatExactOutput, &["/side"], &["buy", "sell"]),
    (Template::FiatToFiat, &["/actorType"], &["retail"]),
    (Template::TokenToFiat, &["/actorType"], &["retail"]),
    (Template::FiatToFiat, &["/settlementType"], &["onchain", "offchain"]),
    (Template::TokenToToken, &["/settlementType"], &["offchain"]),
    (Template::FiatToFiat, &["/beneficiary/payoutMethod"], &["sepa", "ach", "swift"]),
    (Template::FiatToFiat, &["/beneficiary/country"], &["ZZ", "aq", "KP", ""]),
    (Template::FiatToFiat, &["/beneficiary/swiftCode"], &["nonsense!", "DEUTDEFF", "deutdeffxxx", "A"]),
];

const AMOUNTS: [(Template, &[&str]); 14] = {
    use Template::{
        CoinToFiat, FiatExactOutput, FiatRange, FiatToCoin, FiatToFiat, FiatToToken, Legacy,
        TokenExactOutput, TokenRange, TokenToFiat, TokenToToken,
    };
    [
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
    ]
};

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

/// The addresses of a chain that are poison.
pub(super) struct Addresses {
    pub recipients: Vec<String>,
    pub payees: Vec<String>,
}

/// The last four digits of accounts with which a payout goes wrong.
pub(super) fn suffixes(has_bank: bool) -> &'static [&'static str] {
    if has_bank { &BANK } else { &SIMULATED }
}

/// All cases: those that have stopped a loop before, then the others in an order that the seed gives, one of each field
/// before the second of any.
pub(super) fn all(addresses: &Addresses, has_bank: bool, dice: &mut Dice) -> Vec<Case<Pointers>> {
    let mut cases = texts();
    cases.extend(terms());
    cases.extend(misbehaving(has_bank));
    cases.extend(to_addresses(addresses));
    use Template::{
        CoinToFiat, FiatRange, FiatToCoin, FiatToFiat, TokenExactOutput, TokenRange, TokenToFiat,
        TokenToToken,
    };
    let all = [
        FiatToFiat,
        FiatRange,
        TokenToFiat,
        TokenExactOutput,
        TokenRange,
        TokenToToken,
        CoinToFiat,
        FiatToCoin,
    ];
    cases.extend(aftermaths(&all, &["/intentId"] as Pointers));
    // Its lock is requested after ten seconds.
    let resting =
        || case(TokenToFiat, &["/beneficiary/account"] as Pointers, Poisoned::Is(json!("000123450008")));
    cases.extend(cancelled().map(|then| Case { then, ..resting() }));
    let mut ordered = known(addresses, has_bank);
    ordered.extend(interleaved(cases, |case| (case.at, case.then == Then::Nothing), dice));
    ordered
}

/// Orders that once kept all others of their kind from their end.
fn known(Addresses { recipients, payees }: &Addresses, has_bank: bool) -> Vec<Case<Pointers>> {
    use Template::{FiatToCoin, FiatToFiat, FiatToToken, TokenToFiat, TokenToToken};
    let to = |template, address: &String| case(template, &["/outputRecipient"], Poisoned::Is(json!(address)));
    // The zero address is the first one.
    let nobody = recipients.iter().take(1);
    let mut cases: Vec<Case<Pointers>> =
        nobody.flat_map(|zero| [to(FiatToToken, zero), to(TokenToToken, zero)]).collect();
    cases.extend(payees.iter().map(|payee| to(FiatToCoin, payee)));
    for then in [Then::EmptiesWallet, Then::UsesNonce] {
        cases.push(sound(TokenToFiat, &["/intentId"] as Pointers, then));
    }
    let account = if has_bank { "000123450004" } else { "000123450007" };
    cases.push(case(FiatToFiat, &["/beneficiary/account"], Poisoned::Is(json!(account))));
    cases
}

/// One of each group before the second of any, in an order that the seed gives.
pub(super) fn interleaved<T, K: Ord>(all: Vec<T>, group: impl Fn(&T) -> K, dice: &mut Dice) -> Vec<T> {
    let mut groups: BTreeMap<K, VecDeque<T>> = BTreeMap::new();
    for one in all {
        groups.entry(group(&one)).or_default().push_back(one);
    }
    for group in groups.values_mut() {
        dice.shuffle(group.make_contiguous());
    }
    let mut ordered = Vec::new();
    while !groups.is_empty() {
        let mut round: Vec<T> = groups.values_mut().filter_map(VecDeque::pop_front).collect();
        dice.shuffle(&mut round);
        ordered.extend(round);
        groups.retain(|_, group| !group.is_empty());
    }
    ordered
}

fn case(template: Template, at: Pointers, value: Poisoned) -> Case<Pointers> {
    Case::of(template, at, value)
}

/// An order that is in form.
fn sound<F>(template: Template, at: F, then: Then) -> Case<F> {
    Case { then, ..Case::of(template, at, Poisoned::Unique(String::new())) }
}

fn texts() -> Vec<Case<Pointers>> {
    let is = |text: &str| Poisoned::Is(json!(text));
    let mut cases = Vec::new();
    for fields in [&["/intentId"], &["/clientReference"]] {
        let lines = LINES.map(str::to_owned).into_iter().chain(longest(128));
        cases.extend(lines.map(|line| case(Template::FiatToFiat, fields, Poisoned::Unique(line))));
    }
    for (template, fields) in IDS {
        cases.extend(LINES.map(|line| case(template, fields, is(line))));
        cases.extend(longest(128).map(|line| case(template, fields, is(&line))));
    }
    for (template, fields) in TEXTS {
        cases.extend(LINES.map(|line| case(template, fields, is(line))));
        cases.extend(longest(1024).map(|line| case(template, fields, is(&line))));
    }
    for (template, fields) in DOCUMENTS {
        cases.extend(documents().into_iter().map(|one| case(template, fields, Poisoned::Is(one))));
    }
    for (template, fields, values) in CHOICES {
        cases.extend(values.iter().map(|value| case(template, fields, is(value))));
    }
    cases
}

/// Amounts, times, nonces, and accounts with which the rails misbehave.
fn terms() -> Vec<Case<Pointers>> {
    use Template::{
        CoinToFiat, FiatRange, FiatToFiat, FiatToToken, Legacy, TokenRange, TokenToFiat, TokenToToken,
    };
    let mut cases = Vec::new();
    for (template, fields) in AMOUNTS {
        cases.extend(NUMBERS.map(|number| case(template, fields, Poisoned::Is(json!(number)))));
    }
    for template in [FiatToFiat, FiatRange, FiatToToken, TokenToFiat, TokenRange, TokenToToken, CoinToFiat] {
        let at = |millis| case(template, &["/deadline"], Poisoned::MillisFromNow(millis));
        // The coin is never deposited: such an order lasts until its deadline, or the path's.
        let last = if template == CoinToFiat { 6 } else { DEADLINES_MILLIS.len() };
        cases.extend(DEADLINES_MILLIS.into_iter().take(last).map(at));
        if template != CoinToFiat {
            cases.push(case(template, &["/deadline"], Poisoned::Is(json!(LATEST * 1000 + 999))));
        }
    }
    for template in [TokenToFiat, TokenRange, TokenToToken] {
        let at = |seconds| case(template, &["/permit/deadline"], Poisoned::SecondsFromNow(seconds));
        cases.extend(DEADLINES_SECONDS.map(at));
        cases.push(case(template, &["/permit/deadline"], Poisoned::Is(json!(LATEST))));
        for nonce in ["1", "2", "18446744073709551615", "340282366920938463463374607431768211455"] {
            cases.push(case(template, &["/permit/nonce"], Poisoned::Is(json!(nonce))));
        }
        for amount in ["1", "9999999", "340282366920938463463374607431768211455"] {
            cases.push(case(template, &["/permit/amountMinor"], Poisoned::Is(json!(amount))));
        }
    }
    for millis in [1_000, 1_001, 604_800_000] {
        cases.push(case(Legacy, &["/constraints/ttlMs"], Poisoned::Is(json!(millis))));
    }
    for bps in [0, 10_000] {
        cases.push(case(Legacy, &["/constraints/maxSlippageBps"], Poisoned::Is(json!(bps))));
        cases.push(case(Legacy, &["/constraints/maxFeeBps"], Poisoned::Is(json!(bps))));
    }
    for strategy in ["instant", "optimized", "scheduled"] {
        cases.push(case(Legacy, &["/strategy"], Poisoned::Is(json!(strategy))));
    }
    cases
}

fn misbehaving(has_bank: bool) -> Vec<Case<Pointers>> {
    use Template::{FiatRange, FiatToFiat, TokenRange, TokenToFiat};
    let mut cases = Vec::new();
    for template in [FiatToFiat, FiatRange, TokenToFiat, TokenRange] {
        for suffix in suffixes(has_bank) {
            let accounts = [format!("00012345{suffix}"), format!("bene_poisoned:dest_1000{suffix}")];
            let account = |account| case(template, &["/beneficiary/account"], Poisoned::Is(json!(account)));
            cases.extend(accounts.map(account));
        }
    }
    cases
}

fn to_addresses(Addresses { recipients, payees }: &Addresses) -> Vec<Case<Pointers>> {
    use Template::{CoinToFiat, FiatToCoin, FiatToToken, TokenToFiat, TokenToToken};
    let all = || recipients.iter().chain(payees).map(|address| Poisoned::Is(json!(address)));
    let mut cases = Vec::new();
    for template in [FiatToCoin, FiatToToken, TokenToToken] {
        cases.extend(all().map(|address| case(template, &["/outputRecipient"], address)));
    }
    for fields in [&["/permit/spender"], &["/permit/token"], &["/inputAsset/address"]] {
        cases.extend(all().take(8).map(|address| case(TokenToFiat, fields, address)));
    }
    for template in [CoinToFiat, TokenToFiat, FiatToToken] {
        cases.extend(all().map(|address| case(template, &["/user"], address)));
    }
    cases
}

/// Orders that are in form, and cancelled or, if they have a permit, spoiled after their acceptance.
pub(super) fn aftermaths<F: Copy>(templates: &[Template], at: F) -> Vec<Case<F>> {
    let mut cases = Vec::new();
    for template in templates {
        if template.has_permit() {
            let spoiled = [Then::EmptiesWallet, Then::RevokesAllowance, Then::UsesNonce];
            cases.extend(spoiled.iter().cycle().take(9).map(|then| sound(*template, at, *then)));
        }
        cases.extend(cancelled().map(|then| sound(*template, at, then)));
    }
    cases
}

fn cancelled() -> impl Iterator<Item = Then> {
    CANCELLED_AFTER_MILLIS.into_iter().map(|millis| Then::CancelsAfter(Duration::from_millis(millis)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

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
            let cases = all(&addresses, false, &mut Dice::new(seed));
            cases.iter().map(Case::describe).collect::<Vec<_>>()
        };
        assert_eq!(described(7), described(7));
        assert_ne!(described(7), described(8));
        let cases = all(&addresses, false, &mut Dice::new(7));
        let fields: BTreeSet<_> = cases.iter().map(|case| case.at).collect();
        let known = known(&addresses, false).len();
        let first: BTreeSet<_> =
            cases.iter().skip(known).take(fields.len() * 2).map(|case| case.at).collect();
        assert_eq!(fields, first);
    }

    /// The fields of the contract's section 2.5, and of the older surface's body.
    #[test]
    fn every_field_of_an_intent_has_poisoned_values() {
        let cases = all(&addresses_of(["0x00"], ["0x01"]), false, &mut Dice::new(1));
        let poisoned: BTreeSet<&str> = cases.iter().flat_map(|case| case.at.iter().copied()).collect();
        for field in [
            "/intentId",
            "/clientReference",
            "/user",
            "/inputAsset/type",
            "/outputAsset/type",
            "/inputAsset/symbol",
            "/inputAsset/address",
            "/inputAsset/chain",
            "/inputAsset/currency",
            "/outputAsset/symbol",
            "/outputAsset/address",
            "/outputAsset/chain",
            "/outputAsset/currency",
            "/inputAmountMinor",
            "/minOutputAmountMinor",
            "/input/limitAmountMinor",
            "/output/targetAmountMinor",
            "/output/limitAmountMinor",
            "/quoteId",
            "/deadline",
            "/settlementType",
            "/outputRecipient",
            "/beneficiary/account",
            "/beneficiary/name",
            "/beneficiary/country",
            "/beneficiary/payoutMethod",
            "/beneficiary/swiftCode",
            "/beneficiary/bank",
            "/beneficiary/address/line1",
            "/beneficiary/address/city",
            "/beneficiary/address/state",
            "/beneficiary/address/postalCode",
            "/beneficiary/travelRuleData",
            "/permit/token",
            "/permit/amountMinor",
            "/permit/spender",
            "/permit/nonce",
            "/permit/deadline",
            "/permit/signature",
            "/actorType",
            "/side",
            "/metadata",
            "/metadata/senderKycHash",
            "/metadata/depositReference",
            "/metadata/currency",
            "/metadata/targetStablecoin",
            "/metadata/travelRuleData",
            "/metadata/beneficiaryAccount",
            "/metadata/beneficiaryName",
            "/pair/source",
            "/amount",
            "/strategy",
            "/constraints/ttlMs",
            "/constraints/maxSlippageBps",
            "/constraints/maxFeeBps",
            "/clientRef",
        ] {
            assert!(poisoned.contains(field), "{field}");
        }
    }
}
