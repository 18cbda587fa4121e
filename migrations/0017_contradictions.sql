-- A bank's report that contradicts how an execution ended: a break until two operators have closed it.

alter table bank_payment
    -- The report, and when operators had resolved the contradiction.
    add column contradicting text,
    add column closed_at     timestamptz,
    add constraint bank_payment_contradicting_known check (contradicting in ('paid', 'refused'));
create index bank_payment_execution_idx on bank_payment (execution);
create index bank_payment_contradicted_idx on bank_payment (execution)
    where contradicting is not null and closed_at is null;
