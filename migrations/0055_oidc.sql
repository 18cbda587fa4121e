-- Operators who sign in at an identity provider (OpenID Connect).

create table operator_identity (
    operator_id  text not null,
    -- The verified address by which the operator is found the first time. Null: it does not sign in there any more.
    email        text,
    -- The account at the provider from the first sign-in on: another account with the same address is refused.
    issuer       text,
    subject      text,
    created_at   timestamptz not null default clock_timestamp(),
    constraint operator_identity_pkey primary key (operator_id),
    constraint operator_identity_operator_fkey foreign key (operator_id) references operator (id),
    constraint operator_identity_subject_key unique (issuer, subject),
    constraint operator_identity_subject_whole check ((issuer is null) = (subject is null)),
    constraint operator_identity_email_given check (email = trim(email) and length(email) between 3 and 254)
);
create unique index operator_identity_email_key on operator_identity (lower(email));
create trigger operator_identity_audited after insert or update of email, subject on operator_identity
    for each row execute function audit_append();

alter table operator_challenge drop constraint operator_challenge_purpose_known;
alter table operator_challenge add constraint operator_challenge_purpose_known check (
    purpose in ('sign_in', 'register', 'step_up', 'oidc')
    and (purpose in ('sign_in', 'oidc')) = (operator_id is null)
);
