-- Price bands of pairs, set by two operators: they replace the configured ones.

alter table approval drop constraint approval_kind_known;
alter table approval add constraint approval_kind_known check (kind in ('execution', 'ledger', 'limit', 'band'));

create table price_band (
    -- The assets that orders pay and receive.
    input          text not null,
    output         text not null,
    -- How far a price may be from the middle; null: the configured band applies, if there is one.
    deviation_bps  integer,
    -- Output per one input; null: the reference price is the middle.
    middle         numeric,
    -- The approved request, whose row is never changed or deleted.
    approval       text not null,
    set_at         timestamptz not null default clock_timestamp(),
    constraint price_band_pkey primary key (input, output),
    constraint price_band_deviation_fits check (deviation_bps > 0 and deviation_bps < 10000),
    constraint price_band_middle_positive check (middle > 0),
    constraint price_band_middle_of_band check (middle is null or deviation_bps is not null)
);
create trigger price_band_audited after insert or update on price_band
    for each row execute function audit_append();

create function price_band_is_kept() returns trigger language plpgsql as $$
begin
    raise exception 'a price band is changed, never deleted'
        using errcode = 'check_violation', constraint = 'price_band_kept', table = 'price_band';
end $$;
create trigger price_band_kept before delete or truncate on price_band
    for each statement execute function price_band_is_kept();
