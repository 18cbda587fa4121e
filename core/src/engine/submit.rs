//! Submission: the permit is checked, then the intent is queued for the writer.

use dvp_domain::address::Address;
use dvp_domain::asset::AssetKind;
use dvp_domain::intent::{IntentRequest, Permit};
use dvp_domain::permit::{self, PermitDefect};
use dvp_store::orders::idempotency::StoredResponse;
use dvp_store::orders::intents::Tenant;
use dvp_store::orders::legacy::HeldTurn;
use tracing::{Instrument, debug_span, info, info_span};

use super::error::EngineError;
use super::{Engine, flow};
use crate::chain::permit::Signer;
use crate::chain::wallets::{LookedUp, Question};
use crate::chain::{SignedHash, WalletFacts, WalletKey};
use crate::context::ContractSet;
use crate::trace::{self, SPANS};
use crate::writer::{
    Done, FixPart, IdempotencyPart, KnownWallet, Outcome, Pending, Refusal, Submission, Unit, UsedKey, Work,
    WriteError,
};

/// An intent from REST or FIX.
pub struct SubmitCommand {
    pub tenant: Tenant,
    pub request: IntentRequest,
    /// From REST.
    pub idempotency: Option<IdempotencyPart>,
    /// From FIX.
    pub fix: Option<FixPart>,
}

/// Whether an intent's permit can be checked without a chain query.
#[derive(Debug)]
pub enum PermitCheck {
    Judged(JudgedPermit),
    /// The permit is well formed. It is signed by its wallet, and no fresh data of the wallet is cached; or the wallet has
    /// to confirm it.
    Unknown(UnknownWallet),
}

/// A permit that is judged after a look-up.
#[derive(Debug, Clone)]
pub struct UnknownWallet {
    pub question: Question,
    /// The signature's, if the wallet is no contract.
    defect: PermitDefect,
}

impl UnknownWallet {
    /// The permit by the chain's answer.
    pub fn judged(self, answer: LookedUp) -> JudgedPermit {
        let Question { wallet, signed } = self.question;
        match answer {
            LookedUp::Facts(facts) => {
                JudgedPermit { by_contract: signed.is_some(), ..JudgedPermit::of_wallet(wallet, facts) }
            }
            LookedUp::Unconfirmed { is_contract } => JudgedPermit::without_wallet(Err(match is_contract {
                true => PermitDefect::Unconfirmed,
                false => self.defect,
            })),
        }
    }
}

/// The result of [`Engine::check_permit`], with the cached data of the wallet.
#[derive(Debug, Clone)]
pub struct JudgedPermit {
    verdict: Result<Option<WalletFacts>, PermitDefect>,
    wallet: Option<WalletKey>,
    /// The signature is a contract's.
    by_contract: bool,
}

impl JudgedPermit {
    const fn without_wallet(verdict: Result<Option<WalletFacts>, PermitDefect>) -> Self {
        Self { verdict, wallet: None, by_contract: false }
    }

    /// The wallet's other pending orders are read when the intent is decided.
    const fn of_wallet(wallet: WalletKey, facts: WalletFacts) -> Self {
        Self { verdict: Ok(Some(facts)), wallet: Some(wallet), by_contract: false }
    }

    /// The wallet that pays and its data, where there is one.
    pub(crate) fn known_wallet(self) -> Option<KnownWallet> {
        let facts = self.verdict.ok().flatten();
        self.wallet.zip(facts).map(|(key, facts)| KnownWallet { key, facts })
    }

    /// The wallet that pays, when its data was read.
    pub const fn wallet(&self) -> Option<&WalletKey> {
        self.wallet.as_ref()
    }
}

/// The signature is stored, and sent to the chain, in the form that the permit contract accepts: `0x` and lowercase hex. A
/// contract's keeps its bytes.
fn normalise_signature(request: &mut IntentRequest, by_contract: bool) {
    let Some(permit) = &mut request.permit else { return };
    let bytes = match by_contract {
        true => permit::signature_bytes(permit),
        false => permit::signature(permit).ok().map(|signature| signature.as_bytes().to_vec()),
    };
    if let Some(bytes) = bytes {
        permit.signature = format!("0x{}", hex::encode(bytes));
    }
}

fn log_outcome(outcome: &Outcome) {
    match outcome {
        Outcome::Accepted(accepted) => info!(reference = %accepted.reference, "intent accepted"),
        Outcome::Rejected { reason, .. } => info!(reason = reason.as_str(), "intent rejected"),
        Outcome::Refused(Refusal::InvalidPermit(defect)) => info!(%defect, "permit rejected"),
        Outcome::Refused(Refusal::Unpayable(why)) => {
            info!(%why, "intent refused: the payout rail cannot pay the beneficiary")
        }
        Outcome::Refused(Refusal::DuplicateIntent | Refusal::DuplicateClientReference) => {
            info!("duplicate intent")
        }
        Outcome::KeyUsed(UsedKey::Replayed(StoredResponse { status, .. })) => {
            info!(status, "stored response replayed")
        }
        Outcome::Refused(Refusal::PartnerDisabled) => info!("intent refused: the partner is disabled"),
        Outcome::Refused(Refusal::TooManyWaiting) => {
            info!("legacy order refused: the tenant has too many that wait")
        }
        Outcome::Refused(Refusal::Redirected) => {
            info!("legacy order refused: the standing instruction was replaced")
        }
        Outcome::KeyUsed(UsedKey::Conflict | UsedKey::Processing) => info!("idempotency key in use"),
        Outcome::Unfilled(why) => info!(why = why.as_str(), "resting order not filled"),
        Outcome::Refused(Refusal::CoolingDown(cool_down)) => {
            info!(scope = cool_down.scope.as_str(), until = %cool_down.until.iso8601(), "refused: the taker cools down")
        }
        Outcome::Refused(Refusal::NotHeld) => info!("firm quote refused: its output cannot be held"),
        Outcome::Written => {}
    }
}

impl Engine {
    /// Checks an intent's permit from memory: its form, its signer, and the cached data of its wallet. A given `signer`
    /// avoids a second recovery.
    pub fn check_permit(
        &self,
        tenant: &Tenant,
        request: &IntentRequest,
        signer: Option<&Signer>,
    ) -> PermitCheck {
        let refused = |defect| PermitCheck::Judged(JudgedPermit::without_wallet(Err(defect)));
        let fine = PermitCheck::Judged(JudgedPermit::without_wallet(Ok(None)));
        let Some(permit) = &request.permit else { return fine };
        let chain = self.context.chain_of_input(request);
        let earlier = chain.ending.iter().map(|set| set.escrow.as_str());
        if let Some(defect) =
            permit::form_defect(request, (chain.taking.escrow.as_str(), earlier), self.now())
        {
            return refused(defect);
        }
        let token = self.context.registry.resolve(&request.input_asset).and_then(|asset| match &asset.kind {
            AssetKind::Erc20 { address, .. } => Some(address),
            AssetKind::Fiat { .. } | AssetKind::Native { .. } => None,
        });
        if token.is_some_and(|address| !address.eq_ignore_ascii_case(&permit.token)) {
            return refused(PermitDefect::Token);
        }
        let recovered = if signer.is_none() { chain.permit.signer(permit) } else { None };
        let is_users = |signer: &Signer| signer.as_str().eq_ignore_ascii_case(&request.user);
        if !signer.or(recovered.as_ref()).is_some_and(is_users) {
            // Over FIX the spender is not sent: what was signed for an earlier escrow shows in the signer alone.
            let for_earlier = |set: &ContractSet| {
                let permit = Permit { spender: set.escrow.clone(), ..permit.clone() };
                chain.permit.signer(&permit).as_ref().is_some_and(is_users)
            };
            let right = chain.taking.escrow.to_ascii_lowercase().parse().ok();
            if let Some(escrow) = right.filter(|_| chain.ending.iter().any(for_earlier)) {
                return refused(PermitDefect::Replaced { escrow });
            }
            let defect = permit::signature(permit).err().unwrap_or(PermitDefect::Signer);
            let is_address = request.user.parse::<Address>().is_ok();
            if is_address && token.is_some() && chain.halt.is_halted() {
                return fine;
            }
            let digest = chain.permit.digest(permit).filter(|_| is_address);
            let signed = digest.zip(permit::signature_bytes(permit));
            let wallet = self.wallet_key(request);
            return match (signed, wallet) {
                (Some((digest, signature)), Some(wallet)) => {
                    let question = Question { wallet, signed: Some(SignedHash { digest, signature }) };
                    PermitCheck::Unknown(UnknownWallet { question, defect })
                }
                _ => refused(defect),
            };
        }
        // The chain is queried about registered tokens only; any other token cannot be locked. A halted chain takes no
        // order, and its nodes are not waited for.
        if token.is_none() || chain.halt.is_halted() {
            return fine;
        }
        self.wallet_of(tenant, request).unwrap_or(fine)
    }

    /// The wallet that pays for an intent with a permit.
    fn wallet_key(&self, request: &IntentRequest) -> Option<WalletKey> {
        request.permit.as_ref()?;
        let asset = self.context.registry.resolve(&request.input_asset)?;
        let AssetKind::Erc20 { address, .. } = &asset.kind else { return None };
        Some(WalletKey {
            chain_id: self.context.chain_of_input(request).chain_id,
            owner: request.user.to_ascii_lowercase(),
            token: address.to_ascii_lowercase(),
        })
    }

    /// What is known of the wallet that pays for an intent whose permit was checked. `None`: no wallet does.
    pub(crate) fn wallet_of(&self, tenant: &Tenant, request: &IntentRequest) -> Option<PermitCheck> {
        let wallet = self.wallet_key(request)?;
        Some(match self.wallets.find(&tenant.partner_id, &wallet) {
            Some(facts) => PermitCheck::Judged(JudgedPermit::of_wallet(wallet, facts)),
            None => PermitCheck::Unknown(UnknownWallet {
                question: Question { wallet, signed: None },
                defect: PermitDefect::Signer,
            }),
        })
    }

    /// Decides an intent and answers after the commit. An intent of an unknown wallet first waits for the wallet's
    /// look-up.
    pub async fn submit(&self, command: SubmitCommand) -> Result<Done, EngineError> {
        let span = info_span!("submit", intent_id = %command.request.intent_id);
        async {
            let permit = match self.check_permit(&command.tenant, &command.request, None) {
                PermitCheck::Judged(permit) => permit,
                PermitCheck::Unknown(unknown) => {
                    let answer = self.wallets.look_up(&command.tenant.partner_id, &unknown.question).await?;
                    unknown.judged(answer)
                }
            };
            let pending = self.begin_submit(command, permit).await?;
            let done = pending.instrument(debug_span!(target: SPANS, "commit")).await;
            let done = done.map_err(|_| WriteError::Stopped)??;
            log_outcome(&done.outcome);
            Ok(done)
        }
        .instrument(span)
        .await
    }

    /// Queues an intent whose permit was checked. Submissions of one FIX session, or of one tenant over REST, are
    /// decided in the order of these calls. A FIX session's submission waits for a free place in the queue; any other
    /// is refused when its tenant's share is full.
    pub fn begin_submit(
        &self,
        command: SubmitCommand,
        permit: JudgedPermit,
    ) -> impl Future<Output = Result<Pending, EngineError>> + use<> {
        let SubmitCommand { tenant, mut request, idempotency, fix } = command;
        let flow = flow(tenant.clone(), fix.as_ref());
        let work = match permit.verdict {
            Err(defect) => Work::Refuse(Refusal::InvalidPermit(defect)),
            Ok(facts) => {
                normalise_signature(&mut request, permit.by_contract);
                let wallet = permit.wallet.zip(facts).map(|(key, facts)| KnownWallet { key, facts });
                Work::Submit(Box::new(Submission {
                    tenant,
                    request,
                    wallet,
                    turn: None,
                    fills: None,
                    trace: trace::current(),
                }))
            }
        };
        self.queue(Unit { flow, work, idempotency, fix })
    }

    /// Executes a legacy order, which has no permit. `None`: another process has claimed the order, and nothing was
    /// written.
    pub(crate) async fn submit_turn(
        &self,
        request: IntentRequest,
        turn: HeldTurn,
    ) -> Result<Option<Done>, EngineError> {
        let tenant = turn.tenant.clone();
        let flow = flow(tenant.clone(), None);
        let work = Work::Submit(Box::new(Submission {
            tenant,
            request,
            wallet: None,
            turn: Some(turn),
            fills: None,
            trace: None,
        }));
        match self.writer.write(Unit { flow, work, idempotency: None, fix: None }).await {
            Ok(done) => Ok(Some(done)),
            Err(WriteError::Stale { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
