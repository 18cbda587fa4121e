-- A database belongs to a test or a live deployment from the first `dvp migrate` on. Keys and FIX sessions of the other
-- environment cannot be written by any program.
create table deployment (
    is_the_only  boolean not null default true,
    environment  text not null,
    stamped_at   timestamptz not null default clock_timestamp(),
    constraint deployment_pkey primary key (is_the_only),
    constraint deployment_is_one check (is_the_only),
    constraint deployment_environment_known check (environment in ('test', 'live'))
);

create function environment_holds() returns trigger language plpgsql as $$
declare
    deployed text := (select environment from deployment);
    written  text := case when tg_table_name = 'api_key' then to_jsonb(new) ->> 'env'
                          when (to_jsonb(new) ->> 'livemode')::boolean then 'live' else 'test' end;
begin
    if deployed is not null and written is distinct from deployed then
        raise check_violation using message = format('%s: the deployment is %s and the row is %s', tg_table_name, deployed, written),
            constraint = 'environment_holds';
    end if;
    return new;
end
$$;

create function deployment_stays() returns trigger language plpgsql as $$
begin
    raise check_violation using message = 'the environment of a database never changes', constraint = 'deployment_stays';
end
$$;

create trigger deployment_stays before update or delete on deployment
    for each row execute function deployment_stays();
create trigger environment_holds before insert or update on api_key
    for each row execute function environment_holds();
create trigger environment_holds before insert or update of livemode on fix_session
    for each row execute function environment_holds();
