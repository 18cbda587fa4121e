-- The double-entry ledger. Postings balance, entries are never changed, and limited balances equal the sum of their
-- entries and are never below zero: the database itself checks all three. docs/ledger.md lists the accounts.

-- Limited balances: the available and the reserved amount of a provider or a partner. Every batch changes a few rows:
-- the fill factor leaves room for their new versions on the same page.
create table account_balance (
    owner_kind  text not null,
    owner       text not null,
    asset       text not null,
    available   numeric(39, 0) not null,
    reserved    numeric(39, 0) not null,
    constraint account_balance_pkey primary key (owner_kind, owner, asset),
    constraint account_balance_kind_known check (owner_kind in ('provider', 'partner')),
    constraint account_balance_not_negative check (available >= 0 and reserved >= 0),
    -- Amounts are 128-bit integers in the service.
    constraint account_balance_fits check (available + reserved < 340282366920938463463374607431768211456)
) with (fillfactor = 10);

-- The primary key prevents a repeated posting.
create table ledger_entry (
    reference    text not null,
    -- The version of the execution that the posting led to.
    step         bigint not null,
    line         integer not null,
    reason       text not null,
    owner_kind   text not null,
    owner        text not null,
    part         text not null,
    asset        text not null,
    -- Minor units, with eighteen places for fractions cut off by rounding.
    amount       numeric(57, 18) not null,
    recorded_at  timestamptz not null default now(),
    constraint ledger_entry_pkey primary key (reference, step, line),
    constraint ledger_entry_account_known check (
        (owner_kind in ('provider', 'partner') and part in ('available', 'reserved') and amount = trunc(amount))
        or (owner_kind = 'provider' and part = 'owed')
        or (owner_kind in ('external', 'escrow', 'clearing', 'debt', 'fees', 'residual', 'house') and part = 'total')
    )
);

-- Runs once a statement: each posting is one statement's, so the rows of the statement must balance. The few balances
-- that a statement touches are changed one by one, by key, in the order of their keys.
create function ledger_posted() returns trigger language plpgsql as $$
declare
    moved record;
begin
    if exists (select from posted group by reference, step, asset having sum(amount) <> 0) then
        raise exception 'the posting does not balance'
            using errcode = 'check_violation', constraint = 'ledger_entry_balances', table = 'ledger_entry';
    end if;
    for moved in
        select owner_kind, owner, asset,
               coalesce(sum(amount) filter (where part = 'available'), 0) as available,
               coalesce(sum(amount) filter (where part = 'reserved'), 0) as reserved
        from posted where part in ('available', 'reserved')
        group by owner_kind, owner, asset
        order by owner_kind, owner, asset
    loop
        loop
            update account_balance b
            set available = b.available + moved.available, reserved = b.reserved + moved.reserved
            where b.owner_kind = moved.owner_kind and b.owner = moved.owner and b.asset = moved.asset;
            exit when found;
            insert into account_balance (owner_kind, owner, asset, available, reserved)
            values (moved.owner_kind, moved.owner, moved.asset, 0, 0)
            on conflict on constraint account_balance_pkey do nothing;
        end loop;
    end loop;
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

-- Every account's balance, computed from the entries.
create view ledger_balance as
select owner_kind, owner, part, asset, sum(amount) as amount
from ledger_entry
group by owner_kind, owner, part, asset;
