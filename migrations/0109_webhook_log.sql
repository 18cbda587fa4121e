-- The log of webhook deliveries in partitions of a day. Its rows are the most of those that an order leaves and that are
-- deleted, and nothing refers to them.

-- A scan of each table, beside which it is read and written.
alter table webhook_delivery validate constraint webhook_delivery_before;
alter table webhook_attempt validate constraint webhook_attempt_before;

-- The ids are of a sequence, and a delivery leaves the queue in the statement that logs it: it is logged once. So the key
-- of a partition is its own.
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

do $$
declare
    bound text;
begin
    -- The constraints' own moment: no row is read again.
    select substring(pg_get_constraintdef(oid) from $re$'([^']+)'$re$) into strict bound
    from pg_constraint where conname = 'webhook_delivery_before' and conrelid = 'webhook_delivery'::regclass;
    execute format('alter table webhook_delivery_log attach partition webhook_delivery for values from (minvalue) to (%L)',
                   bound);
    execute format('alter table webhook_attempt_log attach partition webhook_attempt for values from (minvalue) to (%L)',
                   bound);
end $$;
alter table webhook_delivery drop constraint webhook_delivery_before;
alter table webhook_attempt drop constraint webhook_attempt_before;
