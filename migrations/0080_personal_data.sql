-- Personal data is erased from what has ended: by age, and when two operators have decided it for an order or a
-- beneficiary. Amounts, references, hashes and times stay, so that the books, the receipts' anchors and the audit log do.

alter table approval drop constraint approval_kind_known;
alter table approval add constraint approval_kind_known
    check (kind in ('execution', 'ledger', 'limit', 'band', 'maker', 'credential', 'operator', 'personal_data'));

-- When its personal data was erased. Until then, what has ended waits in an index for its age.
alter table execution add column personal_erased_at timestamptz;
create index execution_personal_idx on execution (terminal_at)
    where terminal_at is not null and personal_erased_at is null;
-- Of a rejected intent: its request is in this table.
alter table intent add column personal_erased_at timestamptz;
create index intent_personal_idx on intent (created_at) where reference is null and personal_erased_at is null;
alter table beneficiary add column erased_at timestamptz;

-- Replaces words, in upper or lower case.
create function erase_words(content text, words jsonb) returns text language plpgsql immutable as $$
declare
    word text;
begin
    for word in select value from jsonb_array_elements_text(words) order by length(value) desc loop
        -- Everything after these characters is literal.
        content := regexp_replace(content, '***=' || word, '[erased]', 'gi');
    end loop;
    return content;
end $$;

-- The same in the strings of a document: its names and its shape stay.
create function erase_strings(document jsonb, words jsonb) returns jsonb language plpgsql immutable as $$
begin
    return case jsonb_typeof(document)
        when 'string' then to_jsonb(erase_words(document #>> '{}', words))
        when 'array' then coalesce((select jsonb_agg(erase_strings(value, words) order by place)
                                    from jsonb_array_elements(document) with ordinality as a (value, place)), '[]')
        when 'object' then coalesce((select jsonb_object_agg(key, erase_strings(value, words))
                                     from jsonb_each(document)), '{}')
        else document end;
end $$;

-- Of an order whose personal data was erased, free text may be changed, and nothing else.
create function order_is_erased(order_reference text) returns boolean language sql stable as $$
    select exists (select from execution where reference = order_reference and personal_erased_at is not null)
$$;

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
drop trigger operator_action_immutable on operator_action;
create trigger operator_action_immutable before update or delete on operator_action
    for each row execute function operator_action_stays();
create trigger operator_action_not_truncated before truncate on operator_action
    for each statement execute function operator_action_is_immutable();

create or replace function screening_is_kept() returns trigger language plpgsql as $$
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

create or replace function approval_is_kept() returns trigger language plpgsql as $$
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

create or replace function beneficiary_is_immutable() returns trigger language plpgsql as $$
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
drop trigger beneficiary_immutable on beneficiary;
create trigger beneficiary_immutable before update or delete on beneficiary
    for each row execute function beneficiary_is_immutable();
create trigger beneficiary_not_truncated before truncate on beneficiary
    for each statement execute function beneficiary_is_immutable();
drop trigger beneficiary_audited on beneficiary;
create trigger beneficiary_audited after insert or update on beneficiary
    for each row execute function audit_append();

create or replace function destination_moves_forward() returns trigger language plpgsql as $$
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

-- The audit log has copies of what operators wrote. An entry is erased only as an entry of the log itself says: it names
-- the erased entry and the hash of what is left of it. The erased entry keeps its hash, so that the chain of hashes does.

create table audit_erasure (
    seq         bigint not null,
    -- SHA-256 of the text that is left.
    entry_hash  bytea not null,
    -- Why: an order or a beneficiary.
    subject     text not null,
    erased_at   timestamptz not null default clock_timestamp(),
    constraint audit_erasure_pkey primary key (seq, entry_hash)
);
create trigger audit_erasure_audited after insert on audit_erasure
    for each row execute function audit_append();
create trigger audit_erasure_immutable before update or delete or truncate on audit_erasure
    for each statement execute function audit_is_immutable();
alter table audit_entry add column erased_at timestamptz;

create function audit_entry_stays() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' then
        if (old.seq, old.at, old.source, old.previous, old.hash) = (new.seq, new.at, new.source, new.previous, new.hash)
           and new.erased_at is not null
           and exists (select from audit_erasure e
                       where e.seq = new.seq and e.entry_hash = sha256(convert_to(new.entry, 'UTF8'))) then
            return new;
        end if;
    end if;
    raise exception 'the audit log is never changed'
        using errcode = 'check_violation', constraint = 'audit_immutable', table = 'audit_entry';
end $$;
drop trigger audit_entry_immutable on audit_entry;
create trigger audit_entry_immutable before update or delete on audit_entry
    for each row execute function audit_entry_stays();
create trigger audit_entry_not_truncated before truncate on audit_entry
    for each statement execute function audit_is_immutable();

-- The order or the beneficiary that an entry with free text or personal data is about.
create function audit_subject(source text, entry text) returns text language sql immutable as $$
    select case source when 'operator_action' then entry::jsonb ->> 'reference'
                       when 'approval' then entry::jsonb ->> 'subject'
                       when 'beneficiary' then entry::jsonb ->> 'id'
                       when 'destination' then entry::jsonb ->> 'beneficiary_id' end
$$;
create index audit_entry_subject_idx on audit_entry (audit_subject(source, entry))
    where source in ('operator_action', 'approval', 'beneficiary', 'destination');

-- Messages of FIX sessions that may repeat an erased account: a job reads them in pages, the newest of that moment last.
create table fix_erasure (
    id          bigint generated always as identity,
    session_id  text not null,
    account     text not null,
    after_seq   bigint not null default 0,
    until_seq   bigint not null,
    constraint fix_erasure_pkey primary key (id)
);

-- Erasing a batch of orders makes their statuses stale and no others.
drop trigger event_history_change_notify on event_history;
create trigger event_history_change_notify after update on event_history
    referencing old table as changed for each statement execute function tell_changed_executions();
create trigger event_history_end_notify after delete or truncate on event_history
    for each statement execute function tell_all_executions();
drop trigger intent_change_notify on intent;
create trigger intent_change_notify
    after update of partner_id, livemode, intent_id, client_reference, reference or delete or truncate on intent
    for each statement execute function tell_all_executions();
