-- Reports that were numbered while a peer was away must survive a reset of the numbers (ResetSeqNumFlag, reset on logon,
-- the next window of the schedule): the feed's cursor has passed them, so nothing else would tell them again. For that a
-- session remembers how far its peer has been reached.

alter table fix_session
    -- The peer has seen our messages up to this number, as far as is known; it may lag.
    add column seen_out     bigint not null default 0,
    -- Messages beyond this number have never been written to a socket; it may run ahead.
    add column written_out  bigint not null default 0,
    add constraint fix_session_reach_in_order check (0 <= seen_out and 0 <= written_out);

-- Of sessions that are there already it is not known. They count as reached, as they did until now: a peer that misses
-- something asks for it by its number.
update fix_session set seen_out = next_out - 1, written_out = next_out - 1;
