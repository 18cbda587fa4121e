-- An order that was held up somewhere is priced by a market that is gone. Orders that may have been sent before
-- (PossDupFlag, PossResend) are limited unless it is agreed otherwise: they wait for a connection, or for a person.

alter table fix_session
    -- TransactTime(60) of an order is this many seconds old at most; null: any age.
    add column order_age_secs           integer,
    -- The same for an order that may have been sent before, of TransactTime(60) and OrigSendingTime(122).
    add column repeated_order_age_secs  integer default 120,
    add constraint fix_session_order_age_range check (order_age_secs between 1 and 604800),
    add constraint fix_session_repeated_order_age_range check (repeated_order_age_secs between 1 and 604800);
