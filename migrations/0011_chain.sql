-- The chain side: commands of the engine, facts of the indexer (the only tables that both use), and the indexer's
-- record of the chain.

create table chain_command (
    id             bigint generated always as identity,
    chain_id       bigint not null,
    reference      text not null,
    intent_id      text not null,
    entity         bytea not null,
    escrow         bytea not null,
    kind           text not null,
    payload        jsonb not null,
    not_before     timestamptz not null default now(),
    state          text not null default 'pending',
    created_at     timestamptz not null default now(),
    done_at        timestamptz,
    tries          integer not null default 0,
    trouble        text,
    troubled_at    timestamptz,
    wallet         text generated always as (lower(payload ->> 'maker')) stored,
    permit_nonce   numeric generated always as (
        case when payload #>> '{permit,nonce}' ~ '^[0-9]{1,78}$' then (payload #>> '{permit,nonce}')::numeric end
    ) stored,
    share          integer generated always as (
        hashtext(coalesce(lower(payload ->> 'maker'), encode(entity, 'hex'))) & 2147483647
    ) stored,
    trace          text,
    deposit_until  timestamptz,
    constraint chain_command_pkey primary key (id),
    constraint chain_command_reference_kind_key unique (reference, kind),
    constraint chain_command_entity_length check (octet_length(entity) = 32),
    constraint chain_command_escrow_length check (octet_length(escrow) = 20),
    constraint chain_command_state_known check (state in ('pending', 'sent', 'done', 'failed'))
);
comment on table chain_command is 'Contract calls that the relayer is to make.';
comment on column chain_command.escrow is
    'Of the set of contracts that is called: the one that took the order.';
comment on column chain_command.state is '`sent` while it is in a live transaction.';
comment on column chain_command.tries is 'Transactions and simulations that did not reach the goal.';
comment on column chain_command.trouble is 'Why the last one did not.';
comment on column chain_command.troubled_at is 'Since when none does.';
comment on column chain_command.share is
    'Divides the commands among the relayer''s accounts, all of a wallet''s to one.';
comment on column chain_command.trace is
    'The W3C trace context of the request that placed the order; null for requests without a traceparent in a process '
    'that records no spans.';
comment on column chain_command.deposit_until is
    'Until when a command that takes a deposit of the coin waits for the deposit, at the confirmation depth; then it '
    'is due all the same, and fails. Null: it waits for none.';
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
-- Commands that failed permanently.
create index chain_command_failed_idx on chain_command (id) where state = 'failed';
create index chain_command_deposit_idx on chain_command (chain_id) where state = 'pending' and deposit_until is not null;

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
comment on function chain_goal_reached is 'Whether a fact reaches the goal of a command.';

-- The commitment of a lock to its payout waits, and so do the ends of such a lock: one endpoint's word alone must
-- neither make an order give up the release of its lock nor take it for released. The payment for a lock on another
-- chain waits, upon which that lock is released.
create function chain_is_gated(chain bigint, of_entity bytea, fact text) returns boolean
    language sql stable parallel safe
    return case
        when fact in ('filled', 'settled', 'cancelled', 'refunded') then exists (
            select from chain_command c where c.entity = of_entity and c.kind = 'fill')
        when fact = 'transferred' then exists (
            select from chain_command c where c.entity = of_entity and c.kind = 'create' and c.chain_id <> chain)
        else false
    end;
comment on function chain_is_gated is 'Whether a fact waits at the gate until most endpoints have it.';

create sequence chain_fact_turn;

create table chain_fact (
    id             bigint generated always as identity,
    chain_id       bigint not null,
    entity         bytea not null,
    kind           text not null,
    payload        jsonb not null,
    block_number   bigint,
    block_hash     bytea,
    block_time     timestamptz,
    tx_hash        bytea,
    log_index      bigint,
    observed_at    timestamptz not null default clock_timestamp(),
    consumed_at    timestamptz,
    retracted_at   timestamptz,
    turn           bigint not null default nextval('chain_fact_turn'),
    gate           text,
    gate_number    bigint,
    differs        text,
    unwritten      integer not null default 0,
    retry_at       timestamptz,
    last_error     text,
    claimed_by     uuid,
    claimed_until  timestamptz,
    early_at       bigint,
    failing_since  timestamptz,
    constraint chain_fact_pkey primary key (id),
    constraint chain_fact_log_key unique (chain_id, block_hash, log_index),
    constraint chain_fact_entity_length check (octet_length(entity) = 32),
    constraint chain_fact_gate_known check (gate in ('new', 'head', 'safe', 'finalized')),
    constraint chain_fact_gate_whole check ((gate is null or gate = 'new') = (gate_number is null))
);
comment on table chain_fact is
    'Events of commands'' entities, or the loss of one; facts that a reorganization retracts stay as rows.';
comment on column chain_fact.turn is
    'The order in which settlements consume facts; not that of the ids, because a fact whose block becomes canonical '
    'again is published again, after the fact that its lock was lost.';
comment on column chain_fact.gate is
    'The finality that `gate_number` must have reached (the head, the safe or the finalized block) before the fact is '
    'published; `new`: not decided yet; null: published.';
comment on column chain_fact.differs is
    'The field that differs from the command, for operators; such a fact is never published.';
comment on column chain_fact.unwritten is
    'Attempts in a row whose result could not be written; later facts of the entity wait.';
comment on column chain_fact.retry_at is 'When the next attempt is due.';
comment on column chain_fact.last_error is 'Why the last attempt failed, for operators.';
comment on column chain_fact.claimed_by is 'The worker that applies the fact.';
comment on column chain_fact.claimed_until is 'Until when no other worker takes it.';
comment on column chain_fact.early_at is
    'The version of the execution that could not take the fact yet; it is offered again when the order has changed.';
comment on column chain_fact.failing_since is 'Since when every attempt to write its result has failed.';
create index chain_fact_entity_idx on chain_fact (entity);
create index chain_fact_block_idx on chain_fact (chain_id, block_number);
create index chain_fact_turn_idx on chain_fact (turn) where consumed_at is null and retracted_at is null;
create index chain_fact_gate_idx on chain_fact (chain_id, id) where gate is not null;
create index chain_fact_differs_idx on chain_fact (entity) where differs is not null;
create index chain_fact_unwritten_idx on chain_fact (entity)
    where unwritten > 0 and consumed_at is null and retracted_at is null;
-- Facts that a settlement has consumed and a reorganization then retracted.
create index chain_fact_retracted_idx on chain_fact (chain_id)
    where retracted_at is not null and consumed_at is not null;
alter sequence chain_fact_turn owned by chain_fact.turn;

create table chain_cursor (
    chain_id       bigint not null,
    head_number    bigint not null,
    head_hash      bytea not null,
    final_number   bigint not null,
    facts_number   bigint not null,
    version        bigint not null default 0,
    updated_at     timestamptz not null default now(),
    halted         text,
    halted_detail  text,
    halted_at      timestamptz,
    constraint chain_cursor_pkey primary key (chain_id),
    constraint chain_cursor_hash_length check (octet_length(head_hash) = 32),
    constraint chain_cursor_halted_known check (halted in ('final_block_changed', 'finalized_regressed')),
    constraint chain_cursor_halted_whole
        check ((halted is null) = (halted_at is null) and (halted is null) = (halted_detail is null))
);
comment on table chain_cursor is
    'The indexer''s position on each chain, changed only by a reader that names its version.';
comment on column chain_cursor.final_number is 'Blocks up to this number are final.';
comment on column chain_cursor.facts_number is 'Facts were published up to this number.';
comment on column chain_cursor.halted is 'Why the chain is halted, until an operator resumes it.';
create trigger chain_cursor_announced after update of halted on chain_cursor
    for each row execute function console_announce('chains');

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
comment on table chain_status is 'The indexer''s state on each chain, for operators; no decision depends on it.';
create trigger chain_status_announced after insert or update on chain_status
    for each row execute function console_announce('chains');

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
comment on table chain_block is
    'Blocks as they were read, by hash: two blocks of one number are two rows, one of them canonical.';
comment on column chain_block.verified_by is 'How the block was verified.';
create unique index chain_block_canonical_key on chain_block (chain_id, number) where canonical;
create index chain_block_orphan_idx on chain_block (chain_id, number) where not canonical;

-- Orphans are marked, not deleted. The key begins with the block's number, so that a backfill appends to its index.
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
    observed_at   timestamptz not null default now(),
    deposit       jsonb,
    constraint chain_log_pkey primary key (chain_id, block_number, log_index, block_hash),
    constraint chain_log_lengths check (
        octet_length(block_hash) = 32 and octet_length(tx_hash) = 32
        and octet_length(contract) = 20 and octet_length(entity) = 32
    ),
    constraint chain_log_seq_positive check (seq > 0)
);
comment on table chain_log is 'The contracts'' events.';
comment on column chain_log.seq is 'The contract''s own number of the event: a gap is an event that a node omitted.';
comment on column chain_log.fact is 'The fact for the engine, if any.';
comment on column chain_log.deposit is 'What a deposit leaves after the event: {depositor, total}.';
create unique index chain_log_seq_key on chain_log (chain_id, contract, seq) where canonical;
-- Entities are hashes, found only as a whole; a hash index is cheaper to fill than a tree at random places.
create index chain_log_entity_idx on chain_log using hash (entity);
-- Anchors by others, which anyone may make of any hash.
create index chain_log_stranger_idx on chain_log (chain_id, block_number)
    where canonical and event = 'Anchored' and fact is null;
create index chain_log_orphan_idx on chain_log (chain_id, block_number) where not canonical;

create table chain_deleted (
    chain_id  bigint not null,
    contract  bytea not null,
    events    bigint not null,
    constraint chain_deleted_pkey primary key (chain_id, contract),
    constraint chain_deleted_positive check (events > 0)
);
comment on table chain_deleted is
    'How many events of each contract were deleted: they count as stored when the contract''s own number is compared.';

create table chain_token (
    chain_id  bigint not null,
    asset     text not null,
    address   text not null,
    constraint chain_token_pkey primary key (chain_id, asset),
    constraint chain_token_address_form check (address ~ '^0x[0-9a-f]{40}$')
);
comment on table chain_token is 'The token contracts of each chain that the ledger knows.';
