-- The relayer's accounts, nonces and signed transactions. Transactions are committed before they are broadcast.

create table relayer_account (
    chain_id     bigint not null,
    signer       bytea not null,
    next_nonce   bigint not null,
    able_at      timestamptz,
    balance_wei  numeric(39, 0),
    balance_low  boolean not null default false,
    balance_at   timestamptz,
    constraint relayer_account_pkey primary key (chain_id, signer),
    constraint relayer_account_signer_length check (octet_length(signer) = 20)
);
comment on table relayer_account is 'The accounts that sign; nonces are reserved here only, under the lock of the row.';
comment on column relayer_account.able_at is
    'When it could last sign; the other accounts take over the share of an account that cannot.';
comment on column relayer_account.balance_wei is 'Its balance for gas, as seen at `balance_at`.';

create table nonce_slot (
    chain_id      bigint not null,
    signer        bytea not null,
    nonce         bigint not null,
    state         text not null default 'signed',
    kind          text,
    gas           bigint not null default 0,
    succeeded     boolean,
    block_number  bigint,
    block_hash    bytea,
    judged        boolean not null default false,
    created_at    timestamptz not null default clock_timestamp(),
    constraint nonce_slot_pkey primary key (chain_id, signer, nonce),
    constraint nonce_slot_account_fkey foreign key (chain_id, signer) references relayer_account (chain_id, signer),
    constraint nonce_slot_state_known
        check (state in ('signed', 'broadcast', 'mined', 'final', 'foreign', 'abandoned')),
    constraint nonce_slot_mined_has_block check (
        state not in ('mined', 'final')
        or (block_number is not null and block_hash is not null and succeeded is not null)
    )
);
comment on table nonce_slot is 'The nonces of each account, and what became of each.';
comment on column nonce_slot.state is
    '`mined` may go back to `broadcast` (a reorganization), `final` may not; `foreign`: used by another transaction '
    'than the service''s; `abandoned`: its account was retired, and it is not broadcast any more.';
comment on column nonce_slot.kind is 'The kind of the transaction; null when it only uses the nonce.';
comment on column nonce_slot.gas is 'Its gas limit.';
comment on column nonce_slot.judged is
    'The indexer has passed its block, and commands whose event did not come are open again.';
create index nonce_slot_open_idx on nonce_slot (chain_id, signer, nonce) where state in ('signed', 'broadcast', 'mined');
create index nonce_slot_unjudged_idx on nonce_slot (chain_id, signer, nonce)
    where state in ('mined', 'final') and not judged;
create index nonce_slot_unused_idx on nonce_slot (chain_id, signer, nonce) where state in ('foreign', 'abandoned');

create table slot_command (
    chain_id    bigint not null,
    signer      bytea not null,
    nonce       bigint not null,
    command_id  bigint not null,
    live        boolean not null default true,
    dropped_at  bigint,
    constraint slot_command_pkey primary key (chain_id, signer, nonce, command_id),
    constraint slot_command_slot_fkey foreign key (chain_id, signer, nonce)
        references nonce_slot (chain_id, signer, nonce),
    constraint slot_command_command_fkey foreign key (command_id) references chain_command (id),
    constraint slot_command_dropped_is_not_live check (dropped_at is null or not live)
);
comment on table slot_command is 'The commands in a nonce''s transaction.';
comment on column slot_command.live is
    'A command is in one live transaction at most; it stops being live when the transaction did not carry it out.';
comment on column slot_command.dropped_at is
    'The first attempt of the nonce without the command; an earlier attempt that carries it may be included all the '
    'same.';
create unique index slot_command_live_key on slot_command (command_id) where live;
-- A command's transactions, when it is deleted.
create index slot_command_command_idx on slot_command (command_id);

create table tx_attempt (
    chain_id           bigint not null,
    signer             bytea not null,
    nonce              bigint not null,
    attempt            bigint not null,
    hash               bytea not null,
    sealed             bytea not null,
    max_fee            numeric(39, 0) not null,
    priority_fee       numeric(39, 0) not null,
    head_number        bigint not null default 0,
    created_at         timestamptz not null default clock_timestamp(),
    last_broadcast_at  timestamptz,
    last_error         text,
    constraint tx_attempt_pkey primary key (chain_id, signer, nonce, attempt),
    constraint tx_attempt_hash_key unique (chain_id, hash),
    constraint tx_attempt_slot_fkey foreign key (chain_id, signer, nonce)
        references nonce_slot (chain_id, signer, nonce)
);
comment on table tx_attempt is
    'Signed transactions, committed before their first broadcast; all attempts of a nonce share it, so at most one of '
    'them is ever mined.';
comment on column tx_attempt.sealed is
    'Signed bytes, encrypted: those of a `settle` contain a preimage before it is on the chain.';
comment on column tx_attempt.head_number is
    'The chain''s head when it was signed: fees are raised by blocks, not by the clock.';

create table chain_fees (
    chain_id  bigint not null,
    base_fee  numeric(39, 0) not null,
    tip       numeric(39, 0) not null,
    cap       numeric(39, 0) not null,
    data      numeric(39, 0) not null default 0,
    seen_at   timestamptz not null default clock_timestamp(),
    constraint chain_fees_pkey primary key (chain_id)
);
comment on table chain_fees is
    'The fees of each chain as its relayer last saw them, in wei per gas, for operators; no decision depends on them.';
comment on column chain_fees.base_fee is 'Of the next block.';
comment on column chain_fees.cap is 'The most that a transaction offers.';
comment on column chain_fees.data is 'Of a byte of data on the chain''s L1; zero where it pays for none.';
