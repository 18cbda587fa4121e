-- The writer adds a message or an order of a FIX session only in a transaction that has updated the session's row, so
-- a check of the reference for each row repeats what is known. Two rows an order are on the hot path.
alter table fix_outbound drop constraint fix_outbound_session_fkey;
alter table fix_order drop constraint fix_order_session_fkey;
