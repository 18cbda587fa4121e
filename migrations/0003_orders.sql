-- Intents, their executions, the holds of their permits on wallets, and receipts.
--
-- Documents of two or three kilobytes are written often and read rarely: `toast_tuple_target` keeps them uncompressed
-- in their row. Those that are read whole are `json`, which keeps the text as it was written.

-- Every decided submission. A partner uses an intentId once for ever, even for a rejected submission.
create table intent (
    partner_id        text not null,
    livemode          boolean not null,
    intent_id         text not null,
    client_reference  text,
    -- Of an accepted intent: its execution.
    reference         text,
    -- Of a rejected intent: why.
    reason            text,
    -- Of a rejected intent; that of an accepted one is in `execution.terms`.
    request           jsonb,
    created_at        timestamptz not null default now(),
    constraint intent_pkey primary key (partner_id, livemode, intent_id),
    constraint intent_accepted_or_rejected check ((reference is null) <> (reason is null)),
    constraint intent_request_kept check (reference is not null or request is not null)
) with (toast_tuple_target = 8160);
create unique index intent_client_reference_key on intent (partner_id, livemode, client_reference)
    where reference is not null;

-- In place of a foreign key: one check a statement instead of one a row.
create function intent_has_partner() returns trigger language plpgsql as $$
begin
    if exists (select from (select distinct partner_id from added) a
               where not exists (select from partner p where p.id = a.partner_id)) then
        raise exception 'the intent''s partner does not exist'
            using errcode = 'foreign_key_violation', constraint = 'intent_partner_known', table = 'intent';
    end if;
    return null;
end $$;
create trigger intent_partner_known after insert on intent
    referencing new table as added for each statement execute function intent_has_partner();

-- An accepted intent under settlement. Its intent is a row of the same transaction, and neither is ever deleted, so no
-- foreign key repeats it. No index holds a column that changes with every step, so that a step is a heap-only update.
create table execution (
    reference         text not null,
    partner_id        text not null,
    livemode          boolean not null,
    intent_id         text not null,
    client_reference  text,
    -- The settlement's id on the chain. `chain_command` finds executions by it.
    entity            bytea not null,
    -- The terms of the acceptance; never changed.
    terms             json not null,
    state_name        text not null,
    state             jsonb not null,
    -- Grows with each step; a step names the version it was decided on.
    version           bigint not null,
    -- Sequence of the last event.
    last_sequence     bigint not null,
    -- When it occurred; null while it is the acceptance.
    last_occurred_at  timestamptz,
    accepted_at       timestamptz not null,
    terminal_at       timestamptz,
    constraint execution_pkey primary key (reference),
    constraint execution_entity_length check (octet_length(entity) = 32)
) with (toast_tuple_target = 8160);
-- Reports walk a partner's executions by acceptance.
create index execution_accepted_idx on execution (partner_id, livemode, accepted_at, reference);
-- Failed orders whose funds are still locked: the relayer refunds them at their timelock.
create index execution_held_idx on execution (((state #>> '{lock,timelock_expires_at}')::int8))
    where state_name in ('payout_failed', 'conversion_failed')
      and state #>> '{lock,refunded}' = 'false' and state #>> '{lock,lost}' = 'false';

-- The holds of live orders on wallets: one permit nonce each, and an amount of a token. The next order's permit has to
-- continue the nonces, and balance and allowance have to cover the sum.
create table permit_use (
    chain_id   bigint not null,
    owner      text not null,
    nonce      numeric(39, 0) not null,
    reference  text not null,
    token      text not null,
    amount     numeric(39, 0) not null,
    -- When the lock was seen. The hold outlives it for a while, because wallet data may be older.
    locked_at  timestamptz,
    constraint permit_use_pkey primary key (chain_id, owner, nonce),
    constraint permit_use_amount_positive check (amount > 0)
);
create index permit_use_locked_idx on permit_use (locked_at) where locked_at is not null;

-- Immutable; one per completed execution.
create table receipt (
    reference     text not null,
    -- The canonical JSON that `content_hash` is the SHA-256 of.
    body          text not null,
    content_hash  bytea not null,
    issued_at     timestamptz not null,
    constraint receipt_pkey primary key (reference),
    constraint receipt_content_hash_key unique (content_hash)
);

-- In place of a foreign key: one check a statement instead of one a row. Executions are never deleted.
create function receipt_has_execution() returns trigger language plpgsql as $$
begin
    if exists (select from added a where not exists (select from execution e where e.reference = a.reference)) then
        raise exception 'the receipt''s execution does not exist'
            using errcode = 'foreign_key_violation', constraint = 'receipt_execution_known', table = 'receipt';
    end if;
    return null;
end $$;
create trigger receipt_execution_known after insert on receipt
    referencing new table as added for each statement execute function receipt_has_execution();
