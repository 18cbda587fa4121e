-- Operators end, reset and renumber FIX sessions while the service runs. Only the process that owns a session can do
-- that, because it counts the session's numbers in memory: what is asked of it is a row that it carries out once and
-- answers. The rows stay, as the record of who did what and why; enabling and disabling a session is recorded here, too.

create table fix_session_command (
    id          bigint generated always as identity,
    session_id  text not null,
    action      text not null,
    -- Of `set_seq`: the numbers, and whether unseen reports move to the numbers from next_out on.
    next_in     bigint,
    next_out    bigint,
    with_reset  boolean not null default false,
    operator    text not null,
    reason      text not null,
    asked_at    timestamptz not null default now(),
    -- A command is taken once, by the process that then owns the session.
    taken_by    uuid,
    taken_at    timestamptz,
    -- What came of it, in words; `failed` tells success from failure.
    outcome     text,
    failed      boolean not null default false,
    done_at     timestamptz,
    constraint fix_session_command_pkey primary key (id),
    constraint fix_session_command_session_fkey foreign key (session_id) references fix_session (session_id),
    constraint fix_session_command_action_known
        check (action in ('logout', 'reset', 'set_seq', 'enable', 'disable')),
    constraint fix_session_command_numbers_for_set_seq
        check ((action = 'set_seq') = (next_in is not null and next_out is not null)),
    constraint fix_session_command_numbers_begin_at_one check (next_in >= 1 and next_out >= 1),
    constraint fix_session_command_operator_given check (length(trim(operator)) > 0 and length(trim(reason)) > 0)
);
create index fix_session_command_open_idx on fix_session_command (id) where outcome is null;
create index fix_session_command_session_idx on fix_session_command (session_id, id);

-- Processes that own sessions learn at once that one was added, changed, enabled or disabled, or that a command waits.
create function fix_session_announce() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_fix_session', new.session_id);
    return null;
end $$;
create trigger fix_session_changed
    after insert or update of enabled, username, password_hash, default_appl_ver_id, reset_on_logon, reset_allowed,
        max_slippage_bps, allowed_sources, client_cert_sha256, client_cert_names, logon_secret, logon_window_secs,
        soft_messages_per_sec, hard_messages_per_sec, admin_messages_per_sec, resend_request_chunk,
        last_msg_seq_num_processed, next_expected_msg_seq_num, max_latency_secs, schedule, drop_copy,
        cancel_on_disconnect_secs
    on fix_session for each row execute function fix_session_announce();
create trigger fix_session_command_asked
    after insert on fix_session_command for each row execute function fix_session_announce();
