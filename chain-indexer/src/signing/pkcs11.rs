//! Keys in a token behind PKCS#11: a hardware module, or SoftHSM2.
//!
//! Each account has a thread with a session of its own, because a session belongs to one thread at a time and a call of
//! a module may hang. A session that was lost is opened again, with a new login.
//!
//! Invariants:
//! - a PIN that a token has refused is not tried again by this process: tokens lock themselves after a few;
//! - a module is loaded once and never unloaded, for its state belongs to the process.

use super::SignError;
use super::raw::with_parity;
use alloy::primitives::{Address, B256, Signature, keccak256};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error, RvError};
use cryptoki::mechanism::Mechanism;
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::Slot;
pub use cryptoki::types::AuthPin as Pin;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use tokio::sync::oneshot;

#[derive(Debug, Clone)]
pub struct Pkcs11Config {
    pub module: PathBuf,
    pub token: String,
    /// The label of the key pair, or of the private key.
    pub key: String,
    pub pin: Pin,
    pub address: Address,
    /// For one signature.
    pub time_limit: Duration,
}

/// What is signed to see whether a token signs: the hash of this is the hash of no transaction.
const CHECK: &[u8] = b"dvp signer check";

/// A signature as a token makes it: r and s.
type RawSignature = [u8; 64];

struct Request {
    digest: B256,
    answer: oneshot::Sender<Result<RawSignature, SignError>>,
}

pub(super) struct Pkcs11Signer {
    requests: SyncSender<Request>,
    address: Address,
    pub(super) time_limit: Duration,
}

impl Pkcs11Signer {
    /// Starts the account's thread; does not open the token yet.
    pub(super) fn start(config: Pkcs11Config) -> std::io::Result<Self> {
        let (address, time_limit) = (config.address, config.time_limit);
        let (requests, waiting) = sync_channel(1);
        std::thread::Builder::new()
            .name("pkcs11".to_owned())
            .spawn(move || Token { config, open: None }.serve(&waiting))?;
        Ok(Self { requests, address, time_limit })
    }

    pub(super) async fn sign(&self, digest: B256) -> Result<Signature, SignError> {
        let (answer, waiting) = oneshot::channel();
        self.requests.try_send(Request { digest, answer }).map_err(|error| match error {
            TrySendError::Full(_) => SignError::Unavailable("the token is still busy".to_owned()),
            TrySendError::Disconnected(_) => SignError::Unavailable("its thread has ended".to_owned()),
        })?;
        let raw = waiting.await.map_err(|_| SignError::Unavailable("its thread has ended".to_owned()))??;
        with_parity(&raw, digest, self.address)
    }

    pub(super) async fn check(&self) -> Result<(Signature, B256), SignError> {
        let digest = keccak256(CHECK);
        Ok((self.sign(digest).await?, digest))
    }
}

struct Token {
    config: Pkcs11Config,
    open: Option<Open>,
}

/// A session with the key; both go when the token is lost.
struct Open {
    session: Session,
    key: ObjectHandle,
}

impl Token {
    /// Until the account is dropped.
    fn serve(mut self, requests: &Receiver<Request>) {
        while let Ok(Request { digest, answer }) = requests.recv() {
            // The caller waits no more.
            if answer.is_closed() {
                continue;
            }
            let signed = self.sign(digest);
            // An answer after the time limit has no receiver.
            let _late = answer.send(signed);
        }
    }

    /// A session that fails is opened again once: the token may have been taken out, or logged out by another program.
    fn sign(&mut self, digest: B256) -> Result<RawSignature, SignError> {
        if let Some(open) = &self.open {
            match open.sign(digest) {
                Ok(signed) => return Ok(signed),
                Err(error) => {
                    let (token, key) = (&self.config.token, &self.config.key);
                    tracing::warn!(token, key, %error, "the token's session failed, opening another one");
                    self.open = None;
                }
            }
        }
        let open = Open::new(&self.config)?;
        let signed = open.sign(digest)?;
        self.open = Some(open);
        Ok(signed)
    }
}

impl Open {
    fn new(config: &Pkcs11Config) -> Result<Self, SignError> {
        let module = module(&config.module)?;
        let slot = find_slot(&module.library, &config.token)?;
        let session = module.library.open_ro_session(slot).map_err(failed)?;
        module.login(&session, config)?;
        let key = find_key(&session, config)?;
        Ok(Self { session, key })
    }

    fn sign(&self, digest: B256) -> Result<RawSignature, SignError> {
        let signed = self.session.sign(&Mechanism::Ecdsa, self.key, digest.as_slice()).map_err(failed)?;
        let length = signed.len();
        signed.try_into().map_err(|_| SignError::Malformed(format!("{length} bytes instead of 64")))
    }
}

fn find_slot(library: &Pkcs11, label: &str) -> Result<Slot, SignError> {
    let mut found = Vec::new();
    for slot in library.get_slots_with_initialized_token().map_err(failed)? {
        if library.get_token_info(slot).map_err(failed)?.label().trim_end() == label {
            found.push(slot);
        }
    }
    match found.as_slice() {
        [slot] => Ok(*slot),
        [] => Err(SignError::Unavailable(format!("there is no token {label}"))),
        _ => Err(SignError::Unusable(format!("several tokens are called {label}"))),
    }
}

fn find_key(session: &Session, config: &Pkcs11Config) -> Result<ObjectHandle, SignError> {
    let labelled = |class| {
        let label = Attribute::Label(config.key.clone().into_bytes());
        session
            .find_objects(&[Attribute::Class(class), Attribute::KeyType(KeyType::EC), label])
            .map_err(failed)
    };
    // Without a public key in the token, the first signature tells the address.
    if let [public] = labelled(ObjectClass::PUBLIC_KEY)?.as_slice() {
        let found = address_of(session, *public)?;
        if found != config.address {
            return Err(SignError::WrongKey { expected: config.address, found });
        }
    }
    match labelled(ObjectClass::PRIVATE_KEY)?.as_slice() {
        [key] => Ok(*key),
        [] => Err(SignError::Unusable(format!("the token {} has no EC key {}", config.token, config.key))),
        _ => Err(SignError::Unusable(format!("several keys of {} are called {}", config.token, config.key))),
    }
}

fn address_of(session: &Session, key: ObjectHandle) -> Result<Address, SignError> {
    let attributes = session.get_attributes(key, &[AttributeType::EcPoint]).map_err(failed)?;
    let [Attribute::EcPoint(point)] = attributes.as_slice() else {
        return Err(SignError::Malformed("the public key has no point".to_owned()));
    };
    // An octet string in DER with the uncompressed point; some modules leave out the wrapping.
    match point.as_slice() {
        [4, 65, 4, xy @ ..] | [4, xy @ ..] if xy.len() == 64 => Ok(Address::from_raw_public_key(xy)),
        _ => Err(SignError::Unusable("the key is not one of the curve secp256k1".to_owned())),
    }
}

/// A library of a vendor, loaded and initialised.
#[derive(Clone)]
struct Module {
    library: Pkcs11,
    /// Tokens that have refused the PIN.
    refused: Arc<Mutex<BTreeSet<String>>>,
}

static MODULES: Mutex<BTreeMap<PathBuf, Module>> = Mutex::new(BTreeMap::new());

fn module(path: &Path) -> Result<Module, SignError> {
    let mut modules = MODULES.lock();
    if let Some(module) = modules.get(path) {
        return Ok(module.clone());
    }
    let library = Pkcs11::new(path)
        .map_err(|error| SignError::Unusable(format!("the module {}: {error}", path.display())))?;
    match library.initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)) {
        Ok(()) | Err(Error::Pkcs11(RvError::CryptokiAlreadyInitialized, _)) => {}
        Err(error) => return Err(failed(error)),
    }
    let module = Module { library, refused: Arc::default() };
    modules.insert(path.to_owned(), module.clone());
    Ok(module)
}

impl Module {
    /// One at a time, so that several accounts of a token try a wrong PIN once.
    fn login(&self, session: &Session, config: &Pkcs11Config) -> Result<(), SignError> {
        let mut refused = self.refused.lock();
        let token = &config.token;
        if refused.contains(token) {
            return Err(SignError::Unusable(format!(
                "the token {token} has refused the PIN; it is tried again after a restart"
            )));
        }
        match session.login(UserType::User, Some(&config.pin)) {
            Ok(()) | Err(Error::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(()),
            Err(Error::Pkcs11(
                refusal @ (RvError::PinIncorrect
                | RvError::PinInvalid
                | RvError::PinLenRange
                | RvError::PinExpired
                | RvError::PinLocked
                | RvError::UserPinNotInitialized),
                _,
            )) => {
                refused.insert(token.clone());
                Err(SignError::Unusable(format!("the token {token} refuses the PIN ({refusal:?})")))
            }
            Err(error) => Err(failed(error)),
        }
    }
}

/// The module's own text may be long; the return code says it.
fn failed(error: Error) -> SignError {
    SignError::Unavailable(match error {
        Error::Pkcs11(code, function) => format!("{function} answers {code:?}"),
        other => other.to_string(),
    })
}
