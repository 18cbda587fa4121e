-- The W3C trace context of the request that placed an order, for the work that follows it in other processes. Null for
-- most: only requests with a traceparent, or those of a process that records spans, belong to a trace.
alter table chain_command add column trace text;
alter table webhook_queue add column trace text;
