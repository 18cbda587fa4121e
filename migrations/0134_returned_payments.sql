-- The return of a payment that the bank has refused: it was booked all the same, before or after, and is not booked any
-- more. If its order was recorded as paid because of that booking, its return reverses the order.

alter table bank_payment
    -- When it was booked after it had been refused, and while its order was not recorded as paid. Null as well: the order
    -- was recorded as paid before, so it was paid another way.
    add column booked_late_at timestamptz,
    -- When it came back. Null as well: it came back under the release before.
    add column returned_at    timestamptz;
-- Booked under the release before, and owed since.
update bank_payment b set booked_late_at = b.updated_at
    from execution e
    where e.reference = b.execution and e.state_name = 'owing' and b.status = 'refused' and b.contradicting = 'paid';
