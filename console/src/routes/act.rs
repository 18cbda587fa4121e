//! The form of each action of the table, and what is done when it is sent.
//!
//! A form that is refused is shown again with what was typed, and with what is wrong beside its field. Amounts are typed
//! as people write them; they are shown as they were read before anything is done.

use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::IntoResponse as _;
use dvp_domain::money::Minor;
use dvp_domain::settlement::leg::LegKind;
use dvp_ops::{ActionForm, Caller, FormField, Outcome, Proof, Refusal, Second, Spec, Takes};
use dvp_store::fix::admin;
use dvp_store::operators::{accounts, limits};
use dvp_store::partners::registry;
use dvp_store::{PgConnection, StoreError, chain, webhooks};
use serde_json::{Map, Value};

use crate::blocks::{self, Block, Cell, Field, Form};
use crate::error::{PageError, sentence};
use crate::offers::{about, path};
use crate::operator::Operator;
use crate::request::{Fields, Reply, Visit, lead_to};
use crate::routes::sign_in::local;
use crate::state::Console;
use crate::view;

/// The most names that a field proposes.
const PROPOSED: i64 = 500;

/// Where the pages about an action's subject are.
fn section(spec: &Spec) -> (&'static str, &'static str) {
    match spec.name.split(' ').next().unwrap_or_default() {
        "approval" => ("Approvals", "/approvals"),
        "execution" | "recall" => ("Orders", "/orders"),
        "bank" => ("Reconciliation", "/reconciliation"),
        "chain" => ("Chains", "/chains"),
        "fix-session" => ("FIX", "/fix"),
        "webhook" => ("Webhooks", "/webhooks"),
        "partner" | "beneficiary" | "personal-data" | "key" => ("Partners", "/partners"),
        "operator" => ("Operators", "/operators"),
        _ => ("Treasury", "/treasury"),
    }
}

/// The action's name as a title: `pause add` is Pause: add.
fn title(spec: &Spec) -> String {
    let (group, verb) = spec.name.rsplit_once(' ').unwrap_or(("", spec.name));
    format!("{}: {}", view::label(group), verb.replace('-', " "))
}

/// A form as it was opened or sent.
struct Wanted {
    spec: &'static Spec,
    form: ActionForm,
    given: Fields,
    /// By field; those of no field stand above the form.
    problems: Vec<(String, String)>,
    status: StatusCode,
}

impl Wanted {
    fn of(uri: &Uri, given: Fields) -> Result<Self, PageError> {
        let name = uri.path().trim_start_matches("/act/").replace('/', " ");
        let spec = dvp_ops::find(&name).ok_or_else(|| PageError::NotFound(format!("action {name}")))?;
        let mut form = dvp_ops::form(spec);
        // It is the deployment's own.
        form.fields.retain(|field| field.name != "env");
        Ok(Self { spec, form, given, problems: Vec::new(), status: StatusCode::OK })
    }

    /// Whether it is about several items.
    fn is_bulk(&self) -> bool {
        !self.given.one(about::EACH).is_empty()
    }

    /// What each item is called.
    fn items(&self) -> Vec<String> {
        let named = self.given.values(about::EACH).next().unwrap_or_default();
        self.given.values(named).map(ToOwned::to_owned).collect()
    }

    /// The fields of one item.
    fn item(&self, at: usize) -> Fields {
        let each = self.given.all(about::EACH);
        let own =
            each.iter().filter_map(|name| Some((name.clone(), self.given.values(name).nth(at)?.to_owned())));
        self.given.without(&each).and(own.collect())
    }

    fn is(&self, about: &str, field: &str) -> bool {
        self.given.all(about).iter().any(|name| name == field)
    }

    fn is_shown(&self, field: &FormField) -> bool {
        let is_wanted = self.given.one(about::ONLY).is_empty() || self.is(about::ONLY, &field.name);
        let is_each = self.given.values(about::EACH).any(|name| name == field.name);
        !is_each && (field.is_required || is_wanted || !self.given.one(&field.name).is_empty())
    }

    /// The asset of an amount.
    fn unit(&self, field: &str) -> String {
        let units = self.given.all(about::UNIT);
        let own = units.iter().find_map(|unit| unit.strip_prefix(field)?.strip_prefix('='));
        let of_pair = || self.given.one("pair").split_once('/').map(|(_, output)| output);
        let asset = Some(self.given.one("asset")).filter(|asset| !asset.is_empty());
        own.or(asset).or_else(of_pair).unwrap_or_default().to_owned()
    }

    /// The fields as the action takes them; `None`: something is wrong.
    fn read(&mut self, console: &Console) -> Option<Map<String, Value>> {
        let mut read = Map::new();
        for FormField { name, takes, .. } in &self.form.fields {
            let value = self.given.one(name);
            if value.is_empty() {
                continue;
            }
            let value: Value = match takes {
                Takes::Flag => true.into(),
                Takes::Set(_) => self.given.all(name).into(),
                Takes::Lines => value.lines().map(str::trim).filter(|line| !line.is_empty()).collect(),
                Takes::Time if !value.ends_with('Z') && !value.contains('+') => {
                    format!("{}Z", seconds(value)).into()
                }
                Takes::Amount => match minor(console, &self.unit(name), value) {
                    Ok(amount) => amount.to_string().into(),
                    Err(problem) => {
                        self.problems.push((name.clone(), problem));
                        continue;
                    }
                },
                Takes::Text | Takes::Secret | Takes::Choice(_) | Takes::Time | Takes::Document => {
                    value.into()
                }
            };
            read.insert(name.clone(), value);
        }
        self.problems.is_empty().then_some(read)
    }

    fn field(&self, wanted: &FormField, proposed: Vec<String>, is_live: bool) -> Field {
        let name = wanted.name.as_str();
        let given = self.given.one(name);
        let problem = self.problems.iter().find(|(field, _)| field == name);
        let label = view::label(name);
        let unit = self.unit(name);
        let label = match wanted.takes {
            Takes::Amount if unit.is_empty() => label,
            Takes::Amount => format!("{label} ({unit})"),
            Takes::Time => format!("{label} (UTC)"),
            _ => label,
        };
        // What a second operator is to approve has its reason; a deposit may be booked.
        let is_asked = is_live
            && self.spec.second == Second::IfLive
            && matches!(name, "reason" | "evidence")
            && !self.spec.name.ends_with("deposit");
        let named = |values: &[dvp_ops::Meaning]| {
            let shown = |meaning: &str, value: &str| {
                if meaning.is_empty() {
                    view::words(&value.replace('-', " "))
                } else {
                    format!("{value}: {meaning}")
                }
            };
            values.iter().map(|(value, meaning)| (value.clone(), shown(meaning, value))).collect()
        };
        let (kind, options): (_, Vec<(String, String)>) = match &wanted.takes {
            _ if self.is(about::FIXED, name) => ("fixed", Vec::new()),
            Takes::Secret => ("password", Vec::new()),
            Takes::Time => ("datetime-local", Vec::new()),
            Takes::Choice(values) => ("choice", named(values)),
            Takes::Set(values) => ("set", named(values)),
            Takes::Lines => ("lines", Vec::new()),
            Takes::Document => ("document", Vec::new()),
            Takes::Flag => ("flag", Vec::new()),
            Takes::Text | Takes::Amount => {
                ("text", proposed.into_iter().map(|name| (name, String::new())).collect())
            }
        };
        Field {
            name: name.to_owned(),
            label,
            kind,
            value: if given.is_empty() { wanted.default.clone() } else { given.to_owned() },
            options,
            chosen: self.given.all(name),
            is_required: wanted.is_required || is_asked,
            // Of an amount the unit stands in its label.
            help: if wanted.takes == Takes::Amount { String::new() } else { wanted.help.clone() },
            problem: problem.map(|(_, problem)| problem.clone()).unwrap_or_default(),
        }
    }

    /// What the form is about, and what it is called with again.
    fn hidden(&self) -> Vec<Field> {
        let mut hidden = Vec::new();
        for name in [about::FIXED, about::ONLY, about::UNIT, about::BACK, about::EACH] {
            hidden.extend(self.given.values(name).map(|value| Field::hidden(name, value)));
        }
        for name in self.given.values(about::EACH) {
            hidden.extend(self.given.values(name).map(|value| Field::hidden(name, value)));
        }
        if self.is_bulk() {
            let numbered = self.items().into_iter().enumerate();
            let options: Vec<(String, String)> = numbered.map(|(at, name)| (at.to_string(), name)).collect();
            let chosen = options.iter().map(|(at, _)| at.clone()).collect();
            hidden.push(Field { kind: "set", options, chosen, ..Field::text(about::ITEM, "About each of") });
        }
        hidden
    }

    /// The button's text.
    fn button(&self, is_live: bool) -> &'static str {
        match self.spec.second {
            Second::Always => "Request it",
            Second::IfLive if is_live && !self.spec.name.ends_with("deposit") => "Request it",
            _ => "Carry it out",
        }
    }

    async fn page(&self, console: &Console, operator: &Operator) -> Reply {
        let is_live = console.settings.environment.is_live();
        let mut conn = console.reading().await?;
        let (mut fields, mut more) = (self.hidden(), Vec::new());
        for field in self.form.fields.iter().filter(|field| self.is_shown(field)) {
            let proposed = match field.takes {
                Takes::Text => proposed(console, &mut conn, self.spec, &field.name).await?,
                _ => Vec::new(),
            };
            let shown = self.field(field, proposed, is_live);
            let is_first = shown.is_required
                || !self.given.one(&field.name).is_empty()
                || !self.given.one(about::ONLY).is_empty()
                || self.form.fields.len() < MANY;
            if is_first { fields.push(shown) } else { more.push(shown) }
        }
        drop(conn);
        let of_none = |name: &str| fields.iter().chain(&more).all(|field| field.name != name);
        let problems =
            self.problems.iter().filter(|(field, _)| of_none(field)).map(|(_, problem)| problem.as_str());
        let problem = problems.collect::<Vec<_>>().join(" ");
        let form = Form::new(path(self.spec), self.button(is_live), fields).tall(more, problem);
        let mut about = Block::forms("What it takes", vec![form]).half();
        about.text = self.form.about.clone();
        self.answer(operator, vec![about])
    }

    /// The amounts as they were read, before anything is done.
    async fn check(&self, console: &Console, operator: &Operator, read: &Map<String, Value>) -> Reply {
        let mut facts = Vec::new();
        let mut fields = self.hidden();
        for field in &self.form.fields {
            let (name, given) = (field.name.as_str(), self.given.all(&field.name));
            fields.extend(given.iter().map(|value| Field::hidden(name, value)));
            let shown = match (&field.takes, read.get(name).and_then(Value::as_str)) {
                (Takes::Amount, Some(minor)) => {
                    let unit = self.unit(name);
                    let amount = view::amount(minor, console.decimals(&unit));
                    format!("{amount} {unit} ({} minor units)", view::amount(minor, 0))
                }
                (Takes::Secret, Some(_)) => "given".to_owned(),
                _ => given.join(", "),
            };
            if !shown.is_empty() {
                facts.push((view::label(name), Cell::text(shown)));
            }
        }
        let mut conn = console.reading().await?;
        facts.extend(self.present(console, &mut conn).await?.map(|now| ("Now".to_owned(), Cell::text(now))));
        drop(conn);
        fields.push(Field::hidden(about::CHECKED, "yes"));
        let form = Form::new(path(self.spec), self.button(console.settings.environment.is_live()), fields);
        let block = Block::facts("Is this right?", facts).half().with_forms([form]);
        self.answer(operator, vec![block])
    }

    /// What holds now, of what the action changes.
    async fn present(
        &self,
        console: &Console,
        conn: &mut PgConnection,
    ) -> Result<Option<String>, StoreError> {
        if self.spec.name != "limit set" {
            return Ok(None);
        }
        let [scope, target, asset, per] =
            ["scope", "target", "asset", "per"].map(|name| self.given.one(name));
        let named = registry::find_partner(conn, target).await?.map(|partner| partner.id);
        let target = named.as_deref().unwrap_or(target);
        let all = limits::list(conn).await?;
        let found = all.iter().find(|row| {
            (row.scope.as_str(), row.target.as_str(), row.asset.as_str(), row.period.as_str())
                == (scope, target, asset, per)
        });
        let amount = |minor: &str| format!("{} {asset}", view::amount(minor, console.decimals(asset)));
        Ok(Some(found.map_or_else(
            || "no limit is set".to_owned(),
            |row| {
                let (limit, used, open) = (amount(&row.amount), amount(&row.used), amount(&row.open));
                format!("{limit} per {per}; today {used} are accepted, {open} are open")
            },
        )))
    }

    fn answer(&self, operator: &Operator, blocks: Vec<Block>) -> Reply {
        let page = operator.page(section(self.spec).0, title(self.spec));
        let command = Cell { class: "muted id".to_owned(), ..Cell::text(format!("dvp {}", self.spec.name)) };
        Ok((self.status, blocks::render(page, Some(command), blocks)?).into_response())
    }

    /// Where the form leads when it was carried out.
    fn back(&self) -> &str {
        match self.given.one(about::BACK) {
            "" => section(self.spec).1,
            back => local(back),
        }
    }
}

/// A form with so many fields has those that are optional folded.
const MANY: usize = 12;

/// A time of a browser's field with its seconds.
fn seconds(text: &str) -> String {
    if text.matches(':').count() == 1 { format!("{text}:00") } else { text.to_owned() }
}

/// Minor units of an amount as people write it. Of an asset that is not known the minor units themselves are taken.
fn minor(console: &Console, asset: &str, text: &str) -> Result<Minor, String> {
    let text = text.replace(',', "");
    match console.settings.decimals.get(asset) {
        Some(decimals) => {
            Minor::parse_decimal(&text, *decimals).map_err(|error| format!("the amount {error}"))
        }
        None if asset.is_empty() => Minor::parse(&text).map_err(|error| error.to_string()),
        None => Err(format!("there is no asset {asset}")),
    }
}

/// The names that a field proposes.
async fn proposed(
    console: &Console,
    conn: &mut PgConnection,
    spec: &Spec,
    field: &str,
) -> Result<Vec<String>, StoreError> {
    let group = spec.name.split(' ').next().unwrap_or_default();
    let targets = &console.settings.targets;
    let partners = async |conn: &mut PgConnection| {
        let all = registry::list_partners(conn, "", PROPOSED).await?;
        Ok::<_, StoreError>(all.into_iter().map(|partner| partner.name).collect::<Vec<_>>())
    };
    Ok(match (group, field) {
        (_, "partner") | ("partner", "name") => partners(conn).await?,
        ("operator", "name") => {
            accounts::list(conn, "", PROPOSED).await?.into_iter().map(|row| row.name).collect()
        }
        (_, "asset") => {
            let mut assets: Vec<String> = console.settings.decimals.keys().cloned().collect();
            assets.sort_unstable();
            assets
        }
        (_, "pair") => targets.pairs().to_vec(),
        (_, "provider" | "debtor" | "claimant") | ("ledger", "from" | "to") => targets.providers().to_vec(),
        (_, "target") => {
            let legs = LegKind::ALL.map(|leg| leg.as_str().to_owned());
            let configured = [targets.pairs(), targets.providers(), targets.chains(), &legs].concat();
            let mut all = partners(conn).await?;
            all.extend(configured);
            all
        }
        (_, "chain-id") => {
            chain::list_statuses(conn).await?.into_iter().map(|row| row.chain_id.to_string()).collect()
        }
        (_, "session-id") => {
            admin::list(conn, "", PROPOSED).await?.into_iter().map(|row| row.session_id).collect()
        }
        (_, "endpoint-id") => {
            webhooks::list(conn, None, "", PROPOSED).await?.into_iter().map(|row| row.id).collect()
        }
        (_, "key-id") | ("webhook", "from" | "to") => {
            registry::list_keys(conn, None, "", PROPOSED).await?.into_iter().map(|row| row.key_id).collect()
        }
        _ => Vec::new(),
    })
}

/// The form of an action, with what its address has filled in.
pub(crate) async fn show(Visit { console, operator }: Visit, uri: Uri, headers: HeaderMap) -> Reply {
    let mut given = Fields::asked(&uri);
    if given.one(about::BACK).is_empty() {
        // The page that has led here; a browser says it of pages of the same origin only.
        let from = headers.get(header::REFERER).and_then(|from| from.to_str().ok());
        let from =
            from.filter(|from| console.settings.is_own(from)).and_then(|from| url::Url::parse(from).ok());
        let from = from.map(|from| {
            [from.path(), from.query().map_or("", |_| "?"), from.query().unwrap_or_default()].concat()
        });
        given.push(about::BACK, from.filter(|from| !from.starts_with("/act/")).unwrap_or_default());
    }
    Wanted::of(&uri, given)?.page(&console, &operator).await
}

/// Carries an action out, or requests it.
pub(crate) async fn perform(Visit { console, operator }: Visit, uri: Uri, given: Fields) -> Reply {
    let mut wanted = Wanted::of(&uri, given)?;
    if wanted.is_bulk() {
        return perform_each(&wanted, &uri, &console, &operator).await;
    }
    let Some(read) = wanted.read(&console) else {
        wanted.status = StatusCode::BAD_REQUEST;
        return wanted.page(&console, &operator).await;
    };
    let is_amount = |field: &FormField| field.takes == Takes::Amount && read.contains_key(&field.name);
    if wanted.form.fields.iter().any(is_amount) && wanted.given.one(about::CHECKED).is_empty() {
        return wanted.check(&console, &operator, &read).await;
    }
    let mut conn = console.acting().await?;
    let performed =
        dvp_ops::perform(&mut conn, &console.house, &caller(&operator), wanted.spec.name, &read).await;
    drop(conn);
    let (status, field, message) = match performed {
        Ok(outcome) => return answer(&wanted, &operator, outcome),
        Err(Refusal::Unavailable) => return Err(PageError::Unavailable),
        Err(Refusal::Field { field, message }) => {
            (StatusCode::BAD_REQUEST, field.unwrap_or_default(), message)
        }
        Err(refused) => (StatusCode::CONFLICT, String::new(), refused.to_string()),
    };
    wanted.status = status;
    wanted.problems.push((field, sentence(&message)));
    wanted.page(&console, &operator).await
}

fn caller(operator: &Operator) -> Caller {
    Caller {
        name: operator.name.clone(),
        roles: operator.roles.clone(),
        source: operator.source.clone(),
        proof: Proof::Session,
        // What needs it was authenticated before this.
        is_recent: operator.is_authenticated(),
    }
}

/// Carries an action out about each item that is chosen, or requests it. One that is refused leaves the others.
async fn perform_each(wanted: &Wanted, uri: &Uri, console: &Console, operator: &Operator) -> Reply {
    let items = wanted.items();
    if items.len() > ITEMS_MAX {
        return Err(PageError::Invalid(format!("At most {ITEMS_MAX} at once.")));
    }
    let chosen = wanted.given.all(about::ITEM);
    let mut rows = Vec::new();
    for (at, name) in items.iter().enumerate().filter(|(at, _)| chosen.contains(&at.to_string())) {
        let mut one = Wanted::of(uri, wanted.item(at))?;
        let Some(read) = one.read(console) else {
            let problems: Vec<String> = one.problems.into_iter().map(|(_, problem)| problem).collect();
            rows.push(vec![Cell::found(name), Cell::toned(sentence(&problems.join(" ")), "bad")]);
            continue;
        };
        let done = match console.acting().await {
            Ok(mut conn) => {
                dvp_ops::perform(&mut conn, &console.house, &caller(operator), one.spec.name, &read).await
            }
            // What was done before it is told.
            Err(_) => Err(Refusal::Unavailable),
        };
        rows.push(vec![
            Cell::found(name),
            match done {
                Ok(Outcome { approval: Some(id), .. }) => Cell::link("requested", view::approval(&id)),
                Ok(_) => Cell::toned("done", "good"),
                Err(refused) => Cell::toned(sentence(&refused.to_string()), "bad"),
            },
        ]);
    }
    let table = Block::table("Outcomes", &["Item", "Outcome"], "Nothing was chosen.", rows);
    let back = Block::facts("Afterwards", vec![("Back to", Cell::link(wanted.back(), wanted.back()))]);
    wanted.answer(operator, vec![table, back])
}

/// The most items at once.
const ITEMS_MAX: usize = 100;

/// What is shown once, or else the page of the request or of the subject.
fn answer(wanted: &Wanted, operator: &Operator, outcome: Outcome) -> Reply {
    let Outcome { approval, once, lines, .. } = outcome;
    let request = approval.as_deref().map(view::approval);
    if once.is_empty() {
        return lead_to(request.as_deref().unwrap_or_else(|| wanted.back()));
    }
    let note =
        lines.get(once.len()..).unwrap_or_default().iter().take(2).cloned().collect::<Vec<_>>().join(". ");
    let facts = once.into_iter().map(|(name, text)| (view::label(name), Cell::id(text)));
    let mut facts: Vec<(String, Cell)> = facts.collect();
    let (word, id, to) = match (&approval, &request) {
        (Some(id), Some(to)) => ("Request", id.as_str(), to.as_str()),
        _ => ("Back to", wanted.back(), wanted.back()),
    };
    facts.push((word.to_owned(), Cell::link(id, to)));
    let page = operator.page(section(wanted.spec).0, title(wanted.spec));
    blocks::noted(page, None, Some(note), vec![Block::facts("Shown this once", facts)])
}
