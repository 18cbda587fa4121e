-- FIX sessions: credentials and settings, sequence numbers, messages for resends, orders, operators' commands, and the
-- archive of messages. The numbers, the effect and the report of an order are one transaction, so a number never
-- stands for two messages.

create table fix_session (
    session_id                  text not null,
    partner_id                  text not null,
    livemode                    boolean not null,
    begin_string                text not null,
    client_comp_id              text not null,
    service_comp_id             text not null,
    default_appl_ver_id         text,
    enabled                     boolean not null default true,

    username                    text not null,
    password_hash               bytea not null,
    password_key                text not null,
    logon_secret                bytea,
    logon_window_secs           integer not null default 30,
    logon_signed_at             bigint not null default 0,
    allowed_sources             cidr[],
    client_cert_sha256          bytea[],
    client_cert_names           text[],

    schedule                    text,
    reset_on_logon              boolean not null default false,
    reset_allowed               boolean not null default true,
    resend_request_chunk        bigint,
    last_msg_seq_num_processed  boolean not null default false,
    next_expected_msg_seq_num   boolean not null default false,
    max_latency_secs            integer not null default 120,
    soft_messages_per_sec       integer,
    hard_messages_per_sec       integer,
    admin_messages_per_sec      integer,

    max_slippage_bps            integer not null default 50,
    order_age_secs              integer,
    repeated_order_age_secs     integer default 120,
    cancel_on_disconnect_secs   integer,
    drop_copy                   boolean not null default false,
    ignored_fields              text,
    time_precision              text not null default 'millis',
    text_encoding               text not null default 'UTF-8',
    cl_ord_id_per_day           boolean not null default false,

    next_in                     bigint not null default 1,
    next_out                    bigint not null default 1,
    epoch                       bigint,
    seen_out                    bigint not null default 0,
    written_out                 bigint not null default 0,
    feed_position               bigint not null default 0,
    created_at                  timestamptz not null default now(),
    constraint fix_session_pkey primary key (session_id),
    constraint fix_session_comp_ids_key unique (begin_string, service_comp_id, client_comp_id),
    constraint fix_session_partner_fkey foreign key (partner_id) references partner (id),
    constraint fix_session_begin_string_known check (begin_string in ('FIX.4.2', 'FIX.4.4', 'FIXT.1.1')),
    constraint fix_session_appl_ver_id_for_fixt check ((begin_string = 'FIXT.1.1') = (default_appl_ver_id is not null)),
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
    constraint fix_session_time_precision_known check (time_precision in ('seconds', 'millis', 'micros', 'nanos')),
    constraint fix_session_text_encoding_known check (text_encoding in ('UTF-8', 'ISO-8859-1')),
    constraint fix_session_drop_copy_has_no_orders check (not drop_copy or cancel_on_disconnect_secs is null),
    constraint fix_session_numbers_begin_at_one check (next_in >= 1 and next_out >= 1),
    constraint fix_session_reach_in_order check (0 <= seen_out and 0 <= written_out)
);
comment on table fix_session is 'FIX sessions: credentials, settings, and the progress of each.';
comment on column fix_session.client_comp_id is 'The client''s SenderCompID.';
comment on column fix_session.service_comp_id is 'The service''s SenderCompID.';
comment on column fix_session.password_hash is 'The password is not kept, only its keyed hash.';
comment on column fix_session.password_key is 'Id of the master key of the hash.';
comment on column fix_session.logon_secret is
    'The encrypted secret by which Logons are signed; null: Logons have the password.';
comment on column fix_session.logon_window_secs is
    'The tolerated difference of a signed Logon''s SendingTime(52) from the service''s clock.';
comment on column fix_session.logon_signed_at is
    'SendingTime(52) of the latest signed Logon, in Unix nanoseconds; the next one has to be later, so that a '
    'signature is accepted once.';
comment on column fix_session.allowed_sources is 'Networks from which the peer may connect; null: any.';
comment on column fix_session.client_cert_sha256 is
    'SHA-256 of certificates (DER), one of which the peer must present; null: none is required.';
comment on column fix_session.client_cert_names is
    'DNS names, one of which the peer''s certificate must have; null: none is required.';
comment on column fix_session.schedule is
    'Reads like `daily 08:00 Europe/Zurich to 22:00 Europe/Zurich`; null: always.';
comment on column fix_session.resend_request_chunk is 'Messages requested at once in a ResendRequest; null: all.';
comment on column fix_session.soft_messages_per_sec is 'Application messages a second beyond which each is refused.';
comment on column fix_session.hard_messages_per_sec is 'Application messages a second beyond which the session ends.';
comment on column fix_session.admin_messages_per_sec is 'Session messages a second beyond which the session ends.';
comment on column fix_session.order_age_secs is 'The largest age of an order by TransactTime(60); null: any.';
comment on column fix_session.ignored_fields is
    'Tags, with commas between them, that are read and ignored; null: the list of docs/fix.md; empty: none.';
comment on column fix_session.time_precision is 'The fraction of a second in the timestamps that are sent.';
comment on column fix_session.text_encoding is
    'The encoding of text on the wire, as MessageEncoding(347) names it; stored text is UTF-8.';
comment on column fix_session.cl_ord_id_per_day is
    'A ClOrdID is unique in a trading day and not for ever; once true, it stays true.';
comment on column fix_session.repeated_order_age_secs is
    'The largest age, by TransactTime(60) and OrigSendingTime(122), of an order that may have been sent before '
    '(PossDupFlag, PossResend); null: any.';
comment on column fix_session.cancel_on_disconnect_secs is
    'How long after a disconnect orders that can be cancelled are cancelled; null: never.';
comment on column fix_session.drop_copy is
    'Reports of all orders of the partner in its environment; no orders are accepted.';
comment on column fix_session.next_in is 'The next MsgSeqNum(34) of the peer.';
comment on column fix_session.next_out is 'The next MsgSeqNum(34) of the service.';
comment on column fix_session.epoch is
    'The window of the schedule to which the numbers belong, in days from 1970-01-01 to the date on which it began; '
    'the numbers are reset when it changes, also when no process ran at that time. Null: not recorded yet.';
comment on column fix_session.seen_out is
    'The peer has received the service''s messages up to this number, as far as is known; a reset of the numbers gives '
    'new ones to the messages after it.';
comment on column fix_session.written_out is
    'Messages after this number were never written to a socket; it may run ahead.';
comment on column fix_session.feed_position is 'The feed has been reported up to here.';
create trigger environment_holds before insert or update of livemode on fix_session
    for each row execute function environment_holds();
create trigger fix_session_audited after insert on fix_session
    for each row execute function audit_append('password_hash', 'password_key', 'logon_secret');
create trigger fix_session_announced after insert or update of enabled, password_hash, allowed_sources on fix_session
    for each row execute function console_announce('fix');

-- Rows here and in `fix_order` are only added by a transaction that has updated the session's row, so no foreign key
-- repeats it.
create table fix_outbound (
    session_id       text not null,
    seq              bigint not null,
    msg_type         text not null,
    body             bytea not null,
    sending_time     bigint not null,
    fraction_digits  smallint not null default 3,
    constraint fix_outbound_pkey primary key (session_id, seq),
    constraint fix_outbound_fraction_digits_known check (fraction_digits in (0, 3, 6, 9))
);
comment on table fix_outbound is
    'Application messages by their number, for resends; session messages are not stored, because a resend skips them.';
comment on column fix_outbound.sending_time is 'Unix nanoseconds.';
comment on column fix_outbound.fraction_digits is
    'The digits of the second''s fraction that SendingTime(52) was sent with, and OrigSendingTime(122) repeats.';

create table fix_order (
    session_id   text not null,
    cl_ord_id    text not null,
    reference    text,
    intent_id    text not null,
    details      jsonb not null,
    created_at   timestamptz not null default now(),
    trading_day  integer not null default 0,
    constraint fix_order_pkey primary key (session_id, cl_ord_id, trading_day)
);
comment on table fix_order is
    'Orders by ClOrdID(11), which a session uses once for ever, or once a trading day, even for a rejected order, and '
    'across resets of the numbers.';
comment on column fix_order.trading_day is
    'The trading day on which the ClOrdID is used once, in days from 1970-01-01; 0: it is used once for ever.';
comment on column fix_order.details is
    'The fields that later reports repeat: symbol, side, quantity, price, and the progress reported so far.';
-- The follower of the feed finds the order of each event by the intent, for the sessions of all partners at once.
create index fix_order_routing_idx on fix_order (intent_id, session_id);

create table fix_parked (
    session_id   text not null,
    cl_ord_id    text not null,
    trading_day  integer not null default 0,
    position     bigint generated always as identity,
    message      bytea not null,
    received_at  timestamptz not null,
    bounds       jsonb not null,
    constraint fix_parked_pkey primary key (session_id, cl_ord_id, trading_day),
    constraint fix_parked_session_fkey foreign key (session_id) references fix_session (session_id)
);
comment on table fix_parked is
    'Orders that wait for a look-up of their wallet: written in the commit that takes the order''s MsgSeqNum(34) and '
    'deleted in the commit that decides the order, so that a later owner of the session continues.';
comment on column fix_parked.trading_day is 'The trading day of the ClOrdID, as in `fix_order`.';
comment on column fix_parked.position is 'The order of arrival, across resets of the numbers.';
comment on column fix_parked.message is 'The NewOrderSingle as it was received.';
comment on column fix_parked.bounds is
    'The bounds of the order; those of an order without a price follow from the prices on its arrival, which a later '
    'owner does not know.';

create table fix_session_command (
    id            bigint generated always as identity,
    session_id    text not null,
    action        text not null,
    next_in       bigint,
    next_out      bigint,
    with_reset    boolean not null default false,
    operator      text not null,
    reason        text not null,
    requested_at  timestamptz not null default now(),
    claimed_by    uuid,
    claimed_at    timestamptz,
    outcome       text,
    failed        boolean not null default false,
    done_at       timestamptz,
    constraint fix_session_command_pkey primary key (id),
    constraint fix_session_command_session_fkey foreign key (session_id) references fix_session (session_id),
    constraint fix_session_command_action_known
        check (action in ('logout', 'reset', 'set_seq', 'disconnect', 'test_request', 'enable', 'disable')),
    constraint fix_session_command_numbers_for_set_seq
        check ((action = 'set_seq') = (next_in is not null and next_out is not null)),
    constraint fix_session_command_numbers_begin_at_one check (next_in >= 1 and next_out >= 1),
    constraint fix_session_command_operator_given check (length(trim(operator)) > 0 and length(trim(reason)) > 0)
);
comment on table fix_session_command is
    'Operators'' commands for a session, each carried out once by the session''s owner, and kept as the record of '
    'operators and reasons.';
comment on column fix_session_command.next_in is 'Of `set_seq`: the peer''s next number.';
comment on column fix_session_command.next_out is 'Of `set_seq`: the service''s next number.';
comment on column fix_session_command.with_reset is
    'Of `set_seq`: unseen reports move to the numbers from next_out on.';
comment on column fix_session_command.claimed_by is 'The process that carries it out.';
comment on column fix_session_command.outcome is 'The result as text; `failed` distinguishes success from failure.';
create index fix_session_command_open_idx on fix_session_command (id) where outcome is null;
create index fix_session_command_session_idx on fix_session_command (session_id, id);
create trigger fix_session_command_audited after insert on fix_session_command
    for each row execute function audit_append();
create trigger fix_session_command_announced after insert or update on fix_session_command
    for each row execute function console_announce('fix');

create table fix_session_status (
    session_id    text not null,
    process       uuid not null,
    peer          text,
    connected_at  timestamptz,
    last_in_at    timestamptz,
    last_out_at   timestamptz,
    next_in       bigint not null,
    next_out      bigint not null,
    gap_from      bigint,
    gap_until     bigint,
    constraint fix_session_status_pkey primary key (session_id),
    constraint fix_session_status_session_fkey foreign key (session_id) references fix_session (session_id),
    constraint fix_session_status_connection_whole check ((peer is null) = (connected_at is null)),
    constraint fix_session_status_gap_whole check ((gap_from is null) = (gap_until is null))
) with (fillfactor = 50);
comment on table fix_session_status is
    'What operators see of FIX sessions beside their numbers: written by the session''s owner, and valid while it has '
    'the lease; no decision depends on it.';
comment on column fix_session_status.peer is 'The peer''s address, while it is connected.';
comment on column fix_session_status.connected_at is 'Since when the peer is connected.';
comment on column fix_session_status.last_in_at is
    'When the last message was read, of the present connection or the one before.';
comment on column fix_session_status.last_out_at is 'When the last message was written, likewise.';
comment on column fix_session_status.next_in is 'The number in memory, which may be ahead of the committed one.';
comment on column fix_session_status.next_out is 'The number in memory, which may be ahead of the committed one.';
comment on column fix_session_status.gap_from is 'The first missing message.';
comment on column fix_session_status.gap_until is 'The last missing message.';
create trigger fix_session_status_announced after insert or update on fix_session_status
    for each statement execute function console_announce('fix');

create table fix_process (
    id               uuid not null,
    forward_address  text not null,
    alive_until      timestamptz not null,
    constraint fix_process_pkey primary key (id)
);
comment on table fix_process is
    'The processes that accept FIX connections and forward them to each other, so that each takes its share of the '
    'sessions and finds the owner of the others.';
comment on column fix_process.forward_address is '`host:port` of the process''s listener for forwarded connections.';
comment on column fix_process.alive_until is
    'The process takes its share of sessions until then; it is extended while the process runs.';

create function fix_session_announce() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_fix_session', new.session_id);
    return null;
end $$;
comment on function fix_session_announce is
    'Notifies the processes that own sessions of a new or changed session, and of a command that waits.';
create trigger fix_session_changed
    after insert or update of enabled, username, password_hash, default_appl_ver_id, reset_on_logon, reset_allowed,
        max_slippage_bps, allowed_sources, client_cert_sha256, client_cert_names, logon_secret, logon_window_secs,
        soft_messages_per_sec, hard_messages_per_sec, admin_messages_per_sec, resend_request_chunk,
        last_msg_seq_num_processed, next_expected_msg_seq_num, max_latency_secs, schedule, drop_copy,
        cancel_on_disconnect_secs, order_age_secs, repeated_order_age_secs, ignored_fields, time_precision,
        text_encoding, cl_ord_id_per_day
    on fix_session for each row execute function fix_session_announce();
create trigger fix_session_command_requested
    after insert on fix_session_command for each row execute function fix_session_announce();

create function partner_announce_sessions() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_fix_session', session_id) from fix_session where partner_id = new.id;
    return null;
end $$;
comment on function partner_announce_sessions is
    'Notifies the owners of a partner''s sessions when it is disabled or enabled.';
create trigger partner_switched after update of disabled_at on partner
    for each row execute function partner_announce_sessions();

create function fix_lease_released() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_fix_session', substr(new.name, 5));
    return null;
end
$$;
comment on function fix_lease_released is
    'Notifies the other processes of a released session, so that one takes it at once.';
create trigger fix_lease_released after update on lease
    for each row when (new.expires_at < old.expires_at and new.name like 'fix:%')
    execute function fix_lease_released();

create sequence fix_message_id_seq as bigint;

-- Operators read it; resends come from `fix_outbound`.
create table fix_message (
    id              bigint not null default nextval('fix_message_id_seq'),
    at              timestamptz not null,
    session_id      text not null,
    is_outbound     boolean not null,
    seq             bigint,
    msg_type        text not null,
    cl_ord_id       text,
    orig_cl_ord_id  text,
    content         text not null,
    constraint fix_message_pkey primary key (session_id, at, id)
) partition by range (at);
comment on table fix_message is
    'The archive of FIX messages: what was read from and written to the connections of each session, redacted, in '
    'partitions of a day (UTC).';
comment on column fix_message.at is 'When the message was read, or encoded to be written.';
comment on column fix_message.seq is 'MsgSeqNum(34); null: not a number.';
comment on column fix_message.cl_ord_id is 'ClOrdID(11).';
comment on column fix_message.orig_cl_ord_id is 'OrigClOrdID(41).';
comment on column fix_message.content is 'The fields, separated by `|`, with secrets and personal data replaced.';
create index fix_message_seq_idx on fix_message (session_id, seq);
create index fix_message_cl_ord_id_idx on fix_message (session_id, cl_ord_id) where cl_ord_id is not null;
create index fix_message_orig_cl_ord_id_idx on fix_message (session_id, orig_cl_ord_id)
    where orig_cl_ord_id is not null;
alter sequence fix_message_id_seq owned by fix_message.id;
