-- Limits of orders, set by two operators, and the accepted amounts of each day, which are counted with or without a
-- limit and in the transaction that accepts the order.

alter table approval drop constraint approval_kind_known;
alter table approval add constraint approval_kind_known check (kind in ('execution', 'ledger', 'limit'));

create table order_limit (
    scope     text not null,
    -- A partner's id, INPUT/OUTPUT, a provider's id; empty for everything.
    target    text not null,
    asset     text not null,
    -- One order, or all orders of a UTC day.
    period    text not null,
    -- In minor units; null: the limit was removed.
    amount    numeric(39, 0),
    -- The approved request, whose row is never changed or deleted.
    approval  text not null,
    set_at    timestamptz not null default clock_timestamp(),
    constraint order_limit_pkey primary key (scope, target, asset, period),
    constraint order_limit_scope_known check (scope in ('everything', 'partner', 'pair', 'provider')),
    constraint order_limit_target_given check ((scope = 'everything') = (target = '')),
    constraint order_limit_period_known check (period in ('order', 'day')),
    constraint order_limit_amount_fits check (amount >= 0 and amount < 340282366920938463463374607431768211456)
);
create trigger order_limit_audited after insert or update on order_limit
    for each row execute function audit_append();

create function order_limit_is_kept() returns trigger language plpgsql as $$
begin
    raise exception 'a limit is changed, never deleted'
        using errcode = 'check_violation', constraint = 'order_limit_kept', table = 'order_limit';
end $$;
create trigger order_limit_kept before delete or truncate on order_limit
    for each statement execute function order_limit_is_kept();

-- Many batches change few rows: room for their new versions on the same page.
create table limit_usage (
    scope   text not null,
    target  text not null,
    asset   text not null,
    -- Of UTC.
    day     date not null,
    amount  numeric not null,
    constraint limit_usage_pkey primary key (day, scope, target, asset),
    constraint limit_usage_not_negative check (amount >= 0)
) with (fillfactor = 50);
