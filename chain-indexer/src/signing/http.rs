//! What signers over HTTP have in common: answers of a bounded length, and texts fit for a log line.

use super::SignError;
use reqwest::{Response, StatusCode};
use std::error::Error as _;

const ANSWER_MAX: usize = 64 * 1024;
/// The longest text of the signer in a log line.
const TEXT_MAX: usize = 200;

/// The answer's status and content.
pub(super) async fn read(mut answer: Response) -> Result<(StatusCode, Vec<u8>), SignError> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(unreached)? {
        if body.len() + chunk.len() > ANSWER_MAX {
            return Err(SignError::Malformed(format!("more than {ANSWER_MAX} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((answer.status(), body))
}

/// The signer's own text, fit for a log line.
pub(super) fn printable(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(TEXT_MAX).collect()
}

pub(super) fn unreached(error: reqwest::Error) -> SignError {
    let error = error.without_url();
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        said = format!("{said}: {inner}");
        cause = inner.source();
    }
    SignError::Unavailable(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signers_own_text_cannot_forge_log_lines() {
        assert_eq!(printable("a\nb\u{1b}[0m"), "ab[0m");
        assert_eq!(printable(&"x".repeat(1_000)).len(), TEXT_MAX);
    }
}
