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

-- How far a chain was read. One row a chain; `version` lets only the reader that saw the row change it.
-- final_number: from here down nothing may change any more. facts_number: facts were given up to here.
create table chain_cursor (
    chain_id      bigint not null,
    head_number   bigint not null,
    head_hash     bytea not null,
    final_number  bigint not null,
    facts_number  bigint not null,
    version       bigint not null default 0,
    updated_at    timestamptz not null default now(),
    constraint chain_cursor_pkey primary key (chain_id),
    constraint chain_cursor_hash_length check (octet_length(head_hash) = 32)
);

-- Blocks as they were read. Keyed by hash: two blocks of one number are two rows, one of them canonical.
create table chain_block (
    chain_id     bigint not null,
    hash         bytea not null,
    number       bigint not null,
    parent       bytea not null,
    block_time   timestamptz not null,
    canonical    boolean not null default true,
    verified_by  text not null,
    observed_at  timestamptz not null default clock_timestamp(),
    constraint chain_block_pkey primary key (chain_id, hash),
    constraint chain_block_hash_length check (octet_length(hash) = 32 and octet_length(parent) = 32)
);
create unique index chain_block_canonical_key on chain_block (chain_id, number) where canonical;

-- The contracts' events. Orphans are marked, not deleted. `fact` is what the engine is told of it, if anything.
create table chain_log (
    chain_id      bigint not null,
    block_hash    bytea not null,
    log_index     bigint not null,
    block_number  bigint not null,
    block_time    timestamptz not null,
    tx_hash       bytea not null,
    contract      bytea not null,
    event         text not null,
    entity        bytea not null,
    seq           bigint not null,
    fact          jsonb,
    canonical     boolean not null default true,
    observed_at   timestamptz not null default clock_timestamp(),
    constraint chain_log_pkey primary key (chain_id, block_hash, log_index),
    constraint chain_log_lengths check (
        octet_length(block_hash) = 32 and octet_length(tx_hash) = 32
        and octet_length(contract) = 20 and octet_length(entity) = 32
    ),
    constraint chain_log_seq_positive check (seq > 0)
);
create unique index chain_log_seq_key on chain_log (chain_id, contract, seq) where canonical;
create index chain_log_number_idx on chain_log (chain_id, block_number) where canonical;
create index chain_log_entity_idx on chain_log (entity);

-- Nonces live here and nowhere else: the row of a lane is locked while one of its nonces is given out.
create table signer_lane (
    chain_id    bigint not null,
    signer      bytea not null,
    next_nonce  bigint not null,
    constraint signer_lane_pkey primary key (chain_id, signer),
    constraint signer_lane_signer_length check (octet_length(signer) = 20)
);

-- One nonce, used for one command. `mined` may go back to `broadcast` (a reorg), `final` may not.
create table nonce_slot (
    chain_id      bigint not null,
    signer        bytea not null,
    nonce         bigint not null,
    command_id    bigint not null,
    state         text not null default 'signed',
    succeeded     boolean,
    block_number  bigint,
    block_hash    bytea,
    created_at    timestamptz not null default clock_timestamp(),
    constraint nonce_slot_pkey primary key (chain_id, signer, nonce),
    constraint nonce_slot_lane_fkey foreign key (chain_id, signer) references signer_lane (chain_id, signer),
    constraint nonce_slot_command_fkey foreign key (command_id) references chain_command (id),
    constraint nonce_slot_state_known check (state in ('signed', 'broadcast', 'mined', 'final', 'foreign')),
    constraint nonce_slot_mined_has_block check (
        state not in ('mined', 'final')
        or (block_number is not null and block_hash is not null and succeeded is not null)
    )
);
create index nonce_slot_command_idx on nonce_slot (command_id);
create index nonce_slot_open_idx on nonce_slot (chain_id, signer, nonce) where state in ('signed', 'broadcast', 'mined');

-- The signed bytes, committed before they are sent for the first time. All attempts of a slot share its nonce, so
-- one of them at most is ever mined.
create table tx_attempt (
    chain_id           bigint not null,
    signer             bytea not null,
    nonce              bigint not null,
    attempt            bigint not null,
    hash               bytea not null,
    raw                bytea not null,
    max_fee            numeric(39, 0) not null,
    priority_fee       numeric(39, 0) not null,
    created_at         timestamptz not null default clock_timestamp(),
    last_broadcast_at  timestamptz,
    last_error         text,
    constraint tx_attempt_pkey primary key (chain_id, signer, nonce, attempt),
    constraint tx_attempt_hash_key unique (chain_id, hash),
    constraint tx_attempt_slot_fkey foreign key (chain_id, signer, nonce)
        references nonce_slot (chain_id, signer, nonce)
);
