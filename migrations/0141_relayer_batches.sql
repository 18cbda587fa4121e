-- One transaction carries out several commands, several accounts share them without reading the same rows, and a
-- command that is refused for an unknown reason waits for an operator instead of failing.

-- Which commands a nonce's transaction carries. A command is in one live transaction at most: the database refuses a
-- second. It stops being live when the transaction did not carry it out.
create table slot_command (
    chain_id    bigint not null,
    signer      bytea not null,
    nonce       bigint not null,
    command_id  bigint not null,
    live        boolean not null default true,
    constraint slot_command_pkey primary key (chain_id, signer, nonce, command_id),
    constraint slot_command_slot_fkey foreign key (chain_id, signer, nonce)
        references nonce_slot (chain_id, signer, nonce),
    constraint slot_command_command_fkey foreign key (command_id) references chain_command (id)
);
create unique index slot_command_live_key on slot_command (command_id) where live;
insert into slot_command (chain_id, signer, nonce, command_id, live)
select distinct on (command_id) chain_id, signer, nonce, command_id, true
from nonce_slot
where command_id is not null and (state in ('signed', 'broadcast') or (state in ('mined', 'final') and succeeded))
order by command_id, created_at desc;
alter table nonce_slot drop column command_id;

-- `kind` and `gas` (its limit) say what waits for a block; a transaction that only uses up a nonce has no kind.
-- `judged`: the indexer has passed its block, and commands whose event did not come are open again.
-- `abandoned`: its account was taken out of service and nobody sends it any more.
alter table nonce_slot add column kind text;
alter table nonce_slot add column gas bigint not null default 0;
alter table nonce_slot add column judged boolean not null default false;
alter table nonce_slot drop constraint nonce_slot_state_known;
alter table nonce_slot add constraint nonce_slot_state_known
    check (state in ('signed', 'broadcast', 'mined', 'final', 'foreign', 'abandoned'));
create index nonce_slot_unjudged_idx on nonce_slot (chain_id, signer, nonce)
    where state in ('mined', 'final') and not judged;
create index nonce_slot_unused_idx on nonce_slot (chain_id, signer, nonce) where state in ('foreign', 'abandoned');

-- The chain's newest block when an attempt was signed: fees are raised by blocks, not by the clock.
alter table tx_attempt add column head_number bigint not null default 0;

-- When an account could last sign: those that cannot leave their share of the commands to the others.
alter table signer_lane add column able_at timestamptz;

-- `share` divides the commands among the accounts, all of a wallet's to one. `tries` counts transactions and looks
-- that did not do; `trouble` is the last reason. A command is `sent` while it is in a live transaction.
alter table chain_command add column tries integer not null default 0;
alter table chain_command add column trouble text;
alter table chain_command add column troubled_at timestamptz;
alter table chain_command add column wallet text
    generated always as (lower(payload ->> 'maker')) stored;
alter table chain_command add column permit_nonce numeric
    generated always as (
        case when payload #>> '{permit,nonce}' ~ '^[0-9]{1,78}$' then (payload #>> '{permit,nonce}')::numeric end
    ) stored;
alter table chain_command add column share integer
    generated always as (hashtext(coalesce(lower(payload ->> 'maker'), encode(entity, 'hex'))) & 2147483647) stored;
create index chain_command_ready_idx on chain_command (chain_id, kind, not_before, id) where state = 'pending';
create index chain_command_wallet_idx on chain_command (chain_id, wallet)
    where state = 'sent' and wallet is not null;
create index chain_command_trouble_idx on chain_command (chain_id, id) where state = 'pending' and trouble is not null;
update chain_command set state = 'pending'
where state = 'sent' and not exists (select from slot_command where command_id = id and live);
