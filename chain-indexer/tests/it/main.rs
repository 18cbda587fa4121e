//! The chain side against a real node and a real database.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

mod across;
mod administration;
mod anchors;
mod apart;
mod balanced;
mod batches;
mod bulk;
mod catching_up;
mod checkup;
mod coin;
mod commands;
mod contract_wallets;
mod contracts;
mod delivery;
mod deposits;
mod endpoints;
mod flow;
mod followed;
mod gas;
mod hardened;
#[cfg(all(feature = "aws-kms", feature = "gcp-kms"))]
mod kms;
mod outvoted;
mod prices;
mod refusals;
mod relayer_accounts;
mod relaying;
mod rescan;
mod secrets;
mod sequences;
mod sets;
mod signers;
mod sim;
mod states;
mod support;
mod tokens;
mod uniswap;
