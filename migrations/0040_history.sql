-- Work whose cost grew with history or with the number of processes: reports of all accounts read closings and the open
-- day, and one worker takes a chain fact. What reconciliation did not know: wallets that makers had, and the references
-- of payments that operators made another way.

-- Recipients and debts of single orders, and wallets outside, are summed up as one account each.
create function ledger_account(owner_kind text, owner text) returns text language sql immutable as $$
    select case when owner like 'exe\_%' then case owner_kind when 'debt' then 'executions' else 'recipients' end
                when owner_kind = 'external' and owner like '0x%' then 'wallets'
                else owner end
$$;

-- How many of the accounts in a sum hold anything; one for every other account.
alter table ledger_closing add column accounts bigint not null default 1;

-- Days that are closed already: sums of debts and wallets, and the numbers of accounts in each sum.
insert into ledger_closing (owner_kind, owner, part, asset, until, amount, accounts)
select owner_kind, account, part, asset, until, sum(amount) over days, (sum(opened) over days)::bigint
from (select owner_kind, account, part, asset, until, sum(amount) as amount, sum(opened) as opened
      from (select owner_kind, account, part, asset, until, amount,
                   (sum(amount) over earlier <> 0)::int - (sum(amount) over earlier - amount <> 0)::int as opened
            from (select e.owner_kind, ledger_account(e.owner_kind, e.owner) as account, e.owner, e.part, e.asset,
                         date_trunc('day', e.recorded_at, 'UTC') + interval '24 hours' as until,
                         sum(e.amount) as amount
                  from ledger_entry e, ledger_closed c
                  where e.recorded_at < c.until and ledger_account(e.owner_kind, e.owner) <> e.owner
                  group by 1, 2, 3, 4, 5, 6) each_day
            window earlier as (partition by owner_kind, owner, part, asset order by until)) each_account
      group by 1, 2, 3, 4, 5) every_day
window days as (partition by owner_kind, account, part, asset order by until)
on conflict on constraint ledger_closing_pkey do update set accounts = excluded.accounts;

-- A maker's fills stay in the wallet that it had.
insert into provider_wallet (provider_id, address)
select provider_id, lower(wallet) from maker
on conflict on constraint provider_wallet_pkey do nothing;

-- Executions that have not ended, and those that ended lately, beside a history that grows. `terminal_at` changes once:
-- every other step stays a heap-only update.
create index execution_open_partner_idx on execution (partner_id, livemode, accepted_at, reference) where terminal_at is null;
create index execution_ended_idx on execution (terminal_at) where terminal_at is not null;

-- Bank entries name what operators' decisions name.
create index approval_payment_idx on approval ((details ->> 'providerReference'))
    where kind = 'execution' and state = 'approved';

-- The worker that applies a fact, and until when no other one takes it.
alter table chain_fact add column leased_by uuid, add column lease_until timestamptz;
