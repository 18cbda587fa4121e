-- Transfers of inventory to and from other cells. Each cell has its own side of a transfer in a row of its own; its
-- postings are in the ledger under the transfer's id.

alter table approval drop constraint approval_kind_known;
alter table approval add constraint approval_kind_known
    check (kind in ('execution', 'ledger', 'limit', 'band', 'maker', 'credential', 'operator', 'personal_data',
                    'partner_move', 'transfer'));

create table transfer (
    id        text not null,
    -- The other cell.
    cell      text not null,
    provider  text not null,
    asset     text not null,
    amount    numeric(39, 0) not null,
    -- Sent, confirmed, taken_back: this cell is the sender. Announced, received, refused: it is the receiver.
    state     text not null,
    -- When the sender posted it, and when it came into its state here, to the millisecond.
    sent_at   timestamptz not null,
    since     timestamptz not null default date_trunc('milliseconds', clock_timestamp()),
    -- The sender's signed document, as it came.
    document  text,
    -- The receiver's signed receipt or refusal, as it came.
    answer    text,
    constraint transfer_pkey primary key (id),
    constraint transfer_cell_form check (cell ~ '^[0-9a-f]{3}$' and cell <> '000'),
    constraint transfer_amount_positive check (amount > 0 and amount < 340282366920938463463374607431768211456),
    constraint transfer_state_known
        check (state in ('sent', 'confirmed', 'taken_back', 'announced', 'received', 'refused')),
    constraint transfer_document_came check ((document is not null) = (state in ('announced', 'received', 'refused'))),
    constraint transfer_answer_came check ((answer is not null) = (state in ('confirmed', 'taken_back')))
);
create index transfer_cell_idx on transfer (cell, id);
create index transfer_open_idx on transfer (since) where state in ('sent', 'announced');

-- A transfer ends once, and everything else of it stays as it is.
create function transfer_stays() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' then
        if (old.state, new.state) in (('sent', 'confirmed'), ('sent', 'taken_back'), ('announced', 'received'),
                                      ('announced', 'refused'))
           and (new.id, new.cell, new.provider, new.asset, new.amount, new.sent_at, new.document)
               is not distinct from
               (old.id, old.cell, old.provider, old.asset, old.amount, old.sent_at, old.document) then
            return new;
        end if;
    end if;
    raise exception 'a transfer between cells changes only by its end'
        using errcode = 'check_violation', constraint = 'transfer_stays', table = 'transfer';
end $$;
create trigger transfer_stays before update or delete on transfer
    for each row execute function transfer_stays();
create trigger transfer_not_truncated before truncate on transfer
    for each statement execute function transfer_stays();
