//! Why a node does not take a transaction, by its words.

/// The meaning of a node's answer to `eth_sendRawTransaction`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendRejection {
    Known,
    /// The nonce is used: by this transaction or another, as the receipts will show.
    NonceUsed,
    Underpriced,
    InsufficientFunds,
    /// It costs more, or is larger, than the node takes.
    TooMuch,
    /// The node takes it once earlier ones are in blocks.
    Early,
    Other,
}

/// The words of geth, Nethermind, Besu, Erigon, reth, Arbitrum, zkSync Era, OP and Polygon nodes, in lower case.
const REJECTIONS: [(SendRejection, &[&str]); 6] = [
    (
        SendRejection::Known,
        &[
            "already known",
            "alreadyknown",
            "already imported",
            "known transaction",
            "already exists",
            "already in the system",
            "ownnoncealreadyused",
        ],
    ),
    (
        SendRejection::NonceUsed,
        &[
            "nonce too low",
            "nonce is too low",
            "nonce_too_low",
            "old nonce",
            "oldnonce",
            "nonce below sender",
            "invalid transaction nonce",
        ],
    ),
    (
        SendRejection::Early,
        &[
            "nonce too high",
            "noncegap",
            "too far in",
            "noncetoofar",
            "too distant from current",
            "a lower nonce exists",
            "account limit exceeded",
            "in-flight transaction limit",
        ],
    ),
    (
        SendRejection::TooMuch,
        &[
            "exceeds the configured cap",
            "fee cap exceeded",
            "oversized data",
            "maxtxsizeexceeded",
            "rlptoolong",
            "too large",
            "transaction size",
            "exceeds block gas limit",
            "gas limit too high",
            "gaslimitexceeded",
            "max transaction gas limit",
            "intrinsic gas too high",
        ],
    ),
    (
        SendRejection::Underpriced,
        &[
            "underpriced",
            "less than block base fee",
            "below current base fee",
            "less than the current basefee",
            "fee too low",
            "price too low",
            "price is too low",
            "feetoolow",
            "gas price below",
            "replacementnotallowed",
            "gas tip cap",
            "minimum needed",
        ],
    ),
    (
        SendRejection::InsufficientFunds,
        &[
            "insufficient funds",
            "insufficientfunds",
            "insufficient balance",
            "insufficient_payer",
            "upfront cost exceeds",
            "not enough balance",
            "not enough funds",
            "overdraft",
        ],
    ),
];

/// What a node means by its refusal of a transaction.
pub(crate) fn refusal(message: &str) -> SendRejection {
    let message = message.to_ascii_lowercase();
    let found = REJECTIONS.iter().find(|(_, words)| words.iter().any(|word| message.contains(word)));
    found.map_or(SendRejection::Other, |(rejection, _)| *rejection)
}

#[cfg(test)]
mod tests {
    use super::{SendRejection, refusal};

    #[test]
    fn nodes_wordings_of_each_rejection_are_recognized() {
        for (said, meant) in [
            ("transaction already imported", SendRejection::Known),
            ("already known", SendRejection::Known),
            ("AlreadyKnown", SendRejection::Known),
            ("Known transaction", SendRejection::Known),
            ("nonce too low: next nonce 5", SendRejection::NonceUsed),
            ("OldNonce, Current nonce: 5, nonce of rejected tx: 4.", SendRejection::NonceUsed),
            ("Nonce below sender account nonce", SendRejection::NonceUsed),
            ("replacement transaction underpriced", SendRejection::Underpriced),
            (
                "transaction underpriced: tip needed 25000000000, tip permitted 1000000000",
                SendRejection::Underpriced,
            ),
            ("max fee per gas less than block base fee", SendRejection::Underpriced),
            ("Max fee per gas below current base fee", SendRejection::Underpriced),
            ("FeeTooLow, MaxFeePerGas too low.", SendRejection::Underpriced),
            ("FeeTooLowToCompete", SendRejection::Underpriced),
            ("Gas price below configured minimum gas price", SendRejection::Underpriced),
            ("Insufficient funds for gas * price + value", SendRejection::InsufficientFunds),
            ("InsufficientFunds, Account balance: 1, cumulative cost: 2", SendRejection::InsufficientFunds),
            ("Upfront cost exceeds account balance", SendRejection::InsufficientFunds),
            ("tx fee (1.16 ether) exceeds the configured cap (1.00 ether)", SendRejection::TooMuch),
            ("oversized data: transaction size 115000, limit 95000", SendRejection::TooMuch),
            ("MaxTxSizeExceeded", SendRejection::TooMuch),
            ("transaction gas limit too high (cap: 16777216, tx: 20000000)", SendRejection::TooMuch),
            ("exceeds block gas limit", SendRejection::TooMuch),
            ("exceeds max transaction gas limit", SendRejection::TooMuch),
            ("RLPTooLong", SendRejection::TooMuch),
            ("known transaction. transaction with hash 0x01 is already in the system", SendRejection::Known),
            ("invalid transaction nonce", SendRejection::NonceUsed),
            ("NonceGap, Future nonce. Expected nonce: 10", SendRejection::Early),
            ("nonce too high. allowed nonce range: 427 - 477, actual: 527", SendRejection::Early),
            ("Transaction nonce is too distant from current sender nonce", SendRejection::Early),
            ("gas price too low", SendRejection::Underpriced),
            (
                "FeeTooLow, EffectivePriorityFeePerGas too low 10 < 20, BaseFee: 30",
                SendRejection::Underpriced,
            ),
            ("not enough funds for gas", SendRejection::InsufficientFunds),
            ("transaction would cause overdraft", SendRejection::InsufficientFunds),
            ("txpool is full", SendRejection::Other),
            ("the moon is full", SendRejection::Other),
        ] {
            assert_eq!(refusal(said), meant, "{said}");
        }
    }
}
