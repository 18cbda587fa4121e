-- Work that committed steps request, the leases by which processes share work, and work that was set aside.

create table effect (
    id             bigint generated always as identity,
    reference      text not null,
    kind           text not null,
    run_at         timestamptz not null,
    called         boolean not null default false,
    called_at      timestamptz,
    attempts       integer not null default 0,
    claimed_until  timestamptz,
    fence          bigint not null default 0,
    last_result    text,
    verdict        jsonb,
    unwritten      integer not null default 0,
    woken          boolean not null default false,
    failing_since  timestamptz,
    constraint effect_pkey primary key (id),
    constraint effect_reference_kind_key unique (reference, kind),
    constraint effect_kind_known check (kind in ('lock', 'expire', 'offramp', 'payout', 'reversal', 'timelock'))
);
comment on table effect is
    'Work that a committed step of an execution requests; written by the step''s transaction, so no foreign key '
    'repeats it.';
comment on column effect.called is 'The call may have reached the rail: query by reference before calling again.';
comment on column effect.called_at is
    'When it was last called; "not seen" proves that no call arrived only once no call can be in flight.';
comment on column effect.fence is 'Grows with each claim; an outcome counts only under its own.';
comment on column effect.last_result is 'The rail''s last answer, for operators.';
comment on column effect.verdict is 'An operator''s finding about the leg; replaces the rail''s answer.';
comment on column effect.unwritten is
    'Consecutive attempts whose result could not be written; such work is retried later and separately.';
comment on column effect.woken is 'Made due while it was claimed: it is due again as soon as its claim ends.';
comment on column effect.failing_since is 'Since when every attempt to write its result has failed.';
create index effect_unwritten_idx on effect (id) where unwritten > 0;
-- Due work is claimed by kind: work that waits for a hung rail is not read when other work is claimed.
create index effect_kind_due_idx on effect (kind, run_at);
-- Held orders are counted by the last result of their due work.
create index effect_held_idx on effect (id) where kind = 'lock' and last_result = 'held by screening';

create table lease (
    name        text not null,
    owner       uuid not null,
    fence       bigint not null,
    expires_at  timestamptz not null,
    constraint lease_pkey primary key (name)
);
comment on table lease is
    'Leases for work of a single owner (an indexer''s chain, a relayer, a FIX session), by the database''s clock.';
comment on column lease.fence is 'Grows with each change of owner.';

create table process (
    id             uuid not null,
    host           text not null,
    version        text not null,
    roles          text[] not null,
    configuration  text not null,
    started_at     timestamptz not null default clock_timestamp(),
    seen_at        timestamptz not null default clock_timestamp(),
    constraint process_pkey primary key (id)
);
comment on table process is 'The processes of the service that run, as each reports itself every 15 seconds.';
comment on column process.configuration is
    'The digest of the sections of the configuration that must be the same in every process.';

create table set_aside (
    loop             text not null,
    item             text not null,
    about            text not null,
    error            text not null,
    attempts         integer not null,
    first_failed_at  timestamptz not null default now(),
    last_failed_at   timestamptz not null default now(),
    next_attempt_at  timestamptz not null,
    constraint set_aside_pkey primary key (loop, item),
    constraint set_aside_attempted check (attempts > 0)
);
comment on table set_aside is
    'Items of worker loops that failed, one by one, so that they delay no other item; due work, chain facts, chain '
    'commands and deliveries have columns of their own for it.';
comment on column set_aside.item is 'What identifies the item within its loop.';
comment on column set_aside.about is 'What it is about, for operators.';
-- Rows of items that no longer exist are deleted when they were not attempted for long.
create index set_aside_next_attempt_idx on set_aside (next_attempt_at);
