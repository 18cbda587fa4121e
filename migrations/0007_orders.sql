-- Intents, their executions, the holds of their permits on wallets, and receipts.
--
-- Documents of two or three kilobytes are written often and read rarely: `toast_tuple_target` keeps them uncompressed
-- in their row. Those that are read whole are `json`, which keeps the text as it was written.

create table intent (
    partner_id          text not null,
    livemode            boolean not null,
    intent_id           text not null,
    client_reference    text,
    reference           text,
    reason              text,
    request             jsonb,
    created_at          timestamptz not null default now(),
    personal_erased_at  timestamptz,
    constraint intent_pkey primary key (partner_id, livemode, intent_id),
    constraint intent_accepted_or_rejected check ((reference is null) <> (reason is null)),
    constraint intent_request_kept check (reference is not null or request is not null)
) with (toast_tuple_target = 8160);
comment on table intent is
    'Every decided submission: a partner uses an intentId once for ever, even for a rejected submission.';
comment on column intent.reference is 'Of an accepted intent: its execution.';
comment on column intent.reason is 'Of a rejected intent: why.';
comment on column intent.request is 'Of a rejected intent; that of an accepted one is in `execution.terms`.';
comment on column intent.personal_erased_at is
    'Of a rejected intent: when the personal data of its request was erased.';
create unique index intent_client_reference_key on intent (partner_id, livemode, client_reference)
    where reference is not null;
create index intent_personal_idx on intent (created_at) where reference is null and personal_erased_at is null;

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
comment on function intent_has_partner is 'Refuses an intent of an unknown partner.';
create trigger intent_partner_known after insert on intent
    referencing new table as added for each statement execute function intent_has_partner();

create function execution_failure(state jsonb) returns text language sql immutable as $$
    select coalesce(state #>> '{failure,code}', state #>> '{reversal,failure,code}', '') || ' '
        || coalesce(state #>> '{failure,message}', state #>> '{reversal,failure,message}', '')
$$;
comment on function execution_failure is
    'The words of the failure of an order that ended without its output, or of a returned payment.';

-- Its intent is a row of the same transaction, and neither is ever deleted, so no foreign key repeats it. A step is a
-- heap-only update: no index depends on the state of an order that goes its way. What indexes need of the others is in
-- columns that are null until then, and the terms, which never change, are stored out of line, so that a step rewrites
-- the state only.
create table execution (
    reference           text not null,
    partner_id          text not null,
    livemode            boolean not null,
    intent_id           text not null,
    client_reference    text,
    entity              bytea not null,
    terms               json not null,
    state_name          text not null,
    state               jsonb not null,
    version             bigint not null,
    last_sequence       bigint not null,
    last_occurred_at    timestamptz,
    accepted_at         timestamptz not null,
    terminal_at         timestamptz,
    exception           text generated always as (
        case when state_name in ('conversion_failed', 'payout_failed', 'cancelled', 'expired', 'failed', 'reversed')
             then state_name end) stored,
    held_until          bigint generated always as (
        case when state_name in ('payout_failed', 'conversion_failed')
                  and state #>> '{lock,refunded}' = 'false' and state #>> '{lock,lost}' = 'false'
             then (state #>> '{lock,timelock_expires_at}')::int8 end) stored,
    failure_words       tsvector generated always as (
        case when state_name in ('conversion_failed', 'payout_failed', 'cancelled', 'expired', 'failed', 'reversed')
             then to_tsvector('simple', execution_failure(state)) end) stored,
    personal_erased_at  timestamptz,
    unresolved          boolean generated always as (
        case when state_name = 'reversed' and state #>> '{reversal,resolved}' is null
                  or coalesce(state #>> '{offramp,position}', state #>> '{desk,executed,position}') in ('kept', 'short')
                  or state #> '{desk,asked}' is not null
             then true end) stored,
    constraint execution_pkey primary key (reference),
    constraint execution_entity_length check (octet_length(entity) = 32)
) with (toast_tuple_target = 1024, fillfactor = 60);
comment on table execution is 'Accepted intents under settlement.';
comment on column execution.entity is 'The settlement''s id on the chain; `chain_command` finds executions by it.';
comment on column execution.terms is 'The terms of the acceptance; never changed.';
comment on column execution.version is 'Grows with each step; a step names the version it was decided on.';
comment on column execution.last_sequence is 'Sequence of the last event.';
comment on column execution.last_occurred_at is 'When the last event occurred; null while it is the acceptance.';
comment on column execution.exception is
    'The state of an order that ended without its output, or whose payment was returned.';
comment on column execution.held_until is
    'When the timelock of a failed order ends whose funds are still locked, in milliseconds.';
comment on column execution.failure_words is 'The words of its failure.';
comment on column execution.personal_erased_at is
    'When its personal data was erased; until then, what has ended waits in an index for its age.';
comment on column execution.unresolved is 'True while a returned payment or an unused conversion is not resolved.';
-- Reports walk a partner's executions by acceptance.
create index execution_accepted_idx on execution (partner_id, livemode, accepted_at, reference);
-- Executions that have not ended, and those that ended lately, beside a history that grows. `terminal_at` changes
-- once: every other step stays a heap-only update.
create index execution_open_partner_idx on execution (partner_id, livemode, accepted_at, reference) where terminal_at is null;
create index execution_ended_idx on execution (terminal_at) where terminal_at is not null;
-- Failed orders whose funds are still locked: the relayer refunds them at their timelock.
create index execution_held_idx on execution (held_until) where held_until is not null;
-- Orders that ended without their output, newest first: rare rows among all orders.
create index execution_exception_idx on execution (accepted_at, reference) where exception is not null;
create index execution_failure_idx on execution using gin (failure_words) where failure_words is not null;
-- A partner's orders of a state in which they ended without their output, newest first.
create index execution_partner_exception_idx on execution (partner_id, livemode, exception, accepted_at, reference)
    where exception is not null;
create index execution_personal_idx on execution (terminal_at)
    where terminal_at is not null and personal_erased_at is null;
create index execution_unresolved_idx on execution (reference) where unresolved;
alter table execution alter column terms set storage external;

create table permit_use (
    chain_id   bigint not null,
    owner      text not null,
    nonce      numeric(39, 0) not null,
    reference  text not null,
    token      text not null,
    amount     numeric(39, 0) not null,
    locked_at  timestamptz,
    constraint permit_use_pkey primary key (chain_id, owner, nonce),
    constraint permit_use_amount_positive check (amount > 0)
);
comment on table permit_use is 'The holds of live orders on wallets: one permit nonce each, and an amount of a token.';
comment on column permit_use.nonce is 'The next order''s permit has to continue the nonces.';
comment on column permit_use.amount is 'Balance and allowance have to cover the sum of the holds.';
comment on column permit_use.locked_at is
    'When the lock was seen; the hold outlives it for a while, because wallet data may be older.';
create index permit_use_locked_idx on permit_use (locked_at) where locked_at is not null;

create table permit_published (
    chain_id   bigint not null,
    owner      text not null,
    signed     bytea not null,
    reference  text not null,
    deadline   bigint not null,
    constraint permit_published_pkey primary key (chain_id, owner, signed),
    constraint permit_published_signed_length check (octet_length(signed) = 32)
);
comment on table permit_published is
    'Permits that a transaction of the service made public and that may still be valid: their order ended without its '
    'lock, or a reorganization removed it; only the order''s partner may send one again, for its payee.';
comment on column permit_published.signed is 'The SHA-256 of what the wallet signed, without its signature.';
comment on column permit_published.reference is 'The order that the permit was given for.';
comment on column permit_published.deadline is 'Unix seconds, at most the largest bigint.';
create index permit_published_deadline_idx on permit_published (deadline);

create table deposit_wait (
    reference   text not null,
    partner_id  text not null,
    livemode    boolean not null,
    chain_id    bigint not null,
    entity      bytea not null,
    gate        bytea not null,
    depositor   text not null,
    least       numeric(39, 0) not null,
    tried       numeric(39, 0),
    not_before  timestamptz not null default now(),
    constraint deposit_wait_pkey primary key (reference),
    constraint deposit_wait_entity_length check (octet_length(entity) = 32),
    constraint deposit_wait_gate_length check (octet_length(gate) = 20)
);
comment on table deposit_wait is
    'Orders of a chain''s coin that reserve nothing until their user has deposited the coin; then each is priced and '
    'filled, or ends.';
comment on column deposit_wait.gate is 'The contract that takes the deposit.';
comment on column deposit_wait.depositor is 'In lower case, as the gate''s events have it.';
comment on column deposit_wait.least is 'The least deposit that is enough.';
comment on column deposit_wait.tried is 'A deposit of this amount was not enough.';
create index deposit_wait_tenant_idx on deposit_wait (partner_id, livemode);

create table receipt (
    reference     text not null,
    body          text,
    content_hash  bytea not null,
    issued_at     timestamptz not null,
    remainder     text,
    constraint receipt_pkey primary key (reference),
    constraint receipt_content_hash_key unique (content_hash),
    constraint receipt_whole_or_erased check ((body is null) = (remainder is not null))
);
comment on table receipt is 'Receipts, one for each completed execution.';
comment on column receipt.body is 'The canonical JSON that `content_hash` is the SHA-256 of; null after its erasure.';
comment on column receipt.content_hash is 'The hash that is anchored on a chain.';
comment on column receipt.remainder is 'What is answered after the erasure.';

-- In place of a foreign key: one check a statement instead of one a row. Executions are never deleted.
create function receipt_has_execution() returns trigger language plpgsql as $$
begin
    if exists (select from added a where not exists (select from execution e where e.reference = a.reference)) then
        raise exception 'the receipt''s execution does not exist'
            using errcode = 'foreign_key_violation', constraint = 'receipt_execution_known', table = 'receipt';
    end if;
    return null;
end $$;
comment on function receipt_has_execution is 'Refuses a receipt of an unknown execution.';
create trigger receipt_execution_known after insert on receipt
    referencing new table as added for each statement execute function receipt_has_execution();

create function receipt_is_immutable() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' then
        if old.body is not null and new.body is null
           and (new.reference, new.content_hash, new.issued_at) = (old.reference, old.content_hash, old.issued_at) then
            return new;
        end if;
    end if;
    raise exception 'a receipt is never changed or deleted; its body may be erased'
        using errcode = 'check_violation', constraint = 'receipt_immutable', table = 'receipt';
end $$;
comment on function receipt_is_immutable is 'Refuses every change of a receipt, except the erasure of its body.';
create trigger receipt_immutable before update or delete on receipt
    for each row execute function receipt_is_immutable();
create trigger receipt_never_emptied before truncate on receipt
    for each statement execute function receipt_is_immutable();

create function order_is_erased(order_reference text) returns boolean language sql stable as $$
    select exists (select from execution where reference = order_reference and personal_erased_at is not null)
$$;
comment on function order_is_erased is
    'Whether the personal data of an order was erased: then free text about it may be changed, and nothing else.';
