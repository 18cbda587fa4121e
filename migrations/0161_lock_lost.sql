-- A lock that a reorganization took back was told to nobody, so an order went on to pay for funds that were not there.
-- A `created` fact that was handed over and is taken back is followed by a fact `lock_lost`; when its block comes back
-- it is handed over again, after that. What is handed over in which order is therefore not the order of the ids.

create sequence chain_fact_turn;
alter table chain_fact add column turn bigint not null default nextval('chain_fact_turn');
alter sequence chain_fact_turn owned by chain_fact.turn;
create index chain_fact_turn_idx on chain_fact (turn) where consumed_at is null and retracted_at is null;
drop index chain_fact_told_idx;
