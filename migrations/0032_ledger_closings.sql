-- What accounts held at the end of each day (UTC), so that a statement does not add up the whole history.
--
-- A posting belongs to the day in which its transaction began. A day is closed in two steps: first it is announced, and
-- from then on the database refuses a posting of it; then, once every transaction that may have posted without seeing
-- the announcement has ended, its entries are summed up. So a closed day never changes.

create table ledger_closed (
    -- There is one row at most.
    is_the_row    boolean not null default true,
    -- Days before are summed up.
    until         timestamptz not null,
    -- Days before take no more postings.
    announced     timestamptz not null,
    -- Transactions older than this one may not have seen the announcement.
    announced_at  xid8,
    constraint ledger_closed_pkey primary key (is_the_row),
    constraint ledger_closed_one check (is_the_row),
    constraint ledger_closed_order check (until <= announced)
);

-- A row for each day in which an account had entries. Recipients of single orders are one account; wallets outside, debts
-- of single orders and others of a few entries are read from the ledger itself.
create table ledger_closing (
    owner_kind  text not null,
    owner       text not null,
    part        text not null,
    asset       text not null,
    until       timestamptz not null,
    amount      numeric(57, 18) not null,
    constraint ledger_closing_pkey primary key (owner_kind, owner, part, asset, until)
);

-- The ledger is written in the order of time: a small index finds a day.
create index ledger_entry_day_idx on ledger_entry using brin (recorded_at) with (autosummarize = on);

create function ledger_day_is_open() returns trigger language plpgsql as $$
begin
    if exists (select from posted, ledger_closed where posted.recorded_at < ledger_closed.announced) then
        raise exception 'the day of the posting is closed'
            using errcode = 'check_violation', constraint = 'ledger_entry_day_closed', table = 'ledger_entry';
    end if;
    return null;
end $$;
create trigger ledger_entry_day after insert on ledger_entry
    referencing new table as posted for each statement execute function ledger_day_is_open();
