-- The ends of a lock that was committed to its payout wait at the gate, too, until most endpoints have them: one
-- endpoint's word alone must neither make an order give up the release of its lock nor take it for released.

create or replace function chain_is_gated(chain bigint, of_entity bytea, fact text) returns boolean
    language sql stable parallel safe
    return case
        when fact in ('filled', 'settled', 'cancelled', 'refunded') then exists (
            select from chain_command c where c.entity = of_entity and c.kind = 'fill')
        when fact = 'transferred' then exists (
            select from chain_command c where c.entity = of_entity and c.kind = 'create' and c.chain_id <> chain)
        else false
    end;
