-- Operators' controls of orders: pauses, limits and price bands, and the counts of reservations that were abandoned.

create table pause (
    scope      text not null,
    target     text not null,
    operator   text not null,
    reason     text not null,
    paused_at  timestamptz not null default clock_timestamp(),
    constraint pause_pkey primary key (scope, target),
    constraint pause_scope_known check (scope in ('everything', 'partner', 'pair', 'provider', 'rail', 'chain')),
    constraint pause_target_given check ((scope = 'everything') = (target = ''))
);
comment on table pause is 'Operators'' pauses in force.';
comment on column pause.target is
    'A partner''s id, INPUT/OUTPUT, a provider''s id, offramp or payout, a chain''s name; empty for everything.';
create trigger pause_announced after insert or update or delete on pause
    for each row execute function console_announce('controls');

create table pause_change (
    id        bigint generated always as identity,
    action    text not null,
    scope     text not null,
    target    text not null,
    operator  text not null,
    reason    text not null,
    at        timestamptz not null default clock_timestamp(),
    constraint pause_change_pkey primary key (id),
    constraint pause_change_action_known check (action in ('pause', 'resume')),
    constraint pause_change_reason_given check (length(trim(reason)) > 0 and length(trim(operator)) > 0)
);
comment on table pause_change is 'The operators who paused and resumed, and why.';
create trigger pause_change_immutable before update or delete or truncate on pause_change
    for each statement execute function operator_action_is_immutable();
create trigger pause_change_audited after insert on pause_change
    for each row execute function audit_append();

create table order_limit (
    scope     text not null,
    target    text not null,
    asset     text not null,
    period    text not null,
    amount    numeric(39, 0),
    approval  text not null,
    set_at    timestamptz not null default clock_timestamp(),
    constraint order_limit_pkey primary key (scope, target, asset, period),
    constraint order_limit_scope_known check (scope in ('everything', 'partner', 'pair', 'provider', 'rail', 'chain')),
    constraint order_limit_target_given check ((scope = 'everything') = (target = '')),
    constraint order_limit_period_known check (period in ('order', 'day', 'open')),
    constraint order_limit_amount_fits check (amount >= 0 and amount < 340282366920938463463374607431768211456)
);
comment on table order_limit is 'Limits of orders, set by two operators.';
comment on column order_limit.target is
    'A partner''s id, INPUT/OUTPUT, a provider''s id, a rail, a chain; empty for everything.';
comment on column order_limit.period is 'One order, all orders of a UTC day, or all open orders.';
comment on column order_limit.amount is 'In minor units; null: the limit was removed.';
comment on column order_limit.approval is 'The approved request, whose row is never changed or deleted.';
create trigger order_limit_audited after insert or update on order_limit
    for each row execute function audit_append();
create trigger order_limit_announced after insert or update or delete on order_limit
    for each row execute function console_announce('controls');

create function order_limit_is_kept() returns trigger language plpgsql as $$
begin
    raise exception 'a limit is changed, never deleted'
        using errcode = 'check_violation', constraint = 'order_limit_kept', table = 'order_limit';
end $$;
comment on function order_limit_is_kept is 'Refuses to delete a limit.';
create trigger order_limit_kept before delete or truncate on order_limit
    for each statement execute function order_limit_is_kept();

-- Many batches change few rows: room for their new versions on the same page.
create table limit_usage (
    scope   text not null,
    target  text not null,
    asset   text not null,
    day     date not null,
    amount  numeric not null,
    constraint limit_usage_pkey primary key (day, scope, target, asset),
    constraint limit_usage_not_negative check (amount >= 0)
) with (fillfactor = 50);
comment on table limit_usage is
    'The accepted amounts of each day, counted with or without a limit and in the transaction that accepts the order.';
comment on column limit_usage.day is 'Of UTC.';

create table open_change (
    id      bigint generated always as identity,
    scope   text not null,
    target  text not null,
    asset   text not null,
    amount  numeric not null,
    constraint open_change_pkey primary key (id)
);
comment on table open_change is
    'Changes of open amounts, whose sum by key is the open amount: each batch appends, so that no batch waits for '
    'another one''s row, and one process merges the rows of a key.';
comment on column open_change.amount is 'Accepted orders are positive, ended ones negative.';
create index open_change_key_idx on open_change (scope, target, asset) include (amount);

create table price_band (
    input          text not null,
    output         text not null,
    deviation_bps  integer,
    middle         numeric,
    approval       text not null,
    set_at         timestamptz not null default clock_timestamp(),
    constraint price_band_pkey primary key (input, output),
    constraint price_band_deviation_fits check (deviation_bps > 0 and deviation_bps < 10000),
    constraint price_band_middle_positive check (middle > 0),
    constraint price_band_middle_of_band check (middle is null or deviation_bps is not null)
);
comment on table price_band is 'Price bands of pairs, set by two operators: they replace the configured ones.';
comment on column price_band.input is 'The asset that orders pay.';
comment on column price_band.output is 'The asset that orders receive.';
comment on column price_band.deviation_bps is
    'How far a price may be from the middle; null: the configured band applies, if there is one.';
comment on column price_band.middle is 'Output per one input; null: the reference price is the middle.';
comment on column price_band.approval is 'The approved request, whose row is never changed or deleted.';
create trigger price_band_audited after insert or update on price_band
    for each row execute function audit_append();
create trigger price_band_announced after insert or update or delete on price_band
    for each row execute function console_announce('controls');

create function price_band_is_kept() returns trigger language plpgsql as $$
begin
    raise exception 'a price band is changed, never deleted'
        using errcode = 'check_violation', constraint = 'price_band_kept', table = 'price_band';
end $$;
comment on function price_band_is_kept is 'Refuses to delete a price band.';
create trigger price_band_kept before delete or truncate on price_band
    for each statement execute function price_band_is_kept();

-- Reservations that their taker lets go cost it nothing, and others the output that they held. They are counted over a
-- sliding time, and whoever has too many cools down.
create table abandonment (
    reference   text not null,
    partner_id  text not null,
    wallet      text,
    kind        text not null,
    at          timestamptz not null,
    constraint abandonment_pkey primary key (reference),
    constraint abandonment_kind_known check (kind in ('unfunded', 'cancelled_held'))
);
comment on table abandonment is 'Accepted orders whose reservations their taker let go.';
comment on column abandonment.wallet is
    'The wallet that was to pay, in lower case; null: nothing is locked on a chain.';
create index abandonment_wallet_idx on abandonment (wallet, at) where wallet is not null;
create index abandonment_partner_idx on abandonment (partner_id, at);
create index abandonment_at_idx on abandonment (at);

create table unused_hold (
    partner_id   text not null,
    provider_id  text not null,
    asset        text not null,
    lapsed_in    timestamptz not null,
    held         numeric not null,
    constraint unused_hold_pkey primary key (partner_id, provider_id, asset, lapsed_in),
    constraint unused_hold_not_negative check (held >= 0)
) with (fillfactor = 50);
comment on table unused_hold is
    'What a partner''s unused firm quotes have held of a provider''s asset, by the minute in which they lapse.';
comment on column unused_hold.held is 'Minor units times seconds.';
create index unused_hold_lapsed_idx on unused_hold (lapsed_in);

create table cool_down (
    scope        text not null,
    subject      text not null,
    provider_id  text not null default '',
    asset        text not null default '',
    since        timestamptz not null,
    until        timestamptz not null,
    constraint cool_down_pkey primary key (scope, subject, provider_id, asset),
    constraint cool_down_scope_known check (scope in ('wallet', 'partner', 'quotes'))
);
comment on table cool_down is 'Wallets and partners whose new orders, or firm quotes, are refused until `until`.';
comment on column cool_down.subject is 'A wallet in lower case, or a partner''s id.';
comment on column cool_down.provider_id is 'Of quotes; otherwise empty.';
comment on column cool_down.asset is 'Of quotes; otherwise empty.';
create index cool_down_until_idx on cool_down (until);
