-- Requests of operators that another operator approves: every action that moves money.

create table approval (
    id            text not null,
    -- The kind of action: execution (an operator's decision about one), ledger (an operation of the ledger).
    kind          text not null,
    -- An execution's reference, or the id of an operation of the ledger.
    subject       text not null,
    action        text not null,
    -- The action that is carried out once it is approved.
    details       jsonb not null,
    -- Ledger accounts whose operations change the version.
    touches       text[] not null default '{}',
    -- The version of the subject at the request. A request about another version cannot be approved.
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
    constraint approval_kind_known check (kind in ('execution', 'ledger')),
    constraint approval_state_known check (state in ('pending', 'approved', 'denied', 'lapsed')),
    constraint approval_decided check ((state = 'pending') = (decided_at is null)),
    constraint approval_checked check ((state in ('approved', 'denied')) = (checker is not null)),
    constraint approval_two_operators check (state <> 'approved' or lower(trim(maker)) <> lower(trim(checker))),
    constraint approval_reason_given
        check (length(trim(reason)) > 0 and length(trim(maker)) > 0 and length(trim(evidence)) > 0)
);
create unique index approval_pending_key on approval (kind, subject) where state = 'pending';
create unique index approval_approved_ledger_key on approval (subject) where kind = 'ledger' and state = 'approved';
create index approval_requested_idx on approval (requested_at, id);
create index approval_touches_idx on approval using gin (touches) where state = 'approved';

create function approval_is_kept() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' then
        if old.state = 'pending'
           and (new.id, new.kind, new.subject, new.action, new.details, new.touches, new.version, new.maker, new.reason,
                new.evidence, new.requested_at, new.expires_at)
               = (old.id, old.kind, old.subject, old.action, old.details, old.touches, old.version, old.maker, old.reason,
                  old.evidence, old.requested_at, old.expires_at) then
            return new;
        end if;
    end if;
    raise exception 'a request is decided once and never changed'
        using errcode = 'check_violation', constraint = 'approval_immutable', table = 'approval';
end $$;
create trigger approval_immutable before update or delete on approval
    for each row execute function approval_is_kept();
create trigger approval_not_truncated before truncate on approval
    for each statement execute function approval_is_kept();
