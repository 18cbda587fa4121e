//! Payments that the bank has and the database has forgotten, because it was restored to a moment before. The folder
//! knows them: each file that is moved to the bank leaves one of its name in `given`, with the amount that was ordered.

use chrono::TimeDelta;
use dvp_domain::money::Minor;
use dvp_domain::payment::PaymentStatus;
use dvp_store::database::clock;
use dvp_store::orders::bank::{self as store, BankPayment, NewBankPayment};
use tracing::error;

use super::instruction::Instruction;
use super::{BankError, BankFiles, RailRequest, file_name, new_payment};

/// A file of this payment was moved to the bank, and the database does not know it: it was restored to an earlier moment.
pub const GIVEN_BEFORE: &str =
    "the payment was given to the bank before the database was restored: have the bank's files read again";

impl BankFiles {
    /// Inserts the row of a payment that was given to the bank and that the database has forgotten. `false`: no file of
    /// it was given. The bank was told the amount in that file: the order may be for another one by now.
    pub(super) async fn remember(
        &self,
        request: &RailRequest,
        instruction: &Instruction,
    ) -> Result<bool, BankError> {
        let Some(given) = self.folder.find_given(&file_name(&instruction.end_to_end_id)).await? else {
            return Ok(false);
        };
        let mut conn = self.pool.acquire().await?;
        // However late it is, the bank has it.
        let not_after = clock::now().to_utc() + TimeDelta::days(1);
        let amount = amount(&given).unwrap_or(instruction.amount);
        let new = NewBankPayment { not_after, amount, ..new_payment(request, instruction) };
        store::insert_payment(&mut conn, &new).await?;
        Ok(true)
    }

    /// A file was moved to the bank, and the row says that none was: unless another process is moving it now, the row is
    /// of a restored database.
    pub(super) async fn report_given(&self, payment: BankPayment) -> Result<BankPayment, BankError> {
        let id = &payment.end_to_end_id;
        let mut conn = self.pool.acquire().await?;
        let Some(mut now) = store::find_payment(&mut conn, id).await? else { return Ok(payment) };
        if now.is_giving || now.status != PaymentStatus::Staged {
            return Ok(now);
        }
        error!(
            end_to_end_id = id,
            execution = now.execution,
            alarm = GIVEN_BEFORE,
            "payment needs an operator's attention"
        );
        store::raise_alarm(&mut conn, id, GIVEN_BEFORE).await?;
        store::mark_sent(&mut conn, id).await?;
        now.status = PaymentStatus::Sent;
        Ok(now)
    }
}

/// What is kept of a payment in `given`: its amount in minor units, and its currency.
pub(super) fn note(payment: &BankPayment) -> String {
    format!("{} {}\n", payment.amount, payment.currency)
}

fn amount(note: &str) -> Option<Minor> {
    Minor::parse(note.split_once(' ')?.0).ok()
}
