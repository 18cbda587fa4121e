-- A partner's orders of a state in which they ended without their output, newest first.
create index execution_partner_exception_idx on execution (partner_id, livemode, exception, accepted_at, reference)
    where exception is not null;
