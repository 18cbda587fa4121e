-- What operators of the console do beside reading: they save views of the orders, find orders by the text of a failure,
-- and enable an API key that another operator has issued, or change a FIX session's password.

create table order_view (
    operator   text not null,
    name       text not null,
    -- The filter, as it is in the address of the page.
    query      text not null,
    saved_at   timestamptz not null default clock_timestamp(),
    constraint order_view_pkey primary key (operator, name),
    constraint order_view_name_given check (name = trim(name) and length(name) between 1 and 60),
    constraint order_view_query_length check (length(query) <= 500)
);

-- Words of failures of orders that ended without their output, and of returned payments.
create function execution_failure(state jsonb) returns text language sql immutable as $$
    select coalesce(state #>> '{failure,code}', state #>> '{reversal,failure,code}', '') || ' '
        || coalesce(state #>> '{failure,message}', state #>> '{reversal,failure,message}', '')
$$;
create index execution_failure_idx on execution using gin (to_tsvector('simple', execution_failure(state)))
    where state_name in ('conversion_failed', 'payout_failed', 'cancelled', 'expired', 'failed', 'reversed');

-- Requests about credentials: that a key may be used, that a session has another password.
alter table approval drop constraint approval_kind_known;
alter table approval add constraint approval_kind_known
    check (kind in ('execution', 'ledger', 'limit', 'band', 'maker', 'credential'));
