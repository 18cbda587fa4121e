-- The chain side: commands the engine wants carried out, facts the indexer saw, and what both need to survive a
-- crash at any statement. Commands and facts are the only tables the engine and the chain side share.

create table chain_command (
    id           bigint generated always as identity,
    chain_id     bigint not null,
    reference    text not null,
    intent_id    text not null,
    entity       bytea not null,
    kind         text not null,
    payload      jsonb not null,
    not_before   timestamptz not null default now(),
    state        text not null default 'pending',
    created_at   timestamptz not null default now(),
    done_at      timestamptz,
    constraint chain_command_pkey primary key (id),
    constraint chain_command_reference_kind_key unique (reference, kind),
    constraint chain_command_entity_length check (octet_length(entity) = 32),
    constraint chain_command_state_known check (state in ('pending', 'sent', 'done', 'failed'))
);
create index chain_command_open_idx on chain_command (chain_id, id) where state in ('pending', 'sent');
create index chain_command_entity_idx on chain_command (entity);

create table chain_fact (
    id            bigint generated always as identity,
    chain_id      bigint not null,
    entity        bytea not null,
    kind          text not null,
    payload       jsonb not null,
    block_number  bigint,
    block_hash    bytea,
    block_time    timestamptz,
    tx_hash       bytea,
    log_index     bigint,
    observed_at   timestamptz not null default clock_timestamp(),
    consumed_at   timestamptz,
    constraint chain_fact_pkey primary key (id),
    constraint chain_fact_entity_length check (octet_length(entity) = 32),
    constraint chain_fact_log_key unique (chain_id, block_hash, log_index)
);
create index chain_fact_open_idx on chain_fact (id) where consumed_at is null;
