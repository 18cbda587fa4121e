-- Facts that the chain took back stay as rows, so that what was told can be accounted for; a chain that broke its
-- own finality is halted until an operator says otherwise, over restarts too; and how an indexer is doing can be
-- read by anybody who can read the database.

alter table chain_fact add column retracted_at timestamptz;
create index chain_fact_block_idx on chain_fact (chain_id, block_number);
create index chain_fact_told_idx on chain_fact (id) where consumed_at is null and retracted_at is null;

alter table chain_cursor add column halted text;
alter table chain_cursor add column halted_detail text;
alter table chain_cursor add column halted_at timestamptz;
alter table chain_cursor add constraint chain_cursor_halted_known
    check (halted in ('final_block_changed', 'finalized_regressed'));
alter table chain_cursor add constraint chain_cursor_halted_whole
    check ((halted is null) = (halted_at is null) and (halted is null) = (halted_detail is null));

-- One row a chain, written by the holder of the indexer's duty. Nothing is decided by it.
create table chain_status (
    chain_id             bigint not null,
    name                 text not null,
    state                text not null,
    reason               text,
    since                timestamptz not null default clock_timestamp(),
    node_head            bigint not null,
    node_final           bigint not null,
    backfill_from        bigint,
    backfill_to          bigint,
    backfill_events      bigint,
    backfill_started_at  timestamptz,
    updated_at           timestamptz not null default clock_timestamp(),
    constraint chain_status_pkey primary key (chain_id),
    constraint chain_status_state_known check (state in ('backfilling', 'following', 'holding', 'halted')),
    constraint chain_status_backfill_whole check (
        (backfill_from is null) = (backfill_to is null)
        and (backfill_from is null) = (backfill_events is null)
        and (backfill_from is null) = (backfill_started_at is null)
    )
);
