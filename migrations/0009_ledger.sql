-- The double-entry ledger. Postings balance, entries are never changed, and limited balances equal the sum of their
-- entries and are never below zero: the database itself checks all three. docs/ledger.md lists the accounts.

-- Every batch changes a few rows: the fill factor leaves room for their new versions on the same page. Amounts are
-- 128-bit integers in the service.
create table account_balance (
    owner_kind  text not null,
    owner       text not null,
    asset       text not null,
    available   numeric(39, 0) not null,
    reserved    numeric(39, 0) not null,
    constraint account_balance_pkey primary key (owner_kind, owner, asset),
    constraint account_balance_kind_known check (owner_kind in ('provider', 'partner')),
    constraint account_balance_not_negative check (available >= 0 and reserved >= 0),
    constraint account_balance_fits check (available + reserved < 340282366920938463463374607431768211456)
) with (fillfactor = 10);
comment on table account_balance is
    'Limited balances: the available and the reserved amount of each provider and partner.';

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
        or (owner_kind = 'provider' and part in ('owed', 'claim'))
        or (owner_kind = 'house' and part = 'claim')
        or (owner_kind in ('external', 'escrow', 'clearing', 'debt', 'position', 'desk', 'fees', 'residual', 'house')
            and part = 'total')
    )
);
comment on table ledger_entry is 'The entries of the ledger; the primary key prevents a repeated posting.';
comment on column ledger_entry.step is 'The version of the execution that the posting led to.';
comment on column ledger_entry.amount is 'Minor units, with eighteen places for fractions cut off by rounding.';
-- Statements read an account's entries in the order of time. Accounts of single orders (recipients, debts) are named
-- by the order's reference, which the primary key begins with: they need no second index.
create index ledger_entry_account on ledger_entry (owner_kind, owner, asset, recorded_at)
    where owner not like 'exe\_%';
-- What comes in from outside and goes out, in money: wallets and the network apart.
create index ledger_entry_outside_idx on ledger_entry (asset, recorded_at)
    where owner_kind = 'external' and owner <> 'network' and owner not like '0x%';
-- The ledger is written in the order of time: a small index finds a day.
create index ledger_entry_day_idx on ledger_entry using brin (recorded_at) with (autosummarize = on);

-- Owners, parts and assets depend on each other. Without this the planner expects a tenth of an account's entries, and
-- reads and sorts a whole day of them for each page of a statement.
create statistics ledger_entry_accounts (mcv) on owner_kind, owner, part, asset from ledger_entry;

-- Each posting is one statement's. The few balances that a statement touches are changed one by one, by key, in the
-- order of their keys.
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
comment on function ledger_posted is
    'Refuses postings of a statement that do not balance, and changes the limited balances by them.';
create trigger ledger_entry_posted after insert on ledger_entry
    referencing new table as posted for each statement execute function ledger_posted();

create function ledger_is_immutable() returns trigger language plpgsql as $$
begin
    raise exception 'ledger entries are never changed'
        using errcode = 'check_violation', constraint = 'ledger_entry_immutable', table = 'ledger_entry';
end $$;
comment on function ledger_is_immutable is 'Refuses every change of an entry.';
create trigger ledger_entry_immutable before update or delete or truncate on ledger_entry
    for each statement execute function ledger_is_immutable();

create view ledger_balance as
select owner_kind, owner, part, asset, sum(amount) as amount
from ledger_entry
group by owner_kind, owner, part, asset;
comment on view ledger_balance is 'Every account''s balance, computed from the entries.';

-- A posting belongs to the hour in which its transaction began. Hours are closed in two steps: first they are
-- announced, and from then on the database refuses a posting of them; then, once every transaction that may have
-- posted without seeing the announcement has ended, their entries are summed up. So a closed hour never changes.
create table ledger_closed (
    is_the_row    boolean not null default true,
    until         timestamptz not null,
    announced     timestamptz not null,
    announced_at  xid8,
    constraint ledger_closed_pkey primary key (is_the_row),
    constraint ledger_closed_one check (is_the_row),
    constraint ledger_closed_order check (until <= announced)
);
comment on table ledger_closed is 'Until when the ledger is closed: at most one row.';
comment on column ledger_closed.until is 'Hours before are summed up.';
comment on column ledger_closed.announced is 'Hours before take no more postings.';
comment on column ledger_closed.announced_at is 'Transactions older than this one may not have seen the announcement.';

create function ledger_day_is_open() returns trigger language plpgsql as $$
begin
    if exists (select from posted, ledger_closed where posted.recorded_at < ledger_closed.announced) then
        raise exception 'the hour of the posting is closed'
            using errcode = 'check_violation', constraint = 'ledger_entry_day_closed', table = 'ledger_entry';
    end if;
    return null;
end $$;
comment on function ledger_day_is_open is 'Refuses a posting of an hour that is announced or closed.';
create trigger ledger_entry_day after insert on ledger_entry
    referencing new table as posted for each statement execute function ledger_day_is_open();

create function ledger_account(owner_kind text, owner text) returns text language sql immutable as $$
    select case when owner like 'exe\_%' then case when owner_kind in ('debt', 'position') then 'executions' else 'recipients' end
                when owner_kind = 'external' and owner like '0x%' then 'wallets'
                else owner end
$$;
comment on function ledger_account is
    'The account of a closing: recipients, debts and positions of single orders, and wallets outside, are summed up as one '
    'account each.';

create table ledger_closing (
    owner_kind  text not null,
    owner       text not null,
    part        text not null,
    asset       text not null,
    until       timestamptz not null,
    amount      numeric(57, 18) not null,
    accounts    bigint not null default 1,
    constraint ledger_closing_pkey primary key (owner_kind, owner, part, asset, until)
);
comment on table ledger_closing is 'What accounts held at the end of hours in which they had entries.';
comment on column ledger_closing.accounts is
    'How many of the accounts in a sum hold anything; one for every other account.';
-- A day's closings, for the archive.
create index ledger_closing_until_idx on ledger_closing (until);

create table ledger_fee_day (
    day       date not null,
    asset     text not null,
    reason    text not null,
    earned    numeric(57, 18) not null,
    absorbed  numeric(57, 18) not null,
    entries   bigint not null,
    constraint ledger_fee_day_pkey primary key (day, asset, reason)
);
comment on table ledger_fee_day is
    'Fees of each day as far as it is closed, so that a report of many days does not add up their entries.';
comment on column ledger_fee_day.absorbed is 'What the house bore in place of the customer, and its bank''s fees.';

create table ledger_check (
    only_row  boolean not null default true,
    whole_at  timestamptz not null,
    found     bigint not null,
    constraint ledger_check_pkey primary key (only_row),
    constraint ledger_check_one_row check (only_row)
);
comment on table ledger_check is
    'When the whole ledger was last compared with the kept balances, and what was found: at most one row.';
comment on column ledger_check.found is 'Balances and assets that were wrong.';
