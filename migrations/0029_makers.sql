-- Makers place, list and cancel resting orders; a taker that ends unpaid returns what it took.

alter table approval drop constraint approval_kind_known;
alter table approval add constraint approval_kind_known
    check (kind in ('execution', 'ledger', 'limit', 'band', 'maker'));

alter table resting_order
    -- The maker's own id of the order; one without it was placed by the service's operators.
    add column client_order_id text,
    -- The remaining amount when its maker cancelled it; nothing is returned to it any more.
    add column cancelled numeric(39, 0),
    add column cancelled_at timestamptz,
    add constraint resting_order_client_key unique (provider_id, client_order_id),
    add constraint resting_order_cancelled_whole
        check ((cancelled is null) = (cancelled_at is null) and (cancelled is null or remaining = 0));
drop index resting_order_open_idx;
-- The best order of a pair first, and at equal rates the oldest.
create index resting_order_open_idx on resting_order (input_asset, output_asset, rate desc, id) where remaining > 0;
create index resting_order_maker_idx on resting_order (provider_id, id);

-- The partner that may place resting orders for a provider: they deliver the provider's balance, and the wallet
-- receives the released funds.
create table maker (
    partner_id   text not null,
    provider_id  text not null,
    wallet       text not null,
    -- The approved request, whose row is never changed or deleted.
    approval     text not null,
    set_at       timestamptz not null default clock_timestamp(),
    -- Null while the partner is its maker.
    ended_at     timestamptz,
    constraint maker_pkey primary key (partner_id),
    constraint maker_partner_fkey foreign key (partner_id) references partner (id)
);
create unique index maker_provider_key on maker (provider_id) where ended_at is null;
create trigger maker_audited after insert or update on maker
    for each row execute function audit_append();
