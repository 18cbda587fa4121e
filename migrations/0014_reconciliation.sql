-- Comparisons of the service's books with chains and banks: the last runs, each with its breaks. No decision depends
-- on these rows. A comparison with a chain reads what changed since the last one that agreed, not the whole history;
-- once a day, and on request, it reads everything.

create table reconciliation_run (
    id            bigint generated always as identity,
    chain_id      bigint,
    block_number  bigint,
    block_hash    bytea,
    block_time    timestamptz,
    subjects      bigint not null,
    queries       bigint not null,
    started_at    timestamptz not null,
    finished_at   timestamptz not null default clock_timestamp(),
    constraint reconciliation_run_pkey primary key (id),
    constraint reconciliation_run_hash_length check (octet_length(block_hash) = 32)
);
comment on table reconciliation_run is 'The last comparisons, each of a chain or of the accounts at the bank.';
comment on column reconciliation_run.chain_id is 'Null: the run compared the accounts at the bank.';
comment on column reconciliation_run.subjects is 'The number of compared executions and contracts.';
comment on column reconciliation_run.queries is 'The number of queries that the node answered.';
create index reconciliation_run_chain_idx on reconciliation_run (chain_id, id);
create index reconciliation_run_bank_idx on reconciliation_run (id) where chain_id is null;
create trigger reconciliation_run_announced after insert on reconciliation_run
    for each row execute function console_announce('breaks');

create table reconciliation_break (
    run_id         bigint not null,
    ordinal        bigint not null,
    kind           text not null,
    reference      text,
    entity         text,
    detail         text not null,
    action         text not null,
    account        text,
    asset          text,
    difference     numeric(39, 0),
    first_seen_at  timestamptz not null default now(),
    constraint reconciliation_break_pkey primary key (run_id, ordinal),
    constraint reconciliation_break_run_fkey foreign key (run_id) references reconciliation_run (id) on delete cascade
);
comment on table reconciliation_break is 'What each run found to differ.';
comment on column reconciliation_break.action is 'The action proposed to operators.';
comment on column reconciliation_break.account is 'The account outside that differs from the ledger.';
comment on column reconciliation_break.difference is 'By how many minor units more the account outside has.';
comment on column reconciliation_break.first_seen_at is
    'When a run found it first, of those that have found it without a pause.';
create index reconciliation_break_reference_idx on reconciliation_break (reference, run_id) where reference is not null;

create table closed_break (
    kind       text not null,
    about      text not null,
    detail     text not null,
    approval   text not null,
    closed_at  timestamptz not null default clock_timestamp(),
    constraint closed_break_pkey primary key (kind, about)
);
comment on table closed_break is
    'Breaks about what the database has forgotten after a restore, closed by two operators once it was clear what '
    'became of the money.';
comment on column closed_break.about is 'The execution''s reference, or else the id on the chain.';
comment on column closed_break.detail is 'What was found; another finding about it is shown again.';
comment on column closed_break.approval is 'The approved request, whose row is never changed or deleted.';
create trigger closed_break_audited after insert or update on closed_break
    for each row execute function audit_append();

create table reconciliation_point (
    chain_id      bigint not null,
    block_number  bigint not null,
    block_hash    bytea not null,
    full_at       timestamptz not null,
    constraint reconciliation_point_pkey primary key (chain_id),
    constraint reconciliation_point_hash_length check (octet_length(block_hash) = 32)
);
comment on table reconciliation_point is
    'Up to which final block of each chain the stored events agreed with the contracts'' own numbers.';
comment on column reconciliation_point.full_at is 'When the whole history was read last.';

create table reconciliation_count (
    chain_id  bigint not null,
    contract  bytea not null,
    last_seq  bigint not null,
    kept      bigint not null,
    constraint reconciliation_count_pkey primary key (chain_id, contract),
    constraint reconciliation_count_point_fkey foreign key (chain_id) references reconciliation_point (chain_id)
        on delete cascade
);
comment on table reconciliation_count is 'The events of each contract up to the point.';
comment on column reconciliation_count.last_seq is 'The last event''s number.';
comment on column reconciliation_count.kept is 'How many events are stored.';

create table reconciliation_open (
    chain_id  bigint not null,
    kind      text not null,
    entity    bytea not null,
    constraint reconciliation_open_pkey primary key (chain_id, kind, entity),
    constraint reconciliation_open_kind_known check (kind in ('funds', 'entity', 'anchor')),
    constraint reconciliation_open_point_fkey foreign key (chain_id) references reconciliation_point (chain_id)
        on delete cascade
);
comment on table reconciliation_open is
    'What events up to the point have left open: funds in the escrow, ids without an execution, anchors without a '
    'receipt.';

create table provider_wallet (
    provider_id  text not null,
    address      text not null,
    seen_at      timestamptz not null default now(),
    constraint provider_wallet_pkey primary key (provider_id, address),
    constraint provider_wallet_address_form check (address ~ '^0x[0-9a-f]{40}$')
);
comment on table provider_wallet is 'The wallets that have a provider''s funds; a wallet may be several providers''.';
comment on column provider_wallet.address is 'Lowercase hex with 0x.';

create table wallet_balance (
    chain_id       bigint not null,
    account        text not null,
    asset          text not null,
    block_number   bigint not null,
    block_hash     bytea not null,
    held           numeric(39, 0) not null,
    ledger         numeric(39, 0) not null,
    in_flight      numeric(39, 0) not null,
    differs_since  timestamptz,
    read_at        timestamptz not null default now(),
    gifts          numeric(39, 0) not null default 0,
    constraint wallet_balance_pkey primary key (chain_id, account, asset),
    constraint wallet_balance_hash_length check (octet_length(block_hash) = 32)
);
comment on table wallet_balance is
    'Balances of the escrow and of wallets, as they were read at a final block, and what the ledger said.';
comment on column wallet_balance.held is 'Minor units, by the token''s contract.';
comment on column wallet_balance.ledger is 'Minor units, by the ledger.';
comment on column wallet_balance.in_flight is
    'Minor units that settlements in flight have moved on the chain and not in the ledger.';
comment on column wallet_balance.differs_since is 'Since when they have differed without a pause.';
comment on column wallet_balance.gifts is
    'What was posted as gifts to the escrow when the balance was compared: `ledger` has these and no later ones.';
