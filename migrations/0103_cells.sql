-- A database may belong to a cell: one of several databases that share the partners among them. The identifiers and keys
-- that are issued in a cell carry its three digits. A database that is in use without a cell gets one once; after that it
-- never changes.
alter table deployment add column cell text
    constraint deployment_cell_form check (cell ~ '^[0-9a-f]{3}$' and cell <> '000');

create or replace function deployment_stays() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' and old.cell is null
       and (new.is_the_only, new.environment, new.stamped_at) = (old.is_the_only, old.environment, old.stamped_at) then
        return new;
    end if;
    raise check_violation using message = 'the environment and the cell of a database never change',
        constraint = 'deployment_stays';
end
$$;
