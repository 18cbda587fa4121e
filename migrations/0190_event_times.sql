-- Within a settlement no event occurs before the one before it: when the last one occurred is kept beside its number.
-- Null until the first event after the acceptance.

alter table execution add column last_occurred_at timestamptz;
