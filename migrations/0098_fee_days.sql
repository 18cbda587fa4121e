-- The fees of each closed day, so that a report of many days does not add up their entries.
create table ledger_fee_day (
    day       date not null,
    asset     text not null,
    reason    text not null,
    earned    numeric(57, 18) not null,
    -- What the house bore in place of the customer, and its bank's fees.
    absorbed  numeric(57, 18) not null,
    entries   bigint not null,
    constraint ledger_fee_day_pkey primary key (day, asset, reason)
);

insert into ledger_fee_day (day, asset, reason, earned, absorbed, entries)
select (e.recorded_at at time zone 'UTC')::date, e.asset, e.reason,
       coalesce(sum(e.amount) filter (where e.owner_kind = 'fees'), 0),
       coalesce(sum(-e.amount) filter (where e.owner_kind = 'house'), 0), count(*)
from ledger_closed c join ledger_entry e on e.recorded_at < c.until
where e.owner not like 'exe\_%'
  and ((e.owner_kind = 'fees' and e.owner = '')
       or (e.owner_kind = 'house' and e.owner = '' and e.part = 'total' and e.reason in ('settle', 'charge')))
group by 1, 2, 3;
