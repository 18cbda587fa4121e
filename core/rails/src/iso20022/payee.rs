//! Verification of payee: what an order's file says about it, what the bank finds, and the releases of payments that the
//! bank makes only once it is told to.
//!
//! ```text
//! ID.voi.xml ─> the bank ─> match, close match, not possible ─> ID.release ─> the bank pays
//!                       └─> no match ─> an operator's alarm ──> ID.release, or a recall
//! ```
//!
//! A release is decided once (`release_at`), and given once however many processes try and wherever they stop: the note
//! in `given` is written before it is moved.

use dvp_domain::ids::RecallId;
use dvp_domain::payment::PayeeCheck;
use dvp_domain::recall::RecallReason;
use dvp_domain::scheme::Scheme;
use dvp_store::database::ids;
use dvp_store::orders::bank::{self as store, BankPayment, HeldRelease};
use dvp_store::orders::recalls::{self, NewRecall};
use metrics::counter;
use serde::Deserialize;
use sqlx::PgConnection;
use tracing::info;

use super::status::PAYEE_DIFFERS;
use super::{BankError, BankFiles, file_name};

/// Releases given at a time.
const RELEASED_MAX: i64 = 100;

/// What the names of orders' files say, where the scheme verifies payees. EBICS has it in the order type and the service
/// option, which are chosen by the file's name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verification {
    /// Nothing: it is agreed with the bank.
    #[default]
    Agreed,
    /// `.voi`: the bank verifies, and pays once the payment is released.
    OptIn,
    /// `.voo`: the bank does not verify.
    OptOut,
}

/// What happens to a payment whose payee does not match.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnMismatch {
    /// It waits for an operator.
    #[default]
    Hold,
    /// It is recalled at once, and fails when the bank accepts.
    Recall,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Payees {
    pub verification: Verification,
    pub on_mismatch: OnMismatch,
}

impl Payees {
    /// The name under which an order's file is given to the bank.
    pub(super) fn sent_name(self, end_to_end_id: &str, scheme: &Scheme) -> String {
        match self.verification {
            Verification::OptIn if scheme.verifies_payee => format!("{end_to_end_id}.voi.xml"),
            Verification::OptOut if scheme.verifies_payee => format!("{end_to_end_id}.voo.xml"),
            Verification::Agreed | Verification::OptIn | Verification::OptOut => file_name(end_to_end_id),
        }
    }

    /// Records what the bank has found. Returns the alarm, if there is one.
    pub(super) async fn take(
        self,
        tx: &mut PgConnection,
        payment: &BankPayment,
        payee: PayeeCheck,
        name: Option<&str>,
    ) -> Result<Option<&'static str>, BankError> {
        let BankPayment { end_to_end_id, execution, .. } = payment;
        let releases = payee != PayeeCheck::NoMatch && self.verification == Verification::OptIn;
        let is_new = store::record_payee(tx, end_to_end_id, payee, name, releases).await?;
        if !is_new {
            return Ok(None);
        }
        info!(end_to_end_id, execution, payee = payee.as_str(), "the bank has verified the payee");
        counter!("dvp_payee_checks_total", "result" => payee.as_str()).increment(1);
        if payee != PayeeCheck::NoMatch {
            return Ok(None);
        }
        if self.on_mismatch == OnMismatch::Recall && payment.status.is_open() {
            let id = RecallId::from_unique(ids::draw_here(tx).await?.simple());
            let (reason, information) = (RecallReason::WrongAccount, Some("verification of payee: no match"));
            let recall = NewRecall { id: &id, execution, reason, information };
            if recalls::insert(tx, &recall).await? {
                info!(%id, execution, "the payment is recalled: its payee does not match");
            }
        }
        Ok(Some(PAYEE_DIFFERS))
    }
}

impl BankFiles {
    /// Gives the releases that are due to the bank. One that fails delays no other.
    pub async fn send_releases(&self) -> Result<usize, BankError> {
        let mut conn = self.pool.acquire().await?;
        let due = store::list_releases(&mut conn, RELEASED_MAX).await?;
        drop(conn);
        let mut sent = 0;
        for HeldRelease { end_to_end_id, execution } in due {
            let (files, id) = (self.clone(), end_to_end_id.clone());
            let sending =
                async move { files.send_release(&id).await.inspect_err(|error| files.suspect(error)) };
            let is_sent = self.sending.attend(&end_to_end_id, &execution, sending).await.done();
            sent += usize::from(is_sent.is_some());
        }
        Ok(sent)
    }

    async fn send_release(&self, end_to_end_id: &str) -> Result<(), BankError> {
        let name = format!("{end_to_end_id}.release");
        if self.folder.find_given(&name).await?.is_none() {
            self.folder.stage(&name, &format!("{end_to_end_id}\n")).await?;
        }
        self.folder.give(&name, &name, "").await?;
        let mut conn = self.pool.acquire().await?;
        store::mark_released(&mut conn, end_to_end_id).await?;
        info!(end_to_end_id, "the payment was released to the bank");
        Ok(())
    }
}
