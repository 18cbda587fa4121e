//! `dvp beneficiary list`: recipients that orders name as `bene_…:dest_…`.

use clap::{Args, Subcommand};
use dvp_store::partners::beneficiaries::{self, DestinationRow};
use serde_json::{Value, json};

use super::named_partner;
use crate::access::Access;
use crate::cli::PlaceArgs;
use crate::output::print_list;

#[derive(Debug, Subcommand)]
pub(crate) enum BeneficiaryCommand {
    /// List the destinations of a partner's recipients, or of all.
    #[command(after_help = "Example:\n  dvp beneficiary list --partner acme --dir .dvp --json")]
    List(BeneficiaryList),
}

#[derive(Debug, Args)]
pub(crate) struct BeneficiaryList {
    /// A partner's name; all partners when not given.
    #[arg(long)]
    pub partner: Option<String>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

pub(crate) async fn run(command: BeneficiaryCommand) -> anyhow::Result<()> {
    match command {
        BeneficiaryCommand::List(args) => list(args).await,
    }
}

async fn list(args: BeneficiaryList) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let partner = match &args.partner {
        Some(name) => Some(named_partner(&mut access.conn, name).await?.id),
        None => None,
    };
    let rows = beneficiaries::list_destinations(&mut access.conn, partner.as_deref()).await?;
    let line = |row: &DestinationRow| {
        let details = &row.destination.details;
        format!(
            "{}:{}  {}  {}  {}  …{}",
            row.beneficiary_id,
            row.destination_id,
            row.destination.status.as_str(),
            row.destination.currency,
            details.name_masked().unwrap_or_default(),
            details.account_last4().unwrap_or_default()
        )
    };
    print_list(args.place.json, "destinations", &rows, view, line)
}

/// Names and accounts are masked; the partner's own documents have them in full.
fn view(row: &DestinationRow) -> Value {
    let details = &row.destination.details;
    json!({
        "account": format!("{}:{}", row.beneficiary_id, row.destination_id), "partnerId": row.partner_id,
        "status": row.destination.status.as_str(), "currency": row.destination.currency,
        "nameMasked": details.name_masked(), "accountLast4": details.account_last4(), "country": details.country,
        "method": details.payout_method, "createdBy": row.created_by, "createdAt": row.created_at.to_rfc3339(),
        "verifiedBy": row.verified_by, "evidence": row.evidence,
        "verifiedAt": row.verified_at.map(|at| at.to_rfc3339()), "disabledBy": row.disabled_by,
        "disabledReason": row.disabled_reason, "disabledAt": row.disabled_at.map(|at| at.to_rfc3339()),
    })
}
