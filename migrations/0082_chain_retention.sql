-- What the chain side keeps of orders that ended long ago is deleted: commands, the transactions that carried them, and
-- facts. Events stay, which receipts and reports name, except those of strangers and of blocks that were taken back.

-- A command's transactions, when it is deleted.
create index slot_command_command_idx on slot_command (command_id);
-- Anchors by others, which anyone may make of any hash.
create index chain_log_stranger_idx on chain_log (chain_id, block_number)
    where canonical and event = 'Anchored' and fact is null;
create index chain_log_orphan_idx on chain_log (chain_id, block_number) where not canonical;
create index chain_block_orphan_idx on chain_block (chain_id, number) where not canonical;

-- Events of each contract that were deleted: they count as stored when the contract's own number is compared.
create table chain_deleted (
    chain_id  bigint not null,
    contract  bytea not null,
    events    bigint not null,
    constraint chain_deleted_pkey primary key (chain_id, contract),
    constraint chain_deleted_positive check (events > 0)
);
