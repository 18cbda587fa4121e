-- Open orders by tenant: the waiting orders of the legacy API are evaluated by turns of their tenants, and how many orders
-- of a tenant wait, or rest, is limited. And who is paid for a legacy order is set as other settings are, with a trace.

create index legacy_intent_turn_idx on legacy_intent (partner_id, livemode, strategy, run_at)
    where stage in ('pending', 'solving', 'queued', 'submitting');

-- Null: added by the release before, which does not count them.
alter table resting_range add column partner_id text, add column livemode boolean;
update resting_range r set partner_id = e.partner_id, livemode = e.livemode
    from execution e where e.reference = r.reference;
create index resting_range_tenant_idx on resting_range (partner_id, livemode);

-- Who set a standing instruction, and what it replaced: it decides who is paid. Null: set by the release before.
alter table settlement_instruction
    add column operator text,
    add column reason text,
    -- The approved request, whose row is never changed or deleted. Null: set at once, in a test deployment.
    add column approval text,
    add column set_at timestamptz,
    -- The account before the latest change.
    add column replaced text;

create function settlement_instruction_replaces() returns trigger language plpgsql as $$
begin
    new.replaced := old.account;
    -- The release before does not say who changes it.
    if new.set_at is not distinct from old.set_at then
        new.operator := null;
        new.reason := null;
        new.approval := null;
    end if;
    return new;
end $$;
create trigger settlement_instruction_replaced before update on settlement_instruction
    for each row when (old.account is distinct from new.account) execute function settlement_instruction_replaces();
create trigger settlement_instruction_added after insert on settlement_instruction
    for each row execute function audit_append();
-- The same again changes nothing.
create trigger settlement_instruction_changed after update on settlement_instruction
    for each row when ((old.account, old.operator, old.reason, old.approval)
                       is distinct from (new.account, new.operator, new.reason, new.approval))
    execute function audit_append();

create function settlement_instruction_is_kept() returns trigger language plpgsql as $$
begin
    raise exception 'a standing instruction is changed, never deleted'
        using errcode = 'check_violation', constraint = 'settlement_instruction_kept', table = 'settlement_instruction';
end $$;
create trigger settlement_instruction_kept before delete or truncate on settlement_instruction
    for each statement execute function settlement_instruction_is_kept();

alter table approval drop constraint approval_kind_known;
alter table approval add constraint approval_kind_known
    check (kind in ('execution', 'ledger', 'limit', 'band', 'maker', 'credential', 'operator', 'personal_data',
                    'partner_move', 'transfer', 'instruction'));
