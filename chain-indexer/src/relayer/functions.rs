//! The contracts' functions that the relayer calls: what a signer's policy has to allow, and no more. An empty
//! transaction to the account itself, which uses up a nonce, is allowed besides.

use crate::contracts::{anchor::ReceiptAnchor, escrow::Escrow, payouts::Payouts, settler::IntentSettler};
use crate::deploy::Deployment;
use alloy::primitives::Address;
use alloy::sol_types::SolCall;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    pub contract: Address,
    pub of: &'static str,
    pub signature: &'static str,
    pub selector: [u8; 4],
}

/// Every function that the relayer calls.
#[must_use]
pub fn functions(deployment: &Deployment) -> [Function; 15] {
    let Deployment { settler, escrow, payouts, anchor, .. } = deployment;
    let settler = (*settler, "IntentSettler");
    let payouts = (*payouts, "Payouts");
    let anchor = (*anchor, "ReceiptAnchor");
    [
        function::<IntentSettler::createCall>(settler),
        function::<IntentSettler::createManyCall>(settler),
        function::<IntentSettler::swapCall>(settler),
        function::<IntentSettler::swapManyCall>(settler),
        function::<IntentSettler::fillCall>(settler),
        function::<IntentSettler::fillManyCall>(settler),
        function::<IntentSettler::settleCall>(settler),
        function::<IntentSettler::settleManyCall>(settler),
        function::<IntentSettler::cancelCall>(settler),
        function::<IntentSettler::returnFilledCall>(settler),
        function::<Escrow::refundCall>((*escrow, "Escrow")),
        function::<Payouts::payCall>(payouts),
        function::<Payouts::payManyCall>(payouts),
        function::<ReceiptAnchor::anchorCall>(anchor),
        function::<ReceiptAnchor::anchorManyCall>(anchor),
    ]
}

fn function<C: SolCall>((contract, of): (Address, &'static str)) -> Function {
    Function { contract, of, signature: C::SIGNATURE, selector: C::SELECTOR }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contracts::{escrow, payouts, settler};
    use std::path::Path;

    fn deployment() -> Deployment {
        let [permit, escrow, settler, anchor, payouts] = [1, 2, 3, 4, 5].map(Address::repeat_byte);
        Deployment { chain_id: 1, permit, escrow, settler, anchor, payouts, ..Deployment::default() }
    }

    #[test]
    fn the_documented_policy_lists_every_function() {
        const MARKS: [&str; 2] = ["<!-- functions: begin -->\n", "<!-- functions: end -->\n"];
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/keys.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = text.split_once(MARKS[0]).unwrap();
        let (found, after) = rest.split_once(MARKS[1]).unwrap();
        let mut table = "| contract | function | selector |\n|---|---|---|\n".to_owned();
        for Function { of, signature, selector, .. } in functions(&deployment()) {
            let name = signature.split('(').next().unwrap();
            let selector = hex::encode(selector);
            table.push_str(&format!("| `{of}` | `{name}` | `0x{selector}` |\n"));
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let text = [before, MARKS[0], &table, MARKS[1], after].concat();
            std::fs::write(&path, text).unwrap();
        } else {
            assert_eq!(found, table, "UPDATE_EXPECT=1 rewrites it");
        }
    }

    #[test]
    fn no_function_of_another_role_is_among_them() {
        let allowed = functions(&deployment()).map(|function| function.selector);
        for selector in [
            settler::IntentSettler::grantRoleCall::SELECTOR,
            settler::IntentSettler::pauseCall::SELECTOR,
            payouts::Payouts::setCapCall::SELECTOR,
            payouts::Payouts::pauseCall::SELECTOR,
            escrow::Escrow::releaseCall::SELECTOR,
        ] {
            assert!(!allowed.contains(&selector), "{}", hex::encode(selector));
        }
    }
}
