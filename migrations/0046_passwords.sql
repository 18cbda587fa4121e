-- Passwords of operators, each with the secret of its one-time codes, and attempts to guess them.

create table operator_password (
    operator_id  text not null,
    -- Argon2id, as a PHC string.
    hash         text not null,
    -- The secret of the codes (RFC 6238), encrypted under the master key for the operator's id.
    sealed_totp  bytea not null,
    -- The interval of the last code that was accepted: none is accepted twice.
    last_step    bigint not null,
    created_at   timestamptz not null default clock_timestamp(),
    constraint operator_password_pkey primary key (operator_id),
    constraint operator_password_operator_fkey foreign key (operator_id) references operator (id)
);

-- Attempts since `since`, by a name that was typed, known or not, or by an address.
create table operator_attempt (
    kind      text not null,
    -- SHA-256 of the name or the address.
    subject   bytea not null,
    attempts  integer not null,
    since     timestamptz not null,
    constraint operator_attempt_pkey primary key (kind, subject),
    constraint operator_attempt_kind_known check (kind in ('name', 'source')),
    constraint operator_attempt_subject_length check (octet_length(subject) = 32)
);
create index operator_attempt_age_idx on operator_attempt (since);
