//! The short form of the drill of alerts.

use crate::alert_causes::{self, Cause};
use crate::alert_faults::{Fault, run};

#[tokio::test(flavor = "multi_thread")]
async fn an_expiring_certificate_raises_its_alert_and_no_other() {
    run(&[Fault::ExpiringCertificate]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_row_and_an_ended_process_raise_their_alerts() {
    alert_causes::run(&[Cause::RefusedRow, Cause::EndedProcess]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_bank_file_and_a_deep_fork_raise_their_alerts() {
    alert_causes::run(&[Cause::UnreadableFile, Cause::DeepFork]).await;
}
