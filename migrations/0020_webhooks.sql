-- Webhooks: endpoints, the queue of deliveries and their log. Deliveries are made from the feed, and can be made from
-- it again for as long as its events are kept.

create table webhook_endpoint (
    id                text not null,
    key_id            text not null,
    partner_id        text not null,
    livemode          boolean not null,
    url               text not null,
    subscribed_types  text[] not null,
    api_version       text not null,
    is_active         boolean not null default true,
    sealed_secret     bytea not null,
    sealed_next       bytea,
    grace_expires_at  timestamptz,
    rotated_at        timestamptz,
    from_position     bigint not null,
    failing_since     timestamptz,
    noticed_at        timestamptz,
    created_at        timestamptz not null default now(),
    constraint webhook_endpoint_pkey primary key (id),
    constraint webhook_endpoint_key_key unique (key_id),
    constraint webhook_endpoint_key_fkey foreign key (key_id) references api_key (id),
    constraint webhook_endpoint_partner_fkey foreign key (partner_id) references partner (id),
    constraint webhook_endpoint_subscribes check (cardinality(subscribed_types) > 0),
    constraint webhook_endpoint_rotation_whole check ((sealed_next is null) = (grace_expires_at is null))
);
comment on table webhook_endpoint is 'Endpoints, one for each API key, inactive ones too.';
comment on column webhook_endpoint.sealed_secret is 'The signing secret, encrypted.';
comment on column webhook_endpoint.sealed_next is 'The next secret: during a rotation''s grace both sign.';
comment on column webhook_endpoint.from_position is
    'Events up to here came before the endpoint, or passed while it was inactive.';
comment on column webhook_endpoint.failing_since is 'Since when every delivery has failed.';
comment on column webhook_endpoint.noticed_at is 'When the owner was notified of it.';
create index webhook_endpoint_tenant_idx on webhook_endpoint (partner_id, livemode) where is_active;
create trigger webhook_endpoint_announced
    after insert or update of is_active, failing_since, url, subscribed_types on webhook_endpoint
    for each row execute function console_announce('webhooks');

-- Whoever had a key that was revoked may have chosen where its events go. An endpoint of such a key is inactive,
-- however the key was revoked, until it is given to another key.
create function webhook_endpoint_of_key() returns trigger language plpgsql as $$
begin
    -- An insert waits for a revocation under way, which could not see the new row. An update need not: the revocation
    -- waits for it, or has the row already.
    if tg_op = 'INSERT' then
        perform from api_key where id = new.key_id for share;
    end if;
    if new.is_active and exists (select from api_key where id = new.key_id and revoked_at is not null) then
        new.is_active := false;
    end if;
    return new;
end $$;
comment on function webhook_endpoint_of_key is 'Keeps an endpoint inactive while its key is revoked.';
create trigger webhook_endpoint_key_works before insert or update of is_active, key_id on webhook_endpoint
    for each row execute function webhook_endpoint_of_key();

create function api_key_stop_endpoint() returns trigger language plpgsql as $$
begin
    update webhook_endpoint set is_active = false where key_id = new.id and is_active;
    return null;
end $$;
comment on function api_key_stop_endpoint is 'Makes the endpoint of a revoked key inactive.';
create trigger api_key_revoked after update of revoked_at on api_key
    for each row when (new.revoked_at is not null) execute function api_key_stop_endpoint();

create table endpoint_lease (
    endpoint_id  text not null,
    owner        uuid,
    fence        bigint not null default 0,
    expires_at   timestamptz not null default '-infinity',
    constraint endpoint_lease_pkey primary key (endpoint_id),
    constraint endpoint_lease_endpoint_fkey foreign key (endpoint_id) references webhook_endpoint (id)
) with (fillfactor = 50);
comment on table endpoint_lease is 'The process that sends to an endpoint.';
comment on column endpoint_lease.fence is 'Grows with each acquisition; an outcome counts only under its own.';

create table webhook_sender (
    id           uuid not null,
    alive_until  timestamptz not null,
    constraint webhook_sender_pkey primary key (id)
) with (fillfactor = 50);
comment on table webhook_sender is 'The processes that send, so that each leases its share of the endpoints.';

create table webhook_dispatcher (
    only_row  boolean not null default true,
    position  bigint not null,
    constraint webhook_dispatcher_pkey primary key (only_row),
    constraint webhook_dispatcher_one_row check (only_row)
);
comment on table webhook_dispatcher is
    'The feed position up to which deliveries were made: one row, which the dispatching process has locked.';
insert into webhook_dispatcher (position) values (0);

create sequence webhook_delivery_number;

create table webhook_queue (
    id           bigint not null default nextval('webhook_delivery_number'),
    endpoint_id  text not null,
    partner_id   text not null,
    event_id     text not null,
    type         text not null,
    origin       text not null,
    body         text not null,
    attempts     integer not null default 0,
    due_at       timestamptz not null default clock_timestamp(),
    created_at   timestamptz not null default clock_timestamp(),
    trace        text,
    constraint webhook_queue_pkey primary key (id),
    constraint webhook_queue_endpoint_fkey foreign key (endpoint_id) references webhook_endpoint (id),
    constraint webhook_queue_origin_known check (origin in ('feed', 'resend', 'replay', 'test'))
);
comment on table webhook_queue is
    'Deliveries that wait or are being attempted; a row is deleted when its delivery ends.';
comment on column webhook_queue.body is 'The bytes that every attempt sends.';
comment on column webhook_queue.trace is 'The W3C trace context of the request that placed the order, if it has one.';
create index webhook_queue_due_idx on webhook_queue (endpoint_id, due_at, id);
create index webhook_queue_event_idx on webhook_queue (event_id);

-- The ids are of a sequence, and a delivery leaves the queue in the statement that logs it: it is logged once. So the
-- key of a partition is its own.
create table webhook_delivery_log (
    id           bigint not null,
    endpoint_id  text not null,
    partner_id   text not null,
    event_id     text not null,
    type         text not null,
    origin       text not null,
    state        text not null,
    created_at   timestamptz not null default clock_timestamp(),
    ended_at     timestamptz not null,
    number       integer,
    at           timestamptz,
    status       integer,
    latency_ms   bigint,
    error        text,
    body_prefix  text,
    constraint webhook_delivery_origin_known check (origin in ('feed', 'resend', 'replay', 'test')),
    constraint webhook_delivery_state_known check (state in ('delivered', 'failed'))
) partition by range (ended_at);
comment on table webhook_delivery_log is
    'The log of ended deliveries, each with the attempt that ended it, in partitions of a day (UTC); one without an '
    'attempt was too large to be sent.';
create index webhook_delivery_log_event_idx on webhook_delivery_log (event_id);

create table webhook_attempt_log (
    delivery_id  bigint not null,
    number       integer not null,
    at           timestamptz not null,
    status       integer,
    latency_ms   bigint not null,
    error        text,
    body_prefix  text
) partition by range (at);
comment on table webhook_attempt_log is 'Attempts before the one that ended a delivery, in partitions of a day (UTC).';

-- The first days; the retention job creates the days to come.
select create_day_partition('webhook_delivery_log', (now() at time zone 'UTC')::date + n, 'endpoint_id, id'),
       create_day_partition('webhook_attempt_log', (now() at time zone 'UTC')::date + n, 'delivery_id, number')
from generate_series(0, 7) n;

create table webhook_replay (
    id           bigint generated always as identity,
    endpoint_id  text not null,
    position     bigint not null,
    until        bigint not null,
    from_time    timestamptz not null,
    to_time      timestamptz not null,
    types        text[],
    created_at   timestamptz not null default now(),
    due_at       timestamptz not null default clock_timestamp(),
    constraint webhook_replay_pkey primary key (id),
    constraint webhook_replay_endpoint_fkey foreign key (endpoint_id) references webhook_endpoint (id)
);
comment on table webhook_replay is
    'Ranges of the feed that are delivered again; the dispatcher processes each in pieces, by turns.';
comment on column webhook_replay.due_at is 'A replay that waits for its endpoint''s queue is not looked at before.';
create index webhook_replay_due_idx on webhook_replay (due_at, id);
create index webhook_replay_endpoint_idx on webhook_replay (endpoint_id);

create table webhook_notice (
    id           bigint generated always as identity,
    endpoint_id  text not null,
    kind         text not null,
    at           timestamptz not null default clock_timestamp(),
    constraint webhook_notice_pkey primary key (id),
    constraint webhook_notice_endpoint_fkey foreign key (endpoint_id) references webhook_endpoint (id),
    constraint webhook_notice_kind_known check (kind in ('failing', 'deactivated_failing', 'deactivated_gone'))
);
comment on table webhook_notice is 'Notices to operators about endpoints, before and when they are deactivated.';

create table webhook_idempotency (
    key_id           text not null,
    operation        text not null,
    idempotency_key  text not null,
    fingerprint      bytea not null,
    status           integer not null,
    sealed_body      bytea not null,
    accepted_at      timestamptz not null default now(),
    constraint webhook_idempotency_pkey primary key (key_id, operation, idempotency_key),
    constraint webhook_idempotency_fingerprint_length check (octet_length(fingerprint) = 32)
);
comment on table webhook_idempotency is 'Answers of webhook management under the optional Idempotency-Key.';
comment on column webhook_idempotency.sealed_body is 'Encrypted, because an answer may contain a secret.';
create index webhook_idempotency_age_idx on webhook_idempotency (accepted_at);
