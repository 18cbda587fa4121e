//! Statements of banks without ISO files, which an operator imports by hand: MT940, and CSV by a mapping of its columns,
//! as the camt.053 that is imported like every other. Pure.
//!
//! Invariant: what is returned was read back as the bank's files are, and nothing of it is set aside.

use std::collections::BTreeMap;

use chrono::{DateTime, Days, NaiveDate, NaiveTime, Utc};

use super::answers;
use super::camt053::{Line, StatementOf, file};
use super::instruction::is_end_to_end_id;
use super::part::told;
use super::schema::exponent;
use super::statement::Statement;
use super::text::{decimal, iban, minor};
use super::xml::Node;

/// Why a statement cannot be imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HandError(String);

fn wrong<T>(what: impl Into<String>) -> Result<T, HandError> {
    Err(HandError(what.into()))
}

/// A file that was converted, and the statements in it.
#[derive(Debug, Clone)]
pub struct Converted {
    pub content: String,
    pub statements: Vec<Statement>,
}

/// How a bank's CSV is read.
#[derive(Debug, Clone)]
pub struct CsvForm {
    pub account: String,
    pub currency: String,
    /// The statement's name, which no other of the account has.
    pub name: String,
    pub opening: String,
    pub closing: String,
    pub delimiter: u8,
    /// The sign before the fraction of an amount.
    pub point: char,
    /// As of strftime.
    pub date_format: String,
    /// The headings of `date`, of `amount` or of `credit` and `debit`, and of `reference` and `text`.
    pub columns: BTreeMap<String, String>,
}

/// An entry as both formats have it.
struct HandEntry {
    day: NaiveDate,
    amount: i64,
    is_reversal: bool,
    /// It is not booked yet.
    is_expected: bool,
    reference: String,
    texts: Vec<String>,
}

struct HandStatement {
    of: StatementOf,
    page: u32,
    closing: i64,
    entries: Vec<HandEntry>,
}

/// Converts a file of MT940.
pub fn convert_mt940(text: &str, now: DateTime<Utc>) -> Result<Converted, HandError> {
    let fields = fields(text);
    let starts = fields.iter().enumerate().filter(|(_, (tag, _))| tag == "20").map(|(n, _)| n);
    let starts: Vec<usize> = starts.chain([fields.len()]).collect();
    let blocks = starts.windows(2).filter_map(|pair| fields.get(*pair.first()?..*pair.last()?));
    let statements: Vec<HandStatement> = blocks.map(mt940).collect::<Result<_, _>>()?;
    if statements.is_empty() {
        return wrong("there is no statement in it: MT940 begins with :20:");
    }
    written(&statements, now)
}

/// The tagged fields, each with its lines.
fn fields(text: &str) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().map(|line| line.trim_end_matches('\r')) {
        let tagged = line.strip_prefix(':').and_then(|rest| rest.split_once(':'));
        match tagged
            .filter(|(tag, _)| (2..=3).contains(&tag.len()) && tag.starts_with(|c: char| c.is_ascii_digit()))
        {
            Some((tag, content)) => fields.push((tag.to_owned(), content.to_owned())),
            None if line.starts_with('-') || line.starts_with('{') => {}
            None => {
                if let Some((_, content)) = fields.last_mut() {
                    content.push('\n');
                    content.push_str(line);
                }
            }
        }
    }
    fields
}

fn mt940(fields: &[(String, String)]) -> Result<HandStatement, HandError> {
    let field =
        |tags: &[&str]| fields.iter().find(|(tag, _)| tags.contains(&&**tag)).map(|(_, text)| &**text);
    let Some(account) = field(&["25", "25P"]) else { return wrong("a statement names no account (:25:)") };
    let account = account_of(account.lines().next().unwrap_or_default());
    let balance = |tags: &[&str]| {
        let text = field(tags)
            .ok_or_else(|| HandError(format!("{account} has no balance :{}:", tags.join(": or :"))))?;
        balance(text).ok_or_else(|| HandError(format!("{text} is no balance")))
    };
    let (_, currency, opening) = balance(&["60F", "60M"])?;
    let (day, closing_currency, closing) = balance(&["62F", "62M"])?;
    if closing_currency != currency {
        return wrong(format!("{account} opens in {currency} and closes in {closing_currency}"));
    }
    let number = field(&["28C", "28"]).unwrap_or("1");
    let (number, page) = number.split_once('/').unwrap_or((number, "1"));
    let mut entries: Vec<HandEntry> = Vec::new();
    for (tag, text) in fields {
        match tag.as_str() {
            "61" => match entry(text, &currency) {
                Some(entry) => entries.push(entry),
                None => return wrong(format!(":61:{text} is no entry")),
            },
            "86" => {
                if let Some(entry) = entries.last_mut().filter(|entry| entry.texts.is_empty()) {
                    entry.texts = texts(text);
                }
            }
            _ => {}
        }
    }
    entries.retain(|entry| !entry.is_expected);
    let name = format!("MT940 {} of {day}", number.trim());
    let first = entries.iter().map(|entry| entry.day).min().unwrap_or(day).min(day);
    let of = statement_of((&account, &currency, &name), opening, (first, day));
    let page = page.trim().parse().unwrap_or(1);
    Ok(HandStatement { of, page, closing, entries })
}

/// The IBAN in a field of SWIFT, or else all of it.
fn account_of(text: &str) -> String {
    let parts = text.split(['/', ' ']).chain([text]);
    let parts = parts.flat_map(|part| [Some(part), part.get(..part.len().saturating_sub(3))]);
    parts.flatten().find_map(iban).unwrap_or_else(|| text.trim().to_owned())
}

/// `C260102EUR1234,5`
fn balance(text: &str) -> Option<(NaiveDate, String, i64)> {
    let text = text.lines().next()?.trim();
    let (sign, rest) = text.split_at_checked(1)?;
    let (day, rest) = rest.split_at_checked(6)?;
    let (currency, amount) = rest.split_at_checked(3)?;
    let amount = amount_of(&amount.replace(',', "."), currency)?;
    let signed = match sign {
        "C" => amount,
        "D" => -amount,
        _ => return None,
    };
    Some((NaiveDate::parse_from_str(day, "%y%m%d").ok()?, currency.to_owned(), signed))
}

fn amount_of(text: &str, currency: &str) -> Option<i64> {
    i64::try_from(minor(&decimal(text)?, exponent(currency))?.get()).ok()
}

/// `2601020102RD1,23NTRFREF//BANK`
fn entry(text: &str, currency: &str) -> Option<HandEntry> {
    let line = text.lines().next()?;
    let (value, rest) = line.split_at_checked(6)?;
    let value = NaiveDate::parse_from_str(value, "%y%m%d").ok()?;
    let booked = rest.get(..4).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let rest = rest.get(booked.map_or(0, str::len)..)?;
    let mark: &str = ["RC", "RD", "EC", "ED", "C", "D"].into_iter().find(|mark| rest.starts_with(mark))?;
    let rest = rest.get(mark.len()..)?;
    // The third letter of the currency.
    let rest = rest.strip_prefix(|c: char| c.is_ascii_alphabetic()).unwrap_or(rest);
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != ',').unwrap_or(rest.len());
    let (amount, rest) = rest.split_at_checked(end)?;
    let amount = amount_of(&amount.replace(',', "."), currency)?;
    let is_credit = matches!(mark, "C" | "RD");
    let references = rest.get(4..).filter(|_| rest.starts_with(['N', 'F', 'S']))?;
    let (own, bank) = references.split_once("//").unwrap_or((references, ""));
    let reference = [bank, own].map(str::trim).into_iter().find(|text| !text.is_empty() && *text != "NONREF");
    let reference = reference.unwrap_or_default().to_owned();
    Some(HandEntry {
        day: booked.and_then(|booked| near(value, booked)).unwrap_or(value),
        amount: if is_credit { amount } else { -amount },
        is_reversal: mark.starts_with('R'),
        is_expected: mark.starts_with('E'),
        reference,
        texts: Vec::new(),
    })
}

/// The day of a month that is nearest to another day.
fn near(day: NaiveDate, month_day: &str) -> Option<NaiveDate> {
    use chrono::Datelike as _;
    let of = |year: i32| NaiveDate::parse_from_str(&format!("{year:04}{month_day}"), "%Y%m%d").ok();
    let years = [day.year() - 1, day.year(), day.year() + 1];
    years.into_iter().filter_map(of).min_by_key(|one| (*one - day).num_days().abs())
}

/// The parts of field 86: its lines, what stands between slashes, and of German subfields (`?20`), which go on in the next
/// one, what stands after each code (`EREF+`).
fn texts(text: &str) -> Vec<String> {
    let whole = text.replace('\n', "");
    let parts: Vec<String> = if whole.split('?').skip(1).any(|part| part.starts_with("20")) {
        let subfields =
            whole.split('?').skip(1).filter(|part| part.starts_with('2') || part.starts_with('6'));
        let purpose: String = subfields.filter_map(|part| part.get(2..)).collect();
        let coded = ["EREF+", "KREF+", "MREF+", "CRED+", "DEBT+", "SVWZ+", "ABWA+", "ABWE+", "IBAN+", "BIC+"];
        let apart = coded.iter().fold(purpose, |text, code| text.replace(code, "\n"));
        apart.lines().map(str::to_owned).collect()
    } else if whole.starts_with('/') {
        whole.split('/').map(str::to_owned).collect()
    } else {
        text.lines().map(str::to_owned).collect()
    };
    parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Converts a file of CSV.
pub fn convert_csv(text: &str, form: &CsvForm, now: DateTime<Utc>) -> Result<Converted, HandError> {
    let CsvForm { currency, columns, .. } = form;
    let mut reader =
        csv::ReaderBuilder::new().delimiter(form.delimiter).flexible(true).from_reader(text.as_bytes());
    let headings = reader.headers().map_err(|error| HandError(error.to_string()))?.clone();
    let column = |role: &str| -> Result<Option<usize>, HandError> {
        let Some(heading) = columns.get(role) else { return Ok(None) };
        let found = headings.iter().position(|one| one.trim().trim_start_matches('\u{feff}') == heading);
        found.map(Some).ok_or_else(|| HandError(format!("no column is called {heading}")))
    };
    let roles = ["date", "amount", "credit", "debit", "reference", "text"];
    if let Some(other) = columns.keys().find(|role| !roles.contains(&role.as_str())) {
        return wrong(format!("{other} is none of {}", roles.join(", ")));
    }
    let [date, amount, credit, debit, reference, text] = roles.map(column);
    let (date, amount, credit, debit, reference, text) = (date?, amount?, credit?, debit?, reference?, text?);
    let Some(date) = date else { return wrong("the columns name no date") };
    if amount.is_none() && (credit.is_none() || debit.is_none()) {
        return wrong("the columns name neither an amount nor credit and debit");
    }
    let mut entries = Vec::new();
    for (n, row) in reader.records().enumerate() {
        let place = |what: &str| HandError(format!("line {}: {what}", n + 2));
        let row = row.map_err(|error| place(&error.to_string()))?;
        let at = |column: Option<usize>| column.and_then(|n| row.get(n)).unwrap_or_default().trim();
        if row.iter().all(|cell| cell.trim().is_empty()) {
            continue;
        }
        let day = NaiveDate::parse_from_str(at(Some(date)), &form.date_format);
        let day = day.map_err(|_| place(&format!("{} is no date", at(Some(date)))))?;
        let signed = |text: &str| {
            form.signed(text).ok_or_else(|| place(&format!("{text} is no amount of {currency}")))
        };
        let amount = match amount {
            Some(_) => signed(at(amount))?,
            None if at(credit).is_empty() => -signed(at(debit))?.abs(),
            None => signed(at(credit))?.abs(),
        };
        let texts = Some(at(text)).filter(|text| !text.is_empty()).map(str::to_owned);
        let reference = at(reference).to_owned();
        entries.push(HandEntry {
            day,
            amount,
            is_reversal: false,
            is_expected: false,
            reference,
            texts: texts.into_iter().collect(),
        });
    }
    let Some((first, last)) =
        entries.iter().map(|entry| entry.day).min().zip(entries.iter().map(|entry| entry.day).max())
    else {
        return wrong("it has no entry");
    };
    let balance =
        |text: &str| form.signed(text).ok_or_else(|| HandError(format!("{text} is no amount of {currency}")));
    let (opening, closing) = (balance(&form.opening)?, balance(&form.closing)?);
    let account = iban(&form.account).unwrap_or_else(|| form.account.trim().to_owned());
    let of = statement_of((&account, currency, &form.name), opening, (first, last));
    written(&[HandStatement { of, page: 1, closing, entries }], now)
}

impl CsvForm {
    /// An amount with a sign at either end, and marks between its thousands.
    fn signed(&self, text: &str) -> Option<i64> {
        let thousands = if self.point == ',' { '.' } else { ',' };
        let kept: String =
            text.chars().filter(|c| *c != thousands && *c != '\'' && !c.is_whitespace()).collect();
        let number = kept.replace(self.point, ".");
        let (sign, number) = match (number.strip_prefix('-'), number.strip_suffix('-')) {
            (Some(number), _) | (None, Some(number)) => (-1, number),
            (None, None) => (1, number.as_str()),
        };
        amount_of(number, &self.currency).map(|amount| sign * amount)
    }
}

fn statement_of(
    (account, currency, name): (&str, &str, &str),
    opening: i64,
    (first, last): (NaiveDate, NaiveDate),
) -> StatementOf {
    let begins = |day: NaiveDate| day.and_time(NaiveTime::MIN).and_utc();
    StatementOf {
        account: account.to_owned(),
        currency: currency.to_owned(),
        id: name.to_owned(),
        from: begins(first),
        to: begins(last.checked_add_days(Days::new(1)).unwrap_or(last)),
        opening,
        lines: Vec::new(),
    }
}

/// Writes statements as camt.053, and reads them as the bank's are read.
fn written(statements: &[HandStatement], now: DateTime<Utc>) -> Result<Converted, HandError> {
    let nodes: Vec<Node> = statements.iter().map(HandStatement::node).collect::<Result<_, _>>()?;
    let content = file(&format!("BY HAND {}", now.format("%Y%m%d%H%M%S")), now, nodes);
    let read = answers::read(content.as_bytes(), now).map_err(|error| HandError(error.to_string()))?;
    if !read.set_aside.is_empty() {
        return wrong(told(&read.set_aside));
    }
    Ok(Converted { content, statements: read.statements })
}

impl HandStatement {
    fn node(&self) -> Result<Node, HandError> {
        let Self { of, page, closing, entries } = self;
        let lines = entries.iter().map(|entry| Line {
            currency: of.currency.clone(),
            amount: entry.amount,
            end_to_end_id: entry.own_id(),
            bank_reference: if entry.reference.is_empty() {
                "NOTPROVIDED".into()
            } else {
                entry.reference.clone()
            },
            text: None,
            at: entry.day.and_time(NaiveTime::MIN).and_utc(),
        });
        let of = StatementOf { lines: lines.collect(), ..of.clone() };
        if of.closing() != *closing {
            let StatementOf { id, opening, .. } = &of;
            let sum = of.closing();
            return wrong(format!(
                "{id} opens with {opening}, closes with {closing}, and its entries lead to {sum}"
            ));
        }
        let mut node = of.statement(None);
        let paged =
            Node::of("StmtPgntn", [Node::leaf("PgNb", page.to_string()), Node::leaf("LastPgInd", "true")]);
        node.children.insert(1, paged);
        let written = node.children.iter_mut().filter(|child| child.name == "Ntry");
        for (child, entry) in written.zip(entries) {
            entry.complete(child);
        }
        Ok(node)
    }
}

impl HandEntry {
    /// An end-to-end id of ours that stands in its texts.
    fn own_id(&self) -> Option<String> {
        let words = self.texts.iter().flat_map(|text| text.split(|c: char| !c.is_ascii_alphanumeric()));
        let mut words = words.chain([self.reference.as_str()]).filter(|word| is_end_to_end_id(word));
        words.next().map(str::to_owned)
    }

    /// What a line of the simulated bank's does not have: reversals, texts, and that a credit of our payment gives it back.
    fn complete(&self, node: &mut Node) {
        if self.is_reversal
            && let Some(n) = node.children.iter().position(|child| child.name == "Sts")
        {
            node.children.insert(n, Node::leaf("RvslInd", "true"));
        }
        let details = node.children.iter_mut().find(|child| child.name == "NtryDtls");
        let Some(payment) = details.and_then(|details| details.children.first_mut()) else { return };
        let texts =
            self.texts.iter().map(|text| Node::leaf("Ustrd", text.chars().take(140).collect::<String>()));
        if !self.texts.is_empty() {
            payment.children.push(Node::of("RmtInf", texts));
        }
        if self.amount > 0 && !self.is_reversal && self.own_id().is_some() {
            payment.children.push(Node::leaf("RtrInf/Rsn/Cd", "NARR"));
        }
    }
}

#[cfg(test)]
mod tests;
