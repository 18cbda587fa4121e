-- An endpoint that an operator has made inactive stays so when its partner moves between cells, until the partner itself
-- activates it.

alter table webhook_endpoint
    -- The operator who has stopped it.
    add column stopped_by text;

update webhook_endpoint w set stopped_by = r.operator
from (select distinct on (split_part(subject, ' ', 1)) split_part(subject, ' ', 1) as endpoint_id, operator
      from console_record where route = 'dvp webhook' and subject like '% disabled: %'
      order by split_part(subject, ' ', 1), id desc) r
where r.endpoint_id = w.id and not w.is_active;

-- Whoever activates it lifts the stop, the release before, too.
create function webhook_endpoint_start() returns trigger language plpgsql as $$
begin
    if new.is_active and not old.is_active then
        new.stopped_by := null;
    end if;
    return new;
end $$;
-- After webhook_endpoint_key_works, by its name: the endpoint of a revoked key is not activated.
create trigger webhook_endpoint_started before update of is_active on webhook_endpoint
    for each row execute function webhook_endpoint_start();

alter table webhook_endpoint
    add constraint webhook_endpoint_stopped_is_inactive check (stopped_by is null or not is_active);
