-- FIX sessions: who may log on, the numbers both sides count, what was sent, and which order belongs to which session.
-- Numbers, effect and report of an order are one transaction, so a number never stands for two messages, whatever
-- stops the process and wherever.

create table fix_session (
    session_id           text not null,
    partner_id           text not null,
    livemode             boolean not null,
    begin_string         text not null,
    -- The client's SenderCompID, and ours.
    client_comp_id       text not null,
    service_comp_id      text not null,
    default_appl_ver_id  text,
    username             text not null,
    -- Keyed hash; the password is not kept.
    password_hash        bytea not null,
    enabled              boolean not null default true,
    reset_on_logon       boolean not null default false,
    reset_allowed        boolean not null default true,
    max_slippage_bps     integer not null default 50,
    next_in              bigint not null default 1,
    next_out             bigint not null default 1,
    -- The feed has been reported up to here.
    feed_position        bigint not null default 0,
    created_at           timestamptz not null default now(),
    constraint fix_session_pkey primary key (session_id),
    constraint fix_session_comp_ids_key unique (begin_string, service_comp_id, client_comp_id),
    constraint fix_session_partner_fkey foreign key (partner_id) references partner (id),
    constraint fix_session_begin_string_known check (begin_string in ('FIX.4.2', 'FIX.4.4', 'FIXT.1.1')),
    constraint fix_session_appl_ver_id_for_fixt
        check ((begin_string = 'FIXT.1.1') = (default_appl_ver_id is not null)),
    constraint fix_session_password_hash_length check (octet_length(password_hash) = 32),
    constraint fix_session_numbers_begin_at_one check (next_in >= 1 and next_out >= 1),
    constraint fix_session_slippage_range check (max_slippage_bps between 0 and 10000)
);

-- Application messages by their number, for resends. Session messages are not kept: a resend passes over them.
create table fix_outbound (
    session_id    text not null,
    seq           bigint not null,
    msg_type      text not null,
    body          bytea not null,
    -- Unix nanoseconds.
    sending_time  bigint not null,
    constraint fix_outbound_pkey primary key (session_id, seq),
    constraint fix_outbound_session_fkey foreign key (session_id) references fix_session (session_id)
);

-- A ClOrdID is used once per session for ever, by a refused order too, and through resets of the numbers.
create table fix_order (
    session_id  text not null,
    cl_ord_id   text not null,
    reference   text,
    intent_id   text not null,
    -- What later reports repeat: symbol, side, quantity, price, and what was told so far.
    details     jsonb not null,
    created_at  timestamptz not null default now(),
    constraint fix_order_pkey primary key (session_id, cl_ord_id),
    constraint fix_order_session_fkey foreign key (session_id) references fix_session (session_id)
);
create index fix_order_intent_idx on fix_order (session_id, intent_id);
