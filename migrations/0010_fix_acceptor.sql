-- What a FIX session demands of whoever logs on, and what it allows: from which addresses, with which certificate,
-- by password or by signature, how fast, and when. Each is off or unlimited unless it is set.

alter table fix_session
    -- Where the peer may come from; null: anywhere.
    add column allowed_sources        cidr[],
    -- SHA-256 of certificates (DER), one of which the peer must show; null: none is needed.
    add column client_cert_sha256     bytea[],
    -- DNS names, one of which the peer's certificate must have; null: none is needed.
    add column client_cert_names      text[],
    -- The secret, sealed for the session, that Logons are signed with; null: by password.
    add column logon_secret           bytea,
    -- How far SendingTime(52) of a signed Logon may be from our clock.
    add column logon_window_secs      integer not null default 30,
    -- SendingTime(52), in Unix nanoseconds, of the latest signed Logon. A signature is good once: the next is later.
    add column logon_signed_at        bigint not null default 0,
    -- Application messages a second: beyond the first they are refused one by one, beyond the second the session ends.
    add column soft_messages_per_sec  integer,
    add column hard_messages_per_sec  integer,
    -- Session messages a second, beyond which the session ends.
    add column admin_messages_per_sec integer,
    -- Messages asked for at once in a ResendRequest; null: all.
    add column resend_request_chunk   bigint,
    add column last_msg_seq_num_processed   boolean not null default false,
    add column next_expected_msg_seq_num    boolean not null default false,
    add column max_latency_secs       integer not null default 120,
    -- When there is a session, as `daily 08:00 Europe/Zurich to 22:00 Europe/Zurich`; null: always.
    add column schedule               text,
    add constraint fix_session_logon_window_range check (logon_window_secs between 1 and 300),
    add constraint fix_session_rates_positive
        check (soft_messages_per_sec > 0 and hard_messages_per_sec > 0 and admin_messages_per_sec > 0),
    add constraint fix_session_soft_before_hard check (soft_messages_per_sec <= hard_messages_per_sec),
    add constraint fix_session_resend_chunk_positive check (resend_request_chunk > 0),
    add constraint fix_session_max_latency_positive check (max_latency_secs > 0);
