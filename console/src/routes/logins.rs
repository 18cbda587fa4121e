//! Tokens of `dvp login`: the command shows a page's address with the hash of a token that it has drawn; here the operator
//! makes that token its own.

use dvp_store::operators::accounts::ConsoleAction;
use dvp_store::{Acquire as _, StoreError};
use serde::Deserialize;

use crate::blocks::{self, Block, Cell, Field, Form};
use crate::error::PageError;
use crate::request::{Asked, Reply, Sent, Visit};

const ROUTE: &str = "POST /account/login";

/// The token of a machine.
#[derive(Debug, Deserialize)]
pub(crate) struct Login {
    /// SHA-256 of the token, in hex.
    token: String,
    machine: String,
}

impl Login {
    fn hash(&self) -> Result<[u8; 32], PageError> {
        let mut hash = [0; 32];
        let read = hex::decode_to_slice(self.token.trim(), &mut hash);
        read.map_err(|_| PageError::Invalid("This is no address of dvp login.".to_owned()))?;
        Ok(hash)
    }

    /// What the command shows, too, so that the operator sees that it is its own.
    fn code(&self) -> String {
        self.token.chars().take(8).collect()
    }

    fn machine(&self) -> String {
        self.machine.chars().filter(|letter| !letter.is_control()).take(64).collect()
    }
}

pub(crate) async fn show(Visit { operator, .. }: Visit, Asked(login): Asked<Login>) -> Reply {
    login.hash()?;
    let facts = vec![
        ("Machine", Cell::text(login.machine())),
        ("Code, as the command shows it", Cell::id(login.code())),
        ("Good for", Cell::text("an hour, from the address that it first comes from")),
    ];
    let fields = vec![Field::hidden("token", login.token.trim()), Field::hidden("machine", login.machine())];
    let form = Form::new("/account/login", "Let it act for me", fields);
    let about = "Only if you have just run dvp login there yourself and the codes are the same.";
    let blocks = vec![
        Block::facts("A command line asks to act for you", facts).with_forms([form.about(about.to_owned())]),
    ];
    blocks::render(operator.page("", "Command line"), None, blocks)
}

pub(crate) async fn grant(Visit { console, operator }: Visit, Sent(login): Sent<Login>) -> Reply {
    let hash = login.hash()?;
    let mut conn = console.acting().await?;
    let mut tx = conn.begin().await.map_err(StoreError::from)?;
    if !dvp_ops::grant_login(&mut tx, &operator.id, &hash, &login.machine()).await? {
        return Err(PageError::Conflict("This login was granted before: run dvp login again.".to_owned()));
    }
    let subject = format!("{} on {}", login.code(), login.machine());
    operator.record(&mut tx, ConsoleAction::Acted, ROUTE, &subject).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let facts = vec![("Machine", Cell::text(login.machine())), ("Code", Cell::id(login.code()))];
    blocks::render(
        operator.page("", "Command line"),
        None,
        vec![Block::facts("It may act for you now", facts)],
    )
}
