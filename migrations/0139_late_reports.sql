-- A payment may come back after the FIX session of its order has moved to another cell. Its event is brought there, and
-- waits here until the session has reported it. Deleted by the commit of the report.

create table fix_late_report (
    session_id   text not null,
    cl_ord_id    text not null,
    -- The event is in `moved_event`.
    reference    text not null,
    sequence     bigint not null,
    occurred_at  timestamptz not null,
    constraint fix_late_report_pkey primary key (session_id, cl_ord_id)
);
