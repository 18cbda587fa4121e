-- A partner moves from one cell to another. Each of the two databases has a row of the move, under the id of its approval.

-- The move that closed the partner here: this database accepts no new order of it. Null: it does.
alter table partner add column closed_by text;

create table partner_move (
    id          text not null,
    partner_id  text not null,
    source      text not null,
    target      text not null,
    -- At the source: approved, closed, moved. At the target: arriving, copied, open. Before moved and copied: cancelled.
    state       text not null,
    -- The operator of the latest step.
    operator    text not null,
    since       timestamptz not null default clock_timestamp(),
    constraint partner_move_pkey primary key (id),
    constraint partner_move_partner_fkey foreign key (partner_id) references partner (id),
    constraint partner_move_cells_differ check (source <> target),
    constraint partner_move_operator_given check (length(trim(operator)) > 0),
    constraint partner_move_state_known
        check (state in ('approved', 'closed', 'moved', 'arriving', 'copied', 'open', 'cancelled'))
);
-- A partner has one unfinished move.
create unique index partner_move_unfinished_key on partner_move (partner_id)
    where state in ('approved', 'closed', 'arriving', 'copied');
create trigger partner_move_audited after insert or update on partner_move
    for each row execute function audit_append();

-- The move that took a session to another cell. Here it stays disabled.
alter table fix_session add column moved_by text,
    add constraint fix_session_moved_is_disabled check (moved_by is null or not enabled);

-- The last event of each order of the sessions that came here: what a status request or a repeated order is answered
-- with. The order and its other events are in the cell that accepted it.
create table moved_event (
    reference  text not null,
    type       text not null,
    sequence   bigint not null,
    object     json not null,
    constraint moved_event_pkey primary key (reference)
);

alter table approval drop constraint approval_kind_known;
alter table approval add constraint approval_kind_known
    check (kind in ('execution', 'ledger', 'limit', 'band', 'maker', 'credential', 'operator', 'personal_data',
                    'partner_move'));
