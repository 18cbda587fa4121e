//! `dvp bank …`: alarms about a bank's payments and files.

use dvp_core::operations::bank_alarms::clear;
use dvp_domain::time::Timestamp;
use dvp_store::orders::bank::{self, BankAlarm};
use serde_json::{Value, json};

use crate::access::Access;
use crate::cli::{BankAlarms, BankClearAlarm, BankCommand};
use crate::output::print;

pub(crate) async fn run(command: BankCommand) -> anyhow::Result<()> {
    match command {
        BankCommand::Alarms(args) => alarms(args).await,
        BankCommand::ClearAlarm(args) => clear_one(args).await,
    }
}

async fn alarms(args: BankAlarms) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    let found = bank::list_alarms(&mut access.conn, i64::from(args.limit)).await?;
    let about = |one: &BankAlarm| if one.is_file { "file" } else { "payment" };
    let at = |one: &BankAlarm| Timestamp::from(one.raised_at).iso8601();
    let views: Vec<Value> = found
        .iter()
        .map(|one| {
            json!({"subject": one.subject, "about": about(one), "name": one.name, "alarm": one.alarm,
                   "raisedAt": at(one)})
        })
        .collect();
    print(args.place.json, &json!({"alarms": views}), || {
        let line = |one: &BankAlarm| {
            format!("{}  {:<8} {}  {}: {}", at(one), about(one), one.subject, one.name, one.alarm)
        };
        found.iter().map(line).collect()
    })
}

async fn clear_one(args: BankClearAlarm) -> anyhow::Result<()> {
    let mut access = Access::open(&args.place).await?;
    clear(&mut access.conn, &args.subject, &args.operator, &args.reason).await?;
    print(args.place.json, &json!({"cleared": args.subject}), || vec![format!("cleared {}", args.subject)])
}
