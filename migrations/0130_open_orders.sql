-- Open orders by tenant: the waiting orders of the legacy API are evaluated by turns of their tenants, and how many orders
-- of a tenant wait, or rest, is limited.

create index legacy_intent_turn_idx on legacy_intent (partner_id, livemode, strategy, run_at)
    where stage in ('pending', 'solving', 'queued', 'submitting');

-- Null: added by the release before, which does not count them.
alter table resting_range add column partner_id text, add column livemode boolean;
update resting_range r set partner_id = e.partner_id, livemode = e.livemode
    from execution e where e.reference = r.reference;
create index resting_range_tenant_idx on resting_range (partner_id, livemode);
