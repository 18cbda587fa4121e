-- What was posted as gifts to the escrow when its balance was compared: `ledger` has these and no later ones, whenever
-- the comparison is stored. Until the first comparison all gifts count as later.

alter table wallet_balance add column gifts numeric(39, 0) not null default 0;
