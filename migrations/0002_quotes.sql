-- Quotes, and the internal order book that is one of their sources of liquidity.

-- The context of an indicative quote, by the caller's requestId.
create table quote_request (
    partner_id  text not null,
    livemode    boolean not null,
    request_id  text not null,
    request     jsonb not null,
    response    jsonb not null,
    created_at  timestamptz not null default now(),
    constraint quote_request_pkey primary key (partner_id, livemode, request_id),
    constraint quote_request_partner_fkey foreign key (partner_id) references partner (id)
);
create index quote_request_age_idx on quote_request (created_at);

create table firm_quote (
    quote_id     text not null,
    partner_id   text not null,
    livemode     boolean not null,
    request_id   text not null,
    terms        jsonb not null,
    valid_until  timestamptz not null,
    -- The intent that used the quote.
    used_by      text,
    created_at   timestamptz not null default now(),
    constraint firm_quote_pkey primary key (quote_id),
    constraint firm_quote_partner_fkey foreign key (partner_id) references partner (id)
);
create index firm_quote_age_idx on firm_quote (valid_until);

-- Resting orders of providers, at their own rates. Units are taken in the transaction that accepts the intent they
-- fill, so that no two intents are filled from the same units.
create table resting_order (
    id            bigint generated always as identity,
    provider_id   text not null,
    wallet        text not null,
    input_asset   text not null,
    output_asset  text not null,
    -- Output per one input, in whole units.
    rate          numeric not null,
    -- Output in minor units.
    placed        numeric(39, 0) not null,
    remaining     numeric(39, 0) not null,
    placed_at     timestamptz not null default now(),
    constraint resting_order_pkey primary key (id),
    constraint resting_order_rate_positive check (rate > 0),
    constraint resting_order_remaining_in_range check (remaining >= 0 and remaining <= placed)
);
create index resting_order_open_idx on resting_order (input_asset, output_asset) where remaining > 0;
