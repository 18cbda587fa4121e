-- The archive of FIX messages: what was read from and written to the connections of each session, redacted. Operators
-- read it; resends come from `fix_outbound`. A partition holds a day (UTC), so that a day ends with its table.

create sequence fix_message_id_seq as bigint;

create table fix_message (
    id              bigint not null default nextval('fix_message_id_seq'),
    -- When the message was read, or encoded to be written.
    at              timestamptz not null,
    session_id      text not null,
    is_outbound     boolean not null,
    -- MsgSeqNum(34); null: not a number.
    seq             bigint,
    msg_type        text not null,
    -- ClOrdID(11) and OrigClOrdID(41).
    cl_ord_id       text,
    orig_cl_ord_id  text,
    -- The fields, separated by `|`, with secrets and personal data replaced.
    content         text not null,
    constraint fix_message_pkey primary key (session_id, at, id)
) partition by range (at);
create index fix_message_seq_idx on fix_message (session_id, seq);
create index fix_message_cl_ord_id_idx on fix_message (session_id, cl_ord_id) where cl_ord_id is not null;
create index fix_message_orig_cl_ord_id_idx on fix_message (session_id, orig_cl_ord_id)
    where orig_cl_ord_id is not null;
alter sequence fix_message_id_seq owned by fix_message.id;

-- Creates the partition of a day, if there is none.
create function fix_message_create_day(day date) returns void language plpgsql as $$
declare
    partition text := 'fix_message_' || to_char(day, 'YYYYMMDD');
begin
    if to_regclass(partition) is not null then
        return;
    end if;
    -- Several processes begin a day at the same time.
    perform pg_advisory_xact_lock(hashtext('fix_message_create_day'));
    if to_regclass(partition) is null then
        -- Attached, not created as a partition: that would wait for everybody who reads the archive, a dump for one.
        execute format('create table %I (like fix_message including defaults including constraints including indexes)',
                       partition);
        execute format('alter table fix_message attach partition %I for values from (%L) to (%L)', partition,
                       day::timestamp at time zone 'UTC', (day + 1)::timestamp at time zone 'UTC');
    end if;
end $$;

-- Drops the oldest partition if its day ended before `until`, and returns how many rows it had, by the statistics;
-- 1 at least. Without such a partition: 0.
create function fix_message_drop_day(until timestamptz) returns bigint language plpgsql as $$
declare
    oldest record;
begin
    select c.relname, c.reltuples into oldest
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'fix_message'::regclass
    order by c.relname limit 1;
    if oldest is null
       or (to_date(right(oldest.relname, 8), 'YYYYMMDD') + 1)::timestamp at time zone 'UTC' > until then
        return 0;
    end if;
    execute format('drop table %I', oldest.relname);
    return greatest(oldest.reltuples, 1)::bigint;
end $$;
