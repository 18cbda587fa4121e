//! The short form of the drill of alerts.

use crate::alert_causes::run;
use crate::alert_table::Cause;

#[tokio::test(flavor = "multi_thread")]
async fn an_expiring_certificate_and_a_used_limit_raise_their_alerts_until_their_pages_are_carried_out() {
    run(&[Cause::ExpiringCertificate, Cause::UsedLimit]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_row_and_an_ended_process_raise_their_alerts() {
    run(&[Cause::RefusedRow, Cause::EndedProcess]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_over_fix_that_are_refused_raise_the_alert_of_acceptance() {
    run(&[Cause::RefusedFixOrder]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_a_returned_payment_and_a_deep_fork_end_as_their_pages_say() {
    run(&[Cause::BankCharge, Cause::ReturnedPayment, Cause::DeepFork]).await;
}
