-- The bounds of a parked order. Those of an order without a price follow from the prices on its arrival, which a later
-- owner of the session does not know.

alter table fix_parked
    -- Null: parked by the release before.
    add column bounds jsonb;
