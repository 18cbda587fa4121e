-- A ledger that cannot be wrong: accounts by owner and asset, postings that balance, entries that nobody changes, and
-- limited balances (what a provider or a partner has free, and what of it is promised) that the database itself keeps
-- equal to the sum of their entries and never below zero.

alter table provider_balance rename to account_balance;
alter table account_balance rename column provider_id to owner;
alter table account_balance rename constraint provider_balance_not_negative to account_balance_not_negative;
alter table account_balance
    add column owner_kind text not null default 'provider',
    drop constraint provider_balance_pkey;
alter table account_balance
    alter column owner_kind drop default,
    alter column reserved drop default,
    -- Two rows a provider, changed with every batch: room on the page keeps the changes there.
    set (fillfactor = 10),
    add constraint account_balance_pkey primary key (owner_kind, owner, asset),
    add constraint account_balance_fits check (available + reserved < 340282366920938463463374607431768211456),
    add constraint account_balance_kind_known check (owner_kind in ('provider', 'partner'));

-- What was posted before accounts had owners stays readable.
alter table ledger_entry rename to ledger_entry_before_0030;
alter table ledger_entry_before_0030 rename constraint ledger_entry_pkey to ledger_entry_before_0030_pkey;
drop trigger ledger_entry_balances on ledger_entry_before_0030;
drop function ledger_transaction_balances();

-- Minor units with eighteen places for the fractions that floors cut off. `step` is the version of the execution that
-- the posting led to; the primary key lets nothing be posted twice.
create table ledger_entry (
    reference    text not null,
    step         bigint not null,
    line         integer not null,
    reason       text not null,
    owner_kind   text not null,
    owner        text not null,
    part         text not null,
    asset        text not null,
    amount       numeric(57, 18) not null,
    recorded_at  timestamptz not null default now(),
    constraint ledger_entry_pkey primary key (reference, step, line),
    constraint ledger_entry_account_known check (
        (owner_kind in ('provider', 'partner') and part in ('available', 'reserved') and amount = trunc(amount))
        or (owner_kind = 'provider' and part = 'owed')
        or (owner_kind in ('external', 'escrow', 'clearing', 'fees', 'residual', 'house') and part = 'total')
    )
);

-- One check a statement, however many rows it posts: each posting is one statement's, so what it brings must balance.
create function ledger_posted() returns trigger language plpgsql as $$
begin
    if exists (select from posted group by reference, step, asset having sum(amount) <> 0) then
        raise exception 'the posting does not balance'
            using errcode = 'check_violation', constraint = 'ledger_entry_balances', table = 'ledger_entry';
    end if;
    insert into account_balance (owner_kind, owner, asset, available, reserved)
    select distinct p.owner_kind, p.owner, p.asset, 0, 0 from posted p
    where p.part in ('available', 'reserved')
      and not exists (select from account_balance b
                      where b.owner_kind = p.owner_kind and b.owner = p.owner and b.asset = p.asset)
    order by 1, 2, 3
    on conflict on constraint account_balance_pkey do nothing;
    update account_balance b
    set available = b.available + moved.available, reserved = b.reserved + moved.reserved
    from (select owner_kind, owner, asset,
                 coalesce(sum(amount) filter (where part = 'available'), 0) as available,
                 coalesce(sum(amount) filter (where part = 'reserved'), 0) as reserved
          from posted where part in ('available', 'reserved')
          group by owner_kind, owner, asset) moved
    where b.owner_kind = moved.owner_kind and b.owner = moved.owner and b.asset = moved.asset;
    return null;
end $$;
create trigger ledger_entry_posted after insert on ledger_entry
    referencing new table as posted for each statement execute function ledger_posted();

create function ledger_is_immutable() returns trigger language plpgsql as $$
begin
    raise exception 'ledger entries are never changed'
        using errcode = 'check_violation', constraint = 'ledger_entry_immutable', table = 'ledger_entry';
end $$;
create trigger ledger_entry_immutable before update or delete or truncate on ledger_entry
    for each statement execute function ledger_is_immutable();

-- The balances of before are carried over: emptied, and posted as they stood.
create temporary table carried on commit drop as select * from account_balance;
update account_balance set available = 0, reserved = 0;
insert into ledger_entry (reference, step, line, reason, owner_kind, owner, part, asset, amount)
select 'opening:' || owner || ':' || asset, 1, line, 'deposit', kind, who, part, asset, amount
from carried, lateral (values
    (1, 'external', 'provider:' || owner, 'total', -(available + reserved)),
    (2, owner_kind, owner, 'available', available),
    (3, owner_kind, owner, 'reserved', reserved)
) as e (line, kind, who, part, amount);

-- Every account's balance as the entries have it.
create view ledger_balance as
select owner_kind, owner, part, asset, sum(amount) as amount
from ledger_entry
group by owner_kind, owner, part, asset;
