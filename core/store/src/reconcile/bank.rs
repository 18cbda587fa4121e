//! Statements of bank accounts, and what they are compared with.
//!
//! A comparison reads open entries and postings only: what has found its pair is not read again. Postings that were taken
//! to be part of an opening balance are, when an earlier statement comes.

use std::time::Duration;

use chrono::{DateTime, Utc};
use dvp_domain::money::Minor;
use dvp_domain::reconcile::bank::{BankAccount, BankEntry, LedgerItem, Settled, StatementBalances};
use sqlx::{AssertSqlSafe, PgConnection, PgTransaction};

use crate::ledger::closings;
use crate::{StoreError, statement};

/// A statement as the bank sent it. Amounts are signed minor units.
#[derive(Debug, Clone)]
pub struct NewStatement<'a> {
    pub account: &'a str,
    pub currency: &'a str,
    pub statement: &'a str,
    pub page: i32,
    pub begins_at: DateTime<Utc>,
    pub ends_at: DateTime<Utc>,
    pub opening: i128,
    pub closing: i128,
    /// SHA-256 of what it says, and of its file.
    pub content: [u8; 32],
    pub file: [u8; 32],
    pub entries: Vec<NewEntry<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub struct NewEntry<'a> {
    pub amount: i128,
    pub booked_at: DateTime<Utc>,
    pub end_to_end_id: Option<&'a str>,
    pub references: &'a [String],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementTaken {
    New,
    /// It came before, and said the same.
    Repeated,
    /// Another one has its name, account and page.
    Conflict,
}

/// Stores a statement with its entries, once.
pub async fn insert_statement(
    tx: &mut PgTransaction<'_>,
    new: &NewStatement<'_>,
) -> Result<StatementTaken, StoreError> {
    let sql = "insert into bank_statement (account, currency, statement, page, begins_at, ends_at, opening, closing, \
                                     content, file) \
         values ($1, $2, $3, $4, $5, $6, $7::text::numeric, $8::text::numeric, $9, $10) \
         on conflict on constraint bank_statement_name_key do nothing returning id";
    let parameters = (
        new.account,
        new.currency,
        new.statement,
        new.page,
        new.begins_at,
        new.ends_at,
        new.opening.to_string(),
        new.closing.to_string(),
        new.content.as_slice(),
        new.file.as_slice(),
    );
    let id: Option<i64> = statement::find_value(tx, sql, parameters).await?;
    let Some(id) = id else {
        let is_same = is_said_again(tx, new).await?;
        return Ok(if is_same { StatementTaken::Repeated } else { StatementTaken::Conflict });
    };
    insert_entries(tx, id, new).await?;
    Ok(StatementTaken::New)
}

/// Whether a statement says all that the stored one of its name does. More of it may be read than when that came: further
/// references are added to its entries. The same file is the same statement, however it is read now, unless the two
/// stand in one file.
async fn is_said_again(tx: &mut PgTransaction<'_>, new: &NewStatement<'_>) -> Result<bool, StoreError> {
    let sql = "select id, content = $5 or file = $6 and taken_at < now(), \
                begins_at = $7 and ends_at = $8 and opening = $9::text::numeric and closing = $10::text::numeric \
         from bank_statement where account = $1 and currency = $2 and statement = $3 and page = $4";
    let parameters = (
        new.account,
        new.currency,
        new.statement,
        new.page,
        new.content.as_slice(),
        new.file.as_slice(),
        new.begins_at,
        new.ends_at,
        new.opening.to_string(),
        new.closing.to_string(),
    );
    let (id, is_known, is_alike): (i64, bool, bool) = statement::load(tx, sql, parameters).await?;
    if is_known || !is_alike {
        return Ok(is_known);
    }
    type Row = (String, DateTime<Utc>, Option<String>, Vec<String>);
    let sql = "select amount::text, booked_at, end_to_end_id, refs from bank_entry where statement = $1 order by line";
    let known: Vec<Row> = statement::list(tx, sql, (id,)).await?;
    let says_all = |((amount, booked_at, id, refs), now): (&Row, &NewEntry<'_>)| {
        *amount == now.amount.to_string()
            && booked_at.timestamp_micros() == now.booked_at.timestamp_micros()
            && id.as_deref().is_none_or(|id| now.end_to_end_id == Some(id))
            && refs.iter().all(|one| now.references.contains(one))
    };
    if known.len() != new.entries.len() || !known.iter().zip(&new.entries).all(says_all) {
        return Ok(false);
    }
    let sql = "update bank_entry e set end_to_end_id = n.end_to_end_id, \
                refs = array(select jsonb_array_elements_text(n.refs::jsonb)) \
         from unnest($2::text[], $3::text[]) with ordinality as n (end_to_end_id, refs, line) \
         where e.statement = $1 and e.line = n.line";
    statement::execute(tx, sql, (id, ids(new), references(new))).await?;
    Ok(true)
}

fn ids<'a>(of: &NewStatement<'a>) -> Vec<Option<&'a str>> {
    of.entries.iter().map(|entry| entry.end_to_end_id).collect()
}

/// An array of arrays would have to be rectangular: references travel as JSON.
fn references(of: &NewStatement<'_>) -> Vec<String> {
    of.entries.iter().map(|entry| serde_json::json!(entry.references).to_string()).collect()
}

async fn insert_entries(
    tx: &mut PgTransaction<'_>,
    id: i64,
    new: &NewStatement<'_>,
) -> Result<(), StoreError> {
    let sql = "insert into bank_entry (statement, line, account, currency, amount, booked_at, end_to_end_id, refs) \
         select $1, n, $2, $3, amount::numeric, booked_at, end_to_end_id, \
                array(select jsonb_array_elements_text(refs::jsonb)) \
         from unnest($4::text[], $5::timestamptz[], $6::text[], $7::text[]) with ordinality \
              as e (amount, booked_at, end_to_end_id, refs, n)";
    let parameters = (
        id,
        new.account,
        new.currency,
        new.entries.iter().map(|entry| entry.amount.to_string()).collect::<Vec<_>>(),
        new.entries.iter().map(|entry| entry.booked_at).collect::<Vec<_>>(),
        ids(new),
        references(new),
    );
    statement::execute(tx, sql, parameters).await
}

/// Waits until no other comparison is under way. It is the first statement of the transaction, so that what is read is
/// what the last comparison left.
pub async fn begin_comparison(tx: &mut PgTransaction<'_>) -> Result<(), StoreError> {
    statement::execute(tx, "lock table bank_posting in share row exclusive mode", ()).await
}

/// A payment `p` of ours that an entry's id or reference `ref` names: by the id of its order, or by its UETR.
const NAMED: &str = "(p.end_to_end_id = ref or p.uetr = lower(replace(ref, '-', '')))";

/// The accounts of which there are statements, with their currencies.
pub async fn list_accounts(conn: &mut PgConnection) -> Result<Vec<(String, String)>, StoreError> {
    let sql = "select distinct account, currency from bank_statement order by 1, 2";
    statement::list(conn, sql, ()).await
}

/// Takes in the postings since the last comparison. A transaction ends within ten minutes of its beginning, which is the
/// time of its postings: a quarter of an hour is read again. The clock may have been set back since: what is ahead of it
/// is not the newest posting, and each hour is read again once it is closed, when no posting of it can follow.
pub async fn take_postings(
    conn: &mut PgConnection,
    account: &str,
    currency: &str,
) -> Result<u64, StoreError> {
    type Time = Option<DateTime<Utc>>;
    let sql = "select (select complete_until from bank_comparison where account = $1 and currency = $2), \
                (select until from ledger_closed), \
                (select max(posted_at) - interval '15 minutes' from bank_posting \
                 where account = $1 and currency = $2 and posted_at <= now())";
    let (complete, closed, recent): (Time, Time, Time) =
        statement::load(conn, sql, (account, currency)).await?;
    let since = if closed > complete { complete } else { complete.max(recent) };
    let taken = sqlx::query(
        "insert into bank_posting (account, currency, reference, step, line, subject, amount, posted_at) \
         select $1, $2, reference, step, line, case when owner like 'exe\\_%' then owner else reference end, \
                -amount, recorded_at \
         from ledger_entry \
         where owner_kind = 'external' and owner <> 'network' and owner not like '0x%' and asset = $2 \
           and recorded_at >= $3 \
         order by recorded_at, ledger_entry.reference, step, line \
         on conflict on constraint bank_posting_entry_key do nothing",
    );
    let taken = taken.bind(account).bind(currency).bind(since.unwrap_or(DateTime::UNIX_EPOCH));
    // Planned for its time: of one that is not known, a third of all entries are expected to be later.
    let taken = taken.persistent(false).execute(&mut *conn).await?.rows_affected();
    if closed > complete {
        let sql = "insert into bank_comparison (account, currency, complete_until) values ($1, $2, $3) \
             on conflict on constraint bank_comparison_pkey do update set complete_until = excluded.complete_until";
        statement::execute(conn, sql, (account, currency, closed)).await?;
    }
    Ok(taken)
}

/// Opens postings again that were taken to be part of the first statement's opening balance, once an earlier statement is
/// the first one. Its entries may be of postings before it, as old as they may be on their way. Returns how many.
pub async fn reopen_postings(
    conn: &mut PgConnection,
    account: &str,
    currency: &str,
    patience: Duration,
) -> Result<u64, StoreError> {
    let sql = "select begins_at, (select begins_at from bank_comparison where account = $1 and currency = $2) as \
         before from bank_statement \
         where account = $1 and currency = $2 order by ends_at, page, begins_at, id limit 1";
    let first: Option<(DateTime<Utc>, Option<DateTime<Utc>>)> =
        statement::find(conn, sql, (account, currency)).await?;
    let Some((begins_at, before)) = first else { return Ok(0) };
    if before == Some(begins_at) {
        return Ok(0);
    }
    let mut reopened = 0;
    if let Some(before) = before {
        let done = sqlx::query(
            "update bank_posting set paired_at = null, is_of_opening = false \
             where account = $1 and currency = $2 and is_of_opening \
               and posted_at >= $3 - make_interval(secs => $4) and posted_at < $5",
        );
        let done =
            done.bind(account).bind(currency).bind(begins_at).bind(patience.as_secs_f64()).bind(before);
        reopened = done.persistent(false).execute(&mut *conn).await?.rows_affected();
    }
    let sql = "insert into bank_comparison (account, currency, begins_at) values ($1, $2, $3) \
         on conflict on constraint bank_comparison_pkey do update set begins_at = excluded.begins_at";
    statement::execute(conn, sql, (account, currency, begins_at)).await?;
    Ok(reopened)
}

fn amount(text: &str) -> Result<i128, StoreError> {
    text.parse().map_err(|error| StoreError::corrupt("bank_statement", error))
}

/// An account with what has no pair so far. All of it is read in the caller's snapshot.
pub async fn load_account(
    conn: &mut PgConnection,
    account: &str,
    currency: &str,
) -> Result<BankAccount, StoreError> {
    let sql = "select statement, page, opening::text, closing::text, begins_at from bank_statement \
         where account = $1 and currency = $2 order by ends_at, page, begins_at, id";
    let statements: Vec<(String, i32, String, String, DateTime<Utc>)> =
        statement::list(conn, sql, (account, currency)).await?;
    let begins_at = statements.first().map(|first| first.4.into());
    let statements = statements
        .into_iter()
        .map(|(id, page, opening, closing, _)| {
            let id = if page == 1 { id } else { format!("{id} page {page}") };
            Ok(StatementBalances { id, opening: amount(&opening)?, closing: amount(&closing)? })
        })
        .collect::<Result<_, StoreError>>()?;
    let sql = "select id, subject, amount::text, posted_at from bank_posting \
         where account = $1 and currency = $2 and paired_at is null order by posted_at, id";
    let postings: Vec<(i64, String, String, DateTime<Utc>)> =
        statement::list(conn, sql, (account, currency)).await?;
    let ledger = postings
        .into_iter()
        .map(|(id, subject, text, at)| Ok(LedgerItem { id, subject, amount: amount(&text)?, at: at.into() }))
        .collect::<Result<_, StoreError>>()?;
    let entries = list_open_entries(conn, account, currency).await?;
    let mut subjects: Vec<String> = Vec::new();
    for entry in &entries {
        subjects.extend(entry.execution.clone());
        subjects.extend(entry.decided.iter().cloned());
        for reference in &entry.references {
            subjects.extend([
                reference.clone(),
                format!("deposit:{reference}"),
                format!("operation:{reference}"),
            ]);
        }
    }
    let sql = "select e.subject, e.amount::text, s.statement || ' line ' || e.line \
         from bank_entry e join bank_statement s on s.id = e.statement \
         where e.subject = any($3) and e.account = $1 and e.currency = $2 order by e.id";
    let settled: Vec<(String, String, String)> =
        statement::list(conn, sql, (account, currency, subjects)).await?;
    let settled = settled
        .into_iter()
        .map(|(subject, text, place)| Ok(Settled { subject, amount: amount(&text)?, place }))
        .collect::<Result<_, StoreError>>()?;
    let ledger_balance = amount(&closings::load_bank_balance(conn, currency).await?)?;
    Ok(BankAccount {
        account: account.to_owned(),
        asset: currency.to_owned(),
        ledger_balance,
        statements,
        begins_at,
        ledger,
        entries,
        settled,
    })
}

async fn list_open_entries(
    conn: &mut PgConnection,
    account: &str,
    currency: &str,
) -> Result<Vec<BankEntry>, StoreError> {
    type Row = (i64, Option<String>, Vec<String>, Vec<String>, String, DateTime<Utc>, String);
    // The texts are constants of this module. An entry of several payments of ours is about none of them.
    let sql = AssertSqlSafe(format!(
        "select e.id, coalesce((select execution from bank_payment p where p.end_to_end_id = e.end_to_end_id), \
                               (select min(p.execution) from unnest(e.refs) ref join bank_payment p on {NAMED} \
                                having count(distinct p.execution) = 1)), \
                array(select a.subject from approval a \
                      where a.kind = 'execution' and a.state = 'approved' \
                        and a.details ->> 'providerReference' = any(e.refs) order by a.decided_at, a.id), \
                e.refs, e.amount::text, e.booked_at, s.statement || ' line ' || e.line \
         from bank_entry e join bank_statement s on s.id = e.statement \
         where e.account = $1 and e.currency = $2 and e.paired_at is null order by e.booked_at, e.id"
    ));
    let rows: Vec<Row> = statement::list(conn, sql, (account, currency)).await?;
    rows.into_iter()
        .map(|(id, execution, decided, references, text, at, place)| {
            let (amount, booked_at) = (amount(&text)?, at.into());
            Ok(BankEntry { id, execution, decided, references, amount, booked_at, place })
        })
        .collect()
}

/// Postings and entries have found each other.
pub async fn mark_paired(
    conn: &mut PgConnection,
    postings: &[i64],
    entries: &[(i64, String)],
) -> Result<(), StoreError> {
    let sql = "update bank_posting set paired_at = now() where id = any($1) and paired_at is null";
    statement::execute(conn, sql, (postings,)).await?;
    let (ids, subjects): (Vec<i64>, Vec<&str>) = entries.iter().map(|(id, of)| (*id, of.as_str())).unzip();
    let sql = "update bank_entry e set paired_at = now(), subject = found.subject \
         from unnest($1::int8[], $2::text[]) as found (id, subject) where e.id = found.id and e.paired_at is null";
    statement::execute(conn, sql, (ids, subjects)).await
}

/// Postings are part of the first statement's opening balance, unless an earlier statement comes.
pub async fn mark_of_opening(conn: &mut PgConnection, postings: &[i64]) -> Result<(), StoreError> {
    let marked = "update bank_posting set paired_at = now(), is_of_opening = true \
                  where id = any($1) and paired_at is null";
    statement::execute(conn, marked, (postings,)).await
}

/// A debit of a statement that an operator takes for a fee of the bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChargedEntry {
    /// It is about nothing that the ledger has.
    Open,
    /// It is the debit of a payment that was ordered.
    OfPayment,
    /// An operation was posted under one of its references.
    Posted,
}

/// Finds a booked debit without a pair, by one of its references.
pub async fn find_charge(
    conn: &mut PgConnection,
    reference: &str,
    asset: &str,
    amount: Minor,
) -> Result<Option<ChargedEntry>, StoreError> {
    let sql = AssertSqlSafe(format!(
        "select exists (select from unnest(e.end_to_end_id || e.refs) ref join bank_payment p on {NAMED} \
                        where p.currency = e.currency and p.amount = -e.amount), \
                exists (select from ledger_entry l \
                        where l.reference in (select 'operation:' || ref from unnest(e.refs) ref) \
                          and l.asset = e.currency and l.owner_kind = 'external') \
         from bank_entry e \
         where e.currency = $2 and e.paired_at is null and e.amount = -($3::text::numeric) and $1 = any(e.refs) \
         order by e.id limit 1"
    ));
    let found: Option<(bool, bool)> =
        statement::find(conn, sql, (reference, asset, amount.to_string())).await?;
    Ok(found.map(|(is_of_payment, is_posted)| match (is_of_payment, is_posted) {
        (true, _) => ChargedEntry::OfPayment,
        (false, true) => ChargedEntry::Posted,
        (false, false) => ChargedEntry::Open,
    }))
}

/// Locks a booked credit without a pair that has this reference and amount, and says whether there is one: neither money
/// of a payment that came back, nor credited before under one of its references.
pub async fn lock_credit(
    conn: &mut PgConnection,
    reference: &str,
    asset: &str,
    amount: Minor,
) -> Result<bool, StoreError> {
    let sql = AssertSqlSafe(format!(
        "select e.id from bank_entry e \
         where e.currency = $2 and e.paired_at is null and e.amount = $3::text::numeric and $1 = any(e.refs) \
           and not exists (select from unnest(e.end_to_end_id || e.refs) ref \
                           join bank_payment p on {NAMED} or p.reference = ref) \
           and not exists (select from ledger_entry l \
                           where l.reference in (select kind || ref from unnest(e.refs) ref, \
                                                                         unnest(array['deposit:', 'operation:']) kind)) \
         order by e.id limit 1 for update of e"
    ));
    let found: Option<(i64,)> = statement::find(conn, sql, (reference, asset, amount.to_string())).await?;
    Ok(found.is_some())
}
