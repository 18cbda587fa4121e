-- Claims between providers and the house: one wallet receives and pays for an order filled by several providers.

alter table ledger_entry drop constraint ledger_entry_account_known;
alter table ledger_entry add constraint ledger_entry_account_known check (
    (owner_kind in ('provider', 'partner') and part in ('available', 'reserved') and amount = trunc(amount))
    or (owner_kind = 'provider' and part in ('owed', 'claim'))
    or (owner_kind = 'house' and part = 'claim')
    or (owner_kind in ('external', 'escrow', 'clearing', 'debt', 'fees', 'residual', 'house') and part = 'total')
);
