-- The legacy API: orders by strategy, and the standing instructions by which they settle.

create table settlement_instruction (
    partner_id  text not null,
    livemode    boolean not null,
    asset       text not null,
    account     text not null,
    created_at  timestamptz not null default now(),
    operator    text not null,
    reason      text not null,
    approval    text,
    set_at      timestamptz not null,
    replaced    text,
    constraint settlement_instruction_pkey primary key (partner_id, livemode, asset),
    constraint settlement_instruction_partner_fkey foreign key (partner_id) references partner (id)
);
comment on table settlement_instruction is
    'The recipient of a partner''s outputs of an asset, because legacy orders name no beneficiary: a pre-provisioned '
    'recipient for money and a wallet for a token.';
comment on column settlement_instruction.operator is 'The operator who set it.';
comment on column settlement_instruction.approval is
    'The approved request, whose row is never changed or deleted; null: set at once, in a test deployment.';
comment on column settlement_instruction.replaced is 'The account before the latest change.';
create trigger settlement_instruction_added after insert on settlement_instruction
    for each row execute function audit_append();
create trigger settlement_instruction_changed after update on settlement_instruction
    for each row when ((old.account, old.operator, old.reason, old.approval)
                       is distinct from (new.account, new.operator, new.reason, new.approval))
    execute function audit_append();

create function settlement_instruction_replaces() returns trigger language plpgsql as $$
begin
    new.replaced := old.account;
    return new;
end $$;
comment on function settlement_instruction_replaces is 'Keeps the account that a change replaces.';
create trigger settlement_instruction_replaced before update on settlement_instruction
    for each row when (old.account is distinct from new.account) execute function settlement_instruction_replaces();

create function settlement_instruction_is_kept() returns trigger language plpgsql as $$
begin
    raise exception 'a standing instruction is changed, never deleted'
        using errcode = 'check_violation', constraint = 'settlement_instruction_kept', table = 'settlement_instruction';
end $$;
comment on function settlement_instruction_is_kept is 'Refuses to delete a standing instruction.';
create trigger settlement_instruction_kept before delete or truncate on settlement_instruction
    for each statement execute function settlement_instruction_is_kept();

create table legacy_intent (
    partner_id     text not null,
    livemode       boolean not null,
    intent_id      text not null,
    request        jsonb not null,
    source         text not null,
    target         text not null,
    strategy       text not null,
    client_ref     text,
    account        text not null,
    stage          text not null,
    attempt        integer not null default 0,
    best_output    numeric(39, 0),
    reference      text,
    code           text,
    created_at     timestamptz not null,
    updated_at     timestamptz not null default now(),
    expires_at     timestamptz not null,
    run_at         timestamptz not null,
    claimed_until  timestamptz,
    version        bigint not null default 1,
    constraint legacy_intent_pkey primary key (partner_id, livemode, intent_id),
    constraint legacy_intent_partner_fkey foreign key (partner_id) references partner (id),
    constraint legacy_intent_strategy_known check (strategy in ('instant', 'optimized', 'scheduled')),
    constraint legacy_intent_stage_known check (stage in ('pending', 'solving', 'queued', 'submitting', 'submitted',
                                                          'expired', 'rejected', 'cancelled')),
    constraint legacy_intent_submitted_has_reference check ((stage = 'submitted') = (reference is not null)),
    constraint legacy_intent_rejected_has_code check ((stage = 'rejected') = (code is not null))
);
comment on table legacy_intent is
    'Legacy orders that wait until their strategy executes them; then each is an intent like any other.';
comment on column legacy_intent.attempt is
    'Part of the id of the submitted intent, and committed before it: a crash in between creates no second one.';
comment on column legacy_intent.code is 'Why it was rejected.';
create index legacy_intent_due_idx on legacy_intent (run_at)
    where stage in ('pending', 'solving', 'queued', 'submitting');
create index legacy_intent_created_idx on legacy_intent (partner_id, livemode, created_at, intent_id);
-- When the evaluation of a lost process can be repeated.
create index legacy_intent_claim_idx on legacy_intent (claimed_until)
    where claimed_until is not null and stage in ('pending', 'solving', 'queued', 'submitting');
create index legacy_intent_turn_idx on legacy_intent (partner_id, livemode, strategy, run_at)
    where stage in ('pending', 'solving', 'queued', 'submitting');

-- Orders are evaluated when they are due or when their pair's market changes, and are not polled.
create function notify_legacy() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_legacy', '');
    return null;
end $$;
comment on function notify_legacy is 'Ends the wait of the processes that evaluate legacy orders when one is added.';
create trigger legacy_intent_added after insert on legacy_intent
    for each statement execute function notify_legacy();
