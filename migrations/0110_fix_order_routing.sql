-- The follower of the feed finds the order of each event by the intent, for the sessions of all partners at once. A
-- session's own order is found by both columns, as before.
create index fix_order_routing_idx on fix_order (intent_id, session_id);
drop index fix_order_intent_idx;
