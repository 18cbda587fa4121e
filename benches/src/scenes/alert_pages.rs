//! The pages in `docs/runbooks` as steps: the commands of their checks, and their remedies.
//!
//! A block ```` ```sh ```` has the check's commands. A block ```` ```sh remedy ```` has the remedy: commands, and steps
//! outside of the service as comments.

use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct Page {
    pub check: Vec<String>,
    /// Empty: other pages have it.
    pub remedy: Vec<String>,
    /// The alerts whose pages it names.
    pub names: Vec<String>,
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

impl Page {
    pub fn of(alert: &str) -> Self {
        let page = fs::read_to_string(root().join(format!("docs/runbooks/{alert}.md"))).unwrap();
        let lines = |begin: &str| -> Vec<String> {
            let blocks = page.split(begin).skip(1).map(|block| block.split("\n```").next().unwrap());
            blocks.flat_map(str::lines).map(str::to_owned).collect()
        };
        let links = page.split("](").skip(1).filter_map(|link| link.split_once(".md)"));
        Self {
            check: lines("```sh\n"),
            remedy: lines("```sh remedy\n"),
            names: links.map(|(name, _)| name.to_owned()).collect(),
        }
    }
}

/// The remedy of alerts that fire together, and the pages without a remedy among them.
pub fn remedy_of(alerts: &[&str]) -> (Vec<String>, Vec<String>) {
    let mut steps: Vec<String> = Vec::new();
    let mut without = Vec::new();
    for alert in alerts {
        let page = Page::of(alert);
        let is_elsewhere =
            |name: &String| alerts.contains(&name.as_str()) && !Page::of(name).remedy.is_empty();
        if page.remedy.is_empty() && !page.names.iter().any(is_elsewhere) {
            without.push((*alert).to_owned());
        }
        for step in page.remedy {
            // Two pages may ask for the same step outside.
            if !(step.starts_with('#') && steps.contains(&step)) {
                steps.push(step);
            }
        }
    }
    (steps, without)
}
