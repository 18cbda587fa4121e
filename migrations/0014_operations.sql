-- Operators' decisions about executions, each with operator, reason and evidence.

create table operator_action (
    id         bigint generated always as identity,
    reference  text not null,
    action     text not null,
    operator   text not null,
    reason     text not null,
    evidence   jsonb not null,
    -- The execution's version that the operator saw.
    version    bigint not null,
    at         timestamptz not null default now(),
    constraint operator_action_pkey primary key (id),
    constraint operator_action_reason_given check (length(trim(reason)) > 0 and length(trim(operator)) > 0)
);
create index operator_action_reference_idx on operator_action (reference, id);

create function operator_action_is_immutable() returns trigger language plpgsql as $$
begin
    raise exception 'what operators did is never changed'
        using errcode = 'check_violation', constraint = 'operator_action_immutable', table = 'operator_action';
end $$;
create trigger operator_action_immutable before update or delete or truncate on operator_action
    for each statement execute function operator_action_is_immutable();
