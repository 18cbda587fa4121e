//! A token of SoftHSM2 for a test: `apt-get install softhsm2`.
//!
//! The library reads its configuration from the environment, and a test cannot change its own: such a test runs in a
//! process of its own, which [`with_token`] starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use alloy::primitives::Address;
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, AttributeType, KeyType};
use cryptoki::session::{Session, UserType};
use cryptoki::types::AuthPin;

/// The token's label and its user's PIN.
pub const TOKEN: &str = "dvp";
pub const PIN: &str = "271828";

/// The variable that names the library's configuration.
pub const CONFIGURATION: &str = "SOFTHSM2_CONF";
const PLACES: [&str; 5] = [
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
    "/usr/lib/aarch64-linux-gnu/softhsm/libsofthsm2.so",
    "/usr/lib64/softhsm/libsofthsm.so",
    "/opt/homebrew/lib/softhsm/libsofthsm2.so",
];
/// DER of the object identifier 1.3.132.0.10.
const SECP256K1: [u8; 7] = [0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x0a];

/// The library.
///
/// # Panics
/// SoftHSM2 is not installed.
pub fn module() -> PathBuf {
    let found = PLACES.iter().map(PathBuf::from).find(|path| path.exists());
    found.expect("SoftHSM2 is not installed: apt-get install softhsm2")
}

/// A new token, which goes when this is dropped.
pub struct Token(tempfile::TempDir);

impl Token {
    /// # Panics
    /// SoftHSM2 is not installed.
    #[expect(clippy::new_without_default, reason = "it starts a program")]
    pub fn new() -> Self {
        let _found = module();
        let token = Self(tempfile::tempdir().unwrap());
        let tokens = token.0.path().join("tokens");
        fs::create_dir(&tokens).unwrap();
        let tokens = tokens.display();
        let text =
            format!("directories.tokendir = {tokens}\nobjectstore.backend = file\nlog.level = ERROR\n");
        fs::write(token.configuration(), text).unwrap();
        let made = Command::new("softhsm2-util")
            .args(["--init-token", "--free", "--label", TOKEN, "--so-pin", "314159", "--pin", PIN])
            .env(CONFIGURATION, token.configuration())
            .output()
            .expect("softhsm2-util is not installed: apt-get install softhsm2");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        token
    }

    /// The value of [`CONFIGURATION`] for a process that uses the token.
    pub fn configuration(&self) -> PathBuf {
        self.0.path().join("softhsm2.conf")
    }
}

/// Runs a test, which is named as `cargo test` names it, in a process of its own with a new token.
///
/// # Panics
/// The test fails there, or did not run.
pub fn with_token(test: &str, body: impl FnOnce()) {
    const INSIDE: &str = "DVP_TEST_IN_TOKEN";
    if std::env::var(INSIDE).is_ok_and(|inside| inside == test) {
        return body();
    }
    let token = Token::new();
    let run = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(CONFIGURATION, token.configuration())
        .env(INSIDE, test)
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{test} in its own process:\n{said}");
    assert!(said.contains("1 passed"), "{test} is no test of this program:\n{said}");
}

/// A session of the token's user, in a process that [`with_token`] has started.
pub fn session() -> Session {
    let library = Pkcs11::new(module()).unwrap();
    match library.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)) {
        Ok(()) | Err(Error::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => {}
        Err(error) => panic!("{error}"),
    }
    let slots = library.get_slots_with_initialized_token().unwrap();
    let ours = |slot: &_| library.get_token_info(*slot).unwrap().label().trim_end() == TOKEN;
    let slot = slots.into_iter().find(ours).unwrap();
    let session = library.open_rw_session(slot).unwrap();
    match session.login(UserType::User, Some(&AuthPin::from(PIN))) {
        Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => session,
        Err(error) => panic!("{error}"),
    }
}

/// Makes a key pair that never leaves the token. Returns its account.
pub fn generate_key(label: &str) -> Address {
    let session = session();
    let named = Attribute::Label(label.as_bytes().to_vec());
    let public = [
        Attribute::Token(true),
        Attribute::Private(false),
        Attribute::KeyType(KeyType::EC),
        Attribute::EcParams(SECP256K1.to_vec()),
        Attribute::Verify(true),
        named.clone(),
    ];
    let private = [
        Attribute::Token(true),
        Attribute::Private(true),
        Attribute::Sensitive(true),
        Attribute::Extractable(false),
        Attribute::Sign(true),
        named,
    ];
    let (public, _) = session.generate_key_pair(&Mechanism::EccKeyPairGen, &public, &private).unwrap();
    let point = session.get_attributes(public, &[AttributeType::EcPoint]).unwrap();
    let [Attribute::EcPoint(point)] = point.as_slice() else { panic!("no point: {point:?}") };
    Address::from_raw_public_key(&point[point.len() - 64..])
}

/// The section of a configuration about a key in the token.
pub fn section(name: &str, key: &str, address: Address, pin: &Path) -> String {
    format!(
        "[[{name}]]\nmodule = \"{}\"\ntoken = \"{TOKEN}\"\nkey = \"{key}\"\npin = \"file:{}\"\n\
         address = \"{address}\"\n",
        module().display(),
        pin.display(),
    )
}
