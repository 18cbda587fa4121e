-- What may be agreed on for a FIX session beside its limits: that it gets copies of the reports of all the partner's
-- orders and takes none, and that its resting orders do not outlive its connection.

alter table fix_session
    -- Reports of every order of the partner in its environment, whatever door it came through; nothing is taken.
    add column drop_copy                  boolean not null default false,
    -- So many seconds after its connection ended, orders that are not locking yet are cancelled; null: never.
    add column cancel_on_disconnect_secs  integer,
    add constraint fix_session_cancel_on_disconnect_range check (cancel_on_disconnect_secs between 0 and 3600),
    add constraint fix_session_drop_copy_has_no_orders
        check (not drop_copy or cancel_on_disconnect_secs is null);
