-- Webhooks: endpoints, the queue of deliveries and their log. Deliveries are made from the feed, and can be made from it
-- again for as long as its events are kept.

-- One per API key, inactive ones too.
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
    -- During a rotation's grace the old secret and the next one both sign.
    sealed_next       bytea,
    grace_expires_at  timestamptz,
    rotated_at        timestamptz,
    -- Events up to here came before the endpoint, or passed while it was inactive.
    from_position     bigint not null,
    -- Since when every delivery has failed, and when the owner was notified.
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
create index webhook_endpoint_tenant_idx on webhook_endpoint (partner_id, livemode) where is_active;

-- The process that sends to an endpoint. The fence grows with each change of holder; an outcome counts only under its
-- own.
create table endpoint_lease (
    endpoint_id   text not null,
    holder        uuid,
    fence         bigint not null default 0,
    leased_until  timestamptz not null default '-infinity',
    constraint endpoint_lease_pkey primary key (endpoint_id),
    constraint endpoint_lease_endpoint_fkey foreign key (endpoint_id) references webhook_endpoint (id)
) with (fillfactor = 50);

-- The processes that send, so that each leases its share of the endpoints.
create table webhook_sender (
    id            uuid not null,
    leased_until  timestamptz not null,
    constraint webhook_sender_pkey primary key (id)
) with (fillfactor = 50);

-- The feed position up to which deliveries were made. The dispatcher is the process that has locked the row.
create table webhook_dispatcher (
    only_row  boolean not null default true,
    position  bigint not null,
    constraint webhook_dispatcher_pkey primary key (only_row),
    constraint webhook_dispatcher_one_row check (only_row)
);
insert into webhook_dispatcher (position) values (0);

-- Ids of deliveries, queued or ended.
create sequence webhook_delivery_number;

-- Deliveries that wait or are being attempted; a row is deleted when its delivery ends. Deliveries in flight are in the
-- memory of the endpoint's holder only.
create table webhook_queue (
    id           bigint not null default nextval('webhook_delivery_number'),
    endpoint_id  text not null,
    partner_id   text not null,
    event_id     text not null,
    type         text not null,
    origin       text not null,
    -- The bytes that every attempt sends.
    body         text not null,
    attempts     integer not null default 0,
    due_at       timestamptz not null default clock_timestamp(),
    created_at   timestamptz not null default clock_timestamp(),
    constraint webhook_queue_pkey primary key (id),
    constraint webhook_queue_endpoint_fkey foreign key (endpoint_id) references webhook_endpoint (id),
    constraint webhook_queue_origin_known check (origin in ('feed', 'resend', 'replay', 'test'))
);
create index webhook_queue_due_idx on webhook_queue (endpoint_id, due_at, id);
create index webhook_queue_event_idx on webhook_queue (event_id);

-- The log: ended deliveries, each with the attempt that ended it. One without an attempt was too large to be sent.
create table webhook_delivery (
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
    constraint webhook_delivery_pkey primary key (endpoint_id, id),
    constraint webhook_delivery_origin_known check (origin in ('feed', 'resend', 'replay', 'test')),
    constraint webhook_delivery_state_known check (state in ('delivered', 'failed'))
);
create index webhook_delivery_event_idx on webhook_delivery (event_id);

-- Attempts before the one that ended a delivery.
create table webhook_attempt (
    delivery_id  bigint not null,
    number       integer not null,
    at           timestamptz not null,
    status       integer,
    latency_ms   bigint not null,
    error        text,
    body_prefix  text,
    constraint webhook_attempt_pkey primary key (delivery_id, number)
);

-- A range of the feed that is delivered again. The dispatcher processes it in pieces.
create table webhook_replay (
    id           bigint generated always as identity,
    endpoint_id  text not null,
    position     bigint not null,
    until        bigint not null,
    from_time    timestamptz not null,
    to_time      timestamptz not null,
    types        text[],
    created_at   timestamptz not null default now(),
    constraint webhook_replay_pkey primary key (id),
    constraint webhook_replay_endpoint_fkey foreign key (endpoint_id) references webhook_endpoint (id)
);

-- Notices to operators about endpoints, before and when they are deactivated.
create table webhook_notice (
    id           bigint generated always as identity,
    endpoint_id  text not null,
    kind         text not null,
    at           timestamptz not null default clock_timestamp(),
    constraint webhook_notice_pkey primary key (id),
    constraint webhook_notice_endpoint_fkey foreign key (endpoint_id) references webhook_endpoint (id),
    constraint webhook_notice_kind_known check (kind in ('failing', 'deactivated_failing', 'deactivated_gone'))
);

-- Answers of webhook management under the optional Idempotency-Key. They may contain a secret, so they are encrypted.
create table webhook_idempotency (
    key_id       text not null,
    operation    text not null,
    idempotency_key     text not null,
    fingerprint  bytea not null,
    status       integer not null,
    sealed_body  bytea not null,
    accepted_at  timestamptz not null default now(),
    constraint webhook_idempotency_pkey primary key (key_id, operation, idempotency_key),
    constraint webhook_idempotency_fingerprint_length check (octet_length(fingerprint) = 32)
);
create index webhook_idempotency_age_idx on webhook_idempotency (accepted_at);
