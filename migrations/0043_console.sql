-- Operators of the console: their roles, sign-in links and sessions, and a record of what they were refused and of the
-- personal data that they read.

create table operator (
    id           text not null,
    -- The name that requests, approvals and the audit log have.
    name         text not null,
    roles        text[] not null,
    created_by   text not null,
    created_at   timestamptz not null default clock_timestamp(),
    disabled_at  timestamptz,
    constraint operator_pkey primary key (id),
    constraint operator_name_given check (name = trim(name) and length(name) between 1 and 64),
    constraint operator_roles_known check (
        roles <@ array['viewer', 'support', 'operator', 'treasury', 'approver', 'admin', 'auditor']
        and cardinality(roles) > 0
    )
);
-- Two operators never share a name, as names are compared when two operators are needed.
create unique index operator_name_key on operator (lower(name));

-- Sign-in links. A link is used once, except those of a sandbox.
create table operator_link (
    -- SHA-256 of the token, which is not stored.
    token_hash   bytea not null,
    operator_id  text not null,
    reusable     boolean not null default false,
    created_at   timestamptz not null default clock_timestamp(),
    expires_at   timestamptz not null,
    used_at      timestamptz,
    constraint operator_link_pkey primary key (token_hash),
    constraint operator_link_operator_fkey foreign key (operator_id) references operator (id),
    constraint operator_link_hash_length check (octet_length(token_hash) = 32)
);
create index operator_link_operator_idx on operator_link (operator_id);
create index operator_link_expiry_idx on operator_link (expires_at);

create function operator_link_fits_deployment() returns trigger language plpgsql as $$
begin
    if new.reusable and (select environment from deployment) = 'live' then
        raise check_violation using message = 'a live deployment has no reusable sign-in links',
            constraint = 'operator_link_fits_deployment';
    end if;
    return new;
end $$;
create trigger operator_link_fits_deployment before insert or update on operator_link
    for each row execute function operator_link_fits_deployment();

create table operator_session (
    -- SHA-256 of the token in the cookie.
    token_hash    bytea not null,
    operator_id   text not null,
    started_at    timestamptz not null default clock_timestamp(),
    -- Written at most once a minute.
    last_used_at  timestamptz not null default clock_timestamp(),
    ended_at      timestamptz,
    source        text not null,
    constraint operator_session_pkey primary key (token_hash),
    constraint operator_session_operator_fkey foreign key (operator_id) references operator (id),
    constraint operator_session_hash_length check (octet_length(token_hash) = 32)
);
create index operator_session_operator_idx on operator_session (operator_id, started_at);
create index operator_session_age_idx on operator_session (started_at);

-- Rows of the audit log that no other table has.
create table console_record (
    id        bigint generated always as identity,
    operator  text not null,
    action    text not null,
    -- What was requested, and the subject of it.
    route     text not null,
    subject   text not null,
    source    text not null,
    at        timestamptz not null default clock_timestamp(),
    constraint console_record_pkey primary key (id),
    constraint console_record_action_known check (action in ('signed_in', 'signed_out', 'refused', 'read'))
);
create trigger console_record_immutable before update or delete or truncate on console_record
    for each statement execute function operator_action_is_immutable();

create trigger console_record_audited after insert on console_record
    for each row execute function audit_append();
create trigger operator_audited after insert or update on operator
    for each row execute function audit_append();

-- Orders that ended without their output, newest first: rare rows among all orders.
create index execution_unfilled_idx on execution (accepted_at, reference)
    where state_name in ('conversion_failed', 'payout_failed', 'cancelled', 'expired', 'failed', 'reversed');
-- Payments by the bank's own reference.
create index bank_payment_bank_reference_idx on bank_payment (bank_reference) where bank_reference is not null;
