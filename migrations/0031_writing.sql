-- What an order costs to write, made less without promising less.

-- The request of an accepted intent is in its execution's terms: kept once.
alter table intent
    alter column request drop not null,
    add constraint intent_request_kept check (reference is not null or request is not null);

-- Written by the transaction that writes their execution, and by no other: the check a row cost more than the row.
alter table effect drop constraint effect_execution_fkey;
alter table permit_use drop constraint permit_use_execution_fkey;

-- Documents of two or three kilobytes are read far less often than written: not worth compressing.
alter table execution set (toast_tuple_target = 8160);
alter table event set (toast_tuple_target = 8160);
alter table intent set (toast_tuple_target = 8160);
-- Every column that changes during a settlement is outside the indexes but one: leave room to change rows in place.
alter table execution set (fillfactor = 70);

-- The same rules as before; the few balances that a statement touches are changed one by one, by key.
create or replace function ledger_posted() returns trigger language plpgsql as $$
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
