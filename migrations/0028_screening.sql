-- Results of screening accepted orders, before any funds moved. Rows are never changed; the latest one of an order
-- applies.

create table screening (
    id         bigint generated always as identity,
    reference  text not null,
    verdict    text not null,
    -- The list, the hook, or the hook's missing answer.
    source     text not null,
    -- The matched entry of the list, or the case number of the screening service.
    detail     text not null,
    at         timestamptz not null default clock_timestamp(),
    constraint screening_pkey primary key (id),
    constraint screening_verdict_known check (verdict in ('pass', 'hold', 'fail')),
    constraint screening_source_known check (source in ('list', 'hook', 'no_answer'))
);
create index screening_reference_idx on screening (reference, id);

create function screening_is_kept() returns trigger language plpgsql as $$
begin
    raise exception 'a verdict of screening is never changed'
        using errcode = 'check_violation', constraint = 'screening_immutable', table = 'screening';
end $$;
create trigger screening_immutable before update or delete on screening
    for each row execute function screening_is_kept();
create trigger screening_not_truncated before truncate on screening
    for each statement execute function screening_is_kept();

-- Held orders are counted by the last result of their due work.
create index effect_held_idx on effect (id) where kind = 'lock' and last_result = 'held by screening';
