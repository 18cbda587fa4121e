//! `dvp key list`: API keys, without anything that could be used.

use clap::{Args, Subcommand};
use dvp_ops::actions::keys::{state, view};
use dvp_store::partners::registry::{self, ListedKey};

use super::named_partner;
use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::{all_pages, print_list};

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// List keys, without anything that could be used.
    #[command(after_help = "Example:\n  dvp key list --partner acme --dir .dvp --json")]
    List(KeyList),
}

#[derive(Debug, Args)]
pub(crate) struct KeyList {
    /// Only this partner's.
    #[arg(long)]
    pub partner: Option<String>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

const PAGE: i64 = 500;

pub(crate) async fn run(command: KeyCommand) -> anyhow::Result<()> {
    match command {
        KeyCommand::List(args) => list(args).await,
    }
}

async fn list(args: KeyList) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let partner = match &args.partner {
        Some(name) => Some(named_partner(&mut access.conn, name).await?.id),
        None => None,
    };
    let page =
        async |after: &str| registry::list_keys(&mut access.conn, partner.as_deref(), after, PAGE).await;
    let all = all_pages(|row: &ListedKey| &row.key_id, page).await?;
    let line = |key: &ListedKey| {
        let (scopes, state) = (key.scopes.join(","), state(key));
        format!("{}  {}  {}  {}…  {state}  {scopes}", key.key_id, key.partner, key.env, key.key_prefix)
    };
    print_list(args.place.json, "keys", &all, view, line)
}
