-- Nonces of signed requests whose body has no id of its own. Such a request, captured and sent again under another
-- idempotency key, would be carried out again by a process that has not seen it. A row outlives the time in which its
-- timestamp is accepted.

create table request_nonce (
    key_id      text not null,
    nonce       text not null,
    partner_id  text not null,
    -- The timestamp is refused after this.
    expires_at  timestamptz not null,
    constraint request_nonce_pkey primary key (key_id, nonce)
);
create index request_nonce_expiry_idx on request_nonce (expires_at);
