//! Screening of accepted orders before any funds move: the parties that are screened, a list of names and addresses,
//! and the consequences of an answer.
//!
//! ```text
//! accepted ─due─> list ─no match─> hook ─pass──> the first leg begins
//!                  │ match          ├─hold──> held: screened again, until an operator or the deadline ends it
//!                  └─> on_match     ├─fail──> intent.failed, screening_refused
//!                                   └─no answer─> on_error (pass, hold or fail)
//! ```

use std::collections::{BTreeSet, HashSet};

use crate::beneficiary::Beneficiary;
use crate::names::names;
use crate::terms::Terms;
use crate::time::Timestamp;

/// The failure code of an order that screening refused.
pub const REFUSED: &str = "screening_refused";
/// The failure code of an order that passes when the price of its path does not stand any more.
pub const LAPSED: &str = "price_lapsed";

names! {
    pub enum ScreeningResult {
        Pass = "pass",
        Hold = "hold",
        Fail = "fail",
    }
}

/// What operators have decided about an order that has not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartDecision {
    Cancel,
    Release,
    Refuse,
}

/// What an order that is due to begin does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    Begin,
    Cancel,
    Refuse,
    /// Its deadline has passed.
    Expire,
    Screen,
    /// It is screened again later.
    Hold,
}

impl Beginning {
    /// Before it is screened. Operators refuse and cancel at any time; they release until the deadline.
    pub fn first(
        decided: Option<StartDecision>,
        now: Timestamp,
        deadline: Timestamp,
        is_screened: bool,
    ) -> Self {
        match decided {
            Some(StartDecision::Cancel) => Self::Cancel,
            Some(StartDecision::Refuse) => Self::Refuse,
            Some(StartDecision::Release) | None if now >= deadline => Self::Expire,
            Some(StartDecision::Release) => Self::Begin,
            None if is_screened => Self::Screen,
            None => Self::Begin,
        }
    }

    /// After it was screened.
    pub const fn after(result: ScreeningResult) -> Self {
        match result {
            ScreeningResult::Pass => Self::Begin,
            ScreeningResult::Hold => Self::Hold,
            ScreeningResult::Fail => Self::Refuse,
        }
    }
}

names! {
    /// The source of a result.
    pub enum Source {
        List = "list",
        Hook = "hook",
        /// The hook gave no valid answer in time.
        NoAnswer = "no_answer",
    }
}

/// The parties of an order, with the details of a registered beneficiary.
#[derive(Debug, Clone, Copy)]
pub struct Parties<'a> {
    pub terms: &'a Terms,
    pub beneficiary: Option<&'a Beneficiary>,
}

impl<'a> Parties<'a> {
    fn names(&self) -> impl Iterator<Item = &'a str> {
        self.beneficiary.and_then(Beneficiary::name).into_iter()
    }

    /// The wallets and accounts of payer and recipient.
    fn accounts(&self) -> impl Iterator<Item = &'a str> {
        let request = &self.terms.request;
        let paid_to = request.output_recipient.as_deref().into_iter();
        let account = self.beneficiary.and_then(Beneficiary::account).into_iter();
        [request.user.as_str()].into_iter().chain(paid_to).chain(account)
    }
}

/// Names, wallets and accounts that an order's parties are compared with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScreeningList {
    names: Vec<BTreeSet<String>>,
    accounts: HashSet<String>,
}

/// A line of a list that begins with neither `name:` nor `account:`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {0} of the list is neither `name: …` nor `account: …`")]
pub struct ListFault(usize);

impl ScreeningList {
    /// One entry a line, `name: …` or `account: …` (a wallet or a bank account); empty lines and lines that begin with
    /// `#` are skipped.
    pub fn parse(text: &str) -> Result<Self, ListFault> {
        let mut list = Self::default();
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fault = || ListFault(n.saturating_add(1));
            let (kind, entry) = line.split_once(':').ok_or_else(fault)?;
            match kind.trim() {
                "name" => {
                    list.names.push(Some(words(entry)).filter(|words| !words.is_empty()).ok_or_else(fault)?)
                }
                "account" => {
                    let entry = compact(entry);
                    list.accounts.insert(Some(entry).filter(|entry| !entry.is_empty()).ok_or_else(fault)?);
                }
                _ => return Err(fault()),
            }
        }
        Ok(list)
    }

    /// The part of the order that is on the list: `name` when a name has all words of an entry, in any order, case and
    /// accents; `account` when a wallet or an account is an entry.
    pub fn matches(&self, parties: &Parties<'_>) -> Option<&'static str> {
        let is_listed = |name: &str| {
            let given = words(name);
            self.names.iter().any(|entry| entry.is_subset(&given))
        };
        if parties.names().any(is_listed) {
            return Some("name");
        }
        parties.accounts().any(|account| self.accounts.contains(&compact(account))).then_some("account")
    }
}

fn words(text: &str) -> BTreeSet<String> {
    let folded: String = text.chars().flat_map(char::to_lowercase).map(fold).collect();
    let words = folded.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// Without spaces and punctuation, in lower case.
fn compact(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The letter without its accent, for the Latin letters that names are commonly written with.
const fn fold(letter: char) -> char {
    match letter {
        'à' | 'á' | 'â' | 'ã' | 'ä' | 'å' | 'ā' | 'ă' | 'ą' => 'a',
        'ç' | 'ć' | 'č' | 'ĉ' => 'c',
        'ď' | 'đ' | 'ð' => 'd',
        'è' | 'é' | 'ê' | 'ë' | 'ē' | 'ė' | 'ę' | 'ě' => 'e',
        'ğ' | 'ģ' => 'g',
        'ì' | 'í' | 'î' | 'ï' | 'ī' | 'į' | 'ı' => 'i',
        'ķ' => 'k',
        'ł' | 'ļ' | 'ľ' => 'l',
        'ñ' | 'ń' | 'ň' | 'ņ' => 'n',
        'ò' | 'ó' | 'ô' | 'õ' | 'ö' | 'ø' | 'ō' | 'ő' => 'o',
        'ř' => 'r',
        'ś' | 'š' | 'ş' | 'ș' => 's',
        'ť' | 'ţ' | 'ț' => 't',
        'ù' | 'ú' | 'û' | 'ü' | 'ū' | 'ů' | 'ű' | 'ų' => 'u',
        'ý' | 'ÿ' => 'y',
        'ź' | 'ż' | 'ž' => 'z',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::OrderKind;
    use crate::settlement::tests::terms_of;

    fn list(text: &str) -> ScreeningList {
        ScreeningList::parse(text).unwrap()
    }

    fn found(list: &ScreeningList, name: &str, account: &str, user: &str) -> Option<&'static str> {
        let mut terms = terms_of(OrderKind::TokenToFiat);
        terms.request.user = user.to_owned();
        let beneficiary = Beneficiary {
            name: Some(name.to_owned()),
            account: Some(account.to_owned()),
            ..Beneficiary::default()
        };
        list.matches(&Parties { terms: &terms, beneficiary: Some(&beneficiary) })
    }

    #[test]
    fn a_name_matches_in_any_order_case_and_accents() {
        let list = list("# comment\n\nname: José  García\nname: Evil Corp.\n");
        for name in ["José García", "GARCIA, JOSE", "Dr. Jose Maria García", "evil corp", "The EVIL-CORP Ltd"]
        {
            assert_eq!(found(&list, name, "1", "0x1"), Some("name"), "{name}");
        }
        for name in ["José", "Joseph Garcia", "Evilcorp", "", "Corp"] {
            assert_eq!(found(&list, name, "1", "0x1"), None, "{name}");
        }
    }

    #[test]
    fn a_wallet_or_an_account_matches_only_as_a_whole() {
        let list = list("account: 0xAbCd\naccount: DE89 3704 0044 0532 0130 00\n");
        assert_eq!(found(&list, "Jane Doe", "1", "0xABCD"), Some("account"));
        assert_eq!(found(&list, "Jane Doe", "de89370400440532013000", "0x1"), Some("account"));
        for (account, user) in [("DE8937040044053201300", "0x1"), ("1", "0xAbCd0"), ("1", "0xAbC")] {
            assert_eq!(found(&list, "Jane Doe", account, user), None, "{account} {user}");
        }
        assert_eq!(found(&ScreeningList::default(), "Jane Doe", "1", "0x1"), None);
    }

    #[test]
    fn an_invalid_line_is_refused_by_its_number() {
        for (text, line) in
            [("name: a\nnobody", 2), ("name:", 1), ("account: --", 1), ("\n# x\nwallet: 0x1", 3)]
        {
            assert_eq!(ScreeningList::parse(text), Err(ListFault(line)), "{text}");
        }
    }

    #[test]
    fn a_decision_counts_before_the_deadline_and_a_refusal_after_it_too() {
        use super::StartDecision as D;
        let at = Timestamp::from_millis;
        for (decided, now, is_screened, begins) in [
            (None, 9, true, Beginning::Screen),
            (None, 9, false, Beginning::Begin),
            (None, 10, true, Beginning::Expire),
            (Some(D::Release), 9, true, Beginning::Begin),
            (Some(D::Release), 10, true, Beginning::Expire),
            (Some(D::Refuse), 9, true, Beginning::Refuse),
            (Some(D::Refuse), 10, true, Beginning::Refuse),
            (Some(D::Cancel), 10, true, Beginning::Cancel),
        ] {
            let first = Beginning::first(decided, at(now), at(10), is_screened);
            assert_eq!(first, begins, "{decided:?} {now} {is_screened}");
        }
    }
}
