-- The internal order book that is one of the sources of liquidity: makers, their resting orders, and range orders that
-- wait for the market.

create table resting_order (
    id               bigint generated always as identity,
    provider_id      text not null,
    wallet           text not null,
    input_asset      text not null,
    output_asset     text not null,
    rate             numeric not null,
    placed           numeric(39, 0) not null,
    remaining        numeric(39, 0) not null,
    placed_at        timestamptz not null default now(),
    client_order_id  text,
    cancelled        numeric(39, 0),
    cancelled_at     timestamptz,
    partner_id       text,
    constraint resting_order_pkey primary key (id),
    constraint resting_order_rate_positive check (rate > 0),
    constraint resting_order_remaining_in_range check (remaining >= 0 and remaining <= placed),
    constraint resting_order_client_key unique (provider_id, partner_id, client_order_id),
    constraint resting_order_cancelled_whole
        check ((cancelled is null) = (cancelled_at is null) and (cancelled is null or remaining = 0))
);
comment on table resting_order is
    'Resting orders of providers, at their own rates; units are taken in the transaction that accepts the intent they '
    'fill, so that no two intents are filled from the same units.';
comment on column resting_order.rate is 'Output per one input, in whole units.';
comment on column resting_order.placed is 'Output in minor units.';
comment on column resting_order.remaining is 'Output that nobody has taken, in minor units.';
comment on column resting_order.client_order_id is
    'The maker''s own id of the order; one without it was placed by the service''s operators.';
comment on column resting_order.cancelled is
    'The remaining amount when its maker cancelled it; nothing is returned to it any more.';
comment on column resting_order.partner_id is
    'The maker that placed the order; null: the service''s operators placed it.';
create index resting_order_maker_idx on resting_order (provider_id, id);
-- The best order of a provider for a pair first, and at equal rates the oldest.
create index resting_order_open_idx on resting_order (input_asset, output_asset, provider_id, rate desc, id)
    where remaining > 0;

create table maker (
    partner_id   text not null,
    provider_id  text not null,
    wallet       text not null,
    approval     text not null,
    set_at       timestamptz not null default clock_timestamp(),
    ended_at     timestamptz,
    orders_from  bigint not null,
    constraint maker_pkey primary key (partner_id),
    constraint maker_partner_fkey foreign key (partner_id) references partner (id)
);
comment on table maker is
    'The partners that may place resting orders for a provider: an order delivers the provider''s balance, and the '
    'wallet receives the released funds.';
comment on column maker.approval is 'The approved request, whose row is never changed or deleted.';
comment on column maker.ended_at is 'Null while the partner is its maker.';
comment on column maker.orders_from is
    'The maker''s orders are those from this id on; earlier ones were placed for other terms.';
create unique index maker_provider_key on maker (provider_id) where ended_at is null;
create trigger maker_audited after insert or update on maker
    for each row execute function audit_append();

create function maker_begins() returns trigger language plpgsql as $$
begin
    new.orders_from := nextval('resting_order_id_seq');
    return new;
end $$;
comment on function maker_begins is 'Begins the maker''s orders at the next id, when it is set or its terms change.';
create trigger maker_added before insert on maker
    for each row execute function maker_begins();
create trigger maker_changed before update on maker
    for each row when ((old.provider_id, lower(old.wallet), old.ended_at is null)
                       is distinct from (new.provider_id, lower(new.wallet), new.ended_at is null))
    execute function maker_begins();

create table resting_range (
    number         bigint generated always as identity,
    reference      text not null,
    input_asset    text not null,
    output_asset   text not null,
    actor          text not null,
    max_input      numeric(39, 0) not null,
    target_output  numeric(39, 0) not null,
    min_output     numeric(39, 0) not null,
    received_at    timestamptz not null,
    deadline       timestamptz not null,
    added_by       xid8 not null default pg_current_xact_id(),
    partner_id     text not null,
    livemode       boolean not null,
    constraint resting_range_pkey primary key (reference),
    constraint resting_range_number_key unique (number),
    constraint resting_range_falls check (target_output >= min_output and deadline > received_at),
    constraint resting_range_actor_known check (actor in ('retail', 'institution'))
);
comment on table resting_range is
    'Range orders that wait for the market: a row is written with the order''s acceptance and deleted by the '
    'transaction that fills or ends it.';
comment on column resting_range.number is 'Of orders that are met by the same price the lowest is filled first.';
comment on column resting_range.target_output is
    'The output falls in a straight line from the target when the order was received to the least at its deadline.';
comment on column resting_range.min_output is 'The least output.';
comment on column resting_range.added_by is
    'The transaction that added the row; all rows of transactions before the oldest one in progress are visible, so a '
    'reader that goes on from there misses none.';
create index resting_range_added_idx on resting_range (added_by);
create index resting_range_tenant_idx on resting_range (partner_id, livemode);

-- The owner of the lease `ranges` keeps all rows in memory. References are one a line, in payloads below the 8000
-- bytes that PostgreSQL allows.
create function notify_rested() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_ranges', '');
    return null;
end $$;
comment on function notify_rested is 'Notifies the matcher that orders were added, with an empty payload.';
create trigger resting_range_added after insert on resting_range
    for each statement execute function notify_rested();

create function notify_unrested() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_ranges', string_agg(reference, E'\n'))
    from (select reference, sum(octet_length(reference) + 1) over (order by reference) / 4000 as part from gone) parts
    group by part;
    return null;
end $$;
comment on function notify_unrested is 'Notifies the matcher of the references that rest no more.';
create trigger resting_range_ended after delete on resting_range
    referencing old table as gone for each statement execute function notify_unrested();
