-- Personal data is erased from what has ended: by age, and when two operators have decided it for an order or a
-- beneficiary. Amounts, references, hashes and times stay, so that the books, the receipts' anchors and the audit log
-- do.

create function erase_words(content text, words jsonb) returns text language plpgsql immutable as $$
declare
    word text;
begin
    for word in select value from jsonb_array_elements_text(words) order by length(value) desc loop
        -- Everything after these characters is literal.
        content := regexp_replace(content, '***=' || word, '[erased]', 'gi');
    end loop;
    return content;
end $$;
comment on function erase_words is 'Replaces words in a text, in upper or lower case.';

create function erase_strings(document jsonb, words jsonb) returns jsonb language plpgsql immutable as $$
begin
    return case jsonb_typeof(document)
        when 'string' then to_jsonb(erase_words(document #>> '{}', words))
        when 'array' then coalesce((select jsonb_agg(erase_strings(value, words) order by place)
                                    from jsonb_array_elements(document) with ordinality as a (value, place)), '[]')
        when 'object' then coalesce((select jsonb_object_agg(key, erase_strings(value, words))
                                     from jsonb_each(document)), '{}')
        else document end;
end $$;
comment on function erase_strings is 'Replaces words in the strings of a document: its names and its shape stay.';

create table fix_erasure (
    id          bigint generated always as identity,
    session_id  text not null,
    account     text not null,
    after_seq   bigint not null default 0,
    until_seq   bigint not null,
    constraint fix_erasure_pkey primary key (id)
);
comment on table fix_erasure is
    'Messages of FIX sessions that may repeat an erased account: a job reads them in pages.';
comment on column fix_erasure.until_seq is 'The newest message when the account was erased.';
