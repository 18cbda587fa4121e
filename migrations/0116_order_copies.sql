-- Orders of FIX sessions that came from another cell, as long as they have personal data here: the account that reports
-- repeat, and the masked beneficiary of the last event. Their own cell erases its rows; this table leads to the copies.

create table fix_order_copy (
    session_id  text not null,
    cl_ord_id   text not null,
    reference   text,
    ordered_at  timestamptz not null,
    constraint fix_order_copy_pkey primary key (session_id, cl_ord_id)
);
create index fix_order_copy_age_idx on fix_order_copy (ordered_at);
create index fix_order_copy_reference_idx on fix_order_copy (reference);
insert into fix_order_copy (session_id, cl_ord_id, reference, ordered_at)
    select o.session_id, o.cl_ord_id, o.reference, o.created_at from fix_session s
    join fix_order o on o.session_id = s.session_id
    where s.came_by is not null and not exists (select from execution e where e.reference = o.reference);
