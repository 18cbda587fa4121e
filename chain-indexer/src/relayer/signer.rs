//! Signatures of the account: a signer that fails rests, and the other accounts take over its commands.
//!
//! Invariant: no connection and no transaction of the database is held while a signature is made.
//!
//! Kept by `chain-indexer/tests/it/signers.rs::a_signature_holds_no_connection_of_the_database`.

use super::Relayer;
use crate::lease_guard::Backoff;
use crate::signing::{SignError, Signed, Unsigned};
use dvp_store::chain as store;
use metrics::gauge;
use parking_lot::Mutex;
use std::time::Instant;

/// The end of the rest after a signer's failures since its last signature; empty after one.
#[derive(Default)]
pub(super) struct Failures(Mutex<Option<(Instant, Backoff)>>);

impl Failures {
    pub(super) fn is_resting(&self) -> bool {
        let failed = self.0.lock();
        failed.as_ref().is_some_and(|(until, _)| *until > Instant::now())
    }

    fn is_failing(&self) -> bool {
        self.0.lock().is_some()
    }

    /// The time until its next trial.
    fn add(&self) -> std::time::Duration {
        let mut failed = self.0.lock();
        let (until, backoff) = failed.get_or_insert_with(|| (Instant::now(), Backoff::new()));
        let pause = backoff.next();
        *until = Instant::now() + pause;
        pause
    }

    /// Whether there were any.
    fn clear(&self) -> bool {
        self.0.lock().take().is_some()
    }
}

impl Relayer {
    /// A verified signature. Failures are logged here.
    pub(super) async fn signed(&self, tx: Unsigned) -> Result<Signed, SignError> {
        if self.failures.is_resting() {
            return Err(SignError::Resting);
        }
        let nonce = tx.nonce;
        let answer = self.account.sign(tx).await;
        match &answer {
            Ok(_) => {
                if self.failures.clear() {
                    let (chain, signer, kind) =
                        (&self.config.name, self.account.address(), self.account.kind());
                    tracing::info!(chain, %signer, kind, "the signer works again");
                }
                self.show_signer(1.0);
            }
            Err(SignError::Refused { code, message }) => {
                let (chain, signer) = (&self.config.name, self.account.address());
                tracing::error!(chain, %signer, nonce, code, message, "the signer refused a transaction");
            }
            Err(error) => self.rest(error).await,
        }
        answer
    }

    /// Whether new commands may be taken: a signer that has failed is checked first.
    pub(super) async fn can_sign(&self) -> bool {
        if !self.failures.is_failing() {
            return true;
        }
        if self.failures.is_resting() {
            return false;
        }
        match self.account.check().await {
            Ok(()) => true,
            Err(error) => {
                self.rest(&error).await;
                false
            }
        }
    }

    /// Leaves the signer alone for a while; the other accounts share the commands among themselves from now on.
    async fn rest(&self, error: &SignError) {
        let pause = self.failures.add();
        let (chain, signer, kind) = (&self.config.name, self.account.address(), self.account.kind());
        let retry_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        tracing::error!(chain, %signer, kind, %error, retry_ms, "the signer failed, will retry");
        self.show_signer(0.0);
        self.give_up_share().await;
    }

    /// The other accounts share its commands from now on; the next process that has the account takes its share again.
    pub(super) async fn give_up_share(&self) {
        let (chain, signer) = (&self.config.name, self.account.address());
        let given_up = async {
            let mut conn = self.pool.acquire().await?;
            store::note_unable(&mut conn, self.config.chain_id, signer).await
        };
        if let Err(error) = given_up.await {
            tracing::warn!(chain, %signer, %error, "the account's share could not be given up; it expires by itself");
        }
    }

    pub(super) fn show_signer(&self, up: f64) {
        let labels = [("chain", self.config.name.clone()), ("account", self.account.address().to_string())];
        gauge!("dvp_signer_up", &labels).set(up);
    }
}
