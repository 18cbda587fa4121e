-- Range orders that wait for the market. A row is written with the order's acceptance and deleted by the transaction that
-- fills or ends it: what rests is what has a row here. The owner of the lease `ranges` keeps all rows in memory.
create table resting_range (
    -- Of orders that are met by the same price the lowest is filled first.
    number         bigint generated always as identity,
    reference      text not null,
    input_asset    text not null,
    output_asset   text not null,
    actor          text not null,
    max_input      numeric(39, 0) not null,
    -- The output falls in a straight line from the target when the order was received to the limit at its deadline.
    target_output  numeric(39, 0) not null,
    min_output     numeric(39, 0) not null,
    received_at    timestamptz not null,
    deadline       timestamptz not null,
    -- The transaction that added the row. All rows of transactions before the oldest one in progress are visible, so a
    -- reader that goes on from there misses none.
    added_by       xid8 not null default pg_current_xact_id(),
    constraint resting_range_pkey primary key (reference),
    constraint resting_range_number_key unique (number),
    constraint resting_range_falls check (target_output >= min_output and deadline > received_at),
    constraint resting_range_actor_known check (actor in ('retail', 'institution'))
);
create index resting_range_added_idx on resting_range (added_by);

-- An empty payload: orders were added. Otherwise the references that rest no more, one a line, in payloads below the 8000
-- bytes that PostgreSQL allows.
create function notify_rested() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_ranges', '');
    return null;
end $$;
create function notify_unrested() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_ranges', string_agg(reference, E'\n'))
    from (select reference, sum(octet_length(reference) + 1) over (order by reference) / 4000 as part from gone) parts
    group by part;
    return null;
end $$;
create trigger resting_range_added after insert on resting_range
    for each statement execute function notify_rested();
create trigger resting_range_ended after delete on resting_range
    referencing old table as gone for each statement execute function notify_unrested();
