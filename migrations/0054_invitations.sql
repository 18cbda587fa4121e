-- Operators are invited, and their roles changed, by two other operators in the console. The link of an invitation needs
-- a code: the link is shown to the operator who approved it, the code to the one who requested it, so that neither can
-- sign in as the new operator.

alter table approval drop constraint approval_kind_known;
alter table approval add constraint approval_kind_known
    check (kind in ('execution', 'ledger', 'limit', 'band', 'maker', 'credential', 'operator'));

alter table operator_link
    -- SHA-256 of the code. Null: the link needs none.
    add column code_hash bytea,
    -- The request that the link was made for.
    add column approval_id text,
    add constraint operator_link_code_hash_length check (octet_length(code_hash) = 32),
    add constraint operator_link_approval_fkey foreign key (approval_id) references approval (id),
    -- One link for each approved request.
    add constraint operator_link_approval_key unique (approval_id),
    add constraint operator_link_approved_has_code check (approval_id is null or code_hash is not null);
