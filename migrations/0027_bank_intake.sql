-- Whether a staged file may have been moved to the bank, and alarms that operators clear.

alter table bank_payment
    -- Set before the staged file is moved: a missing file without it was never moved to the bank.
    add column giving_at        timestamptz,
    -- When an operator cleared the alarm. A later alarm opens it again.
    add column alarm_cleared_at timestamptz;
-- The release before this one moved files without setting it.
update bank_payment set giving_at = now() where status = 'staged';
create index bank_payment_open_alarm_idx on bank_payment (updated_at) where alarm is not null and alarm_cleared_at is null;

alter table bank_file
    add column cleared_at timestamptz;
create index bank_file_open_idx on bank_file (taken_at) where (refusal is not null or unknown > 0) and cleared_at is null;

-- Due work is claimed by kind: work that waits for a hung rail is not read when other work is claimed.
create index effect_kind_due_idx on effect (kind, run_at);
