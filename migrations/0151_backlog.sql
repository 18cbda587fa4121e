-- Each second it is counted what waits for the relayer and what it has completed lately, apart from anchors, of which
-- any number may wait.
create index chain_command_waiting_idx on chain_command (chain_id, kind)
    where state in ('pending', 'sent') and kind <> 'anchor';
create index chain_command_done_idx on chain_command (chain_id, done_at) where state = 'done' and kind <> 'anchor';
