-- What operators see of FIX sessions beside their numbers: written by the process that owns the session, once a second at
-- most and by no session's own path. Holds only while the same process has the session's lease. No decision depends on it.
create table fix_session_status (
    session_id    text not null,
    process       uuid not null,
    -- The peer's address, while it is connected, and since when.
    peer          text,
    connected_at  timestamptz,
    -- When the last message was read and written, of the present connection or the one before.
    last_in_at    timestamptz,
    last_out_at   timestamptz,
    -- The numbers in memory, which may be ahead of the committed ones.
    next_in       bigint not null,
    next_out      bigint not null,
    -- The messages that are missing.
    gap_from      bigint,
    gap_until     bigint,
    constraint fix_session_status_pkey primary key (session_id),
    constraint fix_session_status_session_fkey foreign key (session_id) references fix_session (session_id),
    constraint fix_session_status_connection_whole check ((peer is null) = (connected_at is null)),
    constraint fix_session_status_gap_whole check ((gap_from is null) = (gap_until is null))
) with (fillfactor = 50);
create trigger fix_session_status_announced after insert or update on fix_session_status
    for each statement execute function console_announce('fix');
