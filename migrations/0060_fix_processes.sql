-- The processes that accept FIX connections and forward them to each other, so that each takes its share of the sessions
-- and finds the owner of the others.
create table fix_process (
    id              uuid not null,
    -- `host:port` of the process's listener for forwarded connections.
    forward_address text not null,
    -- The process takes its share of sessions until then; it is extended while the process runs.
    alive_until     timestamptz not null,
    constraint fix_process_pkey primary key (id)
);

-- A session's lease that was released is taken at once by another process.
create function fix_lease_released() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_fix_session', substr(new.name, 5));
    return null;
end
$$;
create trigger fix_lease_released after update on lease
    for each row when (new.expires_at < old.expires_at and new.name like 'fix:%')
    execute function fix_lease_released();
