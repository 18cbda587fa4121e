-- FIX sessions: credentials and settings, sequence numbers, messages for resends, orders, and operators' commands.
-- The numbers, the effect and the report of an order are one transaction, so a number never stands for two messages.

create table fix_session (
    session_id                  text not null,
    partner_id                  text not null,
    livemode                    boolean not null,
    begin_string                text not null,
    -- The client's SenderCompID, and the service's.
    client_comp_id              text not null,
    service_comp_id             text not null,
    default_appl_ver_id         text,
    enabled                     boolean not null default true,

    -- Authentication. The password is not kept, only its keyed hash.
    username                    text not null,
    password_hash               bytea not null,
    -- Id of the master key of the hash.
    password_key                text not null,
    -- The encrypted secret by which Logons are signed; null: Logons have the password.
    logon_secret                bytea,
    -- The tolerated difference of a signed Logon's SendingTime(52) from the service's clock.
    logon_window_secs           integer not null default 30,
    -- SendingTime(52) of the latest signed Logon, in Unix nanoseconds. The next one has to be later, so that a
    -- signature is accepted once.
    logon_signed_at             bigint not null default 0,
    -- Networks from which the peer may connect; null: any.
    allowed_sources             cidr[],
    -- SHA-256 of certificates (DER), one of which the peer must present; null: none is required.
    client_cert_sha256          bytea[],
    -- DNS names, one of which the peer's certificate must have; null: none is required.
    client_cert_names           text[],

    -- Session rules. The schedule reads like `daily 08:00 Europe/Zurich to 22:00 Europe/Zurich`; null: always.
    schedule                    text,
    reset_on_logon              boolean not null default false,
    reset_allowed               boolean not null default true,
    -- Messages requested at once in a ResendRequest; null: all.
    resend_request_chunk        bigint,
    last_msg_seq_num_processed  boolean not null default false,
    next_expected_msg_seq_num   boolean not null default false,
    max_latency_secs            integer not null default 120,
    -- Application messages a second: beyond the soft limit each is refused, beyond the hard limit the session ends.
    soft_messages_per_sec       integer,
    hard_messages_per_sec       integer,
    -- Session messages a second, beyond which the session ends.
    admin_messages_per_sec      integer,

    -- Orders.
    max_slippage_bps            integer not null default 50,
    -- The largest age of an order by TransactTime(60); null: any.
    order_age_secs              integer,
    -- The largest age, by TransactTime(60) and OrigSendingTime(122), of an order that may have been sent before
    -- (PossDupFlag, PossResend); null: any.
    repeated_order_age_secs     integer default 120,
    -- How long after a disconnect orders that are not locking yet are cancelled; null: never.
    cancel_on_disconnect_secs   integer,
    -- Reports of all orders of the partner in its environment; no orders are accepted.
    drop_copy                   boolean not null default false,

    -- Progress. The next MsgSeqNum of each side.
    next_in                     bigint not null default 1,
    next_out                    bigint not null default 1,
    -- The window of the schedule to which the numbers belong, in days from 1970-01-01 to the date on which it began;
    -- null: not recorded yet. The numbers are reset when it changes, also when no process ran at that time.
    epoch                       bigint,
    -- The peer has received the service's messages up to this number, as far as is known; it may lag. A reset of the
    -- numbers gives new ones to the messages after it.
    seen_out                    bigint not null default 0,
    -- Messages after this number were never written to a socket; it may run ahead.
    written_out                 bigint not null default 0,
    -- The feed has been reported up to here.
    feed_position               bigint not null default 0,
    created_at                  timestamptz not null default now(),

    constraint fix_session_pkey primary key (session_id),
    constraint fix_session_comp_ids_key unique (begin_string, service_comp_id, client_comp_id),
    constraint fix_session_partner_fkey foreign key (partner_id) references partner (id),
    constraint fix_session_begin_string_known check (begin_string in ('FIX.4.2', 'FIX.4.4', 'FIXT.1.1')),
    constraint fix_session_appl_ver_id_for_fixt
        check ((begin_string = 'FIXT.1.1') = (default_appl_ver_id is not null)),
    constraint fix_session_password_hash_length check (octet_length(password_hash) = 32),
    constraint fix_session_logon_window_range check (logon_window_secs between 1 and 300),
    constraint fix_session_resend_chunk_positive check (resend_request_chunk > 0),
    constraint fix_session_max_latency_positive check (max_latency_secs > 0),
    constraint fix_session_rates_positive
        check (soft_messages_per_sec > 0 and hard_messages_per_sec > 0 and admin_messages_per_sec > 0),
    constraint fix_session_soft_before_hard check (soft_messages_per_sec <= hard_messages_per_sec),
    constraint fix_session_slippage_range check (max_slippage_bps between 0 and 10000),
    constraint fix_session_order_age_range check (order_age_secs between 1 and 604800),
    constraint fix_session_repeated_order_age_range check (repeated_order_age_secs between 1 and 604800),
    constraint fix_session_cancel_on_disconnect_range check (cancel_on_disconnect_secs between 0 and 3600),
    constraint fix_session_drop_copy_has_no_orders
        check (not drop_copy or cancel_on_disconnect_secs is null),
    constraint fix_session_numbers_begin_at_one check (next_in >= 1 and next_out >= 1),
    constraint fix_session_reach_in_order check (0 <= seen_out and 0 <= written_out)
);

-- Application messages by their number, for resends. Session messages are not stored: a resend skips them. Rows here
-- and in `fix_order` are only added by a transaction that has updated the session's row, so no foreign key repeats it.
create table fix_outbound (
    session_id    text not null,
    seq           bigint not null,
    msg_type      text not null,
    body          bytea not null,
    -- Unix nanoseconds.
    sending_time  bigint not null,
    constraint fix_outbound_pkey primary key (session_id, seq)
);

-- A session uses a ClOrdID once for ever, even for a rejected order, and across resets of the numbers.
create table fix_order (
    session_id  text not null,
    cl_ord_id   text not null,
    reference   text,
    intent_id   text not null,
    -- The fields that later reports repeat: symbol, side, quantity, price, and the progress reported so far.
    details     jsonb not null,
    created_at  timestamptz not null default now(),
    constraint fix_order_pkey primary key (session_id, cl_ord_id)
);
create index fix_order_intent_idx on fix_order (session_id, intent_id);

-- Orders that wait for a look-up of their wallet. A row is written in the commit that takes the order's MsgSeqNum and
-- deleted in the commit that decides the order, so that a later owner of the session continues. A reset of the numbers
-- leaves the rows alone.
create table fix_parked (
    session_id   text not null,
    cl_ord_id    text not null,
    -- The order of arrival, across resets of the numbers.
    position     bigint generated always as identity,
    -- The NewOrderSingle as it was received.
    message      bytea not null,
    received_at  timestamptz not null,
    constraint fix_parked_pkey primary key (session_id, cl_ord_id),
    constraint fix_parked_session_fkey foreign key (session_id) references fix_session (session_id)
);

-- Operators' commands for a session. The session's owner counts its numbers in memory, so only the owner carries a
-- command out, once, and answers it. The rows are kept as the record of operators and reasons.
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
    requested_at timestamptz not null default now(),
    -- The process that carries it out.
    taken_by    uuid,
    taken_at    timestamptz,
    -- The result as text; `failed` distinguishes success from failure.
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

-- Notifies the processes that own sessions when one is added or its settings change, and when a command waits.
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
create trigger fix_session_command_requested
    after insert on fix_session_command for each row execute function fix_session_announce();

-- Notifies the sessions of a partner that was disabled or enabled.
create function partner_announce_sessions() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_fix_session', session_id) from fix_session where partner_id = new.id;
    return null;
end $$;
create trigger partner_switched after update of disabled_at on partner
    for each row execute function partner_announce_sessions();
