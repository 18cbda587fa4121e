-- The permits that a transaction of ours made public and that may still be valid: their order ended without its lock, or a
-- reorganization removed the lock. Whoever reads one can send it again; only the order's partner may, for its payee.

create table permit_published (
    chain_id   bigint not null,
    owner      text not null,
    nonce      numeric(39, 0) not null,
    signature  bytea not null,
    -- The order that it was given for.
    reference  text not null,
    -- Unix seconds, at most the largest bigint.
    deadline   bigint not null,
    constraint permit_published_pkey primary key (chain_id, owner, nonce, signature),
    constraint permit_published_signature_length check (octet_length(signature) = 65)
);
create index permit_published_deadline_idx on permit_published (deadline);
