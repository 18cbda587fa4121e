//! The screening of orders before their settlement.

use std::path::PathBuf;

use anyhow::Context as _;
use dvp_core::screening::{HookConfig, ListConfig, Screening};
use dvp_domain::screening::ScreeningResult;
use serde::Deserialize;

use super::value::{Secret, Span, millis};

/// Nothing is screened when it names neither a list nor a hook.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScreeningSection {
    /// A file of names and accounts.
    pub list: Option<PathBuf>,
    /// The result of a match on the list.
    #[serde(default = "hold")]
    pub on_match: ScreeningResult,
    pub hook: Option<HookSection>,
    /// How long a held order rests before it is screened again.
    #[serde(default = "millis::<60_000>")]
    pub ask_again: Span,
}

/// A screening service queried over HTTP.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HookSection {
    pub url: String,
    /// Sent as `Authorization: Bearer`.
    pub token: Option<Secret>,
    #[serde(default = "millis::<2_000>")]
    pub timeout: Span,
    /// The result without a valid answer in time.
    #[serde(default = "hold")]
    pub on_error: ScreeningResult,
}

impl Default for ScreeningSection {
    fn default() -> Self {
        Self { list: None, on_match: hold(), hook: None, ask_again: millis::<60_000>() }
    }
}

const fn hold() -> ScreeningResult {
    ScreeningResult::Hold
}

impl ScreeningSection {
    pub(crate) fn screening(&self) -> anyhow::Result<Screening> {
        let list = self.list.clone().map(|file| ListConfig { file, on_match: self.on_match });
        let hook = |hook: &HookSection| {
            let token =
                hook.token.as_ref().map(|token| token.read().context("screening.hook.token")).transpose()?;
            let (timeout, on_error) = (hook.timeout.0, hook.on_error);
            anyhow::Ok(HookConfig { url: hook.url.clone(), token, timeout, on_error })
        };
        let hook = self.hook.as_ref().map(hook).transpose()?;
        Screening::new(list, hook, self.ask_again.0).context("screening")
    }
}
