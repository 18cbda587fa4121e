-- Owners, parts and assets of the ledger depend on each other. Without this the planner expects a tenth of an account's
-- entries, and reads and sorts a whole day of them for each page of a statement.
create statistics ledger_entry_accounts (mcv) on owner_kind, owner, part, asset from ledger_entry;
analyze ledger_entry;
