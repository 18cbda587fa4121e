-- The events feed, and the notices of changed executions.

create table event (
    position          bigint not null,
    event_id          text not null,
    partner_id        text not null,
    livemode          boolean not null,
    reference         text not null,
    intent_id         text not null,
    client_reference  text,
    sequence          bigint not null,
    type              text not null,
    occurred_at       timestamptz not null,
    observed_at       timestamptz not null,
    object            json not null,
    constraint event_pkey primary key (position),
    constraint event_id_key unique (event_id),
    constraint event_sequence_key unique (reference, sequence),
    constraint event_observed_after_it_occurred check (observed_at >= occurred_at)
) with (toast_tuple_target = 8160);
comment on table event is
    'The events feed; positions have no gaps, because each writing transaction updates `feed_counter` in its last '
    'statement.';
comment on column event.sequence is 'The number of the event within its execution.';
comment on column event.object is 'The event as partners read it.';
create index event_partner_idx on event (partner_id, livemode, position);
-- A rare type is found without reading a whole feed.
create index event_type_idx on event (partner_id, livemode, type, position);
-- The feed's position at the cutoff of a daily report.
create index event_observed_idx on event (partner_id, livemode, observed_at, position);

create table event_history (
    position          bigint not null,
    event_id          text not null,
    partner_id        text not null,
    livemode          boolean not null,
    reference         text not null,
    intent_id         text not null,
    client_reference  text,
    sequence          bigint not null,
    type              text not null,
    occurred_at       timestamptz not null,
    observed_at       timestamptz not null,
    object            json not null,
    constraint event_history_pkey primary key (position),
    constraint event_history_sequence_key unique (reference, sequence)
);
comment on table event_history is 'Events that have left the feed.';
create index event_history_partner_idx on event_history (partner_id, livemode, position);
-- The feed's position at the cutoff of a daily report, after its events have left the feed.
create index event_history_observed_idx on event_history (partner_id, livemode, observed_at, position);

create view event_record as select * from event union all select * from event_history;
comment on view event_record is 'All events, for statuses and reports.';

create table feed_counter (
    only_row  boolean not null default true,
    position  bigint not null,
    epoch     uuid not null default gen_random_uuid(),
    constraint feed_counter_pkey primary key (only_row),
    constraint feed_counter_one_row check (only_row)
);
comment on table feed_counter is 'The last position of the feed: one row.';
comment on column feed_counter.epoch is 'Part of cursors, so that a cursor of another database is refused.';
insert into feed_counter (position) values (0);

-- Processes cache rendered statuses. Every change of a status, by the service or by an operator's SQL, notifies
-- `dvp_execution` with the commit; a trigger cannot be forgotten. New executions are not notified, because no cache
-- has them. An event is only added together with a change of its execution. References are one a line, in payloads
-- well below the 8000 bytes that PostgreSQL allows.
create function tell_changed_executions() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_execution', string_agg(reference, E'\n'))
    from (select reference, sum(octet_length(reference) + 1) over (order by reference) / 4000 as part
          from (select distinct reference from changed) c) parts
    group by part;
    return null;
end $$;
comment on function tell_changed_executions is 'Notifies caches of the executions whose statuses changed.';
create trigger execution_change_notify after update on execution
    referencing old table as changed for each statement execute function tell_changed_executions();
create trigger event_change_notify after update on event
    referencing old table as changed for each statement execute function tell_changed_executions();
create trigger event_history_change_notify after update on event_history
    referencing old table as changed for each statement execute function tell_changed_executions();

create function tell_all_executions() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_execution', '');
    return null;
end $$;
comment on function tell_all_executions is 'Notifies caches that any status may have changed, with an empty payload.';
create trigger execution_end_notify after delete or truncate on execution
    for each statement execute function tell_all_executions();
create trigger event_truncation_notify after truncate on event
    for each statement execute function tell_all_executions();
create trigger event_history_end_notify after delete or truncate on event_history
    for each statement execute function tell_all_executions();
create trigger intent_change_notify
    after update of partner_id, livemode, intent_id, client_reference, reference or delete or truncate on intent
    for each statement execute function tell_all_executions();

create function tell_vanished_events() returns trigger language plpgsql as $$
begin
    if exists (select from gone g where not exists (select from event_history h where h.position = g.position)) then
        perform pg_notify('dvp_execution', '');
    end if;
    return null;
end $$;
comment on function tell_vanished_events is
    'Notifies caches of deleted events, except those that moved to the history.';
create trigger event_end_notify after delete on event
    referencing old table as gone for each statement execute function tell_vanished_events();
