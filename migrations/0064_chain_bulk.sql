-- A backfill writes many events at a time, and most of its work was index entries at random places.
-- The key of an event begins with its block's number, so that events come in the key's order, and what asks for the
-- events of a stretch of blocks uses the key. It keeps its name, by which writers speak of it.
alter table chain_log drop constraint chain_log_pkey;
alter table chain_log
    add constraint chain_log_pkey primary key (chain_id, block_number, log_index, block_hash);
drop index chain_log_number_idx;

-- Facts are looked up by what they are about; open ones by `chain_fact_told_idx`, which leaves out those taken back.
drop index chain_fact_open_idx;
create index chain_fact_entity_idx on chain_fact (entity);
