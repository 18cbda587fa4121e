-- The holds of open firm quotes on providers' balances. A hold ends when its quote is used, in the same transaction, or
-- when its validity ends, without any action.
create table quote_hold (
    quote_id     text not null,
    partner_id   text not null,
    livemode     boolean not null,
    provider_id  text not null,
    asset        text not null,
    -- Output in minor units.
    amount       numeric(39, 0) not null,
    valid_until  timestamptz not null,
    constraint quote_hold_pkey primary key (quote_id, provider_id),
    constraint quote_hold_quote_fkey foreign key (quote_id) references firm_quote (quote_id) on delete cascade,
    constraint quote_hold_amount_positive check (amount > 0)
);
create index quote_hold_open_idx on quote_hold (provider_id, asset, valid_until);
create index quote_hold_lapse_idx on quote_hold (valid_until);
