use chrono::DateTime;
use dvp_store::fix::archive::ArchivedMessage;

use super::*;

/// Messages as lines: `>` from the peer or `<` to it, number, type, fields.
fn seen(lines: &str) -> Vec<Seen> {
    let message = |(n, line): (usize, &str)| {
        let mut words = line.trim().splitn(4, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (direction, seq, msg_type, fields) = (word(), word(), word(), word());
        let id = i64::try_from(n).unwrap();
        Seen::from(&ArchivedMessage {
            id,
            at: DateTime::from_timestamp(1_800_000_000 + id, 0).unwrap(),
            is_outbound: direction == "<",
            seq: seq.parse().ok(),
            msg_type: msg_type.to_owned(),
            cl_ord_id: None,
            content: format!("{fields}|"),
        })
    };
    lines.lines().filter(|line| !line.trim().is_empty()).enumerate().map(message).collect()
}

/// The numbers of a step's messages, or what is missing.
#[track_caller]
fn check(step: Step, lines: &str, expected: Result<&[u64], &str>) {
    let messages = seen(lines);
    let found = step.find(&messages, None).map(|found| found.iter().map(|message| message.seq).collect());
    assert_eq!(found, expected.map(<[u64]>::to_vec).map_err(str::to_owned), "{step:?}");
}

#[test]
fn an_order_counts_once_it_was_new_and_then_filled() {
    check(Step::Fill, "> 1 A", Err("no NewOrderSingle(D) was sent"));
    check(Step::Fill, "> 2 D 11=a", Err("the last order, a, is not answered"));
    check(Step::Fill, "> 2 D 11=a\n< 2 8 11=a|39=8", Err("the last order, a, is Rejected"));
    let new = "> 2 D 11=a\n< 2 8 11=a|39=0\n< 3 8 11=b|39=2\n< 2 8 11=a|39=2|43=Y";
    check(Step::Fill, new, Err("the last order, a, is New, and not Filled"));
    let filled = "> 2 D 11=a\n< 2 8 11=a|39=0\n< 3 8 11=a|39=0\n< 4 8 11=a|39=2\n> 3 D 11=b";
    check(Step::Fill, filled, Ok(&[2, 2, 3, 4]));
}

#[test]
fn a_refused_order_and_a_cancelled_one_count_by_their_reports() {
    check(Step::Refusal, "> 2 D 11=a\n< 2 8 11=a|39=0", Err("no order was refused"));
    check(Step::Refusal, "> 2 D 11=a\n< 2 8 11=a|39=8", Ok(&[2, 2]));
    check(Step::Cancel, "> 2 D 11=a", Err("no OrderCancelRequest(F) was sent"));
    check(Step::Cancel, "> 3 F 11=c", Err("the cancel request c is not answered"));
    let late = "> 3 F 11=c\n< 3 9 11=c|58=too late";
    check(Step::Cancel, late, Err("the cancel request c was rejected: too late"));
    check(Step::Cancel, "> 3 F 11=c\n< 3 8 11=c|39=4", Ok(&[3, 3]));
}

#[test]
fn a_gap_counts_once_every_number_of_it_was_sent_again() {
    check(Step::Resend, "> 1 A", Err("no ResendRequest(2) was sent"));
    let asked = "< 1 A\n< 2 8\n< 3 0\n> 4 2 7=1|16=0";
    check(Step::Resend, asked, Err("the ResendRequest(2) number 4 is answered up to 1 of 3"));
    let answered = "< 1 4 43=Y|123=Y|36=2\n< 2 8 43=Y\n< 3 4 43=Y|123=Y|36=4";
    check(Step::Resend, &format!("{asked}\n{answered}"), Ok(&[4, 1, 2, 3]));
    // Nothing but session messages was missed.
    let only_filled = format!("{asked}\n< 1 4 43=Y|123=Y|36=4");
    let reason = "the ResendRequest(2) number 4 had no application message for its answer";
    check(Step::Resend, &only_filled, Err(reason));
    // Numbers of before a reset are not asked for.
    let after_reset = format!("< 90 8\n> 1 A 141=Y\n< 1 A 141=Y\n{asked}\n{answered}");
    check(Step::Resend, &after_reset, Ok(&[4, 1, 2, 3]));
    let ours = "> 1 A\n> 4 0\n< 2 2 7=2|16=0\n> 2 4 43=Y|123=Y|36=3";
    check(Step::Resend, ours, Err("the ResendRequest(2) number 2 is answered up to 3 of 3"));
    check(Step::Resend, &format!("{ours}\n> 3 D 43=Y"), Ok(&[2, 2, 3]));
}

#[test]
fn logons_resets_and_logouts_count_with_their_answers() {
    check(Step::Logon, "> 1 A", Err("no Logon(A) was accepted"));
    check(Step::Logon, "> 1 A\n< 1 A", Ok(&[1, 1]));
    check(Step::Reset, "> 1 A\n< 1 A\n> 2 4 123=Y|36=5", Err("the peer did not reset the numbers"));
    check(Step::Reset, "> 1 A 141=Y\n< 1 A 141=Y", Ok(&[1, 1]));
    check(Step::Reset, "> 2 4 36=5", Ok(&[2]));
    let missing = "no Logout(5) was answered after the Logon(A)";
    check(Step::Logout, "> 1 5\n< 1 5\n< 2 A\n> 2 5", Err(missing));
    check(Step::Logout, "< 2 A\n> 2 5\n< 3 5", Ok(&[2, 3]));
    check(Step::Logout, "< 2 A\n< 3 5\n> 2 5", Ok(&[3, 2]));
}

#[test]
fn a_copy_counts_by_its_exec_id() {
    let (messages, copies) = (seen("< 2 8 17=x\n< 3 8 17=y"), seen("< 7 8 17=y"));
    let found = Step::DropCopy.find(&messages, Some(&copies)).unwrap();
    assert_eq!((found[0].seq, found[1].seq), (3, 7));
    assert!(Step::DropCopy.find(&messages, Some(&[])).is_err());
    check(Step::DropCopy, "< 2 8 17=x", Ok(&[2]));
}

#[test]
fn the_script_has_the_steps_that_the_session_can_do() {
    assert_eq!(Step::script(false, false).len(), 7);
    assert_eq!(Step::script(false, true).len(), 8);
    assert!(!Step::script(true, false).contains(&Step::Fill));
}
