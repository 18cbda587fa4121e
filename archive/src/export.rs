//! A closed day is written once: read in one snapshot, synchronized, read back, and named last.

use std::fs;
use std::path::Path;

use chrono::{DateTime, Days, NaiveDate, NaiveTime, TimeDelta, Utc};
use dvp_store::archive as store;
use dvp_store::durable;
use dvp_store::ledger::closings::list_balances_before;
use dvp_store::{PgConnection, StoreError};

use crate::ArchiveError;
use crate::books::check_day;
use crate::manifest::{ArchivedFile, Manifest, VERSION, days, folder};
use crate::schema::{EVENTS, OPENINGS, ORDERS, POSTINGS, RECEIPTS};
use crate::table::{Cell, Table, TableWriter};

/// Orders read together.
const PAGE: i64 = 200;
/// Entries are read by this stretch of time.
const STRETCH: TimeDelta = TimeDelta::minutes(1);

/// What became of a day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exported {
    Written(Manifest),
    /// It was in the archive, unchanged.
    Kept(Manifest),
    /// Its entries may still change.
    NotClosed,
    /// This many orders that ended on it have something on their way.
    Unended(i64),
}

fn begins(day: NaiveDate) -> DateTime<Utc> {
    day.and_time(NaiveTime::MIN).and_utc()
}

/// Writes a day, if it is closed and its orders have ended for good. `conn` reads one snapshot ([`dvp_store::reconcile`]).
pub async fn export_day(
    conn: &mut PgConnection,
    archive: &Path,
    day: NaiveDate,
    now: DateTime<Utc>,
) -> Result<Exported, ArchiveError> {
    days(archive)?;
    if let Some(kept) = Manifest::find(archive, day)? {
        return Ok(Exported::Kept(kept));
    }
    let (from, to) = (begins(day), begins(day + Days::new(1)));
    if store::find_closed_until(conn).await?.is_none_or(|until| until < to) {
        return Ok(Exported::NotClosed);
    }
    let unended = count_unended(conn, from, to).await?;
    if unended > 0 {
        return Ok(Exported::Unended(unended));
    }
    let partial = archive.join(format!(".{day}.partial"));
    if partial.exists() {
        // Of an export that did not end.
        fs::remove_dir_all(&partial).map_err(ArchiveError::file(&partial))?;
    }
    durable::create_folder(&partial).map_err(ArchiveError::file(&partial))?;
    let written = write_day(conn, &partial, (day, from, to), now).await;
    if written.is_err() {
        // Not to fill the disk with it; the first error counts.
        let _ = fs::remove_dir_all(&partial);
        return written.map(Exported::Written);
    }
    let named = folder(archive, day);
    fs::rename(&partial, &named).map_err(ArchiveError::file(&named))?;
    durable::sync_folder(archive).map_err(ArchiveError::file(archive))?;
    written.map(Exported::Written)
}

/// Writes a day's folder and reads it back.
async fn write_day(
    conn: &mut PgConnection,
    partial: &Path,
    (day, from, to): (NaiveDate, DateTime<Utc>, DateTime<Utc>),
    now: DateTime<Utc>,
) -> Result<Manifest, ArchiveError> {
    let mut files = Vec::new();
    let mut close = |writer: TableWriter, table: Table| -> Result<(), ArchiveError> {
        let rows = writer.finish()?;
        files.push(ArchivedFile::of(partial, &table.file_name(), rows)?);
        Ok(())
    };
    let [orders, events, receipts] = write_orders(conn, partial, (from, to)).await?;
    close(orders, ORDERS)?;
    close(events, EVENTS)?;
    close(receipts, RECEIPTS)?;
    close(write_postings(conn, partial, (from, to)).await?, POSTINGS)?;
    close(write_openings(conn, partial, from).await?, OPENINGS)?;
    let manifest = Manifest { version: VERSION, day, exported_at: now, files };
    manifest.write(partial)?;
    // What the disk has is read again before the day gets its name.
    let written = Manifest::load(partial, day)?;
    check_day(partial, &written)?;
    Ok(written)
}

fn time(at: DateTime<Utc>) -> Cell {
    Cell::Number(at.timestamp_micros())
}

async fn write_orders(
    conn: &mut PgConnection,
    folder: &Path,
    (from, to): (DateTime<Utc>, DateTime<Utc>),
) -> Result<[TableWriter; 3], ArchiveError> {
    let mut orders = TableWriter::create(folder, ORDERS)?;
    let mut events = TableWriter::create(folder, EVENTS)?;
    let mut receipts = TableWriter::create(folder, RECEIPTS)?;
    let (mut since, mut after) = (from, String::new());
    loop {
        let page = store::list_ended(conn, (since, to), &after, PAGE).await?;
        let Some(last) = page.last() else { return Ok([orders, events, receipts]) };
        (since, after) = (last.terminal_at, last.reference.clone());
        let references: Vec<&str> = page.iter().map(|order| order.reference.as_str()).collect();
        let found = store::list_events(conn, &references).await?;
        events.write(&found.into_iter().map(event_row).collect::<Vec<_>>())?;
        let found = store::list_receipts(conn, &references).await?;
        receipts.write(&found.into_iter().map(receipt_row).collect::<Vec<_>>())?;
        orders.write(&page.into_iter().map(order_row).collect::<Vec<_>>())?;
    }
}

/// The orders of a day that have something on its way.
async fn count_unended(
    conn: &mut PgConnection,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
) -> Result<i64, ArchiveError> {
    let (mut since, mut after, mut unended) = (from, String::new(), 0_i64);
    loop {
        let page = store::list_ended(conn, (since, to), &after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(unended) };
        (since, after) = (last.terminal_at, last.reference.clone());
        let references: Vec<&str> = page.iter().map(|order| order.reference.as_str()).collect();
        unended = unended.saturating_add(store::count_unended(conn, &references).await?);
    }
}

fn order_row(order: store::ArchivedOrder) -> Vec<Cell> {
    vec![
        Cell::text(order.reference),
        Cell::text(order.partner_id),
        Cell::text(order.livemode.to_string()),
        Cell::text(order.intent_id),
        Cell::Text(order.client_reference),
        Cell::text(hex::encode(order.entity)),
        Cell::text(order.terms),
        Cell::text(order.state_name),
        Cell::text(order.state),
        time(order.accepted_at),
        time(order.terminal_at),
    ]
}

fn event_row(event: store::ArchivedEvent) -> Vec<Cell> {
    vec![
        Cell::text(event.reference),
        Cell::Number(event.sequence),
        Cell::text(event.event_id),
        Cell::text(event.kind),
        Cell::Number(event.position),
        time(event.occurred_at),
        time(event.observed_at),
        Cell::text(event.object),
    ]
}

fn receipt_row(receipt: store::ArchivedReceipt) -> Vec<Cell> {
    vec![
        Cell::text(receipt.reference),
        Cell::text(receipt.body),
        Cell::text(format!("0x{}", hex::encode(receipt.content_hash))),
        time(receipt.issued_at),
    ]
}

async fn write_postings(
    conn: &mut PgConnection,
    folder: &Path,
    (from, to): (DateTime<Utc>, DateTime<Utc>),
) -> Result<TableWriter, ArchiveError> {
    let mut postings = TableWriter::create(folder, POSTINGS)?;
    let mut since = if store::has_entries(conn, to).await? { from } else { to };
    while since < to {
        let until = since + STRETCH;
        let found = store::list_entries(conn, since, until).await?;
        postings.write(&found.into_iter().map(entry_row).collect::<Vec<_>>())?;
        since = until;
    }
    Ok(postings)
}

fn entry_row(entry: store::ArchivedEntry) -> Vec<Cell> {
    vec![
        Cell::text(entry.reference),
        Cell::Number(entry.step),
        Cell::Number(entry.line.into()),
        Cell::text(entry.reason),
        Cell::text(entry.owner_kind),
        Cell::text(entry.owner),
        Cell::text(entry.part),
        Cell::text(entry.asset),
        Cell::text(entry.amount),
        time(entry.recorded_at),
    ]
}

async fn write_openings(
    conn: &mut PgConnection,
    folder: &Path,
    at: DateTime<Utc>,
) -> Result<TableWriter, ArchiveError> {
    let mut openings = TableWriter::create(folder, OPENINGS)?;
    let rows = list_balances_before(conn, at).await?.into_iter().map(|held| {
        [held.owner_kind, held.owner, held.part, held.asset, held.amount].map(Cell::text).to_vec()
    });
    openings.write(&rows.collect::<Vec<_>>())?;
    Ok(openings)
}

/// The first day that has something to archive. `None`: nothing has happened.
pub async fn first_day(conn: &mut PgConnection) -> Result<Option<NaiveDate>, StoreError> {
    Ok(store::find_beginning(conn).await?.map(|at| at.date_naive()))
}
