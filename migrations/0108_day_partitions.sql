-- Tables whose rows are all deleted at one age are partitions of a day: a day ends with its table, at the cost of a file,
-- where rows deleted one by one leave dead rows in the table and each index, and as much write-ahead log. These functions
-- serve every such table; those of the archive of FIX messages call them, for the release before this one.

-- When a partition begins and ends; null: without a bound.
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

create function is_day_covered(parent text, day date) returns boolean language sql as $$
    select exists (select from partition_days(parent)
                   where coalesce(begins_at <= day::timestamp at time zone 'UTC', true)
                     and coalesce(ends_at > day::timestamp at time zone 'UTC', true))
$$;

-- Creates the partition of a day (UTC), unless one covers it. `own_key`: columns of a primary key of each partition by
-- itself, where the parent's would have to include the time.
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

-- Drops the oldest partition if it ended before `until`, and returns how many rows it had, by the statistics; 1 at
-- least. Without such a partition: 0. Whoever reads or writes the table would wait behind a drop that waits for a long
-- reader: it gives up soon, and is tried again.
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

create or replace function fix_message_create_day(day date) returns void language sql as $$
    select create_day_partition('fix_message', day)
$$;
create or replace function fix_message_drop_day(until timestamptz) returns bigint language sql as $$
    select drop_day_partition('fix_message', until)
$$;

-- The log of webhook deliveries becomes such tables in the next migration, and what is in it the first partition of each,
-- with all that is written in the next week: a process of the release before this one goes on writing there by then.
-- The constraints hold for new rows from here on, and are validated there without keeping anybody from the tables.
do $$
declare
    until timestamptz := (date_trunc('day', now() at time zone 'UTC') + interval '8 days') at time zone 'UTC';
begin
    execute format('alter table webhook_delivery add constraint webhook_delivery_before check (ended_at < %L) not valid',
                   until);
    execute format('alter table webhook_attempt add constraint webhook_attempt_before check (at < %L) not valid', until);
end $$;
