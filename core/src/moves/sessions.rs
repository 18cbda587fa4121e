//! FIX sessions follow their partner one by one.

use std::fmt;
use std::time::{Duration, Instant};

use dvp_store::fix::admin;
use dvp_store::fix::commands::{self, SessionAction};
use dvp_store::moves::{self, Known, MoveRow, MovingSession, Taken};
use dvp_store::{Acquire as _, PgConnection};

use super::copying::reseal;
use super::{MoveError, Side, late, taken};
use crate::fix_sessions;

/// How long the process of a disabled session may take to let go of it.
const RELEASE_WAIT: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Rows of a session in one statement.
const PAGE: i64 = 500;

/// A session that did not move.
#[derive(Debug)]
pub struct FailedSession {
    pub session_id: String,
    /// It goes on at the source as before. Otherwise it may be disabled in both cells, until the move is run again.
    pub is_back: bool,
    pub error: Box<MoveError>,
}

impl fmt::Display for FailedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session_id, is_back, error } = self;
        let state = if *is_back {
            "it stays at the source"
        } else {
            "it may be disabled in both cells: run the move again"
        };
        write!(f, "{session_id} ({state}): {error}")
    }
}

/// Moves the sessions that are ready, and brings what happened to orders of those that have moved. A session that fails keeps
/// no other one.
pub(super) async fn follow(
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    found: &MoveRow,
    operator: &str,
) -> Result<(), MoveError> {
    let mut failed = Vec::new();
    let came = moves::list_came(target.conn, &found.id).await?;
    for session in moves::list_sessions(source.conn, &found.partner_id).await? {
        let is_taken = session.moved_by.as_deref() == Some(found.id.as_str());
        // A session that the target has is enabled here only since a restore.
        let has_come = came.contains(&session.session_id);
        if is_taken || session.enabled && (!session.is_busy || has_come) {
            let moved = move_session(source, target, (&session, has_come), found, operator).await;
            failed.extend(moved.err());
        }
    }
    let noted = async {
        late::bring(source, target, found).await?;
        let drop_copies = moves::list_drop_copies(source.conn, found).await?;
        Ok(moves::update_drop_copies(target.conn, &found.id, &drop_copies).await?)
    };
    let noted = noted.await;
    if failed.is_empty() { noted } else { Err(MoveError::Sessions(failed)) }
}

/// Moves a session whose orders have ended: since the partner was closed, no further one is accepted. It is disabled at
/// the source and waited for, then copied; or given back, if it has parked an order until then, or cannot be copied.
async fn move_session(
    source: &mut Side<'_>,
    target: &mut Side<'_>,
    (session, has_come): (&MovingSession, bool),
    found: &MoveRow,
    operator: &str,
) -> Result<(), FailedSession> {
    let reason = format!("moved to cell {} by {}", found.target, found.id);
    let moving = Moving { session_id: &session.session_id, found, operator, reason: &reason };
    let moved = match moving.take(source, target, session.moved_by.is_some() || has_come).await {
        Ok(true) => moving.hand_over(source, target).await,
        Ok(false) => Ok(()),
        Err(error) => Err(error),
    };
    let Err(error) = moved else { return Ok(()) };
    let is_back = moving.stays(source.conn, target.conn).await.unwrap_or(false);
    Err(FailedSession { session_id: session.session_id.clone(), is_back, error: Box::new(error) })
}

/// A session in the course of its move.
#[derive(Clone, Copy)]
struct Moving<'a> {
    session_id: &'a str,
    found: &'a MoveRow,
    operator: &'a str,
    /// Of the command that disables it.
    reason: &'a str,
}

impl Moving<'_> {
    /// Disables the session at the source, and waits until its process has let go of it. `false`: it does not move now.
    async fn take(
        self,
        source: &mut Side<'_>,
        target: &mut Side<'_>,
        is_taken: bool,
    ) -> Result<bool, MoveError> {
        let Self { session_id, found, .. } = self;
        if !is_taken && !moves::list_present(target.conn, &[session_id.to_owned()]).await?.is_empty() {
            return Err(MoveError::Taken(session_id.to_owned()));
        }
        let mut tx = source.conn.begin().await?;
        let taken = moves::take_session(&mut tx, session_id, found).await?;
        if taken == Taken::Now {
            self.record(&mut tx, (SessionAction::Disable, "disabled"), self.reason).await?;
        }
        tx.commit().await?;
        if taken == Taken::Not {
            return Ok(false);
        }
        let deadline = Instant::now() + RELEASE_WAIT;
        while admin::is_held(source.conn, &format!("fix:{session_id}")).await? {
            if Instant::now() >= deadline {
                // The next run goes on.
                return Ok(false);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(true)
    }

    /// Copies the session. What is written to it at the source waits for this transaction.
    async fn hand_over(self, source: &mut Side<'_>, target: &mut Side<'_>) -> Result<(), MoveError> {
        let mut tx = source.conn.begin().await?;
        let mut inner = Side { conn: &mut tx, vault: source.vault };
        let done = self.hand_over_in(&mut inner, target).await;
        if done.is_ok() {
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
        done
    }

    async fn hand_over_in(self, source: &mut Side<'_>, target: &mut Side<'_>) -> Result<(), MoveError> {
        let Self { session_id, found, .. } = self;
        // Until it is copied the partner cannot come back, and no other run copies it.
        if !moves::lock_taken(source.conn, session_id, found).await? {
            return Ok(());
        }
        // Until it let go of the session, its process may have parked an order, or had an event to report. Then it goes on,
        // and the next run moves the session.
        let sessions = moves::list_sessions(source.conn, &found.partner_id).await?;
        let is_busy = sessions.iter().any(|one| one.session_id == session_id && one.is_busy);
        let is_kept = is_busy || self.is_switched(source.conn).await?;
        if is_kept && !moves::has_session(target.conn, session_id, &found.id).await? {
            let reason = format!("has orders to end before {} moves it", found.id);
            return self.give_back(source.conn, &reason).await;
        }
        let mut tx = target.conn.begin().await?;
        let mut inner = Side { conn: &mut tx, vault: target.vault };
        let copied = self.copy_in(source, &mut inner).await;
        if copied.is_ok() {
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
        copied?;
        Ok(moves::note_copied(source.conn, session_id).await?)
    }

    /// Copies the session by pages, in one transaction of the target. Its new row, which is an entry of the audit log, comes
    /// last; a row of the time before is replaced first.
    async fn copy_in(self, source: &mut Side<'_>, target: &mut Side<'_>) -> Result<(), MoveError> {
        let Self { session_id, found, .. } = self;
        let another = || MoveError::Taken(session_id.to_owned());
        let known = moves::find_known(target.conn, session_id, &found.id).await?;
        match known {
            Known::Arrived => return Ok(()),
            Known::Another => return Err(another()),
            Known::Nothing | Known::Left => {}
        }
        let row = moves::load_session(source.conn, session_id).await?;
        let row = reseal(&row, "logon_secret", "session_id", [source.vault, target.vault])?;
        if known == Known::Left
            && !moves::insert_session(target.conn, &row, &found.id).await.map_err(taken)?
        {
            return Err(another());
        }
        moves::delete_messages(target.conn, session_id).await?;
        let mut after = 0;
        while let (rows, Some(last)) = moves::list_messages(source.conn, session_id, after, PAGE).await? {
            moves::insert_messages(target.conn, &rows).await?;
            after = last;
        }
        let mut after = String::new();
        while let (page, Some(last)) = moves::list_orders(source.conn, session_id, &after, PAGE).await? {
            moves::insert_orders(target.conn, &page).await?;
            after = last;
        }
        if known == Known::Nothing
            && !moves::insert_session(target.conn, &row, &found.id).await.map_err(taken)?
        {
            return Err(another());
        }
        Ok(())
    }

    /// Whether operators have disabled the session meanwhile. They have the last word: it does not log on at the source, nor
    /// at the target.
    async fn is_switched(self, conn: &mut PgConnection) -> Result<bool, MoveError> {
        let last = commands::find_last_switch(conn, self.session_id).await?;
        Ok(last.as_deref() != Some(self.reason))
    }

    /// Gives the session back to the source, in the transaction that has locked it.
    async fn give_back(self, tx: &mut PgConnection, reason: &str) -> Result<(), MoveError> {
        let is_switched = self.is_switched(tx).await?;
        moves::give_back(tx, self.session_id, !is_switched).await?;
        if !is_switched {
            self.record(tx, (SessionAction::Enable, "enabled"), reason).await?;
        }
        Ok(())
    }

    /// Gives a session that could not be copied back to the source, so that its peer can log on there. Whether it is the
    /// source's now; an error, too, says that the target may have it.
    async fn stays(self, source: &mut PgConnection, target: &mut PgConnection) -> Result<bool, MoveError> {
        let Self { session_id, found, .. } = self;
        let mut tx = source.begin().await?;
        if moves::lock_taken(&mut tx, session_id, found).await?
            && !moves::has_session(target, session_id, &found.id).await?
        {
            self.give_back(&mut tx, &format!("could not be copied by {}", found.id)).await?;
        }
        tx.commit().await?;
        let present = moves::list_present(source, &[session_id.to_owned()]).await?;
        Ok(!present.is_empty())
    }

    /// Records a change of the session, which is done.
    async fn record(
        self,
        tx: &mut PgConnection,
        (action, outcome): (SessionAction, &str),
        reason: &str,
    ) -> Result<(), MoveError> {
        let command = fix_sessions::command(self.session_id, action, self.operator, reason);
        let command = command.map_err(|_| MoveError::NoReason)?;
        commands::insert_command(tx, &command, Some(outcome)).await?;
        Ok(())
    }
}
