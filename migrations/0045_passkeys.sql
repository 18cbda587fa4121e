-- Passkeys of operators, the challenges that are signed with them, and when a session was last authenticated.

-- What authenticators store of an operator: random, so that it says nothing about the operator.
alter table operator add column handle uuid not null default gen_random_uuid();
create unique index operator_handle_key on operator (handle);

alter table operator_session
    -- How the session began.
    add column method text not null default 'link',
    -- The last authentication by a passkey or a code. Null: there was none.
    add column authenticated_at timestamptz,
    add constraint operator_session_method_known
        check (method in ('link', 'reusable_link', 'passkey', 'password', 'oidc'));

create function operator_session_fits_deployment() returns trigger language plpgsql as $$
begin
    if new.method = 'reusable_link' and (select environment from deployment) = 'live' then
        raise check_violation using message = 'a live deployment has no sessions of reusable sign-in links',
            constraint = 'operator_session_fits_deployment';
    end if;
    return new;
end $$;
create trigger operator_session_fits_deployment before insert or update on operator_session
    for each row execute function operator_session_fits_deployment();

create table operator_passkey (
    id             text not null,
    operator_id    text not null,
    -- The operator's own name of it.
    name           text not null,
    credential_id  bytea not null,
    -- The public key, and what was fixed at the registration.
    static_state   bytea not null,
    -- The signature counter, and whether the passkey is backed up.
    dynamic_state  bytea not null,
    transports     smallint not null,
    created_at     timestamptz not null default clock_timestamp(),
    last_used_at   timestamptz,
    constraint operator_passkey_pkey primary key (id),
    constraint operator_passkey_credential_key unique (credential_id),
    constraint operator_passkey_operator_fkey foreign key (operator_id) references operator (id),
    constraint operator_passkey_name_given check (name = trim(name) and length(name) between 1 and 64)
);
create index operator_passkey_operator_idx on operator_passkey (operator_id, created_at);

-- Challenges. One is deleted when it is answered, whatever the answer.
create table operator_challenge (
    challenge    bytea not null,
    purpose      text not null,
    -- The operator who answers it. Null: whoever signs in.
    operator_id  text,
    state        bytea not null,
    expires_at   timestamptz not null,
    constraint operator_challenge_pkey primary key (challenge),
    constraint operator_challenge_operator_fkey foreign key (operator_id) references operator (id),
    constraint operator_challenge_purpose_known check (
        purpose in ('sign_in', 'register', 'step_up') and (purpose = 'sign_in') = (operator_id is null)
    )
);
create index operator_challenge_expiry_idx on operator_challenge (expires_at);

alter table console_record drop constraint console_record_action_known;
alter table console_record add constraint console_record_action_known check (
    action in ('signed_in', 'signed_out', 'refused', 'read', 'acted', 'failed', 'registered', 'removed', 'stepped_up')
);
