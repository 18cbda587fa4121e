-- The wallets and tokens of a chain that the ledger knows, and their balances as they were compared last.

-- A provider's funds are in these wallets; a wallet may be several providers'.
create table provider_wallet (
    provider_id  text not null,
    -- Lowercase hex with 0x.
    address      text not null,
    seen_at      timestamptz not null default now(),
    constraint provider_wallet_pkey primary key (provider_id, address),
    constraint provider_wallet_address_form check (address ~ '^0x[0-9a-f]{40}$')
);

create table chain_token (
    chain_id  bigint not null,
    asset     text not null,
    address   text not null,
    constraint chain_token_pkey primary key (chain_id, asset),
    constraint chain_token_address_form check (address ~ '^0x[0-9a-f]{40}$')
);

-- What was read at a final block, and what the ledger said: the escrow, and wallets with the providers that share them.
create table wallet_balance (
    chain_id       bigint not null,
    account        text not null,
    asset          text not null,
    block_number   bigint not null,
    block_hash     bytea not null,
    -- Minor units: what the token's contract says, what the ledger says, and what settlements in flight have moved on the
    -- chain and not in the ledger.
    held           numeric(39, 0) not null,
    ledger         numeric(39, 0) not null,
    in_flight      numeric(39, 0) not null,
    -- Since when they have differed without a pause.
    differs_since  timestamptz,
    read_at        timestamptz not null default now(),
    constraint wallet_balance_pkey primary key (chain_id, account, asset),
    constraint wallet_balance_hash_length check (octet_length(block_hash) = 32)
);
