-- What was settled before its payout had a final word is owed: the ledger gets an account for each such execution.

alter table ledger_entry
    drop constraint ledger_entry_account_known,
    add constraint ledger_entry_account_known check (
        (owner_kind in ('provider', 'partner') and part in ('available', 'reserved') and amount = trunc(amount))
        or (owner_kind = 'provider' and part = 'owed')
        or (owner_kind in ('external', 'escrow', 'clearing', 'debt', 'fees', 'residual', 'house') and part = 'total')
    );
