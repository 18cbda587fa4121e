-- Intents of orders of another cell, which came with their partner. Their client references, and the accounts in the
-- answers to them, are erased here by a request under the order's reference, which leads to them.

alter table intent add column copied_at timestamptz;
update intent i set copied_at = now()
    from (select distinct partner_id from partner_move where target = (select cell from deployment)) m
    where i.partner_id = m.partner_id and i.reference is not null
      and not exists (select from execution e where e.reference = i.reference);
create index intent_copied_idx on intent (reference) where copied_at is not null and reference is not null;
