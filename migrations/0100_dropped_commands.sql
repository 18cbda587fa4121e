-- A rebuilt transaction no longer carries a command that an earlier attempt of its nonce carries. That attempt may be
-- included all the same: the row stays, and names the first attempt without the command.
alter table slot_command
    add column dropped_at bigint,
    add constraint slot_command_dropped_is_not_live check (dropped_at is null or not live);
