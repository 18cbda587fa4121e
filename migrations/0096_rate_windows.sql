-- The requests of a partner's minute that its processes may answer, all together. A process takes a share, and answers
-- so many requests without asking again.
create table rate_window (
    partner_id  text not null,
    livemode    boolean not null,
    opened_at   timestamptz not null,
    granted     bigint not null,
    constraint rate_window_pkey primary key (partner_id, livemode),
    constraint rate_window_granted_not_negative check (granted >= 0)
) with (fillfactor = 50);
