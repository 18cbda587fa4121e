-- How far the comparison of each account at the bank has come. Postings were read from a quarter of an hour before the
-- newest one on, so that those of a clock that was set back were never read.

create table bank_comparison (
    account         text not null,
    currency        text not null,
    -- Every posting before is in bank_posting. Null: the ledger was never closed.
    complete_until  timestamptz,
    constraint bank_comparison_pkey primary key (account, currency)
);
-- As far as the release before has read, which may go on for a while. What it has left out before is not looked for.
insert into bank_comparison (account, currency, complete_until)
    select s.account, s.currency, least(c.until, p.newest - interval '15 minutes')
    from (select distinct account, currency from bank_statement) s
    cross join ledger_closed c
    cross join lateral (select max(posted_at) as newest from bank_posting
                        where account = s.account and currency = s.currency) p
    where p.newest is not null;
