-- Operators of the console: their roles, the ways in which they sign in, their sessions, and the record of what no
-- other table has.

create table operator (
    id           text not null,
    name         text not null,
    roles        text[] not null,
    created_by   text not null,
    created_at   timestamptz not null default clock_timestamp(),
    disabled_at  timestamptz,
    handle       uuid not null default gen_random_uuid(),
    constraint operator_pkey primary key (id),
    constraint operator_name_given check (name = trim(name) and length(name) between 1 and 64),
    constraint operator_roles_known check (
        roles <@ array['viewer', 'support', 'operator', 'treasury', 'approver', 'admin', 'auditor']
        and cardinality(roles) > 0
    )
);
comment on table operator is 'The operators of the console.';
comment on column operator.name is 'The name that requests, approvals and the audit log have.';
comment on column operator.handle is
    'What authenticators store of the operator: random, so that it says nothing about the operator.';
-- Two operators never share a name, as names are compared when two operators are needed.
create unique index operator_name_key on operator (lower(name));
create unique index operator_handle_key on operator (handle);
create trigger operator_audited after insert or update on operator
    for each row execute function audit_append();
create trigger operator_announced after insert or update on operator
    for each row execute function console_announce('operators');

create table operator_link (
    token_hash   bytea not null,
    operator_id  text not null,
    reusable     boolean not null default false,
    created_at   timestamptz not null default clock_timestamp(),
    expires_at   timestamptz not null,
    used_at      timestamptz,
    code_hash    bytea,
    approval_id  text,
    constraint operator_link_pkey primary key (token_hash),
    constraint operator_link_operator_fkey foreign key (operator_id) references operator (id),
    constraint operator_link_hash_length check (octet_length(token_hash) = 32),
    constraint operator_link_code_hash_length check (octet_length(code_hash) = 32),
    constraint operator_link_approval_fkey foreign key (approval_id) references approval (id),
    constraint operator_link_approval_key unique (approval_id),
    constraint operator_link_approved_has_code check (approval_id is null or code_hash is not null)
);
comment on table operator_link is 'Sign-in links; each is used once, except those of a sandbox.';
comment on column operator_link.token_hash is 'SHA-256 of the token, which is not stored.';
comment on column operator_link.code_hash is 'SHA-256 of the code that the link needs; null: the link needs none.';
comment on column operator_link.approval_id is
    'The request that the link was made for; the link is shown to the operator who approved it, and the code to the '
    'one who requested it.';
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
comment on function operator_link_fits_deployment is 'Refuses reusable links in a live deployment.';
create trigger operator_link_fits_deployment before insert or update on operator_link
    for each row execute function operator_link_fits_deployment();

create table operator_session (
    token_hash        bytea not null,
    operator_id       text not null,
    started_at        timestamptz not null default clock_timestamp(),
    last_used_at      timestamptz not null default clock_timestamp(),
    ended_at          timestamptz,
    source            text not null,
    method            text not null default 'link',
    authenticated_at  timestamptz,
    constraint operator_session_pkey primary key (token_hash),
    constraint operator_session_operator_fkey foreign key (operator_id) references operator (id),
    constraint operator_session_hash_length check (octet_length(token_hash) = 32),
    constraint operator_session_method_known check (method in ('link', 'reusable_link', 'passkey', 'password', 'oidc'))
);
comment on table operator_session is 'Sessions of the console.';
comment on column operator_session.token_hash is 'SHA-256 of the token in the cookie.';
comment on column operator_session.last_used_at is 'Written at most once a minute.';
comment on column operator_session.method is 'How the session began.';
comment on column operator_session.authenticated_at is
    'The last authentication by a passkey or a code; null: there was none.';
create index operator_session_operator_idx on operator_session (operator_id, started_at);
create index operator_session_age_idx on operator_session (started_at);
create trigger operator_session_announced after insert or update of ended_at on operator_session
    for each row execute function console_announce('operators');

create function operator_session_fits_deployment() returns trigger language plpgsql as $$
begin
    if new.method = 'reusable_link' and (select environment from deployment) = 'live' then
        raise check_violation using message = 'a live deployment has no sessions of reusable sign-in links',
            constraint = 'operator_session_fits_deployment';
    end if;
    return new;
end $$;
comment on function operator_session_fits_deployment is 'Refuses sessions of reusable links in a live deployment.';
create trigger operator_session_fits_deployment before insert or update on operator_session
    for each row execute function operator_session_fits_deployment();

create table operator_token (
    id            text not null default 'tok_' || gen_random_uuid(),
    token_hash    bytea not null,
    operator_id   text not null,
    kind          text not null,
    machine       text not null default '',
    actions       text[] not null default '{}',
    source        text,
    created_at    timestamptz not null default clock_timestamp(),
    expires_at    timestamptz not null,
    last_used_at  timestamptz,
    ended_at      timestamptz,
    constraint operator_token_pkey primary key (token_hash),
    constraint operator_token_id_key unique (id),
    constraint operator_token_operator_fkey foreign key (operator_id) references operator (id),
    constraint operator_token_hash_length check (octet_length(token_hash) = 32),
    constraint operator_token_kind_known check (kind in ('login', 'service')),
    constraint operator_token_service_has_actions check ((kind = 'service') = (cardinality(actions) > 0))
);
comment on table operator_token is 'Tokens by which operators act without a session of the console.';
comment on column operator_token.token_hash is 'SHA-256 of the token, which is not stored.';
comment on column operator_token.machine is 'Where `dvp login` was run.';
comment on column operator_token.actions is 'What a service operator may do by it.';
comment on column operator_token.source is 'The address of its first use; a token of `dvp login` is good from there only.';
create index operator_token_operator_idx on operator_token (operator_id);
create index operator_token_expiry_idx on operator_token (expires_at);
create trigger operator_token_audited after insert or update of ended_at on operator_token
    for each row execute function audit_append();

create table operator_passkey (
    id             text not null,
    operator_id    text not null,
    name           text not null,
    credential_id  bytea not null,
    static_state   bytea not null,
    dynamic_state  bytea not null,
    transports     smallint not null,
    created_at     timestamptz not null default clock_timestamp(),
    last_used_at   timestamptz,
    constraint operator_passkey_pkey primary key (id),
    constraint operator_passkey_credential_key unique (credential_id),
    constraint operator_passkey_operator_fkey foreign key (operator_id) references operator (id),
    constraint operator_passkey_name_given check (name = trim(name) and length(name) between 1 and 64)
);
comment on table operator_passkey is 'Passkeys of operators.';
comment on column operator_passkey.name is 'The operator''s own name of it.';
comment on column operator_passkey.static_state is 'The public key, and what was fixed at the registration.';
comment on column operator_passkey.dynamic_state is 'The signature counter, and whether the passkey is backed up.';
create index operator_passkey_operator_idx on operator_passkey (operator_id, created_at);

create table operator_challenge (
    challenge    bytea not null,
    purpose      text not null,
    operator_id  text,
    state        bytea not null,
    expires_at   timestamptz not null,
    constraint operator_challenge_pkey primary key (challenge),
    constraint operator_challenge_operator_fkey foreign key (operator_id) references operator (id),
    constraint operator_challenge_purpose_known check (
        purpose in ('sign_in', 'register', 'step_up', 'oidc')
        and (purpose in ('sign_in', 'oidc')) = (operator_id is null)
    )
);
comment on table operator_challenge is
    'Challenges of passkeys and of identity providers; one is deleted when it is answered, whatever the answer.';
comment on column operator_challenge.operator_id is 'The operator who answers it; null: whoever signs in.';
create index operator_challenge_expiry_idx on operator_challenge (expires_at);

create table operator_password (
    operator_id  text not null,
    hash         text not null,
    sealed_totp  bytea not null,
    last_step    bigint not null,
    created_at   timestamptz not null default clock_timestamp(),
    constraint operator_password_pkey primary key (operator_id),
    constraint operator_password_operator_fkey foreign key (operator_id) references operator (id)
);
comment on table operator_password is 'Passwords of operators, each with the secret of its one-time codes.';
comment on column operator_password.hash is 'Argon2id, as a PHC string.';
comment on column operator_password.sealed_totp is
    'The secret of the codes (RFC 6238), encrypted under the master key for the operator''s id.';
comment on column operator_password.last_step is
    'The interval of the last code that was accepted: none is accepted twice.';

create table operator_attempt (
    kind      text not null,
    subject   bytea not null,
    attempts  integer not null,
    since     timestamptz not null,
    constraint operator_attempt_pkey primary key (kind, subject),
    constraint operator_attempt_kind_known check (kind in ('name', 'source')),
    constraint operator_attempt_subject_length check (octet_length(subject) = 32)
);
comment on table operator_attempt is
    'Attempts to guess a password since `since`, by a name that was typed, known or not, or by an address.';
comment on column operator_attempt.subject is 'SHA-256 of the name or the address.';
create index operator_attempt_age_idx on operator_attempt (since);

create table operator_identity (
    operator_id  text not null,
    email        text,
    issuer       text,
    subject      text,
    created_at   timestamptz not null default clock_timestamp(),
    constraint operator_identity_pkey primary key (operator_id),
    constraint operator_identity_operator_fkey foreign key (operator_id) references operator (id),
    constraint operator_identity_subject_key unique (issuer, subject),
    constraint operator_identity_subject_whole check ((issuer is null) = (subject is null)),
    constraint operator_identity_email_given check (email = trim(email) and length(email) between 3 and 254)
);
comment on table operator_identity is 'Operators who sign in at an identity provider (OpenID Connect).';
comment on column operator_identity.email is
    'The verified address by which the operator is found the first time; null: it does not sign in there any more.';
comment on column operator_identity.issuer is 'The identity provider of the first sign-in.';
comment on column operator_identity.subject is
    'The account there, from the first sign-in on: another account with the same address is refused.';
create unique index operator_identity_email_key on operator_identity (lower(email));
create trigger operator_identity_audited after insert or update of email, subject on operator_identity
    for each row execute function audit_append();

create table console_record (
    id        bigint generated always as identity,
    operator  text not null,
    action    text not null,
    route     text not null,
    subject   text not null,
    source    text not null,
    at        timestamptz not null default clock_timestamp(),
    constraint console_record_pkey primary key (id),
    constraint console_record_action_known
        check (action in ('signed_in', 'signed_out', 'refused', 'read', 'acted', 'failed', 'registered', 'removed',
                          'stepped_up'))
);
comment on table console_record is
    'Entries of the audit log that no other table has: sign-ins, refusals, personal data that was read, and actions '
    'without a table.';
comment on column console_record.route is 'What was requested.';
comment on column console_record.subject is 'The subject of the request.';
create trigger console_record_immutable before update or delete or truncate on console_record
    for each statement execute function operator_action_is_immutable();
create trigger console_record_audited after insert on console_record
    for each row execute function audit_append();

create table saved_view (
    operator  text not null,
    page      text not null,
    name      text not null,
    query     text not null,
    saved_at  timestamptz not null default clock_timestamp(),
    constraint saved_view_pkey primary key (operator, page, name),
    constraint saved_view_name_given check (name = trim(name) and length(name) between 1 and 60),
    constraint saved_view_query_length check (length(query) <= 500)
);
comment on table saved_view is 'Views of lists that operators have saved.';
comment on column saved_view.page is 'The page of the list.';
comment on column saved_view.query is 'The filter, as it is in the address of the page.';
