-- What operators read of an order beside its own rows: the calls of its rails, and the messages of the bank about it.

-- Calls of a rail for one leg of an order, by their result. A payment that is polled for days is one row.
create table rail_call (
    reference  text not null,
    leg        text not null,
    call       text not null,
    result     text not null,
    times      bigint not null,
    first_at   timestamptz not null,
    -- The latest one: when it was made, how long its answer took, and the provider's reference or the failure's code.
    last_at    timestamptz not null,
    took_ms    bigint not null,
    detail     text,
    constraint rail_call_pkey primary key (reference, leg, call, result),
    constraint rail_call_leg_known check (leg in ('offramp', 'payout')),
    constraint rail_call_call_known check (call in ('submit', 'query')),
    constraint rail_call_times_positive check (times > 0)
);
create index rail_call_first_idx on rail_call (first_at);

-- A message to the bank about a payment, or what a message of the bank says about one. The document is that of the
-- digest, until its retention ends or personal data of the order is erased.
create table bank_message (
    execution  text not null,
    digest     bytea not null,
    said       text not null,
    direction  text not null,
    message    text not null,
    file       text not null,
    at         timestamptz not null default now(),
    constraint bank_message_pkey primary key (execution, digest, said),
    constraint bank_message_direction_known check (direction in ('in', 'out')),
    constraint bank_message_digest_length check (octet_length(digest) = 32)
);
create index bank_message_digest_idx on bank_message (digest);
create index bank_message_at_idx on bank_message (at);

-- By the SHA-256 of its content.
create table bank_document (
    digest   bytea not null,
    content  text not null,
    kept_at  timestamptz not null default now(),
    constraint bank_document_pkey primary key (digest),
    constraint bank_document_digest_length check (octet_length(digest) = 32)
);
create index bank_document_kept_idx on bank_document (kept_at);
