//! The write that proves a server to be the primary, before anything that was read from it is used.
//!
//! A row that can be read may be lost at a fail-over: a primary that was restarted shows commits that no standby has,
//! and one that was cut off shows an old state. The barrier is a transaction that leaves no row but a record in the
//! write-ahead log, and its COMMIT waits for a standby like every other. When it returns, a standby has the log up to
//! this record, so everything visible before it survives the fail-over, and the server was the primary.
//!
//! A transaction that only reads or notifies, or that only draws a transaction id, writes no log and does not wait.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::wire::{Message, field, is_unconfirmed_commit, query};

/// A standby cannot write and must not be requested to: the error would abort the statement without the reason.
pub(super) const BARRIER: &str = "with server as materialized (
      select pg_is_in_recovery() or current_setting('transaction_read_only')::bool as read_only),
    written as materialized (
      select read_only, case when not read_only then pg_logical_emit_message(true, 'dvp', '') end as position
      from server)
    select read_only,
      current_setting('synchronous_standby_names') <> ''
        and current_setting('synchronous_commit') in ('on', 'remote_apply') as waits_for_standby,
      (select system_identifier from pg_control_system())::text as system,
      case when not read_only then substr(pg_walfile_name(position), 1, 8) end as timeline,
      (position - '0/0')::text as position
    from written";

const BUFFER_BYTES: usize = 4 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) read_only: bool,
    /// Whether commits wait for a standby, by the server's settings.
    pub(super) waits_for_standby: bool,
    pub(super) system: String,
    /// Of a server that takes writes.
    pub(super) log: Option<LogPosition>,
}

/// Where the write-ahead log of a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogPosition {
    /// Grows with each promotion.
    pub(super) timeline: u32,
    /// In bytes; never smaller on a server that has all commits of another position.
    pub(super) position: u64,
}

impl Answer {
    /// Of the columns of [`BARRIER`], in their order.
    pub(super) fn of(columns: &[Option<String>]) -> Option<Self> {
        let [read_only, waits_for_standby, system, timeline, position] = columns else { return None };
        let flag = |column: &Option<String>| column.as_deref().map(|text| text == "t");
        let log = match (timeline, position) {
            (Some(timeline), Some(position)) => Some(LogPosition {
                timeline: u32::from_str_radix(timeline, 16).ok()?,
                position: position.parse().ok()?,
            }),
            _ => None,
        };
        Some(Self {
            read_only: flag(read_only)?,
            waits_for_standby: flag(waits_for_standby)?,
            system: system.clone()?,
            log,
        })
    }
}

/// Commits the barrier on a connection that is ready for a query. `buffer` has what was read and not used; it has what
/// follows ReadyForQuery afterwards.
pub(super) async fn pass(
    server: &mut (impl AsyncRead + AsyncWrite + Unpin),
    buffer: &mut Vec<u8>,
) -> Result<Answer, String> {
    let failed = |error: std::io::Error| error.to_string();
    server.write_all(&query(BARRIER)).await.map_err(failed)?;
    server.flush().await.map_err(failed)?;
    let (mut columns, mut complaint) = (None, None);
    let mut chunk = vec![0; BUFFER_BYTES];
    loop {
        while let Some(message) = Message::take(buffer) {
            match message.kind() {
                b'D' => columns = message.columns(),
                b'E' => complaint = field(message.body(), b'M'),
                b'N' if is_unconfirmed_commit(message.body()) => {
                    complaint = Some("a write was not confirmed by a standby".to_owned());
                }
                b'Z' => {
                    let answer = columns.as_deref().and_then(Answer::of);
                    return match complaint {
                        Some(complaint) => Err(complaint),
                        None => answer.ok_or_else(|| "no answer to the barrier".to_owned()),
                    };
                }
                _ => {}
            }
        }
        match server.read(&mut chunk).await.map_err(failed)? {
            0 => return Err(complaint.unwrap_or_else(|| "the connection was closed".to_owned())),
            read => buffer.extend_from_slice(chunk.get(..read).unwrap_or_default()),
        }
    }
}
