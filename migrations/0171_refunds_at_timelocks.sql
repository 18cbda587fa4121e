-- Funds of failed orders that are still locked when their timelock comes are refunded by the relayer. The index finds
-- them and has those alone.

create index execution_held_idx on execution (((state #>> '{lock,timelock_expires_at}')::int8))
    where state_name in ('payout_failed', 'conversion_failed')
      and state #>> '{lock,refunded}' = 'false' and state #>> '{lock,lost}' = 'false';
