-- The relayer swaps, cancels, returns and refunds as well. What event reaches a command's goal was written down in several
-- statements; one function says it for all of them.

create function chain_goal_reached(command text, fact text) returns boolean
    language sql immutable parallel safe
    return case command
        when 'create' then fact = 'created'
        when 'fill' then fact = 'filled'
        when 'settle' then fact = 'settled'
        when 'anchor' then fact = 'anchored'
        when 'transfer' then fact = 'transferred'
        when 'swap' then fact = 'settled'
        when 'cancel' then fact in ('cancelled', 'refunded')
        when 'return_filled' then fact in ('cancelled', 'refunded')
        when 'refund' then fact in ('cancelled', 'refunded')
    end;
