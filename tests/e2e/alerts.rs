//! The short form of the drill of alerts.

use crate::alert_faults::{Fault, run};

#[tokio::test(flavor = "multi_thread")]
async fn an_expiring_certificate_raises_its_alert_and_no_other() {
    run(&[Fault::ExpiringCertificate]).await;
}
