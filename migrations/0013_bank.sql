-- Rails: payments ordered from a bank by ISO 20022 files, the bank's files and statements, recalls, and the books of
-- the simulated rails.

create table bank_payment (
    end_to_end_id     text not null,
    reference         text not null,
    execution         text not null,
    message_id        text not null,
    block_id          text not null,
    amount            numeric(39, 0) not null,
    currency          text not null,
    exponent          integer not null,
    status            text not null,
    staged_file       text not null,
    ordered_at        timestamptz not null default now(),
    bank_reference    text,
    paid_at           timestamptz,
    reason            text,
    reason_text       text,
    alarm             text,
    updated_at        timestamptz not null default now(),
    contradicting     text,
    closed_at         timestamptz,
    giving_at         timestamptz,
    alarm_cleared_at  timestamptz,
    booked_late_at    timestamptz,
    returned_at       timestamptz,
    debt_paid_at      timestamptz,
    taken_back_at     timestamptz,
    payee_check       text,
    payee_name        text,
    release_at        timestamptz,
    released_at       timestamptz,
    uetr              text not null generated always as
        (lower(left(end_to_end_id, 12) || '4' || substr(end_to_end_id, 14, 3)
               || translate(substr(end_to_end_id, 17, 1), '0123456789ABCDEF', '89AB89AB89AB89AB')
               || substr(end_to_end_id, 18))) stored,
    constraint bank_payment_pkey primary key (end_to_end_id),
    constraint bank_payment_reference_key unique (reference),
    constraint bank_payment_message_key unique (message_id),
    constraint bank_payment_block_key unique (block_id),
    constraint bank_payment_status_known check (status in ('staged', 'sent', 'pending', 'paid', 'refused', 'returned')),
    constraint bank_payment_amount_positive check (amount > 0),
    constraint bank_payment_payee_known check (payee_check in ('match', 'close_match', 'no_match', 'not_possible')),
    constraint bank_payment_contradicting_known check (contradicting in ('paid', 'refused'))
);
comment on table bank_payment is
    'Payments ordered from the bank; the end-to-end id identifies a payment for ever, so a repeated order finds its '
    'row.';
comment on column bank_payment.reference is 'The rail''s reference of the leg.';
comment on column bank_payment.execution is 'The execution that the leg belongs to.';
comment on column bank_payment.staged_file is 'The only file of this payment that is ever moved to the bank.';
comment on column bank_payment.bank_reference is 'The bank''s own reference.';
comment on column bank_payment.paid_at is 'When the money moved, by the bank.';
comment on column bank_payment.reason is 'Why it did not, by the bank.';
comment on column bank_payment.alarm is
    'An alarm for operators: a report that contradicts an earlier one, or a different amount.';
comment on column bank_payment.contradicting is 'A bank''s report that contradicts how the execution ended.';
comment on column bank_payment.closed_at is 'When two operators had resolved the contradiction.';
comment on column bank_payment.giving_at is
    'Set before the staged file is moved: a missing file without it was never moved to the bank.';
comment on column bank_payment.alarm_cleared_at is 'When an operator cleared the alarm; a later alarm opens it again.';
comment on column bank_payment.booked_late_at is
    'When a refused payment was booked all the same, while its order was not recorded as paid. Null as well: the '
    'order was recorded as paid before, so it was paid another way.';
comment on column bank_payment.returned_at is 'When it came back.';
comment on column bank_payment.debt_paid_at is
    'When operators recorded its debt as paid although the bank had not booked it, which may still make it or give it '
    'back.';
comment on column bank_payment.taken_back_at is
    'When the bank took its return back, by its books; a return that was booked later is a new one.';
comment on column bank_payment.payee_check is
    'What the bank found when it compared the beneficiary''s name with that of the account''s holder.';
comment on column bank_payment.payee_name is 'The holder''s name, when it nearly matches.';
comment on column bank_payment.release_at is 'When the bank was allowed to make a payment whose payee it has verified.';
comment on column bank_payment.released_at is 'When the release was in the bank''s folder.';
comment on column bank_payment.uetr is
    'The UETR of its order without hyphens: the end-to-end id with the version and the variant of a UUID.';
create index bank_payment_open_idx on bank_payment (ordered_at) where status in ('staged', 'sent', 'pending');
create index bank_payment_alarm_idx on bank_payment (updated_at) where alarm is not null;
create index bank_payment_execution_idx on bank_payment (execution);
create index bank_payment_contradicted_idx on bank_payment (execution)
    where contradicting is not null and closed_at is null;
create index bank_payment_open_alarm_idx on bank_payment (updated_at) where alarm is not null and alarm_cleared_at is null;
create index bank_payment_release_idx on bank_payment (release_at, end_to_end_id)
    where release_at is not null and released_at is null;
create index bank_payment_uetr_idx on bank_payment (uetr);
-- Payments by the bank's own reference.
create index bank_payment_bank_reference_idx on bank_payment (bank_reference) where bank_reference is not null;
create trigger bank_payment_announced after update of alarm, alarm_cleared_at on bank_payment
    for each row when (new.alarm is distinct from old.alarm or new.alarm_cleared_at is distinct from old.alarm_cleared_at)
    execute function console_announce('breaks');

create table bank_file (
    digest      bytea not null,
    name        text not null,
    message     text,
    message_id  text,
    refusal     text,
    unknown     bigint not null default 0,
    taken_at    timestamptz not null default now(),
    cleared_at  timestamptz,
    constraint bank_file_pkey primary key (digest),
    constraint bank_file_digest_length check (octet_length(digest) = 32)
);
comment on table bank_file is 'The bank''s files, each once by its content, however often it arrives.';
comment on column bank_file.refusal is 'Why it was refused; null: it was accepted.';
comment on column bank_file.unknown is 'Number of unknown payments in it.';
create index bank_file_name_idx on bank_file (name);
create index bank_file_refused_idx on bank_file (taken_at) where refusal is not null or unknown > 0;
create index bank_file_open_idx on bank_file (taken_at) where (refusal is not null or unknown > 0) and cleared_at is null;

create table bank_file_part (
    file        bytea not null,
    number      integer not null,
    why         text not null,
    starts_at   integer,
    ends_at     integer,
    decision    text,
    execution   text,
    decided_at  timestamptz,
    constraint bank_file_part_pkey primary key (file, number),
    constraint bank_file_part_file_fkey foreign key (file) references bank_file (digest),
    constraint bank_file_part_decision_known check (decision in ('applied', 'dismissed')),
    constraint bank_file_part_decided check ((decision is null) = (decided_at is null)
                                             and (execution is not null) = (decision is not distinct from 'applied'))
);
comment on table bank_file_part is
    'Parts of the bank''s files that do not count; two operators decide about each.';
comment on column bank_file_part.why is 'Why it does not count.';
comment on column bank_file_part.starts_at is 'Where it stands in the document''s text, in bytes; null: it has no place there.';
comment on column bank_file_part.execution is 'The order whose payment it counts for, by two operators.';

create table bank_upload (
    digest       bytea not null,
    content      text not null,
    uploaded_at  timestamptz not null default now(),
    approved_at  timestamptz,
    taken_at     timestamptz,
    constraint bank_upload_pkey primary key (digest),
    constraint bank_upload_digest_length check (octet_length(digest) = 32)
);
comment on table bank_upload is
    'Statements that operators import by hand, as camt.053, until they are in the bank''s folder.';
comment on column bank_upload.content is 'Empty once it is in the folder, and two days after it was not approved.';
comment on column bank_upload.approved_at is 'When another operator approved it.';
comment on column bank_upload.taken_at is 'When it was put into the folder''s inbox.';

create table bank_folder (
    is_the_only  boolean not null default true,
    id           uuid not null,
    stamped_by   text not null,
    stamped_at   timestamptz not null default now(),
    constraint bank_folder_pkey primary key (is_the_only),
    constraint bank_folder_is_one check (is_the_only)
);
comment on table bank_folder is
    'The folder shared with the bank: its id, stamped by a command, so that a mistyped path or a share that is not '
    'mounted is no bank.';
create trigger bank_folder_audited after insert or update on bank_folder
    for each row execute function audit_append();

create table bank_outage (
    process  uuid not null,
    cause    text not null,
    since    timestamptz not null default now(),
    seen_at  timestamptz not null default now(),
    constraint bank_outage_pkey primary key (process)
);
comment on table bank_outage is
    'Processes that cannot use the folder, and why; the row of a process that has ended stays, and does not count '
    'once it is old.';

create table bank_message (
    execution  text not null,
    digest     bytea not null,
    said       text not null,
    direction  text not null,
    message    text not null,
    file       text not null,
    at         timestamptz not null default now(),
    constraint bank_message_pkey primary key (execution, digest, said),
    constraint bank_message_direction_known check (direction in ('in', 'out')),
    constraint bank_message_digest_length check (octet_length(digest) = 32)
);
comment on table bank_message is 'Messages to the bank about a payment, and what messages of the bank say about one.';
comment on column bank_message.digest is
    'The document, until its retention ends or personal data of the order is erased.';
create index bank_message_digest_idx on bank_message (digest);
create index bank_message_at_idx on bank_message (at);

create table bank_document (
    digest   bytea not null,
    content  text not null,
    kept_at  timestamptz not null default now(),
    constraint bank_document_pkey primary key (digest),
    constraint bank_document_digest_length check (octet_length(digest) = 32)
);
comment on table bank_document is 'The documents of messages to and from the bank, by the SHA-256 of their content.';
create index bank_document_kept_idx on bank_document (kept_at);

create table bank_recall (
    id             text not null,
    end_to_end_id  text not null,
    execution      text not null,
    reason         text,
    information    text,
    status         text not null,
    approved_at    timestamptz not null default now(),
    staged_file    text,
    giving_at      timestamptz,
    sent_at        timestamptz,
    answered_at    timestamptz,
    answer_reason  text,
    answer_text    text,
    contradicting  text,
    file           bytea,
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
comment on table bank_recall is
    'Recalls: requests to the bank to give a payment back (camt.056), and its answers (camt.029); the money that '
    'comes back is a return of the payment.';
comment on column bank_recall.id is 'Also the service''s case at the bank.';
comment on column bank_recall.reason is 'A code of ISO''s list; null: it was never requested.';
comment on column bank_recall.information is 'What the bank is told beside the reason.';
comment on column bank_recall.staged_file is 'The only file of this recall that is ever moved to the bank.';
comment on column bank_recall.giving_at is 'Since when the file may be at the bank.';
comment on column bank_recall.answered_at is 'When the bank answered.';
comment on column bank_recall.answer_reason is 'Why the answer was no.';
comment on column bank_recall.contradicting is 'The first answer that contradicts the earlier one.';
comment on column bank_recall.file is 'The file of an answer to a request that was never made.';
comment on column bank_recall.closed_at is 'When two operators closed it.';
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

create table bank_received_recall (
    id              text not null,
    assigner        text not null,
    request         text not null,
    case_id         text,
    case_creator    text,
    message_id      text,
    end_to_end_id   text not null,
    uetr            text,
    transaction_id  text,
    amount          numeric(39, 0),
    currency        text,
    reason          text,
    information     text,
    file            bytea not null,
    received_at     timestamptz not null default now(),
    answer          text,
    answer_reason   text,
    answered_at     timestamptz,
    staged_file     text,
    giving_at       timestamptz,
    sent_at         timestamptz,
    constraint bank_received_recall_pkey primary key (id),
    constraint bank_received_recall_request_key unique (assigner, request, end_to_end_id),
    constraint bank_received_recall_amount_positive check (amount > 0),
    constraint bank_received_recall_answer_known check (answer in ('accepted', 'rejected')),
    constraint bank_received_recall_answered check ((answer is null) = (answered_at is null)),
    constraint bank_received_recall_refused check ((answer is not distinct from 'rejected') = (answer_reason is not null)),
    constraint bank_received_recall_sent_given
        check ((sent_at is null or giving_at is not null)
               and (giving_at is null or (answer is not null and staged_file is not null)))
);
comment on table bank_received_recall is
    'Requests of a bank to give money back that its customer has paid to us (camt.056), and our answers (camt.029); an '
    'answer moves no money: the bank debits the account.';
comment on column bank_received_recall.assigner is 'Who asks: a BIC or a name.';
comment on column bank_received_recall.request is 'The id that the assigner gave to its request: one that comes again counts once.';
comment on column bank_received_recall.case_creator is 'Who has opened the case: a BIC or a name.';
comment on column bank_received_recall.message_id is 'Of the message that ordered the payment.';
comment on column bank_received_recall.end_to_end_id is 'Of the payment; empty: the request does not name it.';
comment on column bank_received_recall.transaction_id is 'The first bank''s own id of the payment.';
comment on column bank_received_recall.reason is 'A code of ISO''s list, or the bank''s own.';
comment on column bank_received_recall.file is 'The digest of its file.';
comment on column bank_received_recall.answer is 'By two operators; null: none yet.';
comment on column bank_received_recall.staged_file is 'The only file of the answer that is moved to the bank.';
comment on column bank_received_recall.giving_at is 'Since when the file may be at the bank.';
create index bank_received_recall_open_idx on bank_received_recall (received_at, id) where answer is null;
create index bank_received_recall_due_idx on bank_received_recall (answered_at, id)
    where answer is not null and sent_at is null;
create index bank_received_recall_list_idx on bank_received_recall (received_at, id);
create trigger bank_received_recall_announced after insert or update on bank_received_recall
    for each row execute function console_announce('breaks');

create table bank_statement (
    id         bigint generated always as identity,
    account    text not null,
    currency   text not null,
    statement  text not null,
    page       integer not null,
    begins_at  timestamptz not null,
    ends_at    timestamptz not null,
    opening    numeric(39, 0) not null,
    closing    numeric(39, 0) not null,
    content    bytea not null,
    file       bytea not null,
    taken_at   timestamptz not null default now(),
    constraint bank_statement_pkey primary key (id),
    constraint bank_statement_name_key unique (account, currency, statement, page),
    constraint bank_statement_content_length check (octet_length(content) = 32)
);
comment on table bank_statement is
    'Statements of bank accounts (camt.053), or pages of one: each counts once, however often the bank sends it.';
comment on column bank_statement.account is 'The account''s number at the bank: an IBAN, or the bank''s own.';
comment on column bank_statement.opening is 'Signed minor units.';
comment on column bank_statement.closing is 'Signed minor units.';
comment on column bank_statement.content is
    'SHA-256 of what it says, to tell a repeated statement from a different one of the same name.';
comment on column bank_statement.file is 'The digest of its file.';
create index bank_statement_order_idx on bank_statement (account, currency, ends_at, page);

create table bank_entry (
    id             bigint generated always as identity,
    statement      bigint not null,
    line           integer not null,
    account        text not null,
    currency       text not null,
    amount         numeric(39, 0) not null,
    booked_at      timestamptz not null,
    end_to_end_id  text,
    refs           text[] not null,
    subject        text,
    paired_at      timestamptz,
    constraint bank_entry_pkey primary key (id),
    constraint bank_entry_line_key unique (statement, line),
    constraint bank_entry_statement_fkey foreign key (statement) references bank_statement (id),
    constraint bank_entry_pair_whole check ((subject is null) = (paired_at is null))
);
comment on table bank_entry is 'Booked entries of statements, or the payments of a batch one by one.';
comment on column bank_entry.amount is 'Minor units; credits are positive.';
comment on column bank_entry.refs is 'Every reference that it carries, and its unstructured remittance information.';
comment on column bank_entry.subject is 'What it is about.';
comment on column bank_entry.paired_at is 'Since when the ledger has it too.';
create index bank_entry_open_idx on bank_entry (account, currency) where paired_at is null;
create index bank_entry_subject_idx on bank_entry (subject) where subject is not null;

create table bank_posting (
    id             bigint generated always as identity,
    account        text not null,
    currency       text not null,
    reference      text not null,
    step           bigint not null,
    line           integer not null,
    subject        text not null,
    amount         numeric(39, 0) not null,
    posted_at      timestamptz not null,
    paired_at      timestamptz,
    is_of_opening  boolean not null default false,
    constraint bank_posting_pkey primary key (id),
    constraint bank_posting_entry_key unique (account, currency, reference, step, line),
    constraint bank_posting_opening_paired check (not is_of_opening or paired_at is not null)
);
comment on table bank_posting is 'Postings that moved money at the bank.';
comment on column bank_posting.amount is 'Minor units, as the bank''s balance changes by it.';
comment on column bank_posting.paired_at is 'Since when the bank has it too.';
comment on column bank_posting.is_of_opening is
    'Before the first statement of the account: part of its opening balance, and paired with no entry.';
create index bank_posting_open_idx on bank_posting (account, currency) where paired_at is null;
create index bank_posting_time_idx on bank_posting (account, currency, posted_at);

create table bank_comparison (
    account         text not null,
    currency        text not null,
    complete_until  timestamptz,
    begins_at       timestamptz,
    constraint bank_comparison_pkey primary key (account, currency)
);
comment on table bank_comparison is 'How far the comparison of each account at the bank has come.';
comment on column bank_comparison.complete_until is
    'Every posting before is in `bank_posting`; null: the ledger was never closed.';
comment on column bank_comparison.begins_at is 'When the first statement of the last comparison begins.';

create table rail_call (
    reference  text not null,
    leg        text not null,
    call       text not null,
    result     text not null,
    times      bigint not null,
    first_at   timestamptz not null,
    last_at    timestamptz not null,
    took_ms    bigint not null,
    detail     text,
    constraint rail_call_pkey primary key (reference, leg, call, result),
    constraint rail_call_leg_known check (leg in ('offramp', 'payout')),
    constraint rail_call_call_known check (call in ('submit', 'query')),
    constraint rail_call_times_positive check (times > 0)
);
comment on table rail_call is
    'Calls of a rail for one leg of an order, by their result; a payment that is polled for days is one row.';
comment on column rail_call.last_at is 'When the latest call was made.';
comment on column rail_call.took_ms is 'How long the answer to the latest call took.';
comment on column rail_call.detail is 'The provider''s reference, or the failure''s code, of the latest call.';
create index rail_call_first_idx on rail_call (first_at);

create table simulated_rail (
    leg          text not null,
    reference    text not null,
    account      text not null,
    amount       numeric(39, 0) not null,
    currency     text not null,
    calls        integer not null default 0,
    executed     integer not null default 0,
    first_call   timestamptz not null,
    executed_at  timestamptz,
    constraint simulated_rail_pkey primary key (leg, reference)
);
comment on table simulated_rail is 'The books of the simulated rails, which represent outside systems.';
comment on column simulated_rail.executed is
    'How often money moved for the reference, so that a second payment would be found.';
