-- A debt was recorded as paid although the bank had not booked its first payment, which it may still make, or give back.

alter table bank_payment
    -- When operators decided so.
    add column debt_paid_at timestamptz;
