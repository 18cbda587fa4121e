//! `docs/schema.md` is what a migrated database says of itself.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dvp_sandbox::embedded::TestDatabase;
use dvp_store::MIGRATOR;
use expect_test::expect_file;
use sqlx::PgPool;

const INTRODUCTION: &str = "# The schema

The tables of the database by subject, one file of `migrations/` each.
`UPDATE_EXPECT=1 cargo test -p dvp-core --test schema` rewrites this page from a migrated database.
A column without `null` is never null.
";

/// A table or a view.
#[derive(sqlx::FromRow)]
struct Relation {
    name: String,
    is_view: bool,
    sentence: Option<String>,
}

#[derive(sqlx::FromRow)]
struct Column {
    name: String,
    kind: String,
    nullable: bool,
    preset: Option<String>,
    sentence: Option<String>,
}

/// A constraint, an index or a trigger of a table, or a function that is no trigger's.
#[derive(sqlx::FromRow)]
struct Part {
    name: String,
    definition: String,
    sentence: Option<String>,
}

const RELATIONS: &str = "select c.relname::text as name, c.relkind = 'v' as is_view, \
        obj_description(c.oid, 'pg_class') as sentence \
     from pg_class c \
     where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v') and not c.relispartition \
       and c.relname <> '_sqlx_migrations'";

const COLUMNS: &str = "select a.attname::text as name, format_type(a.atttypid, a.atttypmod) as kind, \
        not a.attnotnull as nullable, \
        case when a.attidentity <> '' then 'identity' \
             when a.attgenerated <> '' then 'generated: ' || pg_get_expr(d.adbin, d.adrelid, true) \
             else pg_get_expr(d.adbin, d.adrelid) end as preset, \
        col_description(a.attrelid, a.attnum) as sentence \
     from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum \
     where a.attrelid = $1::regclass and a.attnum > 0 and not a.attisdropped order by a.attnum";

const CONSTRAINTS: &str = "select conname::text as name, pg_get_constraintdef(oid, true) as definition, \
        obj_description(oid, 'pg_constraint') as sentence \
     from pg_constraint where conrelid = $1::regclass and contype in ('p', 'u', 'f', 'c') \
     order by position(contype::text in 'pufc'), conname";

const INDEXES: &str = "select c.relname::text as name, \
        case when i.indisunique then 'unique ' else '' end \
        || regexp_replace(pg_get_indexdef(c.oid, 0, true), '^.* USING (btree )?', '') as definition, \
        obj_description(c.oid, 'pg_class') as sentence \
     from pg_index i join pg_class c on c.oid = i.indexrelid \
     where i.indrelid = $1::regclass \
       and not exists (select from pg_constraint k where k.conindid = c.oid and k.contype in ('p', 'u')) \
     order by c.relname";

const TRIGGERS: &str = "select t.tgname::text as name, \
        lower(substring(pg_get_triggerdef(t.oid) from 'TRIGGER \\w+ (.*?) ON public')) as definition, \
        coalesce(obj_description(t.oid, 'pg_trigger'), obj_description(t.tgfoid, 'pg_proc')) as sentence \
     from pg_trigger t where t.tgrelid = $1::regclass and not t.tgisinternal order by t.tgname";

const FUNCTIONS: &str = "select p.proname::text as name, \
        pg_get_function_identity_arguments(p.oid) as definition, obj_description(p.oid, 'pg_proc') as sentence \
     from pg_proc p where p.pronamespace = 'public'::regnamespace and p.prorettype <> 'trigger'::regtype";

/// What has no sentence, and must have one.
#[derive(Default)]
struct Missing(Vec<String>);

impl Missing {
    fn check(&mut self, what: &str, name: &str, sentence: Option<&str>) -> String {
        let said = sentence.filter(|sentence| sentence.ends_with('.'));
        if said.is_none() {
            self.0.push(format!("{what} {name}"));
        }
        said.unwrap_or_default().to_owned()
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// An expression as it is written in the migrations, without the casts that the database adds.
fn plain(expression: &str) -> String {
    let mut text = expression.split_whitespace().collect::<Vec<_>>().join(" ");
    for cast in ["::text[]", "::text", "::bigint", "::numeric", "::boolean", "::tsvector", "::regconfig"] {
        text = text.replace(cast, "");
    }
    for (long, short) in [
        ("timestamp with time zone", "timestamptz"),
        (" = ANY (ARRAY[", " in (["),
        ("CHECK ", "check "),
        ("PRIMARY KEY ", "primary key "),
        ("UNIQUE ", "unique "),
        ("FOREIGN KEY ", "foreign key "),
        (" REFERENCES ", " references "),
        (" ON DELETE CASCADE", " on delete cascade"),
        (" IS NOT NULL", " is not null"),
        (" IS NULL", " is null"),
        (" AND ", " and "),
        (" OR ", " or "),
        ("NOT ", "not "),
        (" WHERE ", " where "),
        (" DESC", " desc"),
        (" INCLUDE ", " include "),
    ] {
        text = text.replace(long, short);
    }
    text.replace(" in ([", " in (").replace("])", ")")
}

async fn parts(pool: &PgPool, query: &'static str, table: &str) -> Vec<Part> {
    sqlx::query_as(query).bind(table).fetch_all(pool).await.unwrap()
}

async fn describe(pool: &PgPool, relation: &Relation, missing: &mut Missing) -> String {
    let Relation { name, is_view, sentence } = relation;
    let what = if *is_view { "view" } else { "table" };
    let sentence = missing.check(what, name, sentence.as_deref());
    let mut page = format!("\n### {name}\n\n{sentence}\n");
    if *is_view {
        return page;
    }
    page.push_str("\n| column | type | null | default | |\n|---|---|---|---|---|\n");
    let columns: Vec<Column> = sqlx::query_as(COLUMNS).bind(name).fetch_all(pool).await.unwrap();
    for Column { name, kind, nullable, preset, sentence } in columns {
        let preset = preset.map(|preset| format!("`{}`", cell(&plain(&preset)))).unwrap_or_default();
        let kind = plain(&kind);
        let null = if nullable { "null" } else { "" };
        let sentence = cell(&sentence.unwrap_or_default());
        writeln!(page, "| `{name}` | {kind} | {null} | {preset} | {sentence} |").unwrap();
    }
    page.push_str("\n| key, index, trigger | |\n|---|---|\n");
    for Part { name, definition, .. } in parts(pool, CONSTRAINTS, name).await {
        writeln!(page, "| `{name}` | {} |", cell(&plain(&definition))).unwrap();
    }
    for Part { name, definition, .. } in parts(pool, INDEXES, name).await {
        writeln!(page, "| `{name}` | index {} |", cell(&plain(&definition))).unwrap();
    }
    for Part { name: trigger, definition, sentence } in parts(pool, TRIGGERS, name).await {
        let sentence = missing.check("trigger", &format!("{name}.{trigger}"), sentence.as_deref());
        writeln!(page, "| `{trigger}` | {definition}: {} |", cell(&sentence)).unwrap();
    }
    page
}

/// The names that a migration creates, in its order: `create table NAME (`, and so on.
fn created<'a>(sql: &'a str, what: &str) -> Vec<&'a str> {
    let start = format!("create {what} ");
    let names = sql.lines().filter_map(|line| line.strip_prefix(&start));
    names.map(|rest| rest.split([' ', '(']).next().unwrap()).collect()
}

/// The comment that a migration begins with.
fn introduction(sql: &str) -> String {
    let lines: Vec<&str> = sql.lines().map_while(|line| line.strip_prefix("--")).map(str::trim).collect();
    lines.join(" ").replace(". ", ".\n")
}

#[tokio::test]
async fn the_page_is_what_a_migrated_database_says() {
    let database = TestDatabase::create().await;
    let pool = database.pool();
    let relations: Vec<Relation> = sqlx::query_as(RELATIONS).fetch_all(pool).await.unwrap();
    let mut relations: BTreeMap<_, _> = relations.into_iter().map(|one| (one.name.clone(), one)).collect();
    let functions: Vec<Part> = sqlx::query_as(FUNCTIONS).fetch_all(pool).await.unwrap();
    let mut functions: BTreeMap<_, _> = functions.into_iter().map(|one| (one.name.clone(), one)).collect();
    let mut missing = Missing::default();
    let mut page = INTRODUCTION.to_owned();
    for migration in MIGRATOR.iter() {
        let sql = migration.sql.as_str();
        let (version, subject) = (migration.version, &migration.description);
        write!(page, "\n## {version}: {subject}\n\n{}\n", introduction(sql)).unwrap();
        let mut names = created(sql, "table");
        names.extend(created(sql, "view"));
        for name in names {
            let relation = relations.remove(name).unwrap();
            page.push_str(&describe(pool, &relation, &mut missing).await);
        }
        // A trigger's function is described with the trigger.
        let own: Vec<Part> =
            created(sql, "function").into_iter().filter_map(|name| functions.remove(name)).collect();
        if !own.is_empty() {
            page.push_str("\n### Functions\n\n| function | |\n|---|---|\n");
        }
        for Part { name, definition, sentence } in own {
            let sentence = missing.check("function", &name, sentence.as_deref());
            writeln!(page, "| `{name}({})` | {} |", plain(&definition), cell(&sentence)).unwrap();
        }
    }
    assert_eq!(missing.0, Vec::<String>::new(), "these have no sentence (comment on … is '….')");
    assert!(relations.is_empty() && functions.is_empty(), "{:?} {:?}", relations.keys(), functions.keys());
    expect_file!["../../docs/schema.md"].assert_eq(&page);
}
