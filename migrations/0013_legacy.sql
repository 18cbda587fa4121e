-- The legacy API: orders by strategy, and the standing instructions by which they settle.

-- Legacy orders name no beneficiary: this is the recipient of a partner's outputs of an asset, a pre-provisioned
-- recipient for money and a wallet for a token.
create table settlement_instruction (
    partner_id  text not null,
    livemode    boolean not null,
    asset       text not null,
    account     text not null,
    created_at  timestamptz not null default now(),
    constraint settlement_instruction_pkey primary key (partner_id, livemode, asset),
    constraint settlement_instruction_partner_fkey foreign key (partner_id) references partner (id)
);

-- A legacy order waits here until its strategy executes it; then it is an intent like any other.
create table legacy_intent (
    partner_id   text not null,
    livemode     boolean not null,
    intent_id    text not null,
    request      jsonb not null,
    source       text not null,
    target       text not null,
    strategy     text not null,
    client_ref   text,
    account      text not null,
    stage        text not null,
    -- Part of the id of the submitted intent, and committed before it: a crash in between creates no second one.
    attempt      integer not null default 0,
    best_output  numeric(39, 0),
    reference    text,
    -- Why it was rejected.
    code         text,
    created_at   timestamptz not null,
    updated_at   timestamptz not null default now(),
    expires_at   timestamptz not null,
    run_at       timestamptz not null,
    lease_until  timestamptz,
    version      bigint not null default 1,
    constraint legacy_intent_pkey primary key (partner_id, livemode, intent_id),
    constraint legacy_intent_partner_fkey foreign key (partner_id) references partner (id),
    constraint legacy_intent_strategy_known check (strategy in ('instant', 'optimized', 'scheduled')),
    constraint legacy_intent_stage_known check (stage in ('pending', 'solving', 'queued', 'submitting', 'submitted',
                                                          'expired', 'rejected', 'cancelled')),
    constraint legacy_intent_submitted_has_reference check ((stage = 'submitted') = (reference is not null)),
    constraint legacy_intent_rejected_has_code check ((stage = 'rejected') = (code is not null))
);
create index legacy_intent_due_idx on legacy_intent (run_at)
    where stage in ('pending', 'solving', 'queued', 'submitting');
create index legacy_intent_created_idx on legacy_intent (partner_id, livemode, created_at, intent_id);
