//! A secret as a command takes it: from standard input, the environment or a file, or as an argument, which everybody
//! on the machine can read while the command runs.

use std::io::{BufRead as _, Write as _};

use anyhow::{Context as _, ensure};

use crate::config::value::Secret;

/// Where a secret is.
#[derive(Clone)]
pub(crate) enum GivenSecret {
    /// `-`: the first line of standard input.
    Stdin,
    /// `env:NAME` or `file:PATH`.
    Kept(Secret),
    /// The argument itself.
    Plain(String),
}

impl std::fmt::Debug for GivenSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl From<&str> for GivenSecret {
    fn from(text: &str) -> Self {
        match Secret::parse(text) {
            Some(kept) => Self::Kept(kept),
            None if text == "-" => Self::Stdin,
            None => Self::Plain(text.to_owned()),
        }
    }
}

impl GivenSecret {
    /// The secret itself. `option` names it in error messages.
    pub(crate) fn read(&self, option: &str) -> anyhow::Result<String> {
        let secret = match self {
            Self::Stdin => {
                let mut line = String::new();
                std::io::stdin().lock().read_line(&mut line).context("standard input cannot be read")?;
                line.trim_end_matches(['\r', '\n']).to_owned()
            }
            Self::Kept(secret) => secret.read().with_context(|| option.to_owned())?,
            Self::Plain(secret) => {
                // The command goes on whether or not anybody reads this.
                let _ = writeln!(
                    std::io::stderr(),
                    "warning: {option}: others on this machine can read a secret on the command line; give env:NAME, \
                     file:PATH, or - for standard input"
                );
                secret.clone()
            }
        };
        ensure!(!secret.is_empty(), "{option}: the secret is empty");
        Ok(secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_by_its_prefix_and_never_shown() {
        assert!(matches!(GivenSecret::from("-"), GivenSecret::Stdin));
        assert!(
            matches!(GivenSecret::from("env:NAME"), GivenSecret::Kept(Secret::Env(name)) if name == "NAME")
        );
        assert!(matches!(GivenSecret::from("file:/a"), GivenSecret::Kept(Secret::File(_))));
        for plain in ["p", "env:", "pass:word"] {
            assert!(matches!(GivenSecret::from(plain), GivenSecret::Plain(text) if text == plain));
        }
        assert_eq!(format!("{:?}", GivenSecret::from("p")), "…");
    }
}
