-- Work that was made due while it was claimed: it is due again as soon as its claim ends.

alter table effect add column woken boolean not null default false;
