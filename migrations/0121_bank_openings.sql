-- Postings before the first statement of an account count as part of its opening balance. When an earlier statement comes,
-- they are compared with its entries; those that were paired with an entry are not.

alter table bank_posting
    -- Paired with no entry.
    add column is_of_opening boolean not null default false,
    add constraint bank_posting_opening_paired check (not is_of_opening or paired_at is not null);
-- When the first statement of the last comparison begins.
alter table bank_comparison add column begins_at timestamptz;

-- From the statement that came first on, which was the first until an earlier one came.
insert into bank_comparison (account, currency, begins_at)
    select distinct on (account, currency) account, currency, begins_at from bank_statement
    order by account, currency, id
    on conflict on constraint bank_comparison_pkey do update set begins_at = excluded.begins_at;
update bank_posting p set is_of_opening = true from bank_comparison c
    where p.account = c.account and p.currency = c.currency and p.posted_at < c.begins_at and p.paired_at is not null
      and not exists (select from bank_entry e
                      where e.subject = p.subject and e.account = p.account and e.currency = p.currency);
