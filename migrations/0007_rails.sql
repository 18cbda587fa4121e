-- Rails: payments ordered from a bank by ISO 20022 files, the bank's files, and the books of the simulated rails.

-- The end-to-end id identifies the payment for ever: a repeated order finds its row.
create table bank_payment (
    end_to_end_id   text not null,
    -- The rail's reference of the leg, and the execution it belongs to.
    reference       text not null,
    execution       text not null,
    message_id      text not null,
    block_id        text not null,
    amount          numeric(39, 0) not null,
    currency        text not null,
    exponent        integer not null,
    status        text not null,
    -- The only file of this payment that is ever moved to the bank.
    staged_file     text not null,
    ordered_at      timestamptz not null default now(),
    -- From the bank: its reference, when the money moved, why it did not.
    bank_reference  text,
    paid_at         timestamptz,
    reason          text,
    reason_text     text,
    -- An alarm for operators: a report that contradicts an earlier one, or a different amount.
    alarm           text,
    updated_at      timestamptz not null default now(),
    constraint bank_payment_pkey primary key (end_to_end_id),
    constraint bank_payment_reference_key unique (reference),
    constraint bank_payment_message_key unique (message_id),
    constraint bank_payment_block_key unique (block_id),
    constraint bank_payment_status_known
        check (status in ('staged', 'sent', 'pending', 'paid', 'refused', 'returned')),
    constraint bank_payment_amount_positive check (amount > 0)
);
create index bank_payment_open_idx on bank_payment (ordered_at) where status in ('staged', 'sent', 'pending');
create index bank_payment_alarm_idx on bank_payment (updated_at) where alarm is not null;

-- Each file of the bank, by its content, however often it arrives.
create table bank_file (
    digest      bytea not null,
    name        text not null,
    message     text,
    message_id  text,
    -- Why it was refused; null: it was accepted.
    refusal     text,
    -- Number of unknown payments in it.
    unknown     bigint not null default 0,
    taken_at    timestamptz not null default now(),
    constraint bank_file_pkey primary key (digest),
    constraint bank_file_digest_length check (octet_length(digest) = 32)
);
create index bank_file_name_idx on bank_file (name);
create index bank_file_refused_idx on bank_file (taken_at) where refusal is not null or unknown > 0;

-- The books of the simulated rails, which represent outside systems.
create table simulated_rail (
    leg          text not null,
    reference    text not null,
    account      text not null,
    amount       numeric(39, 0) not null,
    currency     text not null,
    calls        integer not null default 0,
    -- How often money moved for the reference, so that a second payment would be found.
    executed     integer not null default 0,
    first_call   timestamptz not null,
    executed_at  timestamptz,
    constraint simulated_rail_pkey primary key (leg, reference)
);
