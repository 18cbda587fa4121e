-- A drop copy follows its partner to another cell days later, and reports what happened there since it was opened.

alter table partner_move
    -- At the target: the position of its feed when it was opened; 0: opened by the release before.
    add column feed_position bigint not null default 0,
    -- At the target: drop copies that were still at the source after the latest run.
    add column drop_copies text[] not null default '{}';
