-- The chain's coin as an order's input: the user deposits it, and the order waits for that.

-- What a deposit leaves after the event: {depositor, total}.
alter table chain_log add column deposit jsonb;

-- A command that takes a deposit of the coin is not due before the deposit is there, at the confirmation depth. From
-- this time on it is due all the same, and fails. Null: it waits for no deposit.
alter table chain_command add column deposit_until timestamptz;
create index chain_command_deposit_idx on chain_command (chain_id) where state = 'pending' and deposit_until is not null;
