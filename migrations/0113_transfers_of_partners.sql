-- Transfers between cells of what a partner has prefunded, beside those of providers' inventory.

alter table transfer
    alter column provider drop not null,
    add column partner_id text,
    add column livemode boolean,
    add constraint transfer_one_owner
        check (num_nonnulls(provider, partner_id) = 1 and num_nonnulls(provider, livemode) = 1);

create or replace function transfer_stays() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' then
        if (old.state, new.state) in (('sent', 'confirmed'), ('sent', 'taken_back'), ('announced', 'received'),
                                      ('announced', 'refused'))
           and (new.id, new.cell, new.provider, new.partner_id, new.livemode, new.asset, new.amount, new.sent_at,
                new.document)
               is not distinct from
               (old.id, old.cell, old.provider, old.partner_id, old.livemode, old.asset, old.amount, old.sent_at,
                old.document) then
            return new;
        end if;
    end if;
    raise exception 'a transfer between cells changes only by its end'
        using errcode = 'check_violation', constraint = 'transfer_stays', table = 'transfer';
end $$;
