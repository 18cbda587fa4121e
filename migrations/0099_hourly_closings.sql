-- Accounts are closed each hour, so that what the present day has posted is not added up by every statement of it.
-- Of a day before yesterday each account keeps one closing, of the day's end, as it had of each day before.
comment on table ledger_closing is 'what accounts held at the end of hours in which they had entries';
comment on table ledger_fee_day is 'fees of each day as far as it is closed';

-- A day's closings, for the archive and for thinning out.
create index ledger_closing_until_idx on ledger_closing (until);

create or replace function ledger_day_is_open() returns trigger language plpgsql as $$
begin
    if exists (select from posted, ledger_closed where posted.recorded_at < ledger_closed.announced) then
        raise exception 'the hour of the posting is closed'
            using errcode = 'check_violation', constraint = 'ledger_entry_day_closed', table = 'ledger_entry';
    end if;
    return null;
end $$;
