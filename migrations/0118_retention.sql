-- Rows that are kept for a time are found by their age, so that letting them go reads no others; and keys that were
-- just issued are found without reading all keys.

create index idempotency_age_idx on idempotency (accepted_at);
create index quote_request_age_idx on quote_request (created_at);
create index firm_quote_age_idx on firm_quote (valid_until);
create index api_key_age_idx on api_key (created_at);
