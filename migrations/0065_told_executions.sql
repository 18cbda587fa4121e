-- Processes keep rendered statuses in memory. Whoever changes what a status shows, the service or an operator by hand,
-- tells the references with the commit: a trigger cannot be forgotten. A new execution is told to nobody, because
-- nobody keeps what was not there. An event is added with a change of its execution only, and moving it to the history
-- changes nothing that is shown.

-- References, a line each, in payloads well below the 8000 bytes that PostgreSQL allows.
create function tell_changed_executions() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_execution', string_agg(reference, E'\n'))
    from (select reference, sum(octet_length(reference) + 1) over (order by reference) / 4000 as part
          from (select distinct reference from changed) c) parts
    group by part;
    return null;
end $$;

-- Changes that are made by hand only and can touch anything: an empty payload stands for all.
create function tell_all_executions() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_execution', '');
    return null;
end $$;

create trigger execution_change_is_told after update on execution
    referencing old table as changed for each statement execute function tell_changed_executions();
create trigger execution_end_is_told after delete or truncate on execution
    for each statement execute function tell_all_executions();
create trigger event_change_is_told after update on event
    referencing old table as changed for each statement execute function tell_changed_executions();
-- What left the feed for the history is shown as before.
create function tell_vanished_events() returns trigger language plpgsql as $$
begin
    if exists (select from gone g where not exists (select from event_history h where h.position = g.position)) then
        perform pg_notify('dvp_execution', '');
    end if;
    return null;
end $$;
create trigger event_end_is_told after delete on event
    referencing old table as gone for each statement execute function tell_vanished_events();
create trigger event_truncation_is_told after truncate on event
    for each statement execute function tell_all_executions();
create trigger event_history_change_is_told after update or delete or truncate on event_history
    for each statement execute function tell_all_executions();
create trigger intent_change_is_told after update or delete or truncate on intent
    for each statement execute function tell_all_executions();
