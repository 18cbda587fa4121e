-- Tells the consoles what has changed, so that they read open pages again. Commits that notify wait for each other, so
-- only tables that change seldom have a trigger here: the feed notifies by itself, and the tasks that write FIX messages
-- and ended deliveries in batches notify after their commits (`dvp_store::changes`).

create function console_announce() returns trigger language plpgsql as $$
begin
    perform pg_notify('dvp_console', tg_argv[0]);
    return null;
end $$;

create trigger approval_announced after insert or update on approval
    for each row execute function console_announce('approvals');

create trigger reconciliation_run_announced after insert on reconciliation_run
    for each row execute function console_announce('breaks');
create trigger bank_payment_announced after update of alarm, alarm_cleared_at on bank_payment
    for each row when (new.alarm is distinct from old.alarm or new.alarm_cleared_at is distinct from old.alarm_cleared_at)
    execute function console_announce('breaks');

create trigger chain_status_announced after insert or update on chain_status
    for each row execute function console_announce('chains');
create trigger chain_cursor_announced after update of halted on chain_cursor
    for each row execute function console_announce('chains');

create trigger pause_announced after insert or update or delete on pause
    for each row execute function console_announce('controls');
create trigger order_limit_announced after insert or update or delete on order_limit
    for each row execute function console_announce('controls');
create trigger price_band_announced after insert or update or delete on price_band
    for each row execute function console_announce('controls');

create trigger fix_session_announced after insert or update of enabled, password_hash, allowed_sources on fix_session
    for each row execute function console_announce('fix');
create trigger fix_session_command_announced after insert or update on fix_session_command
    for each row execute function console_announce('fix');

create trigger webhook_endpoint_announced
    after insert or update of is_active, failing_since, url, subscribed_types on webhook_endpoint
    for each row execute function console_announce('webhooks');

create trigger partner_announced after insert or update on partner
    for each row execute function console_announce('partners');
create trigger api_key_announced after insert or update of disabled_at, revoked_at on api_key
    for each row execute function console_announce('partners');

create trigger operator_announced after insert or update on operator
    for each row execute function console_announce('operators');
create trigger operator_session_announced after insert or update of ended_at on operator_session
    for each row execute function console_announce('operators');

create trigger audit_entry_announced after insert on audit_entry
    for each row execute function console_announce('audit');
