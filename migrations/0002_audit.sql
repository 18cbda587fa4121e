-- The audit log: one row for each action of an operator, in a chain of hashes, so that a row that is changed, inserted
-- or removed makes every later hash wrong. The head is anchored on a chain every day. An entry is erased only as an
-- entry of the log itself says: it names the erased entry and the hash of what is left of it. The erased entry keeps
-- its hash, so that the chain of hashes stays whole.

create function audit_subject(source text, entry text) returns text language sql immutable as $$
    select case source when 'operator_action' then entry::jsonb ->> 'reference'
                       when 'approval' then entry::jsonb ->> 'subject'
                       when 'beneficiary' then entry::jsonb ->> 'id'
                       when 'destination' then entry::jsonb ->> 'beneficiary_id' end
$$;
comment on function audit_subject is
    'The order or the beneficiary that an entry with free text or personal data is about.';

create table audit_entry (
    seq        bigint not null,
    at         timestamptz not null,
    source     text not null,
    entry      text not null,
    previous   bytea not null,
    hash       bytea not null,
    erased_at  timestamptz,
    constraint audit_entry_pkey primary key (seq),
    constraint audit_entry_previous_key unique (previous),
    constraint audit_entry_hash_length check (octet_length(previous) = 32 and octet_length(hash) = 32)
);
comment on table audit_entry is
    'The audit log: one row for each action of an operator, each with the hash of the one before.';
comment on column audit_entry.source is 'The table of the action.';
comment on column audit_entry.entry is 'The row of that table as it was written, without secrets.';
comment on column audit_entry.previous is 'Hash of the previous row.';
comment on column audit_entry.hash is 'SHA-256 over the previous hash and this row.';
comment on column audit_entry.erased_at is 'When personal data was erased from the entry.';
create index audit_entry_subject_idx on audit_entry (audit_subject(source, entry))
    where source in ('operator_action', 'approval', 'beneficiary', 'destination');
create index audit_entry_at_idx on audit_entry (at);
create trigger audit_entry_announced after insert on audit_entry
    for each row execute function console_announce('audit');

create table audit_head (
    is_only  boolean not null default true,
    seq      bigint not null,
    hash     bytea not null,
    constraint audit_head_pkey primary key (is_only),
    constraint audit_head_is_only check (is_only)
);
comment on table audit_head is
    'The last row of the audit log; each transaction that appends locks it, so that rows follow each other in the '
    'order of commits.';
insert into audit_head (seq, hash) values (0, decode(repeat('00', 32), 'hex'));

create table audit_erasure (
    seq         bigint not null,
    entry_hash  bytea not null,
    subject     text not null,
    erased_at   timestamptz not null default clock_timestamp(),
    constraint audit_erasure_pkey primary key (seq, entry_hash)
);
comment on table audit_erasure is 'Entries of the audit log whose personal data was erased.';
comment on column audit_erasure.entry_hash is 'SHA-256 of the text that is left.';
comment on column audit_erasure.subject is 'Why: an order or a beneficiary.';

create table audit_anchor (
    day          date not null,
    seq          bigint not null,
    hash         bytea not null,
    chain_id     bigint not null,
    tx_hash      text,
    anchored_at  timestamptz,
    constraint audit_anchor_pkey primary key (day),
    constraint audit_anchor_hash_key unique (hash)
);
comment on table audit_anchor is 'Heads of the audit log that were anchored on a chain, one a day.';
comment on column audit_anchor.tx_hash is 'The transaction, once the chain has it.';

create function audit_text(seq bigint, at timestamptz, source text, entry text) returns text language sql stable
    return seq::text || E'\n' || to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || E'\n' || source
           || E'\n' || entry;
comment on function audit_text is
    'The text that a row''s hash covers beside the previous hash; verification computes the same.';

create function audit_append() returns trigger language plpgsql as $$
declare
    head audit_head;
    body text := (to_jsonb(new) - coalesce(tg_argv::text[], '{}'))::text;
    stamp timestamptz := clock_timestamp();
    link bytea;
begin
    select * into strict head from audit_head for update;
    link := sha256(head.hash || convert_to(audit_text(head.seq + 1, stamp, tg_table_name, body), 'UTF8'));
    insert into audit_entry (seq, at, source, entry, previous, hash)
    values (head.seq + 1, stamp, tg_table_name, body, head.hash, link);
    update audit_head set seq = head.seq + 1, hash = link;
    return null;
end $$;
comment on function audit_append is
    'Appends the written row to the audit log, without the columns that the trigger''s arguments name.';
create trigger audit_erasure_audited after insert on audit_erasure
    for each row execute function audit_append();

create function audit_is_immutable() returns trigger language plpgsql as $$
begin
    raise exception 'the audit log is never changed'
        using errcode = 'check_violation', constraint = 'audit_immutable', table = tg_table_name;
end $$;
comment on function audit_is_immutable is 'Refuses every change of the audit log, its head and its erasures.';
create trigger audit_head_immutable before delete or truncate on audit_head
    for each statement execute function audit_is_immutable();
create trigger audit_erasure_immutable before update or delete or truncate on audit_erasure
    for each statement execute function audit_is_immutable();
create trigger audit_entry_not_truncated before truncate on audit_entry
    for each statement execute function audit_is_immutable();

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
comment on function audit_entry_stays is
    'Refuses every change of an entry, except the erasure that an entry of the log has announced.';
create trigger audit_entry_immutable before update or delete on audit_entry
    for each row execute function audit_entry_stays();
