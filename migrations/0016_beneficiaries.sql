-- Recipients that a partner's orders name as bene_…:dest_…, entered by an operator or the partner and verified by
-- another operator, and the results of screening.

create table beneficiary (
    id          text not null,
    partner_id  text not null,
    name        text not null,
    country     text not null,
    address     jsonb,
    created_by  text not null,
    created_at  timestamptz not null default clock_timestamp(),
    erased_at   timestamptz,
    constraint beneficiary_pkey primary key (id),
    constraint beneficiary_partner_fkey foreign key (partner_id) references partner (id),
    constraint beneficiary_id_form check (id ~ '^bene_[0-9a-z]+$'),
    constraint beneficiary_given check (length(trim(name)) > 0 and length(trim(created_by)) > 0)
);
comment on table beneficiary is 'Recipients that a partner''s orders name, entered by an operator or by the partner.';
comment on column beneficiary.country is 'ISO 3166-1 alpha-2.';
comment on column beneficiary.erased_at is 'When its personal data was erased.';
create index beneficiary_partner_key on beneficiary (partner_id, created_at);
create trigger beneficiary_audited after insert or update on beneficiary
    for each row execute function audit_append();

create table destination (
    id               text not null,
    beneficiary_id   text not null,
    account          text not null,
    currency         text not null,
    payout_method    text not null,
    swift_code       text,
    bank             text,
    created_by       text not null,
    created_at       timestamptz not null default clock_timestamp(),
    verified_by      text,
    evidence         text,
    verified_at      timestamptz,
    disabled_by      text,
    disabled_reason  text,
    disabled_at      timestamptz,
    constraint destination_pkey primary key (id),
    constraint destination_beneficiary_fkey foreign key (beneficiary_id) references beneficiary (id),
    constraint destination_id_form check (id ~ '^dest_[0-9a-z]+$'),
    constraint destination_method_known check (payout_method in ('wire', 'swift', 'ach', 'sepa', 'sepa_instant')),
    constraint destination_given check (length(trim(account)) > 0 and length(trim(created_by)) > 0),
    constraint destination_verified_by_another check (lower(trim(verified_by)) <> lower(trim(created_by))),
    constraint destination_verified_whole check (
        (verified_at is null) = (verified_by is null) and (verified_at is null) = (evidence is null)),
    constraint destination_disabled_whole check (
        (disabled_at is null) = (disabled_by is null) and (disabled_at is null) = (disabled_reason is null))
);
comment on table destination is
    'Accounts of beneficiaries; an account''s details never change: other details are another destination.';
comment on column destination.currency is 'The currency of the account.';
create index destination_beneficiary_key on destination (beneficiary_id);
create trigger destination_audited after insert or update on destination
    for each row execute function audit_append();

-- Payouts use the verified data: a beneficiary never changes, and of a destination only its verification and its
-- disabling, once each.
create function beneficiary_is_immutable() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' then
        if old.erased_at is null and new.erased_at is not null
           and (old.id, old.partner_id, old.country, old.created_by, old.created_at, '[erased]')
               = (new.id, new.partner_id, new.country, new.created_by, new.created_at, new.name)
           and new.address is null then
            return new;
        end if;
    end if;
    raise exception 'a beneficiary is never changed: enter another one'
        using errcode = 'check_violation', constraint = 'beneficiary_immutable', table = 'beneficiary';
end $$;
comment on function beneficiary_is_immutable is
    'Refuses every change of a beneficiary, except the erasure of its personal data.';
create trigger beneficiary_immutable before update or delete on beneficiary
    for each row execute function beneficiary_is_immutable();
create trigger beneficiary_not_truncated before truncate on beneficiary
    for each statement execute function beneficiary_is_immutable();

create function destination_moves_forward() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' then
        -- Of an erased beneficiary.
        if old.disabled_at is not null and new.account = '[erased]' and new.swift_code is null and new.bank is null
           and exists (select from beneficiary b where b.id = old.beneficiary_id and b.erased_at is not null)
           and (old.id, old.beneficiary_id, old.currency, old.payout_method, old.created_by, old.created_at,
                old.verified_by, old.verified_at, old.disabled_by, old.disabled_at)
               is not distinct from
               (new.id, new.beneficiary_id, new.currency, new.payout_method, new.created_by, new.created_at,
                new.verified_by, new.verified_at, new.disabled_by, new.disabled_at) then
            return new;
        end if;
    end if;
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
comment on function destination_moves_forward is
    'Refuses every change of a destination, except its verification, its disabling, and the erasure of personal data.';
create trigger destination_immutable before update or delete on destination
    for each row execute function destination_moves_forward();

create table screening (
    id         bigint generated always as identity,
    reference  text not null,
    verdict    text not null,
    source     text not null,
    detail     text not null,
    at         timestamptz not null default clock_timestamp(),
    constraint screening_pkey primary key (id),
    constraint screening_verdict_known check (verdict in ('pass', 'hold', 'fail')),
    constraint screening_source_known check (source in ('list', 'hook', 'no_answer'))
);
comment on table screening is
    'Results of screening accepted orders, before any funds moved; the latest one of an order applies.';
comment on column screening.source is 'The list, the hook, or the hook''s missing answer.';
comment on column screening.detail is 'The matched entry of the list, or the case number of the screening service.';
create index screening_reference_idx on screening (reference, id);

create function screening_is_kept() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' then
        if order_is_erased(old.reference)
           and (old.id, old.reference, old.verdict, old.source, old.at)
               = (new.id, new.reference, new.verdict, new.source, new.at) then
            return new;
        end if;
    end if;
    raise exception 'a verdict of screening is never changed'
        using errcode = 'check_violation', constraint = 'screening_immutable', table = 'screening';
end $$;
comment on function screening_is_kept is
    'Refuses every change of a result, except the erasure of the order''s personal data.';
create trigger screening_immutable before update or delete on screening
    for each row execute function screening_is_kept();
create trigger screening_not_truncated before truncate on screening
    for each statement execute function screening_is_kept();
