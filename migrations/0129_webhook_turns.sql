-- Replays of webhooks are served by turns, and one that waits for its endpoint's queue is not looked at meanwhile.

alter table webhook_replay add column due_at timestamptz not null default clock_timestamp();
create index webhook_replay_due_idx on webhook_replay (due_at, id);
create index webhook_replay_endpoint_idx on webhook_replay (endpoint_id);
