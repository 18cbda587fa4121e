-- What an order costs to write, made less again without promising less. Each index and each conversion is paid once an
-- order; what is dropped here is either found by another key or was read by nobody.

-- Documents are kept as they were written. They are read whole, and turning each into a tree cost as much as all the
-- rows of an order; the database still checks that they are JSON.
drop view event_record;
alter table event alter column object type json using object::json;
alter table event_history alter column object type json using object::json;
create view event_record as select * from event union all select * from event_history;
alter table execution alter column terms type json using terms::json;
-- Few executions fit on a page anyway; a changed row moves to another page without touching an index, because none
-- holds what changes.
alter table execution reset (fillfactor);

-- An execution is found by the chain through the commands that name it, and by its partner through its intent.
alter table execution drop constraint execution_entity_key;
drop index execution_client_reference_idx;
-- Nobody looks for executions by their state; the index had to follow every step.
drop index execution_open_idx;
-- Held nonces are let go by key.
drop index permit_use_reference_idx;
-- An intent's events are found by its reference.
drop index event_intent_idx;

-- The partner of an intent is known: asked once a statement, not once a row.
alter table intent drop constraint intent_partner_fkey;
create function intent_has_partner() returns trigger language plpgsql as $$
begin
    if exists (select from (select distinct partner_id from added) a
               where not exists (select from partner p where p.id = a.partner_id)) then
        raise exception 'the intent''s partner does not exist'
            using errcode = 'foreign_key_violation', constraint = 'intent_partner_known', table = 'intent';
    end if;
    return null;
end $$;
create trigger intent_partner_known after insert on intent
    referencing new table as added for each statement execute function intent_has_partner();
create function partner_is_kept() returns trigger language plpgsql as $$
begin
    raise exception 'partners are never deleted'
        using errcode = 'foreign_key_violation', constraint = 'partner_kept', table = 'partner';
end $$;
create trigger partner_kept before delete or truncate on partner
    for each statement execute function partner_is_kept();
