-- Closings of hours are kept: a statement that begins within a day, or a later page of one, adds up the entries of an hour
-- at most. Until here each account kept one closing of a day before yesterday; that goes on for the days up to the next
-- midnight, because a process of the release before may still do it.
alter table ledger_closed add column hours_since timestamptz not null default '-infinity';
update ledger_closed set hours_since = date_trunc('day', until, 'UTC') + interval '24 hours';
comment on column ledger_closed.hours_since is
    'a midnight (UTC): accounts have one closing for each day before, and one for each hour from then on';
