-- A wallet's permits are used in the order of their nonces, and its pending orders share its balance and its allowance.
-- What a live order holds therefore has to be known when the next one comes: the token and the amount beside the nonce.
alter table permit_use
    add column token text not null,
    add column amount numeric(39, 0) not null,
    add constraint permit_use_amount_positive check (amount > 0);

-- A hold stays for some time after its lock was seen: what is known of the wallet may be from before it, and then lacks
-- both the nonce and what the lock has taken. Retention lets the row go.
alter table permit_use add column locked_at timestamptz;
create index permit_use_locked_idx on permit_use (locked_at) where locked_at is not null;
