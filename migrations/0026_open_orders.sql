-- Limits of open orders, of rails and of chains, and their open amounts.

alter table order_limit drop constraint order_limit_scope_known;
alter table order_limit add constraint order_limit_scope_known
    check (scope in ('everything', 'partner', 'pair', 'provider', 'rail', 'chain'));
alter table order_limit drop constraint order_limit_period_known;
alter table order_limit add constraint order_limit_period_known check (period in ('order', 'day', 'open'));

-- The sum of a key's rows is its open amount: each batch of orders appends what it accepted and what ended, so that no
-- batch waits for another one's row. One process merges the rows of a key.
create table open_change (
    id      bigint generated always as identity,
    scope   text not null,
    target  text not null,
    asset   text not null,
    -- Accepted orders are positive, ended ones negative.
    amount  numeric not null,
    constraint open_change_pkey primary key (id)
);
create index open_change_key_idx on open_change (scope, target, asset) include (amount);
