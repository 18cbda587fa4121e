//! The command line's face of operators' actions: the commands are those of the table in `ops`, and what is given goes to
//! the console of the service with the operator's own token.
//!
//! A token is that of `dvp login`, or of a service operator in DVP_TOKEN. At a sandbox `--as` names one of its operators. A
//! configured test deployment, where no money is, needs neither a token nor a console: `--as` names anybody.

use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args as _, Command, CommandFactory as _, FromArgMatches as _};
use dvp_core::operators::accounts::{new_token, token_hash};
use dvp_domain::operator::OperatorRole;
use dvp_ops::{Caller, House, Outcome, Proof, Refusal, actions};
use dvp_store::durable::{self, Readers};
use reqwest::{StatusCode, Url};
use serde_json::{Map, Value, json};

use crate::access::{Access, ServiceLocation, account, host_name};
use crate::chains;
use crate::cli::{GivenSecret, PlaceArgs};
use crate::commands::Cli;
use crate::output::print;
use crate::sandbox_dir::text;
use crate::service;

/// Where an operator's token is, if it is not of a person.
const TOKEN: &str = "DVP_TOKEN";
/// Where the console is reached from here, if not as configured.
const CONSOLE: &str = "DVP_CONSOLE";
/// How long `dvp login` waits for the operator.
const LOGIN_WAIT: Duration = Duration::from_secs(300);
const LOOK_AGAIN: Duration = Duration::from_secs(3);
/// A command to a FIX session waits for the session's owner.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// An action with what was given for it.
pub(crate) struct Asked {
    name: String,
    fields: Map<String, Value>,
    operator: Option<String>,
    place: PlaceArgs,
}

/// The whole command line: what reads, and the actions.
pub(crate) fn command() -> Command {
    merged(Cli::command(), &actions::command())
}

fn merged(own: Command, table: &Command) -> Command {
    table.get_subcommands().fold(own, |own, action| {
        let name = action.get_name().to_owned();
        if own.find_subcommand(&name).is_some() {
            own.mut_subcommand(name, |group| merged(group, action))
        } else {
            own.subcommand(placed(action.clone()))
        }
    })
}

/// With the options that say where the service is, and as whom.
fn placed(action: Command) -> Command {
    if !dvp_ops::is_leaf(&action) {
        let names: Vec<String> = action.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
        return names.into_iter().fold(action, |group, name| group.mut_subcommand(name, placed));
    }
    let who =
        Arg::new("as").long("as").value_name("NAME").help("Of a test deployment: the operator that acts");
    PlaceArgs::augment_args(action.arg(who))
}

/// The action of a command line, if it is one.
pub(crate) fn find(matches: &ArgMatches) -> anyhow::Result<Option<Asked>> {
    let (mut table, mut matches, mut words) = (&actions::command(), matches, Vec::new());
    while let Some((word, below)) = matches.subcommand() {
        let Some(command) = table.find_subcommand(word) else { return Ok(None) };
        words.push(word);
        (table, matches) = (command, below);
    }
    if words.is_empty() || !dvp_ops::is_leaf(table) {
        return Ok(None);
    }
    let mut fields = Map::new();
    for arg in table.get_arguments() {
        let (id, Some(name)) = (arg.get_id().as_str(), arg.get_long()) else { continue };
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let values = matches.get_raw(id).into_iter().flatten();
        let values: Option<Vec<&str>> = values.map(|value| value.to_str()).collect();
        let values = values.with_context(|| format!("--{name} is not UTF-8"))?;
        let value = match (values.as_slice(), arg.get_action().takes_values()) {
            (_, false) => Value::Bool(true),
            ([secret], true) if actions::is_secret(name) && *secret != "off" => {
                GivenSecret::from(*secret).read(&format!("--{name}"))?.into()
            }
            ([one], true) => (*one).into(),
            (several, true) => several.into(),
        };
        fields.insert(name.to_owned(), value);
    }
    let place = PlaceArgs::from_arg_matches(matches)?;
    let operator = matches.get_one::<String>("as").cloned();
    Ok(Some(Asked { name: words.join(" "), fields, operator, place }))
}

/// The console of a service, and the token to use there.
struct Door {
    console: Url,
    token: String,
}

impl Door {
    fn find(place: &PlaceArgs, operator: Option<&str>) -> anyhow::Result<Self> {
        let location = ServiceLocation::find(place.dir.as_deref(), place.config.as_deref())?;
        let console = console(&location)?;
        let token = match (&location, std::env::var(TOKEN)) {
            (ServiceLocation::Sandbox { ready, .. }, _) => of_sandbox(ready, operator)?,
            (ServiceLocation::Configured(_), _) if operator.is_some() => {
                bail!("--as is for sandboxes: here you are who has logged in (dvp login)")
            }
            (ServiceLocation::Configured(_), Ok(token)) => token,
            (ServiceLocation::Configured(_), Err(_)) => kept(&console)?,
        };
        Ok(Self { console, token })
    }

    async fn ask(&self, body: Option<&Value>) -> anyhow::Result<(StatusCode, Value)> {
        let client = reqwest::Client::builder().timeout(ANSWER_WITHIN).build()?;
        let url = self.console.join("api/actions")?;
        let request = match body {
            Some(body) => client.post(url.clone()).json(body),
            None => client.get(url.clone()),
        };
        let answer = request.bearer_auth(&self.token).send().await;
        let answer = answer.with_context(|| format!("the console does not answer at {url}"))?;
        let status = answer.status();
        let text = answer.text().await?;
        let value =
            serde_json::from_str(&text).with_context(|| format!("the console at {url} answers {status}"))?;
        Ok((status, value))
    }
}

/// Where the console is: as configured, or as it is reached from here.
fn console(location: &ServiceLocation) -> anyhow::Result<Url> {
    if let Ok(given) = std::env::var(CONSOLE) {
        let url: Url = given.parse().with_context(|| format!("{CONSOLE} is no address"))?;
        let is_here = url.host_str().is_some_and(|host| ["127.0.0.1", "localhost", "[::1]"].contains(&host));
        ensure!(url.scheme() == "https" || is_here, "{CONSOLE}: https, or an address of this machine");
        return Ok(url);
    }
    match location {
        ServiceLocation::Sandbox { ready, .. } => Ok(text(ready, "/console")?.parse()?),
        ServiceLocation::Configured(config) => {
            let console = config.console.as_ref();
            Ok(console
                .context("operators act over the console: the configuration has no [console]")?
                .url
                .clone())
        }
    }
}

fn of_sandbox(ready: &Value, operator: Option<&str>) -> anyhow::Result<String> {
    let Some(name) = operator else { return Ok(text(ready, "/consoleToken")?.to_owned()) };
    let all = ready.get("operators").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let found = all.iter().find(|one| one["name"] == name).and_then(|one| one["token"].as_str());
    let names: Vec<&str> = all.iter().filter_map(|one| one["name"].as_str()).collect();
    found.map(str::to_owned).with_context(|| format!("--as {name}: the sandbox has {}", names.join(", ")))
}

/// The file with the token of a console, in the user's own folder.
fn file_of(console: &Url) -> anyhow::Result<PathBuf> {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let root = given("XDG_CONFIG_HOME").or_else(|| given("HOME").map(|home| home.join(".config")));
    let root = root.context("neither XDG_CONFIG_HOME nor HOME is set: give the token in DVP_TOKEN")?;
    let place: String =
        console.as_str().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    Ok(root.join("dvp").join(format!("{}.token", place.trim_matches('-'))))
}

fn kept(console: &Url) -> anyhow::Result<String> {
    let file = file_of(console)?;
    let token = fs::read_to_string(&file);
    Ok(token.with_context(|| format!("nobody has logged in to {console}: run dvp login"))?.trim().to_owned())
}

/// Asks the service to carry an action out, and prints what it answers.
pub(crate) async fn run(asked: Asked) -> anyhow::Result<ExitCode> {
    let Asked { name, fields, operator, place } = asked;
    if let Some(outcome) = beside(&name, &fields, operator.as_deref(), &place).await? {
        print(place.json, &outcome.value, || outcome.lines)?;
        return Ok(ExitCode::SUCCESS);
    }
    let door = Door::find(&place, operator.as_deref())?;
    let (status, answer) = door.ask(Some(&json!({"action": name, "fields": fields}))).await?;
    if !status.is_success() {
        let said = |part: &str| answer["error"][part].as_str().map(str::to_owned);
        let message = said("message").unwrap_or_else(|| format!("the console answers {status}"));
        bail!("{}{message}", said("field").map(|field| format!("--{field}: ")).unwrap_or_default());
    }
    let lines = answer["lines"].as_array().into_iter().flatten();
    let lines = lines.filter_map(Value::as_str).map(str::to_owned).collect();
    print(place.json, &answer["result"], || lines)?;
    Ok(ExitCode::SUCCESS)
}

/// Carries an action out beside the service, at a configured test deployment only.
async fn beside(
    name: &str,
    fields: &Map<String, Value>,
    operator: Option<&str>,
    place: &PlaceArgs,
) -> anyhow::Result<Option<Outcome>> {
    let ServiceLocation::Configured(config) =
        ServiceLocation::find(place.dir.as_deref(), place.config.as_deref())?
    else {
        return Ok(None);
    };
    if config.environment.is_live() {
        return Ok(None);
    }
    let Access { mut conn, vault, environment, targets, decimals, .. } = Access::open(place).await?;
    let house = House {
        environment,
        vault: Arc::new(vault),
        targets,
        decimals,
        contracts: chains::contracts(&config)?,
        fix: service::fix_rules(),
        console: config.console.as_ref().map(|console| console.url.to_string()).unwrap_or_default(),
    };
    let by = Caller {
        name: operator.map_or_else(account, str::to_owned),
        roles: OperatorRole::ALL.to_vec(),
        source: "command line".to_owned(),
        proof: Proof::Sandbox,
        is_recent: true,
    };
    let performed = dvp_ops::perform(&mut conn, &house, &by, name, fields).await;
    performed.map(Some).map_err(|refusal| match &refusal {
        Refusal::Field { field: Some(field), .. } => anyhow::anyhow!("--{field}: {refusal}"),
        _ => refusal.into(),
    })
}

/// Draws a token, shows the page on which the operator makes it its own, and keeps it once that was done.
pub(crate) async fn login(place: PlaceArgs) -> anyhow::Result<ExitCode> {
    let location = ServiceLocation::find(place.dir.as_deref(), place.config.as_deref())?;
    let console = console(&location)?;
    let file = file_of(&console)?;
    let token = new_token()?;
    let hash = hex::encode(token_hash(&token));
    let machine = host_name();
    let mut page = console.join("account/login")?;
    page.query_pairs_mut().append_pair("token", &hash).append_pair("machine", &machine);
    let code: String = hash.chars().take(8).collect();
    let told = format!("Open {page}\nand confirm it there. The page shows the code {code}.\n");
    // The page is for a person; a program reads the answer.
    std::io::stderr().lock().write_all(told.as_bytes())?;
    let door = Door { console: console.clone(), token };
    let since = Instant::now();
    let caller = loop {
        let (status, answer) = door.ask(None).await?;
        if status.is_success() {
            break answer;
        }
        ensure!(since.elapsed() < LOGIN_WAIT, "nobody has confirmed it in {} s", LOGIN_WAIT.as_secs());
        if std::io::stderr().is_terminal() {
            std::io::stderr().lock().write_all(b".")?;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    };
    let folder = file.parent().context("the token's folder")?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    durable::write(&file, door.token.as_bytes(), Readers::Owner)
        .with_context(|| file.display().to_string())?;
    print(place.json, &json!({"operator": caller["operator"], "console": console}), || {
        vec![format!("logged in as {} for an hour", caller["operator"].as_str().unwrap_or_default())]
    })?;
    Ok(ExitCode::SUCCESS)
}
