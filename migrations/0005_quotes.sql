-- Indicative and firm quotes, and what firm quotes hold of providers' balances.

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
comment on table quote_request is 'Indicative quotes: the context of each, by the caller''s requestId.';
create index quote_request_age_idx on quote_request (created_at);

create table firm_quote (
    quote_id     text not null,
    partner_id   text not null,
    livemode     boolean not null,
    request_id   text not null,
    terms        jsonb not null,
    valid_until  timestamptz not null,
    used_by      text,
    created_at   timestamptz not null default now(),
    constraint firm_quote_pkey primary key (quote_id),
    constraint firm_quote_partner_fkey foreign key (partner_id) references partner (id)
);
comment on table firm_quote is 'Firm quotes.';
comment on column firm_quote.used_by is 'The intent that used the quote.';
create index firm_quote_age_idx on firm_quote (valid_until);

create table quote_hold (
    quote_id     text not null,
    partner_id   text not null,
    livemode     boolean not null,
    provider_id  text not null,
    asset        text not null,
    amount       numeric(39, 0) not null,
    valid_until  timestamptz not null,
    held         numeric not null,
    constraint quote_hold_pkey primary key (quote_id, provider_id),
    constraint quote_hold_quote_fkey foreign key (quote_id) references firm_quote (quote_id) on delete cascade,
    constraint quote_hold_amount_positive check (amount > 0)
);
comment on table quote_hold is
    'The holds of open firm quotes on providers'' balances; a hold ends when its quote is used, in the same '
    'transaction, or with its validity, without any action.';
comment on column quote_hold.amount is 'Output in minor units.';
comment on column quote_hold.held is
    'What the hold counts for in `unused_hold`, given back when the quote is used.';
create index quote_hold_open_idx on quote_hold (provider_id, asset, valid_until);
create index quote_hold_lapse_idx on quote_hold (valid_until);
