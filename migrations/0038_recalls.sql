-- Recalls: requests to the bank to give a payment back (camt.056), and its answers (camt.029). The money that comes back
-- is a return of the payment.

create table bank_recall (
    -- Also our case at the bank.
    id             text not null,
    end_to_end_id  text not null,
    execution      text not null,
    -- A code of ISO's list, and what the bank is told beside it. Null: it was never requested.
    reason         text,
    information    text,
    status         text not null,
    approved_at    timestamptz not null default now(),
    -- The only file of this recall that is ever moved to the bank, and since when it may be there.
    staged_file    text,
    giving_at      timestamptz,
    sent_at        timestamptz,
    -- The bank's answer, why it was no, and the first answer that contradicts it.
    answered_at    timestamptz,
    answer_reason  text,
    answer_text    text,
    contradicting  text,
    -- The file of an answer to a request that was never made.
    file           bytea,
    -- When two operators closed it.
    closed_at      timestamptz,
    updated_at     timestamptz not null default now(),
    constraint bank_recall_pkey primary key (id),
    constraint bank_recall_payment_fkey foreign key (end_to_end_id) references bank_payment (end_to_end_id),
    constraint bank_recall_status_known check (status in ('approved', 'sent', 'pending', 'accepted', 'rejected',
                                                          'recalled', 'not_needed', 'withdrawn', 'unrequested')),
    constraint bank_recall_contradicting_known
        check (contradicting in ('pending', 'accepted', 'partly_accepted', 'rejected')),
    constraint bank_recall_requested check ((status = 'unrequested') = (reason is null)),
    constraint bank_recall_sent_given check (sent_at is null or (giving_at is not null and staged_file is not null))
);
-- A payment has one recall at a time.
create unique index bank_recall_open_key on bank_recall (end_to_end_id)
    where status in ('approved', 'sent', 'pending', 'accepted') and closed_at is null;
create unique index bank_recall_unrequested_key on bank_recall (end_to_end_id, file) where status = 'unrequested';
create index bank_recall_due_idx on bank_recall (approved_at, id) where status = 'approved';
create index bank_recall_payment_idx on bank_recall (end_to_end_id, approved_at);
create index bank_recall_execution_idx on bank_recall (execution);
-- What reconciliation looks at.
create index bank_recall_unended_idx on bank_recall (execution)
    where closed_at is null
      and (contradicting is not null or status in ('approved', 'sent', 'pending', 'accepted', 'unrequested'));
create index bank_recall_list_idx on bank_recall (approved_at, id);
