-- When the whole ledger was last compared with the kept balances, and what was found. Between two such times only the
-- last closings and the entries since are compared: work that grows with the rate of orders, not with the history.

create table ledger_check (
    only_row  boolean not null default true,
    whole_at  timestamptz not null,
    -- Balances and assets that were wrong.
    found     bigint not null,
    constraint ledger_check_pkey primary key (only_row),
    constraint ledger_check_one_row check (only_row)
);
