-- The relayer's accounts, nonces and signed transactions. Transactions are committed before they are broadcast.

-- An account that signs. Nonces are reserved here only, under the lock of this row.
create table relayer_account (
    chain_id     bigint not null,
    signer       bytea not null,
    next_nonce   bigint not null,
    -- When it could last sign; the other accounts take over the share of an account that cannot.
    able_at      timestamptz,
    -- Its balance for gas, as seen at `balance_at`.
    balance_wei  numeric(39, 0),
    balance_low  boolean not null default false,
    balance_at   timestamptz,
    constraint relayer_account_pkey primary key (chain_id, signer),
    constraint relayer_account_signer_length check (octet_length(signer) = 20)
);

-- One nonce. `mined` may go back to `broadcast` (a reorganization), `final` may not. `foreign`: used by another
-- transaction than the service's. `abandoned`: its account was retired, and the transaction is not broadcast any more.
create table nonce_slot (
    chain_id      bigint not null,
    signer        bytea not null,
    nonce         bigint not null,
    state         text not null default 'signed',
    -- The kind of the transaction, null when it only uses the nonce, and its gas limit.
    kind          text,
    gas           bigint not null default 0,
    succeeded     boolean,
    block_number  bigint,
    block_hash    bytea,
    -- The indexer has passed its block, and commands whose event did not come are open again.
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
create index nonce_slot_open_idx on nonce_slot (chain_id, signer, nonce) where state in ('signed', 'broadcast', 'mined');
create index nonce_slot_unjudged_idx on nonce_slot (chain_id, signer, nonce)
    where state in ('mined', 'final') and not judged;
create index nonce_slot_unused_idx on nonce_slot (chain_id, signer, nonce) where state in ('foreign', 'abandoned');

-- The commands in a nonce's transaction. A command is in one live transaction at most; it stops being live when the
-- transaction did not carry it out.
create table slot_command (
    chain_id    bigint not null,
    signer      bytea not null,
    nonce       bigint not null,
    command_id  bigint not null,
    live        boolean not null default true,
    constraint slot_command_pkey primary key (chain_id, signer, nonce, command_id),
    constraint slot_command_slot_fkey foreign key (chain_id, signer, nonce)
        references nonce_slot (chain_id, signer, nonce),
    constraint slot_command_command_fkey foreign key (command_id) references chain_command (id)
);
create unique index slot_command_live_key on slot_command (command_id) where live;

-- Signed bytes, committed before their first broadcast. All attempts of a slot share its nonce, so at most one of them
-- is ever mined.
create table tx_attempt (
    chain_id           bigint not null,
    signer             bytea not null,
    nonce              bigint not null,
    attempt            bigint not null,
    hash               bytea not null,
    -- Signed bytes, encrypted: those of a `settle` contain a preimage before it is on the chain.
    sealed             bytea not null,
    max_fee            numeric(39, 0) not null,
    priority_fee       numeric(39, 0) not null,
    -- The chain's head when it was signed: fees are raised by blocks, not by the clock.
    head_number        bigint not null default 0,
    created_at         timestamptz not null default clock_timestamp(),
    last_broadcast_at  timestamptz,
    last_error         text,
    constraint tx_attempt_pkey primary key (chain_id, signer, nonce, attempt),
    constraint tx_attempt_hash_key unique (chain_id, hash),
    constraint tx_attempt_slot_fkey foreign key (chain_id, signer, nonce)
        references nonce_slot (chain_id, signer, nonce)
);

-- The fees of each chain as its relayer last saw them, in wei per gas, for operators. No decision depends on these rows.
create table chain_fees (
    chain_id  bigint not null,
    -- Of the next block.
    base_fee  numeric(39, 0) not null,
    tip       numeric(39, 0) not null,
    -- The most that a transaction offers.
    cap       numeric(39, 0) not null,
    seen_at   timestamptz not null default clock_timestamp(),
    constraint chain_fees_pkey primary key (chain_id)
);
