-- The audit log: one row for each action of an operator, in a chain of hashes, so that a row that is changed, inserted
-- or removed makes every later hash wrong. The head is anchored on the chain every day.

create table audit_entry (
    seq       bigint not null,
    at        timestamptz not null,
    -- The table of the action, and its row as it was written, without secrets.
    source    text not null,
    entry     text not null,
    -- Hash of the previous row, and SHA-256 over it and this row.
    previous  bytea not null,
    hash      bytea not null,
    constraint audit_entry_pkey primary key (seq),
    constraint audit_entry_previous_key unique (previous),
    constraint audit_entry_hash_length check (octet_length(previous) = 32 and octet_length(hash) = 32)
);

-- The last row. Locked by each transaction that appends, so that rows follow each other in the order of commits.
create table audit_head (
    is_only  boolean not null default true,
    seq      bigint not null,
    hash     bytea not null,
    constraint audit_head_pkey primary key (is_only),
    constraint audit_head_is_only check (is_only)
);
insert into audit_head (seq, hash) values (0, decode(repeat('00', 32), 'hex'));

-- The text that a row's hash covers beside the previous hash. Verification computes the same.
create function audit_text(seq bigint, at timestamptz, source text, entry text) returns text language sql stable
    return seq::text || E'\n' || to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || E'\n' || source
           || E'\n' || entry;

-- Appends the row of the trigger's table, without the columns named by its arguments.
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

create function audit_is_immutable() returns trigger language plpgsql as $$
begin
    raise exception 'the audit log is never changed'
        using errcode = 'check_violation', constraint = 'audit_immutable', table = tg_table_name;
end $$;
create trigger audit_entry_immutable before update or delete or truncate on audit_entry
    for each statement execute function audit_is_immutable();
create trigger audit_head_immutable before delete or truncate on audit_head
    for each statement execute function audit_is_immutable();

create trigger operator_action_audited after insert on operator_action
    for each row execute function audit_append();
create trigger approval_audited after insert or update on approval
    for each row execute function audit_append();
create trigger pause_change_audited after insert on pause_change
    for each row execute function audit_append();
create trigger partner_action_audited after insert on partner_action
    for each row execute function audit_append();
create trigger partner_audited after insert on partner
    for each row execute function audit_append();
create trigger api_key_audited after insert or update of disabled_at, revoked_at on api_key
    for each row execute function audit_append('key_hash', 'hash_key', 'sealed_secret');
create trigger fix_session_audited after insert on fix_session
    for each row execute function audit_append('password_hash', 'password_key', 'logon_secret');
create trigger fix_session_command_audited after insert on fix_session_command
    for each row execute function audit_append();
create trigger beneficiary_audited after insert on beneficiary
    for each row execute function audit_append();
create trigger destination_audited after insert or update on destination
    for each row execute function audit_append();

-- Heads that were anchored, one a day.
create table audit_anchor (
    day          date not null,
    seq          bigint not null,
    hash         bytea not null,
    chain_id     bigint not null,
    -- Set once the chain has it.
    tx_hash      text,
    anchored_at  timestamptz,
    constraint audit_anchor_pkey primary key (day),
    constraint audit_anchor_hash_key unique (hash)
);
