//! Screening of orders before they settle: a list of names and addresses from a file, and a service called over HTTP.
//!
//! `POST <url>` with `Idempotency-Key: <reference>` and `{reference, intentId, partnerId, wallet, recipient, input,
//! output, beneficiary}`; the answer is `{verdict: "pass" | "hold" | "fail", case?: "…"}`. An order may be sent several
//! times, always under the same reference. Any other answer, or none in time, has the configured result `on_error`.
//!
//! Invariant: nothing here touches the database or an order; the workflow records a verdict before it acts on it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use dvp_domain::beneficiary::Beneficiary;
use dvp_domain::screening::{Parties, ScreeningList, ScreeningResult, Source};
use dvp_domain::terms::{AssetAmount, Terms};
use dvp_domain::text::check_line;
use metrics::counter;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tracing::{error, info, warn};

use crate::liquidity::{HttpClient, SourceError};

/// Concurrent requests to the hook: a slow hook must not stop the workers' other work.
const IN_FLIGHT: usize = 64;
/// The longest time limit of the hook: within the claim of an order's due work.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(10);
/// The interval of checking the list's file for changes.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The longest case number that is recorded.
const CASE_BYTES_MAX: usize = 200;

/// How to call the hook, and the result when it fails.
#[derive(Debug, Clone)]
pub struct HookConfig {
    pub url: String,
    /// Sent as `Authorization: Bearer`.
    pub token: Option<String>,
    pub timeout: Duration,
    pub on_error: ScreeningResult,
}

/// A list, and the result of a match.
#[derive(Debug, Clone)]
pub struct ListConfig {
    pub file: PathBuf,
    pub on_match: ScreeningResult,
}

/// How orders are screened. Without list and hook every order passes.
#[derive(Debug, Default)]
pub struct Screening {
    list: Option<List>,
    hook: Option<Hook>,
    /// How long a held order waits before it is screened again.
    pub ask_again: Duration,
}

#[derive(Debug)]
struct List {
    config: ListConfig,
    read: Mutex<ReadList>,
}

#[derive(Debug, Clone)]
struct ReadList {
    list: Arc<ScreeningList>,
    modified: Option<SystemTime>,
    looked_at: Instant,
}

struct Hook {
    config: HookConfig,
    client: HttpClient,
    places: Semaphore,
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hook").field("url", &self.config.url).finish_non_exhaustive()
    }
}

/// The configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScreeningError {
    #[error("the screening list {0}: {1}")]
    List(PathBuf, String),
    #[error("the screening hook: {0}")]
    Hook(#[from] SourceError),
    #[error("the screening hook may take 10 seconds at most")]
    Timeout,
}

/// The result of screening an order, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Screened {
    pub verdict: ScreeningResult,
    pub source: Source,
    pub detail: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    reference: &'a str,
    intent_id: &'a str,
    partner_id: &'a str,
    wallet: &'a str,
    recipient: Option<&'a str>,
    input: Amount<'a>,
    output: Amount<'a>,
    beneficiary: Option<&'a Beneficiary>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Amount<'a> {
    asset: &'a str,
    amount_minor: String,
    chain: Option<&'a str>,
}

#[derive(Deserialize)]
struct Answer {
    verdict: ScreeningResult,
    #[serde(default)]
    case: String,
}

impl Screening {
    pub fn new(
        list: Option<ListConfig>,
        hook: Option<HookConfig>,
        ask_again: Duration,
    ) -> Result<Self, ScreeningError> {
        let list = list.map(List::open).transpose()?;
        let hook = hook.map(Hook::new).transpose()?;
        Ok(Self { list, hook, ask_again })
    }

    /// Whether a list or a hook is configured.
    pub const fn is_on(&self) -> bool {
        self.list.is_some() || self.hook.is_some()
    }

    /// Screens an order. `None`: too many requests are in progress; try again shortly.
    pub async fn screen(&self, parties: &Parties<'_>) -> Option<Screened> {
        let listed = self.list.as_ref().and_then(|list| list.screen(parties));
        let screened = match (listed, &self.hook) {
            (Some(listed), _) => listed,
            (None, Some(hook)) => hook.ask(parties).await?,
            (None, None) => {
                Screened { verdict: ScreeningResult::Pass, source: Source::List, detail: String::new() }
            }
        };
        let (verdict, source) = (screened.verdict.as_str(), screened.source.as_str());
        counter!("dvp_screenings_total", "verdict" => verdict, "source" => source).increment(1);
        Some(screened)
    }
}

impl List {
    fn open(config: ListConfig) -> Result<Self, ScreeningError> {
        let (list, modified) = read(&config).map_err(|why| ScreeningError::List(config.file.clone(), why))?;
        let looked_at = Instant::now();
        let read = Mutex::new(ReadList { list: Arc::new(list), modified, looked_at });
        Ok(Self { config, read })
    }

    fn screen(&self, parties: &Parties<'_>) -> Option<Screened> {
        let found = self.current().matches(parties)?;
        Some(Screened { verdict: self.config.on_match, source: Source::List, detail: found.to_owned() })
    }

    /// The list from the file's present content. An unreadable file leaves the list unchanged.
    fn current(&self) -> Arc<ScreeningList> {
        let mut known = self.read.lock();
        if known.looked_at.elapsed() >= LOOK_EVERY {
            known.looked_at = Instant::now();
            let is_new = modified(&self.config).is_none_or(|at| Some(at) != known.modified);
            if is_new {
                match read(&self.config) {
                    Ok((list, modified)) => {
                        info!(file = %self.config.file.display(), "screening list reloaded");
                        (known.list, known.modified) = (Arc::new(list), modified);
                    }
                    Err(why) => {
                        error!(file = %self.config.file.display(), why, "screening list cannot be read, keeping the last one");
                        counter!("dvp_screening_list_failures_total").increment(1);
                    }
                }
            }
        }
        Arc::clone(&known.list)
    }
}

fn modified(config: &ListConfig) -> Option<SystemTime> {
    std::fs::metadata(&config.file).and_then(|file| file.modified()).ok()
}

fn read(config: &ListConfig) -> Result<(ScreeningList, Option<SystemTime>), String> {
    // Read before the content: a change in between causes another reload.
    let modified = modified(config);
    let text = std::fs::read_to_string(&config.file).map_err(|error| error.to_string())?;
    Ok((ScreeningList::parse(&text).map_err(|error| error.to_string())?, modified))
}

impl Hook {
    fn new(config: HookConfig) -> Result<Self, ScreeningError> {
        if config.timeout > TIMEOUT_MAX {
            return Err(ScreeningError::Timeout);
        }
        let client = HttpClient::new(config.timeout)?;
        Ok(Self { config, client, places: Semaphore::new(IN_FLIGHT) })
    }

    async fn ask(&self, parties: &Parties<'_>) -> Option<Screened> {
        let _place = self.places.try_acquire().ok()?;
        let Terms { reference, request, input, output, .. } = parties.terms;
        let amount = |of: &'_ AssetAmount| of.amount.to_string();
        let question = Question {
            reference: reference.as_str(),
            intent_id: &request.intent_id,
            partner_id: parties.terms.partner_id.as_str(),
            wallet: &request.user,
            recipient: request.output_recipient.as_deref(),
            input: Amount { asset: &input.asset, amount_minor: amount(input), chain: input.chain.as_deref() },
            output: Amount {
                asset: &output.asset,
                amount_minor: amount(output),
                chain: output.chain.as_deref(),
            },
            beneficiary: parties.beneficiary,
        };
        let token = self.config.token.as_deref();
        let answer = self.client.post_under(&self.config.url, &question, reference.as_str(), token).await;
        Some(match answer {
            Ok(Answer { verdict, case }) if check_line(&case, CASE_BYTES_MAX).is_ok() || case.is_empty() => {
                Screened { verdict, source: Source::Hook, detail: case }
            }
            Ok(_) => self.unanswered(parties, "a case that is no line of text"),
            Err(error) => self.unanswered(parties, &error.to_string()),
        })
    }

    fn unanswered(&self, parties: &Parties<'_>, why: &str) -> Screened {
        let verdict = self.config.on_error;
        let reference = parties.terms.reference.as_str();
        warn!(
            reference,
            why,
            verdict = verdict.as_str(),
            "screening hook gave no valid answer, using on_error"
        );
        Screened { verdict, source: Source::NoAnswer, detail: String::new() }
    }
}
