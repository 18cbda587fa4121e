-- Operators' decisions, and the requests of operators that another operator approves: every action that moves money.

create table approval (
    id            text not null,
    kind          text not null,
    subject       text not null,
    action        text not null,
    details       jsonb not null,
    touches       text[] not null default '{}',
    version       bigint not null,
    maker         text not null,
    reason        text not null,
    evidence      text not null,
    requested_at  timestamptz not null default clock_timestamp(),
    expires_at    timestamptz not null,
    state         text not null default 'pending',
    checker       text,
    note          text,
    decided_at    timestamptz,
    constraint approval_pkey primary key (id),
    constraint approval_state_known check (state in ('pending', 'approved', 'denied', 'lapsed')),
    constraint approval_decided check ((state = 'pending') = (decided_at is null)),
    constraint approval_checked check ((state in ('approved', 'denied')) = (checker is not null)),
    constraint approval_two_operators check (state <> 'approved' or lower(trim(maker)) <> lower(trim(checker))),
    constraint approval_reason_given
        check (length(trim(reason)) > 0 and length(trim(maker)) > 0 and length(trim(evidence)) > 0)
);
comment on table approval is 'Requests of operators that another operator approves or denies.';
comment on column approval.kind is 'What the request is about.';
comment on column approval.subject is 'An execution''s reference, or the id of what the request is about.';
comment on column approval.details is 'The action that is carried out once it is approved.';
comment on column approval.touches is 'Ledger accounts whose operations change the version.';
comment on column approval.version is
    'The version of the subject at the request; a request about another version cannot be approved.';
comment on column approval.maker is 'The operator who requests.';
comment on column approval.checker is 'The operator who decided.';
comment on column approval.note is 'What the checker wrote.';
create unique index approval_pending_key on approval (kind, subject) where state = 'pending';
create unique index approval_approved_ledger_key on approval (subject) where kind = 'ledger' and state = 'approved';
create index approval_requested_idx on approval (requested_at, id);
create index approval_touches_idx on approval using gin (touches) where state = 'approved';
-- Bank entries name the reference of a payment that operators made another way.
create index approval_payment_idx on approval ((details ->> 'providerReference'))
    where kind = 'execution' and state = 'approved';
-- The last request about a subject.
create index approval_subject_idx on approval (kind, subject, requested_at, id);
create trigger approval_audited after insert or update on approval
    for each row execute function audit_append();
create trigger approval_announced after insert or update on approval
    for each row execute function console_announce('approvals');

create function approval_is_kept() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' then
        if old.state = 'pending'
           and (new.id, new.kind, new.subject, new.action, new.details, new.touches, new.version, new.maker, new.reason,
                new.evidence, new.requested_at, new.expires_at)
               = (old.id, old.kind, old.subject, old.action, old.details, old.touches, old.version, old.maker, old.reason,
                  old.evidence, old.requested_at, old.expires_at)
           or old.state <> 'pending' and old.kind = 'execution' and order_is_erased(old.subject)
           and (new.id, new.kind, new.subject, new.action, new.touches, new.version, new.maker, new.requested_at,
                new.expires_at, new.state, new.checker, new.decided_at)
               is not distinct from
               (old.id, old.kind, old.subject, old.action, old.touches, old.version, old.maker, old.requested_at,
                old.expires_at, old.state, old.checker, old.decided_at) then
            return new;
        end if;
    end if;
    raise exception 'a request is decided once and never changed'
        using errcode = 'check_violation', constraint = 'approval_immutable', table = 'approval';
end $$;
comment on function approval_is_kept is
    'Refuses every change of a request, except its one decision and the erasure of personal data.';
create trigger approval_immutable before update or delete on approval
    for each row execute function approval_is_kept();
create trigger approval_not_truncated before truncate on approval
    for each statement execute function approval_is_kept();

create table operator_action (
    id         bigint generated always as identity,
    reference  text not null,
    action     text not null,
    operator   text not null,
    reason     text not null,
    evidence   jsonb not null,
    version    bigint not null,
    at         timestamptz not null default now(),
    constraint operator_action_pkey primary key (id),
    constraint operator_action_reason_given check (length(trim(reason)) > 0 and length(trim(operator)) > 0)
);
comment on table operator_action is 'Operators'' decisions about executions, each with operator, reason and evidence.';
comment on column operator_action.version is 'The execution''s version that the operator saw.';
create index operator_action_reference_idx on operator_action (reference, id);
create trigger operator_action_audited after insert on operator_action
    for each row execute function audit_append();

create function operator_action_is_immutable() returns trigger language plpgsql as $$
begin
    raise exception 'what operators did is never changed'
        using errcode = 'check_violation', constraint = 'operator_action_immutable', table = 'operator_action';
end $$;
comment on function operator_action_is_immutable is 'Refuses every change of what operators did.';
create trigger operator_action_not_truncated before truncate on operator_action
    for each statement execute function operator_action_is_immutable();

create function operator_action_stays() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' and order_is_erased(old.reference)
       and (old.id, old.reference, old.action, old.operator, old.version, old.at)
           = (new.id, new.reference, new.action, new.operator, new.version, new.at) then
        return new;
    end if;
    raise exception 'what operators did is never changed'
        using errcode = 'check_violation', constraint = 'operator_action_immutable', table = 'operator_action';
end $$;
comment on function operator_action_stays is
    'Refuses every change of an operator''s decision, except the erasure of the order''s personal data.';
create trigger operator_action_immutable before update or delete on operator_action
    for each row execute function operator_action_stays();
