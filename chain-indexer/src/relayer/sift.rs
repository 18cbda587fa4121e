//! Finds the commands that would succeed together. When the call as a whole is refused because of one of them, parts of
//! it are simulated side by side, until that one is alone.

use super::batch::{self, Outcome, ShortOfGas};
use super::outlook;
use super::plan::Room;
use super::work::Item;
use super::{RelayError, Relayer};
use crate::rpc::{self, BlockHead, Simulated};
use alloy::eips::BlockId;
use dvp_domain::chain::CommandKind;
use dvp_store::workers::{self, Step};
use futures_util::future::join_all;
use std::time::Duration;

/// The number of parts of a batch that is refused.
const PARTS: usize = 8;
/// The time limit of one simulation: parts of a batch that takes longer are simulated in its place.
const SIMULATED_WITHIN: Duration = Duration::from_secs(3);

enum Together {
    Outcomes(Vec<Outcome>),
    TooMany,
    /// The call as a whole was refused, or could not be made.
    Refused,
}

impl Relayer {
    /// The items that would succeed together. A permit that is early waits; the others are added to `alone`, to be
    /// checked one by one.
    pub(super) async fn sift(
        &self,
        head: &BlockHead,
        kind: CommandKind,
        items: Vec<Item>,
        room: Room,
        alone: &mut Vec<Item>,
    ) -> Result<Vec<Item>, RelayError> {
        if items.len() < 2 {
            alone.extend(items);
            return Ok(Vec::new());
        }
        let mut good = Vec::with_capacity(items.len());
        let mut open = vec![items];
        while !open.is_empty() {
            let asked = open.iter().map(|items| self.simulate_together(head, kind, items, room));
            let answers = join_all(asked).await;
            let mut next = Vec::new();
            for (mut items, answer) in open.into_iter().zip(answers) {
                match answer? {
                    Together::Outcomes(outcomes) => self.divide(items, outcomes, &mut good, alone).await?,
                    Together::TooMany | Together::Refused if items.len() < 2 => alone.append(&mut items),
                    Together::TooMany => {
                        items.truncate(items.len() / 2);
                        next.push(items);
                    }
                    Together::Refused => next.extend(in_parts(items)),
                }
            }
            open = next;
        }
        good.sort_by_key(|item| item.nonce);
        Ok(good)
    }

    async fn simulate_together(
        &self,
        head: &BlockHead,
        kind: CommandKind,
        items: &[Item],
        room: Room,
    ) -> Result<Together, RelayError> {
        let terms: Vec<_> = items.iter().map(Item::terms).collect();
        let contracts = items.first().map(|first| self.contracts_of(&first.row)).transpose()?;
        let call = contracts.map(|contracts| batch::call(contracts, kind, &terms, ShortOfGas::Reverts));
        let Some(Ok(call)) = call else { return Ok(Together::Refused) };
        if kind == CommandKind::Anchor {
            return Ok(Together::Outcomes(vec![Outcome::Done; items.len()]));
        }
        let (from, at) = (self.account.address(), BlockId::hash(head.hash));
        let simulated = async {
            for item in items {
                workers::at(Step::CommandLook, &item.row.reference).await?;
            }
            Ok(rpc::simulate(self.provider(), from, call.to, call.input, room.gas, at).await?)
        };
        match self.apart_within(SIMULATED_WITHIN, simulated).await? {
            Ok(Simulated::Succeeds(answer)) => {
                Ok(batch::outcomes(kind, &answer, items.len()).map_or(Together::Refused, Together::Outcomes))
            }
            Ok(Simulated::Reverts { data, .. }) if batch::is_out_of_gas(&data) => Ok(Together::TooMany),
            Ok(Simulated::Reverts { .. }) => Ok(Together::Refused),
            Err(failed) => {
                let (commands, reason) = (items.len(), failed.reason);
                tracing::warn!(
                    kind = kind.as_str(),
                    commands,
                    reason,
                    "batch cannot be simulated: its parts are"
                );
                Ok(Together::Refused)
            }
        }
    }

    async fn divide(
        &self,
        items: Vec<Item>,
        outcomes: Vec<Outcome>,
        good: &mut Vec<Item>,
        alone: &mut Vec<Item>,
    ) -> Result<(), RelayError> {
        let mut early = Vec::new();
        for (item, outcome) in items.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Done => good.push(item),
                Outcome::Failed(reason) if outlook::is_early(&reason) => early.push(item.row),
                Outcome::Failed(_) => alone.push(item),
                // It waits for the next transaction.
                Outcome::NotTried => {}
            }
        }
        if self.apart(self.wait(&early)).await?.is_err() {
            for row in &early {
                self.with_command(row, self.wait(std::slice::from_ref(row))).await?;
            }
        }
        Ok(())
    }
}

fn in_parts(mut items: Vec<Item>) -> Vec<Vec<Item>> {
    let length = items.len().div_ceil(PARTS);
    let mut parts = Vec::with_capacity(PARTS);
    while items.len() > length {
        parts.push(items.split_off(items.len() - length));
    }
    parts.push(items);
    parts
}
