-- Several signers of one chain share its commands; a lane says what its account holds, so that an operator can be
-- told before it cannot pay for gas; and a nonce may be used up by a transaction that stands for no command.

alter table nonce_slot alter column command_id drop not null;
alter table signer_lane add column balance_wei numeric(39, 0);
alter table signer_lane add column balance_low boolean not null default false;
alter table signer_lane add column balance_at timestamptz;
