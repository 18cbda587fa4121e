-- Indexes of rare rows among a history: lists of them read no others.

-- Commands that failed permanently.
create index chain_command_failed_idx on chain_command (id) where state = 'failed';
-- Facts that a settlement has consumed and a reorganization then retracted.
create index chain_fact_retracted_idx on chain_fact (chain_id)
    where retracted_at is not null and consumed_at is not null;
-- The last request about a subject.
create index approval_subject_idx on approval (kind, subject, requested_at, id);
-- The feed's position at the cutoff of a daily report, after its events have left the feed.
create index event_history_observed_idx on event_history (partner_id, livemode, observed_at, position);
