-- Partners (tenants), their API keys, and the records by which no request is carried out twice.

create table partner (
    id                text not null,
    name              text not null,
    tier              text not null,
    limit_per_minute  bigint not null,
    created_at        timestamptz not null default now(),
    -- No interface accepts requests of a disabled partner; accepted orders continue.
    disabled_at       timestamptz,
    constraint partner_pkey primary key (id),
    constraint partner_name_key unique (name),
    constraint partner_tier_known check (tier in ('standard', 'enterprise')),
    constraint partner_limit_positive check (limit_per_minute > 0)
);

-- Rows of other tables name a partner without a foreign key where the check would cost more than the row.
create function partner_is_kept() returns trigger language plpgsql as $$
begin
    raise exception 'partners are never deleted'
        using errcode = 'foreign_key_violation', constraint = 'partner_kept', table = 'partner';
end $$;
create trigger partner_kept before delete or truncate on partner
    for each statement execute function partner_is_kept();

-- Who disabled or enabled a partner, and why.
create table partner_action (
    id          bigint generated always as identity,
    partner_id  text not null,
    action      text not null,
    operator    text not null,
    reason      text not null,
    at          timestamptz not null default now(),
    constraint partner_action_pkey primary key (id),
    constraint partner_action_partner_fkey foreign key (partner_id) references partner (id),
    constraint partner_action_known check (action in ('disable', 'enable')),
    constraint partner_action_reason_given check (length(trim(reason)) > 0 and length(trim(operator)) > 0)
);
create index partner_action_partner_idx on partner_action (partner_id, id);

create function partner_action_is_immutable() returns trigger language plpgsql as $$
begin
    raise exception 'what operators did is never changed'
        using errcode = 'check_violation', constraint = 'partner_action_immutable', table = 'partner_action';
end $$;
create trigger partner_action_immutable before update or delete or truncate on partner_action
    for each statement execute function partner_action_is_immutable();

create table api_key (
    id             text not null,
    partner_id     text not null,
    env            text not null,
    -- Keyed hash of the key, which is not stored.
    key_hash       bytea not null,
    -- Id of the master key of the hash.
    hash_key       text not null,
    key_prefix     text not null,
    -- The signing secret, encrypted; empty once the key is revoked.
    sealed_secret  bytea not null,
    scopes         text[] not null,
    created_at     timestamptz not null default now(),
    -- A disabled key is known and refused; it can be enabled again.
    disabled_at    timestamptz,
    -- A revoked key is treated as unknown. Its row stays as a record of signatures.
    revoked_at     timestamptz,
    constraint api_key_pkey primary key (id),
    constraint api_key_hash_key unique (key_hash),
    constraint api_key_partner_fkey foreign key (partner_id) references partner (id),
    constraint api_key_env_known check (env in ('test', 'live')),
    constraint api_key_revoked_keeps_no_secret check (revoked_at is null or octet_length(sealed_secret) = 0)
);
create index api_key_partner_idx on api_key (partner_id, created_at);
-- Finds new keys without reading all keys.
create index api_key_age_idx on api_key (created_at);
-- A key is found by its beginning, which partners know it by.
create index api_key_prefix_idx on api_key (key_prefix);

-- Secrets of the service that outlive a master key, encrypted.
create table service_secret (
    name    text not null,
    sealed  bytea not null,
    constraint service_secret_pkey primary key (name)
);

-- Answers by idempotency key (contract section 8).
create table idempotency (
    partner_id   text not null,
    livemode     boolean not null,
    method       text not null,
    path         text not null,
    key          uuid not null,
    -- SHA-256 of the request; a different request under the same key is refused.
    fingerprint  bytea not null,
    status       integer not null,
    body         text not null,
    accepted_at  timestamptz not null default now(),
    constraint idempotency_pkey primary key (partner_id, livemode, method, path, key),
    constraint idempotency_fingerprint_length check (octet_length(fingerprint) = 32)
);
create index idempotency_age_idx on idempotency (accepted_at);

-- Nonces of signed requests whose body has no id of its own: a process that has not seen the nonce must not carry out a
-- captured request that is sent again under another idempotency key.
create table request_nonce (
    key_id      text not null,
    nonce       text not null,
    partner_id  text not null,
    -- The request's timestamp is refused after this.
    expires_at  timestamptz not null,
    constraint request_nonce_pkey primary key (key_id, nonce)
);
create index request_nonce_expiry_idx on request_nonce (expires_at);
