-- Webhooks: where partners want their events sent, what is still to be sent, and what became of each attempt. The
-- feed stays the source: deliveries are made from it, and whatever is lost here can be made from it again for as long
-- as it is kept.

-- One per API key, inactive ones too. During a rotation's grace the old secret and the next one both sign.
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
    -- Events up to here were before the endpoint, or passed while it was inactive.
    from_position     bigint not null,
    -- Since when every delivery has failed, and when the owner was told.
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

-- How far the feed was turned into deliveries. Whoever holds the row's lock is the dispatcher.
create table webhook_dispatcher (
    only_row  boolean not null default true,
    position  bigint not null,
    constraint webhook_dispatcher_pkey primary key (only_row),
    constraint webhook_dispatcher_one_row check (only_row)
);
insert into webhook_dispatcher (position) select position from feed_counter;

-- One event on its way to one endpoint. The body's bytes are made once; an ended delivery no longer needs them.
-- A claim moves due_at to the lease's end and raises the fence, so a claim that died is simply due again.
create table webhook_delivery (
    id           bigint generated always as identity,
    endpoint_id  text not null,
    partner_id   text not null,
    event_id     text not null,
    type         text not null,
    origin       text not null,
    body         text,
    state        text not null default 'pending',
    attempts     integer not null default 0,
    due_at       timestamptz not null default clock_timestamp(),
    claimed      boolean not null default false,
    fence        bigint not null default 0,
    created_at   timestamptz not null default clock_timestamp(),
    ended_at     timestamptz,
    constraint webhook_delivery_pkey primary key (id),
    constraint webhook_delivery_endpoint_fkey foreign key (endpoint_id) references webhook_endpoint (id),
    constraint webhook_delivery_origin_known check (origin in ('feed', 'resend', 'replay', 'test')),
    constraint webhook_delivery_state_known check (state in ('pending', 'delivered', 'failed')),
    constraint webhook_delivery_pending_has_body check (state <> 'pending' or body is not null)
);
create index webhook_delivery_due_idx on webhook_delivery (endpoint_id, due_at) where state = 'pending';
create index webhook_delivery_claimed_idx on webhook_delivery (id) where claimed;
create index webhook_delivery_log_idx on webhook_delivery (endpoint_id, id);
create index webhook_delivery_event_idx on webhook_delivery (event_id);

create table webhook_attempt (
    delivery_id  bigint not null,
    number       integer not null,
    at           timestamptz not null,
    status       integer,
    latency_ms   bigint not null,
    error        text,
    body_prefix  text,
    constraint webhook_attempt_pkey primary key (delivery_id, number),
    constraint webhook_attempt_delivery_fkey foreign key (delivery_id) references webhook_delivery (id)
        on delete cascade
);

-- A stretch of the feed that is to be sent again. The dispatcher works it off in pieces.
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

-- What operators are told about endpoints, before and when they are switched off.
create table webhook_notice (
    id           bigint generated always as identity,
    endpoint_id  text not null,
    kind         text not null,
    at           timestamptz not null default clock_timestamp(),
    constraint webhook_notice_pkey primary key (id),
    constraint webhook_notice_endpoint_fkey foreign key (endpoint_id) references webhook_endpoint (id),
    constraint webhook_notice_kind_known check (kind in ('failing', 'deactivated_failing', 'deactivated_gone'))
);

-- Answers of webhook management under the optional Idempotency-Key. They may hold a secret, so they are sealed.
create table webhook_once (
    key_id       text not null,
    operation    text not null,
    once_key     text not null,
    fingerprint  bytea not null,
    status       integer not null,
    sealed_body  bytea not null,
    accepted_at  timestamptz not null default now(),
    constraint webhook_once_pkey primary key (key_id, operation, once_key),
    constraint webhook_once_fingerprint_length check (octet_length(fingerprint) = 32)
);
create index webhook_once_age_idx on webhook_once (accepted_at);

-- Events that have left the feed, and all events whether they have or not: what the status of an execution and the
-- reports read.
create table event_history (like event);
alter table event_history
    add constraint event_history_pkey primary key (position),
    add constraint event_history_sequence_key unique (reference, sequence);
create index event_history_partner_idx on event_history (partner_id, livemode, position);
create view event_record as select * from event union all select * from event_history;

-- A rare type must not be searched for through a whole feed.
create index event_type_idx on event (partner_id, livemode, type, position);
