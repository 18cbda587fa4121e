-- Work that committed steps request, and the leases by which processes share work.

-- Written by the transaction that writes the execution's step, so no foreign key repeats it.
create table effect (
    id           bigint generated always as identity,
    reference    text not null,
    kind         text not null,
    run_at       timestamptz not null,
    -- The call may have reached the rail: query by reference before calling again.
    called       boolean not null default false,
    -- When it was last called. "Not seen" proves that no call arrived only once no call can be in flight.
    called_at    timestamptz,
    attempts     integer not null default 0,
    lease_until  timestamptz,
    -- Grows with each claim; an outcome counts only under its own.
    fence        bigint not null default 0,
    -- The rail's last answer, for operators.
    last_result        text,
    -- An operator's finding about the leg; replaces the rail's answer.
    verdict      jsonb,
    -- Consecutive attempts whose result could not be written. Such work is retried later and separately.
    unwritten    integer not null default 0,
    constraint effect_pkey primary key (id),
    constraint effect_reference_kind_key unique (reference, kind),
    constraint effect_kind_known check (kind in ('lock', 'expire', 'offramp', 'payout'))
);
create index effect_unwritten_idx on effect (id) where unwritten > 0;

-- Leases for work of a single owner (an indexer's chain, a relayer, a FIX session), by the database's clock.
create table lease (
    name        text not null,
    owner       uuid not null,
    -- Grows with each change of owner.
    fence       bigint not null,
    expires_at  timestamptz not null,
    constraint lease_pkey primary key (name)
);
