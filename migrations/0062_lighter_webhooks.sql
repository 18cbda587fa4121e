-- A claim gave a delivery a new version in each of five indexes, because it moved due_at, which stands in one of them.
-- The lease has a column of its own now that no index knows, and pages keep room for the new version, so that a claim
-- touches the row's page only.
alter table webhook_delivery
    add column leased_until timestamptz not null default '-infinity',
    set (fillfactor = 50);
-- Claims are among what is pending, which has an index.
drop index webhook_delivery_claimed_idx;
-- An attempt is written by the statement that found its delivery, and both go in one statement.
alter table webhook_attempt drop constraint webhook_attempt_delivery_fkey;
