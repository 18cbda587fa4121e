-- A fill at the confirmation depth let the beneficiary be paid, two blocks for any amount. A fill waits at the chain's
-- payout gate until its block is as deep, as safe or as final as the order's amount asks for.

alter table chain_fact
    -- Null: handed over. `new`: not set yet. Else what must have reached `gate_number`.
    add column gate text,
    add column gate_number bigint,
    add constraint chain_fact_gate_known check (gate in ('new', 'head', 'safe', 'finalized')),
    add constraint chain_fact_gate_whole check ((gate is null or gate = 'new') = (gate_number is null));
create index chain_fact_gate_idx on chain_fact (chain_id, id) where gate is not null;
