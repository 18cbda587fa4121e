-- The service's own record: who may call, what was quoted, asked, accepted, settled and told. Every row that grows
-- carries its partner, and one transaction writes an order's whole effect, so that nothing is told before it is kept.

create table partner (
    id                text not null,
    name              text not null,
    tier              text not null,
    limit_per_minute  bigint not null,
    created_at        timestamptz not null default now(),
    constraint partner_pkey primary key (id),
    constraint partner_name_key unique (name),
    constraint partner_tier_known check (tier in ('standard', 'enterprise')),
    constraint partner_limit_positive check (limit_per_minute > 0)
);

-- The key itself is not kept: it is found by a keyed hash. The signing secret is sealed.
create table api_key (
    id             text not null,
    partner_id     text not null,
    env            text not null,
    key_hash       bytea not null,
    key_prefix     text not null,
    sealed_secret  bytea not null,
    scopes         text[] not null,
    created_at     timestamptz not null default now(),
    disabled_at    timestamptz,
    constraint api_key_pkey primary key (id),
    constraint api_key_hash_key unique (key_hash),
    constraint api_key_partner_fkey foreign key (partner_id) references partner (id),
    constraint api_key_env_known check (env in ('test', 'live'))
);

-- What a liquidity provider can still deliver of an asset, and what is promised to accepted intents.
create table provider_balance (
    provider_id  text not null,
    asset        text not null,
    available    numeric(39, 0) not null,
    reserved     numeric(39, 0) not null default 0,
    constraint provider_balance_pkey primary key (provider_id, asset),
    constraint provider_balance_not_negative check (available >= 0 and reserved >= 0)
);

-- The context of an indicative quote, by the caller's requestId.
create table quote_request (
    partner_id  text not null,
    livemode    boolean not null,
    request_id  text not null,
    request     jsonb not null,
    response    jsonb not null,
    created_at  timestamptz not null default now(),
    constraint quote_request_pkey primary key (partner_id, livemode, request_id),
    constraint quote_request_partner_fkey foreign key (partner_id) references partner (id)
);

create table firm_quote (
    quote_id     text not null,
    partner_id   text not null,
    livemode     boolean not null,
    request_id   text not null,
    terms        jsonb not null,
    valid_until  timestamptz not null,
    used_by      text,
    created_at   timestamptz not null default now(),
    constraint firm_quote_pkey primary key (quote_id),
    constraint firm_quote_partner_fkey foreign key (partner_id) references partner (id)
);

-- Every decided submission. An intentId is used once per partner for ever, a rejected one too.
create table intent (
    partner_id        text not null,
    livemode          boolean not null,
    intent_id         text not null,
    client_reference  text,
    reference         text,
    reason            text,
    request           jsonb not null,
    created_at        timestamptz not null default now(),
    constraint intent_pkey primary key (partner_id, livemode, intent_id),
    constraint intent_partner_fkey foreign key (partner_id) references partner (id),
    constraint intent_accepted_or_rejected check ((reference is null) <> (reason is null))
);
create unique index intent_client_reference_key on intent (partner_id, livemode, client_reference)
    where reference is not null;

create table execution (
    reference         text not null,
    partner_id        text not null,
    livemode          boolean not null,
    intent_id         text not null,
    client_reference  text,
    entity            bytea not null,
    terms             jsonb not null,
    state_name        text not null,
    state             jsonb not null,
    version           bigint not null,
    last_sequence     bigint not null,
    accepted_at       timestamptz not null,
    terminal_at       timestamptz,
    constraint execution_pkey primary key (reference),
    constraint execution_entity_key unique (entity),
    constraint execution_intent_fkey foreign key (partner_id, livemode, intent_id)
        references intent (partner_id, livemode, intent_id),
    constraint execution_entity_length check (octet_length(entity) = 32)
);
create index execution_client_reference_idx on execution (partner_id, livemode, client_reference);
create index execution_open_idx on execution (state_name) where terminal_at is null;

-- One permit nonce backs one live settlement.
create table permit_use (
    chain_id   bigint not null,
    owner      text not null,
    nonce      numeric(39, 0) not null,
    reference  text not null,
    constraint permit_use_pkey primary key (chain_id, owner, nonce),
    constraint permit_use_execution_fkey foreign key (reference) references execution (reference)
);
create index permit_use_reference_idx on permit_use (reference);

-- The feed. Positions are dense: the counter below is bumped as the last statement of each writing transaction.
create table event (
    position     bigint not null,
    event_id     text not null,
    partner_id   text not null,
    livemode     boolean not null,
    reference    text not null,
    intent_id    text not null,
    client_reference text,
    sequence     bigint not null,
    type         text not null,
    occurred_at  timestamptz not null,
    observed_at  timestamptz not null,
    object       jsonb not null,
    constraint event_pkey primary key (position),
    constraint event_id_key unique (event_id),
    constraint event_sequence_key unique (reference, sequence),
    constraint event_observed_after_it_occurred check (observed_at >= occurred_at)
);
create index event_partner_idx on event (partner_id, livemode, position);
create index event_intent_idx on event (partner_id, livemode, intent_id, position);

create table feed_counter (
    only_row  boolean not null default true,
    position  bigint not null,
    epoch     uuid not null default gen_random_uuid(),
    constraint feed_counter_pkey primary key (only_row),
    constraint feed_counter_one_row check (only_row)
);
insert into feed_counter (position) values (0);

-- Contract section 8: one record per partner, environment, method, path and key.
create table idempotency (
    partner_id   text not null,
    livemode     boolean not null,
    method       text not null,
    path         text not null,
    key          uuid not null,
    fingerprint  bytea not null,
    status       integer not null,
    body         text not null,
    accepted_at  timestamptz not null default now(),
    constraint idempotency_pkey primary key (partner_id, livemode, method, path, key),
    constraint idempotency_fingerprint_length check (octet_length(fingerprint) = 32)
);

-- What a committed step still has to do. `called` means: the call may have reached the other side.
create table effect (
    id           bigint generated always as identity,
    reference    text not null,
    kind         text not null,
    run_at       timestamptz not null,
    called       boolean not null default false,
    attempts     integer not null default 0,
    lease_until  timestamptz,
    fence        bigint not null default 0,
    constraint effect_pkey primary key (id),
    constraint effect_reference_kind_key unique (reference, kind),
    constraint effect_kind_known check (kind in ('lock', 'expire', 'offramp', 'payout')),
    constraint effect_execution_fkey foreign key (reference) references execution (reference)
);
create index effect_due_idx on effect (run_at);

create table receipt (
    reference     text not null,
    body          text not null,
    content_hash  bytea not null,
    issued_at     timestamptz not null,
    constraint receipt_pkey primary key (reference),
    constraint receipt_execution_fkey foreign key (reference) references execution (reference),
    constraint receipt_content_hash_key unique (content_hash)
);

-- Double entry. Amounts in minor units with eighteen places for residuals; a transaction sums to zero per asset.
create table ledger_entry (
    id           bigint generated always as identity,
    reference    text not null,
    step         bigint not null,
    account      text not null,
    asset        text not null,
    amount       numeric(57, 18) not null,
    recorded_at  timestamptz not null default now(),
    constraint ledger_entry_pkey primary key (id),
    constraint ledger_entry_execution_fkey foreign key (reference) references execution (reference)
);
create index ledger_entry_reference_idx on ledger_entry (reference, step);

create function ledger_transaction_balances() returns trigger language plpgsql as $$
begin
    if exists (
        select from ledger_entry l
        where (l.reference, l.step) in (select distinct reference, step from posted)
        group by l.reference, l.step, l.asset
        having sum(l.amount) <> 0
    ) then
        raise exception 'ledger transaction does not balance' using constraint = 'ledger_transaction_balances';
    end if;
    return null;
end $$;
create trigger ledger_entry_balances after insert on ledger_entry
    referencing new table as posted for each statement execute function ledger_transaction_balances();

-- Single-owner duties (an indexer's chain, a signer, a FIX session). The database's clock decides.
create table lease (
    name        text not null,
    owner       uuid not null,
    fence       bigint not null,
    expires_at  timestamptz not null,
    constraint lease_pkey primary key (name)
);

-- The simulated rails' own books: the world outside, which remembers what it was asked to do. `executed` counts how
-- often money moved for one reference, so that a second time would be seen.
create table simulated_rail (
    leg         text not null,
    reference   text not null,
    account     text not null,
    amount      numeric(39, 0) not null,
    currency    text not null,
    calls       integer not null default 0,
    executed    integer not null default 0,
    first_call  timestamptz not null,
    executed_at timestamptz,
    constraint simulated_rail_pkey primary key (leg, reference)
);
