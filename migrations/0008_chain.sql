-- The chain side: commands of the engine, facts of the indexer (the only tables that both use), and the indexer's
-- record of the chain.

-- A contract call that the relayer is to make.
create table chain_command (
    id            bigint generated always as identity,
    chain_id      bigint not null,
    reference     text not null,
    intent_id     text not null,
    entity        bytea not null,
    kind          text not null,
    payload       jsonb not null,
    not_before    timestamptz not null default now(),
    -- `sent` while it is in a live transaction.
    state         text not null default 'pending',
    created_at    timestamptz not null default now(),
    done_at       timestamptz,
    -- Transactions and simulations that did not reach the goal, the last reason, and since when.
    tries         integer not null default 0,
    trouble       text,
    troubled_at   timestamptz,
    wallet        text generated always as (lower(payload ->> 'maker')) stored,
    permit_nonce  numeric generated always as (
        case when payload #>> '{permit,nonce}' ~ '^[0-9]{1,78}$' then (payload #>> '{permit,nonce}')::numeric end
    ) stored,
    -- Divides the commands among the relayer's accounts, all of a wallet's to one.
    share         integer generated always as (
        hashtext(coalesce(lower(payload ->> 'maker'), encode(entity, 'hex'))) & 2147483647
    ) stored,
    constraint chain_command_pkey primary key (id),
    constraint chain_command_reference_kind_key unique (reference, kind),
    constraint chain_command_entity_length check (octet_length(entity) = 32),
    constraint chain_command_state_known check (state in ('pending', 'sent', 'done', 'failed'))
);
create index chain_command_entity_idx on chain_command (entity);
create index chain_command_open_idx on chain_command (chain_id, id) where state in ('pending', 'sent');
create index chain_command_ready_idx on chain_command (chain_id, kind, not_before, id) where state = 'pending';
create index chain_command_wallet_idx on chain_command (chain_id, wallet)
    where state = 'sent' and wallet is not null;
create index chain_command_trouble_idx on chain_command (chain_id, id) where state = 'pending' and trouble is not null;
-- The backlog is counted every second, without anchors, of which any number may wait.
create index chain_command_waiting_idx on chain_command (chain_id, kind)
    where state in ('pending', 'sent') and kind <> 'anchor';
create index chain_command_done_idx on chain_command (chain_id, done_at) where state = 'done' and kind <> 'anchor';

-- Whether a fact reaches the goal of a command.
create function chain_goal_reached(command text, fact text) returns boolean
    language sql immutable parallel safe
    return case command
        when 'create' then fact = 'created'
        when 'fill' then fact = 'filled'
        when 'settle' then fact = 'settled'
        when 'anchor' then fact = 'anchored'
        when 'transfer' then fact = 'transferred'
        when 'swap' then fact = 'settled'
        when 'cancel' then fact in ('cancelled', 'refunded')
        when 'return_filled' then fact in ('cancelled', 'refunded')
        when 'refund' then fact in ('cancelled', 'refunded')
    end;

-- Whether a fact waits at the payout gate: the commitment of a lock to its payout, and the payment for a lock on another
-- chain, upon which that lock is released.
create function chain_is_gated(chain bigint, of_entity bytea, fact text) returns boolean
    language sql stable parallel safe
    return case fact
        when 'filled' then exists (select from chain_command c where c.entity = of_entity and c.kind = 'fill')
        when 'transferred' then exists (
            select from chain_command c where c.entity = of_entity and c.kind = 'create' and c.chain_id <> chain)
        else false
    end;

-- An event of a command's entity, or the loss of one. Facts retracted by a reorganization stay as rows.
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
    retracted_at  timestamptz,
    -- The order in which facts are consumed by settlements. It is not the order of the ids: a fact whose block becomes
    -- canonical again is published again, after the fact that its lock was lost.
    turn          bigint not null,
    -- The finality that `gate_number` must have reached (the head, the safe or the finalized block) before the fact is
    -- published; `new`: not decided yet; null: published.
    gate          text,
    gate_number   bigint,
    -- The field that differs from the command, for operators; such a fact is never published.
    differs       text,
    -- Attempts in a row whose result could not be written, when the next is due, and why, for operators. Later facts of
    -- the entity wait.
    unwritten     integer not null default 0,
    retry_at      timestamptz,
    last_error         text,
    constraint chain_fact_pkey primary key (id),
    constraint chain_fact_log_key unique (chain_id, block_hash, log_index),
    constraint chain_fact_entity_length check (octet_length(entity) = 32),
    constraint chain_fact_gate_known check (gate in ('new', 'head', 'safe', 'finalized')),
    constraint chain_fact_gate_whole check ((gate is null or gate = 'new') = (gate_number is null))
);
create sequence chain_fact_turn owned by chain_fact.turn;
alter table chain_fact alter column turn set default nextval('chain_fact_turn');
create index chain_fact_entity_idx on chain_fact (entity);
create index chain_fact_block_idx on chain_fact (chain_id, block_number);
create index chain_fact_turn_idx on chain_fact (turn) where consumed_at is null and retracted_at is null;
create index chain_fact_gate_idx on chain_fact (chain_id, id) where gate is not null;
create index chain_fact_differs_idx on chain_fact (entity) where differs is not null;
create index chain_fact_unwritten_idx on chain_fact (entity)
    where unwritten > 0 and consumed_at is null and retracted_at is null;

-- The indexer's position on a chain: one row a chain, changed only by a reader that names its version.
create table chain_cursor (
    chain_id       bigint not null,
    head_number    bigint not null,
    head_hash      bytea not null,
    -- Blocks up to this number are final.
    final_number   bigint not null,
    -- Facts were published up to this number.
    facts_number   bigint not null,
    version        bigint not null default 0,
    updated_at     timestamptz not null default now(),
    -- Why the chain is halted, until an operator resumes it.
    halted         text,
    halted_detail  text,
    halted_at      timestamptz,
    constraint chain_cursor_pkey primary key (chain_id),
    constraint chain_cursor_hash_length check (octet_length(head_hash) = 32),
    constraint chain_cursor_halted_known check (halted in ('final_block_changed', 'finalized_regressed')),
    constraint chain_cursor_halted_whole
        check ((halted is null) = (halted_at is null) and (halted is null) = (halted_detail is null))
);

-- The indexer's state, for operators: one row a chain. No decision depends on it.
create table chain_status (
    chain_id             bigint not null,
    name                 text not null,
    state                text not null,
    reason               text,
    since                timestamptz not null default clock_timestamp(),
    node_head            bigint not null,
    node_final           bigint not null,
    backfill_from        bigint,
    backfill_to          bigint,
    backfill_events      bigint,
    backfill_started_at  timestamptz,
    updated_at           timestamptz not null default clock_timestamp(),
    constraint chain_status_pkey primary key (chain_id),
    constraint chain_status_state_known check (state in ('backfilling', 'following', 'holding', 'halted')),
    constraint chain_status_backfill_whole check (
        (backfill_from is null) = (backfill_to is null)
        and (backfill_from is null) = (backfill_events is null)
        and (backfill_from is null) = (backfill_started_at is null)
    )
);

-- Blocks as they were read, by hash: two blocks of one number are two rows, one of them canonical.
-- `observed_at` is when the transaction began: a default that differs from row to row makes COPY write rows singly.
create table chain_block (
    chain_id     bigint not null,
    hash         bytea not null,
    number       bigint not null,
    parent       bytea not null,
    block_time   timestamptz not null,
    canonical    boolean not null default true,
    verified_by  text not null,
    observed_at  timestamptz not null default now(),
    constraint chain_block_pkey primary key (chain_id, hash),
    constraint chain_block_hash_length check (octet_length(hash) = 32 and octet_length(parent) = 32)
);
create unique index chain_block_canonical_key on chain_block (chain_id, number) where canonical;

-- The contracts' events. Orphans are marked, not deleted. The key begins with the block's number, so that a backfill
-- appends to its index.
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
    -- The contract's own number of the event: a gap is an event that a node omitted.
    seq           bigint not null,
    -- The fact for the engine, if any.
    fact          jsonb,
    canonical     boolean not null default true,
    observed_at   timestamptz not null default now(),
    constraint chain_log_pkey primary key (chain_id, block_number, log_index, block_hash),
    constraint chain_log_lengths check (
        octet_length(block_hash) = 32 and octet_length(tx_hash) = 32
        and octet_length(contract) = 20 and octet_length(entity) = 32
    ),
    constraint chain_log_seq_positive check (seq > 0)
);
create unique index chain_log_seq_key on chain_log (chain_id, contract, seq) where canonical;
-- Entities are hashes, found only as a whole; a hash index is cheaper to fill than a tree at random places.
create index chain_log_entity_idx on chain_log using hash (entity);
