-- Keys can be ended for good. A disabled key is known and refused (and can be enabled again); a revoked one is as
-- unknown as one that never was, and its signing secret is erased. Its row stays: it says who signed what.

alter table api_key add column revoked_at timestamptz;
alter table api_key add constraint api_key_revoked_keeps_no_secret
    check (revoked_at is null or octet_length(sealed_secret) = 0);
create index api_key_partner_idx on api_key (partner_id, created_at);

-- Reports walk a tenant's executions by the time they were accepted.
create index execution_accepted_idx on execution (partner_id, livemode, accepted_at, reference);
