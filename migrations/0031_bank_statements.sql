-- Statements of bank accounts (camt.053), entry by entry, and the postings that they are compared with.

-- One statement, or a page of one: it counts once, however often the bank sends it.
create table bank_statement (
    id           bigint generated always as identity,
    -- The account's number at the bank: an IBAN, or the bank's own.
    account      text not null,
    currency     text not null,
    statement    text not null,
    page         integer not null,
    begins_at    timestamptz not null,
    ends_at      timestamptz not null,
    -- Signed minor units.
    opening      numeric(39, 0) not null,
    closing      numeric(39, 0) not null,
    -- SHA-256 of what it says, to tell a repeated statement from a different one of the same name; and its file.
    content      bytea not null,
    file         bytea not null,
    taken_at     timestamptz not null default now(),
    constraint bank_statement_pkey primary key (id),
    constraint bank_statement_name_key unique (account, currency, statement, page),
    constraint bank_statement_content_length check (octet_length(content) = 32)
);
create index bank_statement_order_idx on bank_statement (account, currency, ends_at, page);

-- A booked entry, or one of the payments of a batch: positive amounts are credits.
create table bank_entry (
    id             bigint generated always as identity,
    statement      bigint not null,
    line           integer not null,
    account        text not null,
    currency       text not null,
    amount         numeric(39, 0) not null,
    booked_at      timestamptz not null,
    end_to_end_id  text,
    -- Every reference that it carries, and its unstructured remittance information.
    refs           text[] not null,
    -- What it is about, and since when the ledger has it too.
    subject        text,
    paired_at      timestamptz,
    constraint bank_entry_pkey primary key (id),
    constraint bank_entry_line_key unique (statement, line),
    constraint bank_entry_statement_fkey foreign key (statement) references bank_statement (id),
    constraint bank_entry_pair_whole check ((subject is null) = (paired_at is null))
);
create index bank_entry_open_idx on bank_entry (account, currency) where paired_at is null;
create index bank_entry_subject_idx on bank_entry (subject) where subject is not null;

-- A posting that moved money at the bank, as the bank's balance changes by it.
create table bank_posting (
    id         bigint generated always as identity,
    account    text not null,
    currency   text not null,
    reference  text not null,
    step       bigint not null,
    line       integer not null,
    subject    text not null,
    amount     numeric(39, 0) not null,
    posted_at  timestamptz not null,
    -- Since when the bank has it too.
    paired_at  timestamptz,
    constraint bank_posting_pkey primary key (id),
    constraint bank_posting_entry_key unique (account, currency, reference, step, line)
);
create index bank_posting_open_idx on bank_posting (account, currency) where paired_at is null;
create index bank_posting_time_idx on bank_posting (account, currency, posted_at);

-- What comes in from outside and goes out, in money: wallets and the network apart.
create index ledger_entry_outside_idx on ledger_entry (asset, recorded_at)
    where owner_kind = 'external' and owner <> 'network' and owner not like '0x%';

-- A run compares a chain, or the accounts at the bank: then it has no chain.
alter table reconciliation_run
    alter column chain_id drop not null,
    alter column block_number drop not null,
    alter column block_hash drop not null,
    alter column block_time drop not null;
create index reconciliation_run_bank_idx on reconciliation_run (id) where chain_id is null;

alter table reconciliation_break
    -- Where an account outside differs from the ledger, and by how many minor units more.
    add column account        text,
    add column asset          text,
    add column difference     numeric(39, 0),
    -- When a run found it first, of those that have found it without a pause.
    add column first_seen_at  timestamptz not null default now();
