-- A daily report tells what was known at its cutoff: the feed's position by the time of recording.
create index event_observed_idx on event (partner_id, livemode, observed_at, position);
