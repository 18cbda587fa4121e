-- Results of comparing the service's books with the chain: the last runs, each with its breaks. No decision depends on
-- these rows.

create table reconciliation_run (
    id            bigint generated always as identity,
    chain_id      bigint not null,
    block_number  bigint not null,
    block_hash    bytea not null,
    block_time    timestamptz not null,
    -- The numbers of compared executions and contracts, and of queries that the node answered.
    subjects      bigint not null,
    queries       bigint not null,
    started_at    timestamptz not null,
    finished_at   timestamptz not null default clock_timestamp(),
    constraint reconciliation_run_pkey primary key (id),
    constraint reconciliation_run_hash_length check (octet_length(block_hash) = 32)
);
create index reconciliation_run_chain_idx on reconciliation_run (chain_id, id);

create table reconciliation_break (
    run_id     bigint not null,
    ordinal    bigint not null,
    kind       text not null,
    reference  text,
    entity     text,
    detail     text not null,
    -- The action proposed to operators.
    action     text not null,
    constraint reconciliation_break_pkey primary key (run_id, ordinal),
    constraint reconciliation_break_run_fkey foreign key (run_id) references reconciliation_run (id) on delete cascade
);
create index reconciliation_break_reference_idx on reconciliation_break (reference, run_id) where reference is not null;
