-- Which window of its schedule a session's numbers belong to: they begin anew exactly when it changes, also when that
-- happens while no process runs.

alter table fix_session
    -- Days from 1970-01-01 to the date on which the window began; null: never recorded.
    add column epoch bigint;
