-- What a database belongs to, and what every later subject uses: secrets, notices to the consoles, and tables in
-- partitions of a day.

create table deployment (
    is_the_only  boolean not null default true,
    environment  text not null,
    stamped_at   timestamptz not null default clock_timestamp(),
    cell         text,
    constraint deployment_pkey primary key (is_the_only),
    constraint deployment_is_one check (is_the_only),
    constraint deployment_environment_known check (environment in ('test', 'live')),
    constraint deployment_cell_form check (cell ~ '^[0-9a-f]{3}$' and cell <> '000')
);
comment on table deployment is
    'The environment and the cell that the database belongs to, stamped by `dvp migrate`: one row.';
comment on column deployment.environment is
    '`test` or `live`; keys and FIX sessions of the other one cannot be written.';
comment on column deployment.cell is
    'Three hexadecimal digits that the issued identifiers and keys carry; null: no cell.';

create function deployment_stays() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' and old.cell is null
       and (new.is_the_only, new.environment, new.stamped_at) = (old.is_the_only, old.environment, old.stamped_at) then
        return new;
    end if;
    raise check_violation using message = 'the environment and the cell of a database never change',
        constraint = 'deployment_stays';
end
$$;
comment on function deployment_stays is
    'Refuses every change of the environment and the cell, except the first stamp of a cell.';
create trigger deployment_stays before update or delete on deployment
    for each row execute function deployment_stays();

create function environment_holds() returns trigger language plpgsql as $$
declare
    deployed text := (select environment from deployment);
    written  text := case when tg_table_name = 'api_key' then to_jsonb(new) ->> 'env'
                          when (to_jsonb(new) ->> 'livemode')::boolean then 'live' else 'test' end;
begin
    if deployed is not null and written is distinct from deployed then
        raise check_violation using message = format('%s: the deployment is %s and the row is %s', tg_table_name, deployed, written),
            constraint = 'environment_holds';
    end if;
    return new;
end
$$;
comment on function environment_holds is 'Refuses a key or a FIX session of the other environment.';

create table service_secret (
    name    text not null,
    sealed  bytea not null,
    constraint service_secret_pkey primary key (name)
);
comment on table service_secret is 'Secrets of the service that outlive a master key.';
comment on column service_secret.sealed is 'Encrypted under the master key.';

-- Commits that notify wait for each other, so only tables that change seldom have a trigger of it: the feed notifies
-- by itself, and the tasks that write FIX messages and ended deliveries in batches notify after their commits
-- (`dvp_store::database::changes`).
create function console_announce() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_console', tg_argv[0]);
    return null;
end $$;
comment on function console_announce is
    'Notifies the consoles of a changed subject, so that they read open pages again.';

-- Tables whose rows are all deleted at one age are partitions of a day: a day ends with its table, at the cost of a
-- file, where rows deleted one by one leave dead rows in the table and each index, and as much write-ahead log.
create function partition_days(parent text)
returns table (partition regclass, begins_at timestamptz, ends_at timestamptz, row_count bigint)
language sql as $$
    select c.oid::regclass,
           substring(b.bound from $re$FROM \('([^']+)'\)$re$)::timestamptz,
           substring(b.bound from $re$TO \('([^']+)'\)$re$)::timestamptz,
           greatest(c.reltuples, 1)::bigint
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
         cross join lateral pg_get_expr(c.relpartbound, c.oid) b (bound)
    where i.inhparent = parent::regclass
$$;
comment on function partition_days is
    'The partitions of a table, when each begins and ends, and its rows by the statistics; null: without a bound.';

create function is_day_covered(parent text, day date) returns boolean language sql as $$
    select exists (select from partition_days(parent)
                   where coalesce(begins_at <= day::timestamp at time zone 'UTC', true)
                     and coalesce(ends_at > day::timestamp at time zone 'UTC', true))
$$;
comment on function is_day_covered is 'Whether a partition has a day (UTC).';

create function create_day_partition(parent text, day date, own_key text default null) returns void
language plpgsql as $$
declare
    partition text := parent || '_' || to_char(day, 'YYYYMMDD');
begin
    if is_day_covered(parent, day) then
        return;
    end if;
    -- Several processes begin a day at the same time.
    perform pg_advisory_xact_lock(hashtext('create_day_partition'), hashtext(parent));
    if is_day_covered(parent, day) then
        return;
    end if;
    -- Attached, not created as a partition: that would wait for everybody who reads the table, a dump for one.
    execute format('create table %I (like %I including defaults including constraints including indexes)',
                   partition, parent);
    if own_key is not null then
        execute format('alter table %I add constraint %I primary key (%s)', partition, partition || '_pkey', own_key);
    end if;
    execute format('alter table %I attach partition %I for values from (%L) to (%L)', parent, partition,
                   day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
end $$;
comment on function create_day_partition is
    'Creates the partition of a day (UTC), unless one covers it; `own_key` is a primary key of the partition by '
    'itself, where the parent''s would have to include the time.';

-- Whoever reads or writes the table would wait behind a drop that waits for a long reader: it gives up soon, and is
-- tried again.
create function drop_day_partition(parent text, until timestamptz) returns bigint
language plpgsql set lock_timeout = '200ms' as $$
declare
    oldest record;
begin
    select * into oldest from partition_days(parent) order by ends_at limit 1;
    if not found or oldest.ends_at > until then
        return 0;
    end if;
    execute format('drop table %s', oldest.partition);
    return oldest.row_count;
end $$;
comment on function drop_day_partition is
    'Drops the oldest partition if it ended before `until`, and returns how many rows it had by the statistics, at '
    'least 1; 0 without such a partition.';
