-- Statements read an account's entries in the order of time. Accounts of single orders (recipients, debts) are named by
-- the order's reference, which the primary key begins with: they need no second index.

create index ledger_entry_account on ledger_entry (owner_kind, owner, asset, recorded_at)
    where owner not like 'exe\_%';
