-- Orders that a FIX session has taken and that wait for a look-up of their wallet. The row is written in the commit
-- that takes the order's MsgSeqNum and deleted in the commit that decides the order, so that an order is never lost in
-- between: whoever owns the session next looks its wallet up again. A reset of the numbers leaves the rows alone.

create table fix_parked (
    session_id   text not null,
    cl_ord_id    text not null,
    -- The order in which they were taken, through resets of the numbers.
    position     bigint generated always as identity,
    -- The NewOrderSingle as it came.
    message      bytea not null,
    received_at  timestamptz not null,
    constraint fix_parked_pkey primary key (session_id, cl_ord_id),
    constraint fix_parked_session_fkey foreign key (session_id) references fix_session (session_id)
);
