use expect_test::expect;
use proptest::prelude::*;

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const PATIENCE_MS: i64 = 60_000;
const LATE: Timestamp = NOW.plus_millis(-PATIENCE_MS - 1);
/// As old as may be in transit.
const JUST_IN_TIME: Timestamp = NOW.plus_millis(-PATIENCE_MS);

fn posting(id: i64, subject: &str, amount: i128, at: Timestamp) -> LedgerItem {
    LedgerItem { id, subject: subject.into(), amount, at }
}

fn entry(id: i64, names: &str, amount: i128, booked_at: Timestamp) -> BankEntry {
    let execution = names.strip_prefix("ours:").map(str::to_owned);
    let references = if execution.is_some() { vec![] } else { vec!["NOTPROVIDED".into(), names.into()] };
    BankEntry {
        id,
        execution,
        decided: vec![],
        references,
        amount,
        booked_at,
        place: format!("S1 line {id}"),
    }
}

/// An account whose balances follow from all that moved: the statement's from the entries, the ledger's from postings.
fn account(ledger: Vec<LedgerItem>, entries: Vec<BankEntry>) -> BankAccount {
    let closing = entries.iter().map(|entry| entry.amount).sum();
    BankAccount {
        account: "400500600".into(),
        asset: "USD".into(),
        ledger_balance: ledger.iter().map(|item| item.amount).sum(),
        statements: vec![StatementBalances { id: "S1".into(), opening: 0, closing }],
        begins_at: None,
        ledger,
        entries,
        settled: Vec::new(),
    }
}

fn found(account: &BankAccount) -> String {
    let done = compare(account, NOW, PATIENCE_MS);
    let mut lines: Vec<String> = done
        .breaks
        .iter()
        .map(|one| {
            let subject = one.reference.as_deref().unwrap_or("-");
            let minor = one.difference.as_ref().unwrap().minor;
            format!("{} {} {subject} {minor}: {}", one.kind.as_str(), one.action.as_str(), one.detail)
        })
        .collect();
    let entries: Vec<i64> = done.paired_entries.iter().map(|(id, _)| *id).collect();
    lines.push(format!("pairs {:?} {entries:?}, in transit {}", done.paired_postings, done.in_transit));
    if !done.of_the_opening.is_empty() {
        lines.push(format!("of the opening {:?}", done.of_the_opening));
    }
    lines.join("\n")
}

#[test]
fn what_has_a_pair_is_no_break_whatever_its_age_and_order() {
    let agreed = account(
        vec![
            posting(1, "opening:north:USD", 1_000, LATE),
            posting(2, "exe_1", -100, LATE),
            posting(3, "exe_1", 100, NOW),
            posting(4, "exe_1", -100, NOW),
            posting(5, "deposit:W7", 50, LATE),
            posting(6, "operation:O7", -20, LATE),
            posting(7, "exe_2", -10, NOW),
        ],
        vec![
            entry(1, "O7", -20, NOW),
            entry(2, "ours:exe_1", -100, LATE),
            entry(3, "ours:exe_1", 100, NOW),
            entry(4, "exe_1", -100, NOW),
            entry(5, "W7", 50, LATE),
            entry(6, "opening:north:USD", 1_000, LATE),
            entry(7, "ours:exe_2", -10, LATE),
        ],
    );
    expect!["pairs [5, 2, 3, 4, 7, 1, 6] [5, 2, 3, 4, 7, 6, 1], in transit 0"].assert_eq(&found(&agreed));
}

#[test]
fn one_entry_for_several_postings_is_a_pair_with_all() {
    let batch = account(
        vec![posting(1, "exe_1", -60, LATE), posting(2, "exe_1", -40, LATE)],
        vec![entry(1, "ours:exe_1", -100, LATE)],
    );
    expect!["pairs [1, 2] [1], in transit 0"].assert_eq(&found(&batch));
}

#[test]
fn what_the_bank_has_not_booked_is_in_transit_and_then_missing() {
    let of = |at| account(vec![posting(1, "exe_1", -100, at)], vec![]);
    expect!["pairs [] [], in transit 1"].assert_eq(&found(&of(JUST_IN_TIME)));
    expect![[r#"
        missing_at_bank ask_bank exe_1 100: posted at 2027-01-15T07:58:59.999Z and in no statement
        pairs [] [], in transit 0"#]]
    .assert_eq(&found(&of(LATE)));
}

#[test]
fn what_the_ledger_does_not_have_is_in_transit_and_then_missing() {
    let of = |at| account(vec![], vec![entry(1, "ours:exe_1", -100, at)]);
    expect!["pairs [] [], in transit 1"].assert_eq(&found(&of(JUST_IN_TIME)));
    expect![[r#"
        missing_in_ledger post exe_1 -100: S1 line 1 of -100 is not in the ledger
        pairs [] [], in transit 0"#]]
    .assert_eq(&found(&of(LATE)));
}

#[test]
fn another_amount_for_the_same_thing_differs_at_once() {
    let short = account(vec![posting(1, "exe_1", -100, NOW)], vec![entry(1, "ours:exe_1", -99, NOW)]);
    expect![[r#"
        amount_differs page exe_1 1: the ledger has -100, the bank -99: S1 line 1
        pairs [] [], in transit 0"#]]
    .assert_eq(&found(&short));
    let opposite = account(vec![posting(1, "exe_1", -100, NOW)], vec![entry(1, "ours:exe_1", 100, NOW)]);
    expect!["pairs [] [], in transit 2"].assert_eq(&found(&opposite));
}

#[test]
fn an_entry_that_repeats_a_pair_is_a_duplicate_at_once() {
    let twice = account(
        vec![posting(1, "exe_1", -100, LATE)],
        vec![entry(1, "ours:exe_1", -100, NOW), entry(2, "ours:exe_1", -100, NOW)],
    );
    let duplicate = expect![[r#"
        duplicate_entry ask_bank exe_1 -100: S1 line 2 repeats S1 line 1
        pairs [1] [1], in transit 0"#]];
    duplicate.assert_eq(&found(&twice));
    let mut later = account(vec![], vec![entry(2, "ours:exe_1", -100, NOW)]);
    later.settled = vec![Settled { subject: "exe_1".into(), amount: -100, place: "S0 line 4".into() }];
    expect![[r#"
        duplicate_entry ask_bank exe_1 -100: S1 line 2 repeats S0 line 4
        pairs [] [], in transit 0"#]]
    .assert_eq(&found(&later));
    later.ledger = vec![posting(9, "exe_1", -100, NOW)];
    later.ledger_balance = -100;
    expect!["pairs [9] [2], in transit 0"].assert_eq(&found(&later));
}

#[test]
fn the_same_booked_twice_is_a_duplicate_of_the_first_before_either_is_posted() {
    let twice = account(vec![], vec![entry(1, "ours:exe_1", -100, NOW), entry(2, "ours:exe_1", -100, NOW)]);
    expect![[r#"
        duplicate_entry ask_bank exe_1 -100: S1 line 2 repeats S1 line 1
        pairs [] [], in transit 1"#]]
    .assert_eq(&found(&twice));
    let again = account(
        vec![],
        vec![
            entry(1, "ours:exe_1", -100, NOW),
            entry(2, "ours:exe_1", 100, NOW),
            entry(3, "ours:exe_1", -100, NOW),
        ],
    );
    expect!["pairs [] [], in transit 3"].assert_eq(&found(&again));
}

#[test]
fn a_payment_that_operators_made_another_way_is_found_by_the_reference_they_named() {
    let by_hand = |id, amount, booked_at| BankEntry {
        decided: vec!["exe_1".into(), "exe_2".into()],
        ..entry(id, "W2", amount, booked_at)
    };
    let postings = || {
        vec![
            posting(1, "exe_1", -100, LATE),
            posting(2, "exe_1", 100, LATE),
            posting(3, "exe_1", -100, LATE),
            posting(4, "exe_2", -100, LATE),
        ]
    };
    let bank = |last: Vec<BankEntry>| {
        let all = vec![entry(1, "ours:exe_1", -100, LATE), entry(2, "ours:exe_1", 100, LATE)];
        account(postings(), all.into_iter().chain(last).collect())
    };
    let both = bank(vec![by_hand(3, -100, NOW), by_hand(4, -100, NOW)]);
    expect!["pairs [1, 2, 3, 4] [1, 2, 3, 4], in transit 0"].assert_eq(&found(&both));
    let thrice = bank(vec![by_hand(3, -100, NOW), by_hand(4, -100, NOW), by_hand(5, -100, NOW)]);
    expect![[r#"
        duplicate_entry ask_bank exe_1 -100: S1 line 5 repeats S1 line 1
        pairs [1, 2, 3, 4] [1, 2, 3, 4], in transit 0"#]]
    .assert_eq(&found(&thrice));
}

#[test]
fn what_the_bank_has_corrected_is_no_break() {
    let mut corrected = account(
        vec![posting(1, "exe_1", -100, LATE)],
        vec![
            entry(1, "ours:exe_1", -100, NOW),
            entry(2, "ours:exe_1", -100, NOW),
            entry(3, "ours:exe_1", 100, NOW),
            entry(4, "ours:exe_2", -7, LATE),
            entry(5, "ours:exe_2", 7, LATE),
        ],
    );
    expect!["pairs [1] [1, 3, 2, 5, 4], in transit 0"].assert_eq(&found(&corrected));
    corrected.ledger.extend([posting(2, "exe_3", -9, LATE), posting(3, "exe_3", 9, LATE)]);
    expect!["pairs [1, 3, 2] [1, 3, 2, 5, 4], in transit 0"].assert_eq(&found(&corrected));
}

#[test]
fn an_entry_about_nothing_is_unknown_at_once() {
    let foreign = account(vec![], vec![entry(1, "INVOICE-5", 77, NOW)]);
    expect![[r#"
        unknown_entry post INVOICE-5 77: S1 line 1 is about nothing that the ledger knows: ["NOTPROVIDED", "INVOICE-5"]
        pairs [] [], in transit 0"#]]
    .assert_eq(&found(&foreign));
}

#[test]
fn a_balance_that_entries_do_not_explain_differs() {
    let mut wrong = account(vec![posting(1, "exe_1", -100, NOW)], vec![]);
    wrong.statements[0].closing = 7;
    expect![[r#"
        balance_differs page - 7: statement S1 closes with 7, the ledger has -100, and what has no pair explains 100 of the difference
        pairs [] [], in transit 1"#]]
    .assert_eq(&found(&wrong));
}

#[test]
fn a_missing_statement_is_a_gap_and_nothing_else() {
    let mut gap = account(vec![posting(1, "exe_1", -100, NOW)], vec![]);
    let of = |id: &str, opening, closing| StatementBalances { id: id.into(), opening, closing };
    gap.statements = vec![of("S1", 0, 0), of("S3", -30, -30)];
    expect![[r#"
        statement_gap ask_bank - -30: statement S1 closes with 0, and S3 opens with -30: one between them is missing
        pairs [] [], in transit 1"#]]
    .assert_eq(&found(&gap));
    gap.statements.insert(1, of("S2", 0, -30));
    gap.entries = vec![entry(1, "ours:exe_1", -30, NOW)];
    expect![[r#"
        amount_differs page exe_1 70: the ledger has -100, the bank -30: S1 line 1
        pairs [] [], in transit 0"#]]
    .assert_eq(&found(&gap));
}

#[test]
fn postings_before_the_first_statement_are_part_of_its_opening_balance() {
    let mut first =
        account(vec![posting(1, "deposit:1", 900, LATE), posting(2, "exe_1", -100, LATE)], vec![]);
    first.begins_at = Some(NOW);
    first.statements[0] = StatementBalances { id: "S1".into(), opening: 800, closing: 800 };
    expect!["pairs [] [], in transit 0\nof the opening [1, 2]"].assert_eq(&found(&first));
    first.statements[0] = StatementBalances { id: "S1".into(), opening: 801, closing: 801 };
    expect![[r#"
        balance_differs page - 1: statement S1 closes with 801, the ledger has 800, and what has no pair explains 0 of the difference
        pairs [] [], in transit 0
        of the opening [1, 2]"#]]
    .assert_eq(&found(&first));
}

#[test]
fn nothing_is_compared_before_the_bank_has_sent_a_statement() {
    let mut silent = account(vec![posting(1, "exe_1", -100, LATE)], vec![]);
    silent.statements.clear();
    assert_eq!(compare(&silent, NOW, PATIENCE_MS), Comparison::default());
}

/// Movements of a few subjects: in the ledger, at the bank, or both.
fn movements() -> impl Strategy<Value = Vec<(u8, i128, bool, bool, bool)>> {
    prop::collection::vec((0_u8..4, -3_i128..4, any::<bool>(), any::<bool>(), any::<bool>()), 0..24)
}

fn accounts() -> impl Strategy<Value = BankAccount> {
    movements().prop_map(|movements| {
        let (mut ledger, mut entries) = (Vec::new(), Vec::new());
        for (n, (subject, amount, in_ledger, at_bank, is_late)) in (1_i64..).zip(movements) {
            let (subject, at) = (format!("exe_{subject}"), if is_late { LATE } else { NOW });
            let amount = if amount == 0 { 5 } else { amount };
            if in_ledger {
                ledger.push(posting(n, &subject, amount, at));
            }
            if at_bank {
                entries.push(entry(n, &format!("ours:{subject}"), amount, at));
            }
        }
        account(ledger, entries)
    })
}

proptest! {
    /// Each posting and each entry is a pair, in transit, or in a break; differences and pairs account for all.
    #[test]
    fn every_movement_is_accounted_for(account in accounts()) {
        let done = compare(&account, NOW, PATIENCE_MS);
        let mut ids = done.paired_postings.clone();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), done.paired_postings.len());
        let sum = |ids: &[i64]| -> i128 {
            account.ledger.iter().filter(|item| ids.contains(&item.id)).map(|item| item.amount).sum()
        };
        let entry_ids: Vec<i64> = done.paired_entries.iter().map(|(id, _)| *id).collect();
        let booked: i128 =
            account.entries.iter().filter(|one| entry_ids.contains(&one.id)).map(|one| one.amount).sum();
        prop_assert_eq!(sum(&done.paired_postings), booked, "pairs are equal");
        prop_assert!(done.breaks.iter().all(|one| one.kind != BreakKind::BalanceDiffers));
        let are_all_paired = ids.len() == account.ledger.len() && entry_ids.len() == account.entries.len();
        prop_assert_eq!(done.breaks.is_empty() && done.in_transit == 0, are_all_paired);
    }

    /// A second run over what is left finds the same breaks.
    #[test]
    fn a_run_over_what_is_left_finds_the_same(account in accounts()) {
        let first = compare(&account, NOW, PATIENCE_MS);
        let paired: Vec<i64> = first.paired_entries.iter().map(|(id, _)| *id).collect();
        let mut left = account.clone();
        left.ledger.retain(|item| !first.paired_postings.contains(&item.id));
        left.entries.retain(|entry| !paired.contains(&entry.id));
        left.settled = first.paired_entries.iter().map(|(id, subject)| {
            let entry = account.entries.iter().find(|entry| entry.id == *id).unwrap();
            Settled { subject: subject.clone(), amount: entry.amount, place: entry.place.clone() }
        }).collect();
        let second = compare(&left, NOW, PATIENCE_MS);
        let kinds = |done: &Comparison| {
            done.breaks.iter().map(|one| (one.kind, one.reference.clone())).collect::<Vec<_>>()
        };
        prop_assert_eq!(kinds(&first), kinds(&second));
        prop_assert_eq!(first.in_transit, second.in_transit);
        prop_assert!(second.paired_postings.is_empty() && second.paired_entries.is_empty());
    }
}

#[test]
fn a_fee_that_names_its_payment_is_the_operation_under_its_reference() {
    let fee = |amount| BankEntry { references: vec!["FEE-1".into()], ..entry(2, "ours:exe_1", amount, LATE) };
    let payment = || BankEntry { references: vec!["FEE-1".into()], ..entry(1, "ours:exe_1", -100, LATE) };
    let ours = || posting(1, "exe_1", -100, LATE);
    let unposted = account(vec![ours()], vec![fee(-3), payment()]);
    expect![
        "missing_in_ledger post exe_1 -3: S1 line 2 of -3 is not in the ledger\npairs [1] [1], in transit 0"
    ]
    .assert_eq(&found(&unposted));
    let posted = account(vec![ours(), posting(2, "operation:FEE-1", -3, NOW)], vec![fee(-3), payment()]);
    expect!["pairs [1, 2] [1, 2], in transit 0"].assert_eq(&found(&posted));
}
