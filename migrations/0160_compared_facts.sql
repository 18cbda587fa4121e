-- A lock was believed by its id alone. Each field of a lock, a fill and a payment is compared with the command that
-- asked for it; a fact that differs is kept with the reason and is never handed to its settlement.

-- Which field differs, for people; null: none.
alter table chain_fact add column differs text;
create index chain_fact_differs_idx on chain_fact (entity) where differs is not null;
