-- A maker's orders are those that it placed, and not those of an earlier maker of the same provider. Of each pair every
-- provider's best orders are offered.

alter table resting_order
    -- The maker that placed the order. Null: the service's operators placed it, or it is not known who was the maker then.
    add column partner_id text;

-- What is open is the present maker's, and so is what was placed since it was set, or all if nobody else was ever to be
-- its provider's maker.
update resting_order o set partner_id = m.partner_id
from maker m
where m.provider_id = o.provider_id and o.client_order_id is not null
  and (m.ended_at is null and (o.remaining > 0 or o.placed_at >= m.set_at)
       or not exists (select from approval a where a.kind = 'maker' and a.details ->> 'providerId' = o.provider_id
                        and a.details ->> 'partnerId' <> m.partner_id));

-- The release before does not say who places an order: it is the provider's maker.
create function resting_order_placed() returns trigger language plpgsql as $$
begin
    new.partner_id := (select m.partner_id from maker m where m.provider_id = new.provider_id and m.ended_at is null);
    return new;
end $$;
create trigger resting_order_of_maker before insert on resting_order
    for each row when (new.client_order_id is not null and new.partner_id is null)
    execute function resting_order_placed();

-- An id is used once by its maker.
alter table resting_order
    drop constraint resting_order_client_key,
    add constraint resting_order_client_key unique (provider_id, partner_id, client_order_id);

drop index resting_order_open_idx;
-- The best order of a provider for a pair first, and at equal rates the oldest.
create index resting_order_open_idx on resting_order (input_asset, output_asset, provider_id, rate desc, id)
    where remaining > 0;
