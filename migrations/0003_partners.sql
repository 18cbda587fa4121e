-- Partners (tenants), their API keys, and the records by which no request is carried out twice.

create table partner (
    id                text not null,
    name              text not null,
    tier              text not null,
    limit_per_minute  bigint not null,
    created_at        timestamptz not null default now(),
    disabled_at       timestamptz,
    constraint partner_pkey primary key (id),
    constraint partner_name_key unique (name),
    constraint partner_tier_known check (tier in ('standard', 'enterprise')),
    constraint partner_limit_positive check (limit_per_minute > 0)
);
comment on table partner is 'The partners (tenants).';
comment on column partner.limit_per_minute is 'Requests a minute.';
comment on column partner.disabled_at is
    'No interface accepts requests of a disabled partner; accepted orders continue.';
create trigger partner_audited after insert on partner
    for each row execute function audit_append();
create trigger partner_announced after insert or update on partner
    for each row execute function console_announce('partners');

-- Rows of other tables name a partner without a foreign key where the check would cost more than the row.
create function partner_is_kept() returns trigger language plpgsql as $$
begin
    raise exception 'partners are never deleted'
        using errcode = 'foreign_key_violation', constraint = 'partner_kept', table = 'partner';
end $$;
comment on function partner_is_kept is 'Refuses to delete a partner.';
create trigger partner_kept before delete or truncate on partner
    for each statement execute function partner_is_kept();

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
comment on table partner_action is 'Who disabled or enabled a partner, and why.';
create index partner_action_partner_idx on partner_action (partner_id, id);
create trigger partner_action_audited after insert on partner_action
    for each row execute function audit_append();

create function partner_action_is_immutable() returns trigger language plpgsql as $$
begin
    raise exception 'what operators did is never changed'
        using errcode = 'check_violation', constraint = 'partner_action_immutable', table = 'partner_action';
end $$;
comment on function partner_action_is_immutable is 'Refuses every change of the record of partners'' actions.';
create trigger partner_action_immutable before update or delete or truncate on partner_action
    for each statement execute function partner_action_is_immutable();

create table api_key (
    id             text not null,
    partner_id     text not null,
    env            text not null,
    key_hash       bytea not null,
    hash_key       text not null,
    key_prefix     text not null,
    sealed_secret  bytea not null,
    scopes         text[] not null,
    created_at     timestamptz not null default now(),
    disabled_at    timestamptz,
    revoked_at     timestamptz,
    constraint api_key_pkey primary key (id),
    constraint api_key_hash_key unique (key_hash),
    constraint api_key_partner_fkey foreign key (partner_id) references partner (id),
    constraint api_key_env_known check (env in ('test', 'live')),
    constraint api_key_revoked_keeps_no_secret check (revoked_at is null or octet_length(sealed_secret) = 0)
);
comment on table api_key is 'The API keys of the partners.';
comment on column api_key.env is '`test` or `live`.';
comment on column api_key.key_hash is 'Keyed hash of the key, which is not stored.';
comment on column api_key.hash_key is 'Id of the master key of the hash.';
comment on column api_key.key_prefix is 'The beginning of the key, which partners know it by.';
comment on column api_key.sealed_secret is 'The signing secret, encrypted; empty once the key is revoked.';
comment on column api_key.disabled_at is 'A disabled key is known and refused; it can be enabled again.';
comment on column api_key.revoked_at is 'A revoked key is treated as unknown; its row stays as a record of signatures.';
create index api_key_partner_idx on api_key (partner_id, created_at);
-- Finds new keys without reading all keys.
create index api_key_age_idx on api_key (created_at);
create index api_key_prefix_idx on api_key (key_prefix);
create trigger environment_holds before insert or update on api_key
    for each row execute function environment_holds();
create trigger api_key_audited after insert or update of disabled_at, revoked_at on api_key
    for each row execute function audit_append('key_hash', 'hash_key', 'sealed_secret');
create trigger api_key_announced after insert or update of disabled_at, revoked_at on api_key
    for each row execute function console_announce('partners');

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
comment on table idempotency is 'The answers to requests by idempotency key (contract section 8).';
comment on column idempotency.fingerprint is
    'SHA-256 of the request; a different request under the same key is refused.';
create index idempotency_age_idx on idempotency (accepted_at);

create table request_nonce (
    key_id      text not null,
    nonce       text not null,
    partner_id  text not null,
    expires_at  timestamptz not null,
    constraint request_nonce_pkey primary key (key_id, nonce)
);
comment on table request_nonce is
    'Nonces of signed requests whose body has no id of its own, so that a captured request is not carried out again '
    'under another idempotency key.';
comment on column request_nonce.expires_at is 'The request''s timestamp is refused after this.';
create index request_nonce_expiry_idx on request_nonce (expires_at);

create table rate_window (
    partner_id  text not null,
    livemode    boolean not null,
    opened_at   timestamptz not null,
    granted     bigint not null,
    constraint rate_window_pkey primary key (partner_id, livemode),
    constraint rate_window_granted_not_negative check (granted >= 0)
) with (fillfactor = 50);
comment on table rate_window is
    'The requests of each partner''s minute that its processes may answer together; a process takes a share and '
    'answers so many without asking again.';
comment on column rate_window.granted is 'Requests that processes have taken.';

create table request_log (
    partner_id  text not null,
    livemode    boolean not null,
    id          uuid not null,
    at          timestamptz not null,
    key_id      text not null,
    request_id  text not null,
    method      text not null,
    path        text not null,
    status      integer not null,
    code        text,
    message     text,
    millis      integer not null,
    constraint request_log_pkey primary key (partner_id, livemode, id)
);
comment on table request_log is
    'Requests over REST that changed something or were refused, kept for a week for their partner to read; in a '
    'busy second some are left out.';
comment on column request_log.id is 'Ordered by time.';
comment on column request_log.request_id is 'Of the header X-Request-Id.';
comment on column request_log.path is 'Without its query.';
comment on column request_log.code is 'Of a refusal.';
create index request_log_at_idx on request_log (at);
