-- Work that could not be written was tried again at once, for ever, and every time failed a whole batch of other work.
-- It waits longer after each attempt now, is tried apart from the others, and says why to whoever looks.

-- Attempts in a row that failed because of what was to be written.
alter table effect add column unwritten integer not null default 0;
create index effect_unwritten_idx on effect (id) where unwritten > 0;

alter table chain_fact
    add column unwritten integer not null default 0,
    -- Not taken in before then, nor is a later fact about the same entity; null: at once.
    add column retry_at timestamptz,
    -- Why, for people.
    add column heard text;
create index chain_fact_unwritten_idx on chain_fact (entity)
    where unwritten > 0 and consumed_at is null and retracted_at is null;
