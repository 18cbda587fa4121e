//! Operators' commands for the sessions of this process: each is claimed, executed by its driver, and answered.

use std::time::Duration;

use dvp_fix::SeqNum;
use dvp_store::{
    PgPool, StoreError,
    fix::commands::{self as fix_commands, OpenCommand, SessionAction},
};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::{SessionSupervisor, Sessions};
use crate::driver::{Ask, Control};

/// Commands claimed at once.
const COMMANDS_MAX: i64 = 100;
/// The time limit of a driver for one command.
const ANSWER_MAX: Duration = Duration::from_secs(12);
const _: () = assert!(
    ANSWER_MAX.as_secs() < fix_commands::GOOD_FOR.as_secs(),
    "a command is carried out before it would be dropped"
);
/// The delay between attempts to store the answer, and their number.
const RETRY: Duration = Duration::from_millis(500);
const ATTEMPTS: usize = 20;

impl SessionSupervisor {
    /// Claims the waiting commands for sessions of this process.
    pub(super) async fn carry_out_commands(&self, sessions: &Sessions) -> Result<(), StoreError> {
        if sessions.running.is_empty() {
            return Ok(());
        }
        let ids: Vec<&str> = sessions.running.keys().map(String::as_str).collect();
        let mut conn = self.pool.acquire().await?;
        for command in fix_commands::list_open(&mut conn, &ids, COMMANDS_MAX).await? {
            let OpenCommand { id, session_id, action } = command;
            let (Some(ask), Some(running)) = (ask(action), sessions.running.get(&session_id)) else {
                continue;
            };
            // A place in the queue first: a claimed command is executed.
            let Ok(place) = running.control.try_reserve() else { continue };
            if !fix_commands::take_command(&mut conn, id, self.owner).await? {
                continue;
            }
            info!(session_id, command = id, ?ask, "operator command received");
            let (answer, answered) = oneshot::channel();
            place.send(Control { ask, answer });
            tokio::spawn(write_answer(self.pool.clone(), id, answered));
        }
        Ok(())
    }
}

const fn ask(action: SessionAction) -> Option<Ask> {
    match action {
        SessionAction::Logout => Some(Ask::LogOut),
        SessionAction::Reset => Some(Ask::Reset),
        SessionAction::SetSeq { next_in, next_out, with_reset } => {
            Some(Ask::SetNumbers { next_in: SeqNum(next_in), next_out: SeqNum(next_out), with_reset })
        }
        SessionAction::Disconnect => Some(Ask::Disconnect),
        SessionAction::TestRequest => Some(Ask::TestRequest),
        // They are in the session's row.
        SessionAction::Enable | SessionAction::Disable => None,
    }
}

/// Waits for the driver, and stores its answer.
async fn write_answer(pool: PgPool, id: i64, answered: oneshot::Receiver<Result<String, String>>) {
    let said = tokio::time::timeout(ANSWER_MAX, answered).await;
    let (outcome, failed) = match said {
        Ok(Ok(Ok(outcome))) => (outcome, false),
        Ok(Ok(Err(outcome))) => (outcome, true),
        Ok(Err(_)) => ("the session ended meanwhile; whether it was done is unknown".to_owned(), true),
        Err(_) => ("not done in time; whether it will be is unknown".to_owned(), true),
    };
    for _ in 0..ATTEMPTS {
        let written = async {
            let mut conn = pool.acquire().await?;
            fix_commands::finish_command(&mut conn, id, &outcome, failed).await
        };
        match written.await {
            Ok(()) => return,
            Err(error) => {
                warn!(command = id, %error, "recording the result of an operator command failed, will retry")
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}
