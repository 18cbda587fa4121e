-- An event's entity is a hash: in a tree its entries go to random places, and it is only ever asked for as a whole.
drop index chain_log_entity_idx;
create index chain_log_entity_idx on chain_log using hash (entity);

-- When a row was written is when its transaction began. A default that differs from row to row makes COPY write them
-- one by one.
alter table chain_log alter column observed_at set default now();
alter table chain_block alter column observed_at set default now();
