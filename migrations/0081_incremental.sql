-- A comparison with the chain reads what changed since the last one that agreed, not the whole history. Once a day, and on
-- request, it reads everything.

-- Up to which final block the stored events agreed with the contracts' own numbers.
create table reconciliation_point (
    chain_id      bigint not null,
    block_number  bigint not null,
    block_hash    bytea not null,
    -- When the whole history was read last.
    full_at       timestamptz not null,
    constraint reconciliation_point_pkey primary key (chain_id),
    constraint reconciliation_point_hash_length check (octet_length(block_hash) = 32)
);

-- The events of each contract up to the point: the last one's number, and how many are stored.
create table reconciliation_count (
    chain_id  bigint not null,
    contract  bytea not null,
    last_seq  bigint not null,
    kept      bigint not null,
    constraint reconciliation_count_pkey primary key (chain_id, contract),
    constraint reconciliation_count_point_fkey foreign key (chain_id) references reconciliation_point (chain_id)
        on delete cascade
);

-- What events up to the point have left open: funds in the escrow, ids without an execution, anchors without a receipt.
create table reconciliation_open (
    chain_id  bigint not null,
    kind      text not null,
    entity    bytea not null,
    constraint reconciliation_open_pkey primary key (chain_id, kind, entity),
    constraint reconciliation_open_kind_known check (kind in ('funds', 'entity', 'anchor')),
    constraint reconciliation_open_point_fkey foreign key (chain_id) references reconciliation_point (chain_id)
        on delete cascade
);

-- Returned payments that are not resolved: no index depends on the state of an order that goes its way.
alter table execution
    add column unresolved boolean generated always as (
        case when state_name = 'reversed' and state #>> '{reversal,resolved}' is null then true end) stored;
drop index execution_reversed_idx;
create index execution_unresolved_idx on execution (reference) where unresolved;
