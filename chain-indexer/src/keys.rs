//! Sources of signing keys: the environment, an encrypted keystore file, or a plain file.
//!
//! Invariant: a key is read once, at the start, and never printed; only the place of a source is printed.

use alloy::signers::local::{LocalSignerError, PrivateKeySigner};
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::str::FromStr;

/// A key's place, as written in a config: `env:NAME`, `file:PATH`, or `keystore:PATH` whose password is in an
/// environment variable, `keystore:PATH#NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// 64 hex digits in an environment variable.
    Env { name: String },
    /// 64 hex digits in a file that only its owner and its group may read.
    File { path: PathBuf },
    /// A keystore file (Web3 Secret Storage, version 3).
    Keystore { path: PathBuf, password_env: String },
}

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("a key's place is env:NAME, file:PATH or keystore:PATH#PASSWORD_ENV")]
    Place,
    #[error("environment variable {name} is not set")]
    NotSet { name: String },
    #[error("key file {path} cannot be read")]
    Unreadable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("key file {path} is open to others: make it 0600, or 0640 for its group")]
    Exposed { path: PathBuf },
    #[error("{place} holds no private key")]
    NoKey { place: KeySource },
    #[error("keystore {path} cannot be opened with this password")]
    Keystore {
        path: PathBuf,
        #[source]
        source: LocalSignerError,
    },
}

impl FromStr for KeySource {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let (kind, rest) = text.split_once(':').ok_or(KeyError::Place)?;
        if rest.is_empty() {
            return Err(KeyError::Place);
        }
        match kind {
            "env" => Ok(Self::Env { name: rest.to_owned() }),
            "file" => Ok(Self::File { path: rest.into() }),
            "keystore" => {
                let (path, name) = rest.rsplit_once('#').ok_or(KeyError::Place)?;
                Ok(Self::Keystore { path: path.into(), password_env: name.to_owned() })
            }
            _ => Err(KeyError::Place),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env { name } => write!(f, "env:{name}"),
            Self::File { path } => write!(f, "file:{}", path.display()),
            Self::Keystore { path, password_env } => write!(f, "keystore:{}#{password_env}", path.display()),
        }
    }
}

impl KeySource {
    /// Reads the key. Decrypting a keystore takes processor time, by design.
    pub fn load(&self) -> Result<PrivateKeySigner, KeyError> {
        match self {
            Self::Env { name } => self.parse(&variable(name)?),
            Self::File { path } => {
                let unreadable = |source| KeyError::Unreadable { path: path.clone(), source };
                let mode = fs::metadata(path).map_err(unreadable)?.permissions().mode();
                if mode & 0o037 != 0 {
                    return Err(KeyError::Exposed { path: path.clone() });
                }
                self.parse(&fs::read_to_string(path).map_err(unreadable)?)
            }
            Self::Keystore { path, password_env } => {
                PrivateKeySigner::decrypt_keystore(path, variable(password_env)?)
                    .map_err(|source| KeyError::Keystore { path: path.clone(), source })
            }
        }
    }

    fn parse(&self, text: &str) -> Result<PrivateKeySigner, KeyError> {
        // The parser's own error may quote the text.
        text.trim().parse().map_err(|_| KeyError::NoKey { place: self.clone() })
    }
}

fn variable(name: &str) -> Result<String, KeyError> {
    std::env::var(name).map_err(|_| KeyError::NotSet { name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0x4242424242424242424242424242424242424242424242424242424242424242";

    const KEYSTORE: &str = r#"{"crypto": {"cipher": "aes-128-ctr",
        "cipherparams": {"iv": "000102030405060708090a0b0c0d0e0f"},
        "ciphertext": "27aec6325c0c93eb7b966b1b47fc67092c208c8d70b971e051812cc2bdc4e1f6",
        "kdf": "pbkdf2",
        "kdfparams": {"c": 4096,
        "dklen": 32,
        "prf": "hmac-sha256",
        "salt": "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"},
        "mac": "8f7773f0963a929ba2117f4dbb213966115684556205d0749a38694459a23a77"},
        "id": "3198bc9c-6672-5ab3-d995-4942343ae5b6",
        "version": 3}"#;

    #[test]
    fn a_plain_key_file_is_read_only_if_it_is_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("relayer.key");
        fs::write(&path, format!("{KEY}\n")).unwrap();
        let source: KeySource = format!("file:{}", path.display()).parse().unwrap();
        for mode in [0o644, 0o660, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(source.load(), Err(KeyError::Exposed { .. })), "{mode:o}");
        }
        for mode in [0o600, 0o640] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(source.load().unwrap(), KEY.parse().unwrap(), "{mode:o}");
        }
    }

    #[test]
    fn a_keystore_opens_only_with_its_password() {
        let dir = tempfile::tempdir().unwrap();
        // Its password is the crate's name, which cargo gives every test in a variable.
        let path = dir.path().join("relayer.json");
        fs::write(&path, KEYSTORE).unwrap();
        let key: PrivateKeySigner = KEY.parse().unwrap();
        let source = KeySource::Keystore { path: path.clone(), password_env: "CARGO_PKG_NAME".into() };
        assert_eq!(source.load().unwrap(), key);
        let wrong = KeySource::Keystore { path, password_env: "CARGO_MANIFEST_DIR".into() };
        assert!(matches!(wrong.load(), Err(KeyError::Keystore { .. })));
    }

    #[test]
    fn sources_are_parsed_and_errors_do_not_quote_keys() {
        assert_eq!("env:RELAYER".parse::<KeySource>().unwrap(), KeySource::Env { name: "RELAYER".into() });
        assert_eq!("keystore:/k#PW".parse::<KeySource>().unwrap().to_string(), "keystore:/k#PW");
        assert!(matches!(KEY.parse::<KeySource>(), Err(KeyError::Place)));
        assert!(matches!("keystore:/k".parse::<KeySource>(), Err(KeyError::Place)));
        let missing = KeySource::Env { name: "DVP_NO_SUCH_VARIABLE".into() };
        assert!(matches!(missing.load(), Err(KeyError::NotSet { .. })));
        let not_a_key = KeySource::Env { name: "PATH".into() };
        let said = format!("{:?}", not_a_key.load().unwrap_err());
        assert!(!said.contains(&std::env::var("PATH").unwrap()), "{said}");
    }
}
