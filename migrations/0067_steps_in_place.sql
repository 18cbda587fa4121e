-- Steps of executions as heap-only updates: no index depends on the state of an order that goes its way. What the indexes
-- need of the others is in columns that are null until then, and the terms, which never change, are stored out of line,
-- so that a step rewrites the state only.

alter table execution
    -- The state of an order that ended without its output, or whose payment was returned.
    add column exception text generated always as (
        case when state_name in ('conversion_failed', 'payout_failed', 'cancelled', 'expired', 'failed', 'reversed')
             then state_name end) stored,
    -- When the timelock of a failed order ends whose funds are still locked, in milliseconds.
    add column held_until bigint generated always as (
        case when state_name in ('payout_failed', 'conversion_failed')
                  and state #>> '{lock,refunded}' = 'false' and state #>> '{lock,lost}' = 'false'
             then (state #>> '{lock,timelock_expires_at}')::int8 end) stored,
    -- The words of its failure.
    add column failure_words tsvector generated always as (
        case when state_name in ('conversion_failed', 'payout_failed', 'cancelled', 'expired', 'failed', 'reversed')
             then to_tsvector('simple', execution_failure(state)) end) stored;

drop index execution_held_idx, execution_reversed_idx, execution_unfilled_idx, execution_failure_idx;
create index execution_held_idx on execution (held_until) where held_until is not null;
create index execution_reversed_idx on execution (reference) where exception = 'reversed';
create index execution_exception_idx on execution (accepted_at, reference) where exception is not null;
create index execution_failure_idx on execution using gin (failure_words) where failure_words is not null;

alter table execution alter column terms set storage external;
alter table execution set (toast_tuple_target = 1024, fillfactor = 60);
