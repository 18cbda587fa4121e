-- An endpoint belongs to a key, and whoever had a key that was revoked may have chosen where its events go. Such an endpoint
-- is inactive, however the key was revoked, until it is given to another key.

create function webhook_endpoint_of_key() returns trigger language plpgsql as $$
begin
    -- An insert waits for a revocation under way, which could not see the new row. An update need not: the revocation waits
    -- for it, or has the row already.
    if tg_op = 'INSERT' then
        perform from api_key where id = new.key_id for share;
    end if;
    if new.is_active and exists (select from api_key where id = new.key_id and revoked_at is not null) then
        new.is_active := false;
    end if;
    return new;
end $$;
create trigger webhook_endpoint_key_works before insert or update of is_active, key_id on webhook_endpoint
    for each row execute function webhook_endpoint_of_key();

create function api_key_stop_endpoint() returns trigger language plpgsql as $$
begin
    update webhook_endpoint set is_active = false where key_id = new.id and is_active;
    return null;
end $$;
create trigger api_key_revoked after update of revoked_at on api_key
    for each row when (new.revoked_at is not null) execute function api_key_stop_endpoint();

update webhook_endpoint w set is_active = false
from api_key k where k.id = w.key_id and k.revoked_at is not null and w.is_active;
