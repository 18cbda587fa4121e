-- Operators' pauses, and the operators who paused and resumed.

create table pause (
    scope      text not null,
    -- A partner's id, INPUT/OUTPUT, a provider's id, offramp or payout, a chain's name; empty for everything.
    target     text not null,
    operator   text not null,
    reason     text not null,
    paused_at  timestamptz not null default clock_timestamp(),
    constraint pause_pkey primary key (scope, target),
    constraint pause_scope_known check (scope in ('everything', 'partner', 'pair', 'provider', 'rail', 'chain')),
    constraint pause_target_given check ((scope = 'everything') = (target = ''))
);

create table pause_change (
    id        bigint generated always as identity,
    action    text not null,
    scope     text not null,
    target    text not null,
    operator  text not null,
    reason    text not null,
    at        timestamptz not null default clock_timestamp(),
    constraint pause_change_pkey primary key (id),
    constraint pause_change_action_known check (action in ('pause', 'resume')),
    constraint pause_change_reason_given check (length(trim(reason)) > 0 and length(trim(operator)) > 0)
);
create trigger pause_change_immutable before update or delete or truncate on pause_change
    for each statement execute function operator_action_is_immutable();
