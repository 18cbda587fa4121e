-- A claim wrote each delivery once, and its outcome wrote it again, into a table with four indexes that keeps what has
-- ended for fifteen days. Now a process leases a whole endpoint (its lane), what it has in hand is in its memory, what
-- waits is a queue apart whose rows are deleted when they end, which touches no index, and the log is written once.

-- Who sends to an endpoint. The fence grows when the lane changes hands; an outcome counts under its own only.
create table webhook_lane (
    endpoint_id   text not null,
    holder        uuid,
    fence         bigint not null default 0,
    leased_until  timestamptz not null default '-infinity',
    constraint webhook_lane_pkey primary key (endpoint_id),
    constraint webhook_lane_endpoint_fkey foreign key (endpoint_id) references webhook_endpoint (id)
) with (fillfactor = 50);
insert into webhook_lane (endpoint_id) select id from webhook_endpoint;

-- Processes that send, so that each holds its share of the lanes.
create table webhook_sender (
    id            uuid not null,
    leased_until  timestamptz not null,
    constraint webhook_sender_pkey primary key (id)
) with (fillfactor = 50);

-- Numbers of deliveries, whether they wait or have ended.
create sequence webhook_delivery_number;
select setval('webhook_delivery_number', coalesce(max(id), 0) + 1, false) from webhook_delivery;

-- What is to be sent.
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
    constraint webhook_queue_pkey primary key (id),
    constraint webhook_queue_endpoint_fkey foreign key (endpoint_id) references webhook_endpoint (id),
    constraint webhook_queue_origin_known check (origin in ('feed', 'resend', 'replay', 'test'))
);
insert into webhook_queue (id, endpoint_id, partner_id, event_id, type, origin, body, attempts, due_at, created_at)
select id, endpoint_id, partner_id, event_id, type, origin, body, attempts, due_at, created_at
from webhook_delivery
where state = 'pending';
delete from webhook_delivery where state = 'pending';
create index webhook_queue_due_idx on webhook_queue (endpoint_id, due_at, id);
create index webhook_queue_event_idx on webhook_queue (event_id);

-- What has ended, with the attempt that ended it; the attempts before it are in webhook_attempt. What ended before
-- this migration has its last attempt there too, and no number here. One without an attempt was too large to be sent.
alter table webhook_delivery
    drop constraint webhook_delivery_pending_has_body,
    drop constraint webhook_delivery_state_known,
    drop constraint webhook_delivery_endpoint_fkey,
    drop constraint webhook_delivery_pkey,
    alter column id drop identity,
    alter column state drop default,
    alter column ended_at set not null,
    drop column body,
    drop column attempts,
    drop column due_at,
    drop column claimed,
    drop column fence,
    drop column leased_until,
    add column number integer,
    add column at timestamptz,
    add column status integer,
    add column latency_ms bigint,
    add column error text,
    add column body_prefix text,
    add constraint webhook_delivery_state_known check (state in ('delivered', 'failed')),
    add constraint webhook_delivery_pkey primary key (endpoint_id, id),
    reset (fillfactor);
drop index webhook_delivery_log_idx;
