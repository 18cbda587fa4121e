-- Operators' actions in the console that no other table records: a webhook resent, an operator disabled.
alter table console_record drop constraint console_record_action_known;
alter table console_record add constraint console_record_action_known
    check (action in ('signed_in', 'signed_out', 'refused', 'read', 'acted'));
