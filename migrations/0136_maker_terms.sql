-- An order in the book belongs to the terms (partner, provider, wallet) that it was placed for, also when later terms
-- have the same wallet: one that was wholly taken when its maker ended was offered again, at its old rate, under a later
-- maker with that wallet, when its taker returned the amount.

-- The maker's orders are those from this id on: earlier ones were placed for other terms. 0: set before this migration.
alter table maker add column orders_from bigint not null default 0;

create function maker_begins() returns trigger language plpgsql as $$
begin
    new.orders_from := nextval('resting_order_id_seq');
    return new;
end $$;
-- By triggers, because the release before sets makers, too.
create trigger maker_added before insert on maker
    for each row execute function maker_begins();
create trigger maker_changed before update on maker
    for each row when ((old.provider_id, lower(old.wallet), old.ended_at is null)
                       is distinct from (new.provider_id, lower(new.wallet), new.ended_at is null))
    execute function maker_begins();

-- Open orders that no present maker has, left by the release before, which still fills them. A locked one is left out:
-- its holder may wait for the table of makers. It is withheld by its row.
update resting_order o set cancelled = o.remaining, remaining = 0, cancelled_at = clock_timestamp()
from (select id from resting_order r
      where client_order_id is not null and remaining > 0
        and not exists (select from maker m where m.provider_id = r.provider_id and lower(m.wallet) = lower(r.wallet)
                          and m.ended_at is null)
      order by id for update skip locked) stale
where o.id = stale.id;
