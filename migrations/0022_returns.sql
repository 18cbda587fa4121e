-- Returned payments, and their resolution, are due work of the settlement.

alter table effect drop constraint effect_kind_known;
alter table effect add constraint effect_kind_known
    check (kind in ('lock', 'expire', 'offramp', 'payout', 'reversal', 'timelock'));
create index execution_reversed_idx on execution (reference) where state_name = 'reversed';
