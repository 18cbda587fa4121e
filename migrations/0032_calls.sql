-- A rail that has not seen a call proves that it never came only once the call can no longer be on its way.
alter table effect add column called_at timestamptz;
