-- The internal order book: what providers leave resting, at a rate of their own. What is taken of an order is taken in
-- the transaction that accepts the intent it fills, so that no two intents are filled from the same units.
create table resting_order (
    id           bigint generated always as identity,
    provider_id  text not null,
    wallet       text not null,
    input_asset  text not null,
    output_asset text not null,
    -- Output per one input, in whole units.
    rate         numeric not null,
    -- Output in minor units.
    placed       numeric(39, 0) not null,
    remaining    numeric(39, 0) not null,
    placed_at    timestamptz not null default now(),
    constraint resting_order_pkey primary key (id),
    constraint resting_order_rate_positive check (rate > 0),
    constraint resting_order_remaining_in_range check (remaining >= 0 and remaining <= placed)
);
create index resting_order_open_idx on resting_order (input_asset, output_asset) where remaining > 0;
