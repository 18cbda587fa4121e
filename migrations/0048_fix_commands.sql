-- Two more commands of operators for FIX sessions.
alter table fix_session_command drop constraint fix_session_command_action_known;
alter table fix_session_command add constraint fix_session_command_action_known
    check (action in ('logout', 'reset', 'set_seq', 'disconnect', 'test_request', 'enable', 'disable'));
