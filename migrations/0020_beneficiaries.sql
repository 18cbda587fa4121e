-- Recipients that a partner's orders name as bene_…:dest_…, entered by one operator and verified by another.

create table beneficiary (
    id           text not null,
    partner_id   text not null,
    name         text not null,
    -- ISO 3166-1 alpha-2.
    country      text not null,
    address      jsonb,
    created_by   text not null,
    created_at   timestamptz not null default clock_timestamp(),
    constraint beneficiary_pkey primary key (id),
    constraint beneficiary_partner_fkey foreign key (partner_id) references partner (id),
    constraint beneficiary_id_form check (id ~ '^bene_[0-9a-z]+$'),
    constraint beneficiary_given check (length(trim(name)) > 0 and length(trim(created_by)) > 0)
);
create index beneficiary_partner_key on beneficiary (partner_id, created_at);

-- An account of a beneficiary. Its details never change: other details are another destination.
create table destination (
    id              text not null,
    beneficiary_id  text not null,
    account         text not null,
    -- The currency of the account.
    currency        text not null,
    payout_method   text not null,
    swift_code      text,
    bank            text,
    created_by      text not null,
    created_at      timestamptz not null default clock_timestamp(),
    verified_by     text,
    evidence        text,
    verified_at     timestamptz,
    disabled_by     text,
    disabled_reason text,
    disabled_at     timestamptz,
    constraint destination_pkey primary key (id),
    constraint destination_beneficiary_fkey foreign key (beneficiary_id) references beneficiary (id),
    constraint destination_id_form check (id ~ '^dest_[0-9a-z]+$'),
    constraint destination_method_known check (payout_method in ('wire', 'swift', 'ach', 'sepa')),
    constraint destination_given check (length(trim(account)) > 0 and length(trim(created_by)) > 0),
    constraint destination_verified_by_another check (lower(trim(verified_by)) <> lower(trim(created_by))),
    constraint destination_verified_whole check (
        (verified_at is null) = (verified_by is null) and (verified_at is null) = (evidence is null)),
    constraint destination_disabled_whole check (
        (disabled_at is null) = (disabled_by is null) and (disabled_at is null) = (disabled_reason is null))
);
create index destination_beneficiary_key on destination (beneficiary_id);

-- Payouts use the verified data: a beneficiary never changes, and of a destination only its verification and its
-- disabling, once each.
create function beneficiary_is_immutable() returns trigger language plpgsql as $$
begin
    raise exception 'a beneficiary is never changed: enter another one'
        using errcode = 'check_violation', constraint = 'beneficiary_immutable', table = 'beneficiary';
end $$;
create trigger beneficiary_immutable before update or delete or truncate on beneficiary
    for each statement execute function beneficiary_is_immutable();

create function destination_moves_forward() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE'
        or (old.id, old.beneficiary_id, old.account, old.currency, old.payout_method, old.swift_code, old.bank,
            old.created_by, old.created_at)
           is distinct from
           (new.id, new.beneficiary_id, new.account, new.currency, new.payout_method, new.swift_code, new.bank,
            new.created_by, new.created_at)
        or old.verified_at is not null
           and (old.verified_at, old.verified_by, old.evidence) is distinct from (new.verified_at, new.verified_by, new.evidence)
        or old.disabled_at is not null and old is distinct from new
    then
        raise exception 'a destination''s details are never changed: enter another one'
            using errcode = 'check_violation', constraint = 'destination_immutable', table = 'destination';
    end if;
    return new;
end $$;
create trigger destination_immutable before update or delete on destination
    for each row execute function destination_moves_forward();
