//! A bank account against the ledger: the bank's entries with their references, and its balance. Pure.
//!
//! Entries and postings that are about the same thing (an execution, a deposit, an operation) form a group. Within a
//! group equal amounts are a pair, oldest first; what is left is in transit for a while, and then a break. What is left
//! on either side must account for the difference between the two balances, to the minor unit.
//!
//! Invariants: nothing is a pair twice; entries are breaks or pairs or in transit, never two of these; the same facts
//! in any order give the same result.

use std::collections::{BTreeMap, BTreeSet};

use super::{Break, BreakKind, Difference, SuggestedAction};
use crate::ids::Reference;
use crate::time::Timestamp;

/// A posting that moved money at a bank, as the bank's balance changes by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerItem {
    pub id: i64,
    /// What it is about: an execution, `deposit:<id>`, `operation:<id>`, `opening:<provider>:<asset>`.
    pub subject: String,
    pub amount: i128,
    pub at: Timestamp,
}

/// An entry of a statement: positive amounts are credits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BankEntry {
    pub id: i64,
    /// The execution whose payment it names, where the payment is one of ours.
    pub execution: Option<String>,
    /// Executions of which operators decided that a payment under one of its references was made, or came back.
    pub decided: Vec<String>,
    /// Every reference that it carries, the sender's and the bank's.
    pub references: Vec<String>,
    pub amount: i128,
    pub booked_at: Timestamp,
    /// Where it stands, for people: the statement and its line.
    pub place: String,
}

/// An entry that was a pair before, by its subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    pub subject: String,
    pub amount: i128,
    pub place: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementBalances {
    pub id: String,
    pub opening: i128,
    pub closing: i128,
}

/// One account in one currency, and all that is known of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BankAccount {
    /// The account's number at the bank.
    pub account: String,
    pub asset: String,
    /// What the ledger says is at the bank.
    pub ledger_balance: i128,
    /// In the order of time, from the last one whose opening balance was found right. Empty: the bank has said nothing.
    pub statements: Vec<StatementBalances>,
    /// When the first statement begins: postings before it may be part of its opening balance.
    pub begins_at: Option<Timestamp>,
    /// Without a pair so far.
    pub ledger: Vec<LedgerItem>,
    pub entries: Vec<BankEntry>,
    /// Earlier pairs about what the entries are about.
    pub settled: Vec<Settled>,
}

/// What a comparison came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    pub breaks: Vec<Break>,
    /// Postings and entries that have found each other, by their ids.
    pub paired_postings: Vec<i64>,
    /// With what each is about.
    pub paired_entries: Vec<(i64, String)>,
    /// Postings that are part of the first statement's opening balance, as far as is known.
    pub of_the_opening: Vec<i64>,
    /// How many of either are on their way and no break yet.
    pub in_transit: usize,
}

/// Compares an account. What is younger than `patience_ms` is in transit.
pub fn compare(account: &BankAccount, now: Timestamp, patience_ms: i64) -> Comparison {
    let mut work = Work { account, now, patience_ms, done: Comparison::default() };
    if account.statements.is_empty() {
        return work.done;
    }
    work.statements();
    let mut groups: BTreeMap<&str, Group<'_>> = BTreeMap::new();
    for item in &account.ledger {
        groups.entry(&item.subject).or_default().postings.push(item);
    }
    let subjects: BTreeSet<&str> = groups.keys().copied().collect();
    let mut entries: Vec<&BankEntry> = account.entries.iter().collect();
    entries.sort_by_key(|entry| (entry.booked_at, entry.id));
    let amounts: BTreeSet<(&str, i128)> =
        account.ledger.iter().map(|item| (item.subject.as_str(), item.amount)).collect();
    // What names its own postings takes them before what operators have decided.
    let mut taken = BTreeSet::new();
    let named: Vec<Option<&str>> = entries
        .iter()
        .map(|entry| {
            let about = charge(entry, &amounts).or_else(|| subject(entry, &subjects, &account.settled));
            let posting = about.and_then(|about| free(about, entry, &account.ledger, &taken));
            taken.extend(posting);
            about
        })
        .collect();
    for (entry, named) in entries.into_iter().zip(named) {
        match named.or_else(|| decided(entry, &account.ledger, &mut taken)) {
            Some(subject) => match groups.entry(subject) {
                std::collections::btree_map::Entry::Occupied(mut found) => {
                    found.get_mut().entries.push(entry);
                }
                std::collections::btree_map::Entry::Vacant(vacant) => {
                    vacant.insert(Group { postings: Vec::new(), entries: vec![entry] });
                }
            },
            None => work.unknown(entry),
        }
    }
    for (subject, group) in groups {
        work.group(subject, group);
    }
    work.balance();
    work.done
}

#[derive(Default)]
struct Group<'a> {
    postings: Vec<&'a LedgerItem>,
    entries: Vec<&'a BankEntry>,
}

/// The operation that an entry's reference names to the minor unit, though the entry names a payment: a bank's fee for it.
fn charge<'a>(entry: &BankEntry, amounts: &BTreeSet<(&'a str, i128)>) -> Option<&'a str> {
    entry.execution.as_ref()?;
    let names = entry.references.iter().map(|reference| format!("operation:{reference}"));
    let found =
        |name: String| amounts.iter().find(|(known, amount)| *known == name && *amount == entry.amount);
    names.filter_map(found).map(|(subject, _)| *subject).next()
}

/// What an entry is about: the execution of its payment, or what one of its references names.
fn subject<'a>(entry: &'a BankEntry, posted: &BTreeSet<&'a str>, settled: &'a [Settled]) -> Option<&'a str> {
    if let Some(execution) = &entry.execution {
        return Some(execution);
    }
    let known = |name: &str| -> Option<&'a str> {
        let settled = || settled.iter().map(|one| one.subject.as_str()).find(|one| *one == name);
        posted.get(name).copied().or_else(settled)
    };
    let named = entry.references.iter().find_map(|reference| {
        known(reference).or_else(|| {
            ["deposit:", "operation:"].iter().find_map(|kind| known(&format!("{kind}{reference}")))
        })
    });
    let is_ours = |one: &&str| one.starts_with(Reference::PREFIX);
    named.or_else(|| entry.references.iter().map(String::as_str).find(is_ours))
}

/// What operators say that an entry is about. They may name one reference for several executions: then it is about the
/// first one with a posting of its amount that no other entry has.
fn decided<'a>(entry: &'a BankEntry, ledger: &[LedgerItem], taken: &mut BTreeSet<i64>) -> Option<&'a str> {
    let found = entry.decided.iter().find_map(|about| Some((about, free(about, entry, ledger, taken)?)));
    taken.extend(found.map(|(_, id)| id));
    found.map(|(about, _)| about).or_else(|| entry.decided.first()).map(String::as_str)
}

/// A posting about something, of an entry's amount, that no other entry has.
fn free(about: &str, entry: &BankEntry, ledger: &[LedgerItem], taken: &BTreeSet<i64>) -> Option<i64> {
    let is_its_own = |item: &&LedgerItem| item.subject == about && item.amount == entry.amount;
    ledger.iter().filter(is_its_own).map(|item| item.id).find(|id| !taken.contains(id))
}

struct Work<'a> {
    account: &'a BankAccount,
    now: Timestamp,
    patience_ms: i64,
    done: Comparison,
}

impl<'a> Work<'a> {
    fn add(
        &mut self,
        kind: BreakKind,
        action: SuggestedAction,
        subject: Option<&str>,
        minor: i128,
        detail: String,
    ) {
        let BankAccount { account, asset, .. } = self.account;
        let difference = Difference { account: format!("bank:{account}"), asset: asset.clone(), minor };
        self.done.breaks.push(Break {
            kind,
            reference: subject.map(ToOwned::to_owned),
            entity: None,
            detail,
            action,
            difference: Some(difference),
        });
    }

    /// Each statement begins where the one before it ended.
    fn statements(&mut self) {
        let account = self.account;
        for (before, after) in account.statements.iter().zip(account.statements.iter().skip(1)) {
            if before.closing != after.opening {
                let detail = format!(
                    "statement {} closes with {}, and {} opens with {}: one between them is missing",
                    before.id, before.closing, after.id, after.opening
                );
                let minor = after.opening.saturating_sub(before.closing);
                self.add(BreakKind::StatementGap, SuggestedAction::AskBank, None, minor, detail);
            }
        }
    }

    fn unknown(&mut self, entry: &BankEntry) {
        let detail =
            format!("{} is about nothing that the ledger knows: {:?}", entry.place, entry.references);
        // What is posted for it takes its longest reference as its id, the one least likely to come again; a text is none.
        let is_reference = |one: &&str| !one.contains(' ') && one.contains(|c: char| c.is_ascii_digit());
        let references = entry.references.iter().map(String::as_str).filter(is_reference);
        let id = references.max_by_key(|reference| reference.len());
        self.add(BreakKind::UnknownEntry, SuggestedAction::Post, id, entry.amount, detail);
    }

    fn is_late(&self, at: Timestamp) -> bool {
        self.now.millis().saturating_sub(at.millis()) > self.patience_ms
    }

    fn group(&mut self, subject: &str, mut group: Group<'a>) {
        group.postings.sort_by_key(|item| (item.at, item.id));
        group.entries.sort_by_key(|entry| (entry.booked_at, entry.id));
        let mut entries = Vec::new();
        for entry in group.entries {
            match group.postings.iter().position(|item| item.amount == entry.amount) {
                Some(found) => {
                    let item = group.postings.remove(found);
                    self.pair(subject, &[item], &[entry]);
                }
                None => entries.push(entry),
            }
        }
        let postings = group.postings;
        let total = |amounts: &mut dyn Iterator<Item = i128>| amounts.fold(0, i128::saturating_add);
        let posted = total(&mut postings.iter().map(|item| item.amount));
        let booked = total(&mut entries.iter().map(|entry| entry.amount));
        if !postings.is_empty() && !entries.is_empty() {
            if posted == booked {
                // One entry for several postings, or the other way round.
                return self.pair(subject, &postings, &entries);
            }
            if posted.signum() == booked.signum() {
                let places: Vec<&str> = entries.iter().map(|entry| entry.place.as_str()).collect();
                let detail = format!("the ledger has {posted}, the bank {booked}: {}", places.join(", "));
                let minor = booked.saturating_sub(posted);
                return self.add(
                    BreakKind::AmountDiffers,
                    SuggestedAction::Page,
                    Some(subject),
                    minor,
                    detail,
                );
            }
        }
        self.correct(subject, &mut entries);
        let postings = self.undo(postings);
        // Entries that nothing has taken back so far.
        let mut standing: Vec<&BankEntry> = Vec::new();
        for entry in entries {
            let back = standing.iter().position(|one| one.amount == entry.amount.saturating_neg());
            let earlier = standing.iter().find(|one| one.amount == entry.amount).map(|one| one.place.clone());
            match back {
                Some(back) => {
                    standing.remove(back);
                }
                None => standing.push(entry),
            }
            self.lone_entry(subject, entry, earlier);
        }
        for item in postings {
            self.lone_posting(item);
        }
    }

    /// The bank has corrected itself: an entry that repeats another, or has no posting, was booked back.
    fn correct(&mut self, subject: &str, entries: &mut Vec<&'a BankEntry>) {
        loop {
            let is_wrong = |entry: &BankEntry| self.repeated(subject, entry).is_some();
            let is_back = |one: &BankEntry, other: &BankEntry| {
                let is_due = self.is_late(one.booked_at) && self.is_late(other.booked_at);
                one.amount == other.amount.saturating_neg() && (is_due || is_wrong(one) || is_wrong(other))
            };
            let found = (0..entries.len()).find_map(|n| {
                let later = (n + 1..entries.len()).find(|&m| is_back(entries[n], entries[m]))?;
                Some((n, later))
            });
            let Some((first, second)) = found else { return };
            for n in [second, first] {
                let entry = entries.remove(n);
                self.done.paired_entries.push((entry.id, format!("corrected:{subject}")));
            }
        }
    }

    /// Postings that were never at the bank and take each other back.
    fn undo(&mut self, mut postings: Vec<&'a LedgerItem>) -> Vec<&'a LedgerItem> {
        loop {
            let found = (0..postings.len()).find_map(|n| {
                let is_back = |m: &usize| {
                    let (one, other) = (postings[n], postings[*m]);
                    one.amount == other.amount.saturating_neg()
                        && self.is_late(one.at)
                        && self.is_late(other.at)
                };
                Some((n, (n + 1..postings.len()).find(is_back)?))
            });
            let Some((first, second)) = found else { return postings };
            for n in [second, first] {
                self.done.paired_postings.push(postings.remove(n).id);
            }
        }
    }

    fn pair(&mut self, subject: &str, postings: &[&LedgerItem], entries: &[&BankEntry]) {
        self.done.paired_postings.extend(postings.iter().map(|item| item.id));
        self.done.paired_entries.extend(entries.iter().map(|entry| (entry.id, subject.to_owned())));
    }

    /// Where the same was booked before, and has a posting.
    fn repeated(&self, subject: &str, entry: &BankEntry) -> Option<String> {
        let mut earlier = self.account.settled.iter();
        let earlier = earlier.find(|one| one.subject == subject && one.amount == entry.amount);
        earlier.map(|one| one.place.clone()).or_else(|| {
            let same = |id: i64| {
                let other = self.account.entries.iter().find(|other| other.id == id);
                other.filter(|other| other.amount == entry.amount)
            };
            let paired = self.done.paired_entries.iter().filter(|(_, about)| about == subject);
            paired.filter_map(|(id, _)| same(*id)).map(|other| other.place.clone()).next()
        })
    }

    /// `earlier`: where the same was booked before without a posting.
    fn lone_entry(&mut self, subject: &str, entry: &BankEntry, earlier: Option<String>) {
        if let Some(place) = self.repeated(subject, entry).or(earlier) {
            let detail = format!("{} repeats {place}", entry.place);
            self.add(
                BreakKind::DuplicateEntry,
                SuggestedAction::AskBank,
                Some(subject),
                entry.amount,
                detail,
            );
        } else if self.is_late(entry.booked_at) {
            let detail = format!("{} of {} is not in the ledger", entry.place, entry.amount);
            self.add(BreakKind::MissingInLedger, SuggestedAction::Post, Some(subject), entry.amount, detail);
        } else {
            self.done.in_transit += 1;
        }
    }

    fn lone_posting(&mut self, item: &LedgerItem) {
        if !self.is_late(item.at) {
            self.done.in_transit += 1;
        } else if self.is_of_the_opening(item) {
            self.done.of_the_opening.push(item.id);
        } else {
            let detail = format!("posted at {} and in no statement", item.at.iso8601());
            let minor = item.amount.saturating_neg();
            self.add(BreakKind::MissingAtBank, SuggestedAction::AskBank, Some(&item.subject), minor, detail);
        }
    }

    /// What moved before the first statement is in its opening balance, which the balances show.
    fn is_of_the_opening(&self, item: &LedgerItem) -> bool {
        self.account.begins_at.is_some_and(|begins_at| item.at < begins_at)
    }

    /// What has no pair explains the whole difference between the balances.
    fn balance(&mut self) {
        let BankAccount { ledger, entries, statements, ledger_balance, .. } = self.account;
        let Some(last) = statements.last() else { return };
        let settled = self.done.paired_postings.iter().chain(&self.done.of_the_opening);
        let postings: BTreeSet<i64> = settled.copied().collect();
        let paired: BTreeSet<i64> = self.done.paired_entries.iter().map(|(id, _)| *id).collect();
        let open_postings = ledger.iter().filter(|item| !postings.contains(&item.id)).map(|item| item.amount);
        let open_entries =
            entries.iter().filter(|entry| !paired.contains(&entry.id)).map(|entry| entry.amount);
        let explained = open_entries.fold(0, i128::saturating_add);
        let explained = open_postings.fold(explained, i128::saturating_sub);
        let gaps = self.done.breaks.iter().filter(|one| one.kind == BreakKind::StatementGap);
        let gaps = gaps.filter_map(|one| one.difference.as_ref()).map(|difference| difference.minor);
        let explained = gaps.fold(explained, i128::saturating_add);
        let difference = last.closing.saturating_sub(*ledger_balance);
        if difference != explained {
            let detail = format!(
                "statement {} closes with {}, the ledger has {ledger_balance}, and what has no pair explains \
                 {explained} of the difference",
                last.id, last.closing
            );
            let minor = difference.saturating_sub(explained);
            self.add(BreakKind::BalanceDiffers, SuggestedAction::Page, None, minor, detail);
        }
    }
}

#[cfg(test)]
mod tests;
