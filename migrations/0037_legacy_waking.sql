-- Legacy orders are evaluated when they are due or when their pair's market changes, and are not polled: an insert ends the
-- wait of the processes that evaluate them.
create function notify_legacy() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_legacy', '');
    return null;
end $$;
create trigger legacy_intent_added after insert on legacy_intent
    for each statement execute function notify_legacy();

-- When the evaluation of a lost process can be repeated.
create index legacy_intent_lease_idx on legacy_intent (lease_until)
    where lease_until is not null and stage in ('pending', 'solving', 'queued', 'submitting');
