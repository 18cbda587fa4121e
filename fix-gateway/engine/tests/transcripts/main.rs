//! Whole conversations, byte for byte: framer, parser, session and encoder together, with an application that sends
//! back what it gets, in virtual time and in all three versions.
//!
//! A script in `scripts` has the peer's actions; the results are in a folder of the version
//! (`UPDATE_EXPECT=1` rewrites it). Each is played once a message at a time, once byte by byte, several times cut at
//! random places, and once with everything that comes without a pause in one piece.
//!
//! The scripts in `tasks` are about what the wire does not show: the order of the driver's tasks, schedules, bounds, a
//! slow store, and peers that are not authenticated. The tasks follow each line, indented.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail their test")]

mod driver;
mod peers;
mod rules;
mod script;

use std::path::{Path, PathBuf};

use driver::Driver;
use proptest::prelude::*;
use script::{Pieces, Step};

const VERSIONS: [(&str, &str); 3] =
    [("FIX.4.2", "FIX.4.2"), ("FIX.4.4", "FIX.4.4"), ("FIXT.1.1", "FIX.5.0SP2")];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

/// The files of a folder: name and content.
fn files(name: &str) -> Vec<(String, String)> {
    let mut files: Vec<_> = std::fs::read_dir(folder().join(name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// Is there nothing in this version that the script could be about?
fn is_about_others(script: &str, version: (&str, &str)) -> bool {
    script.lines().any(|line| line.strip_prefix("# not on ") == Some(version.0))
}

/// Plays a script; the transcript repeats it line by line, with the results.
fn play(mut driver: Driver, script: &str, pieces: Pieces<'_>) -> String {
    let mut transcript = String::new();
    for line in script.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
        transcript.push_str(line);
        transcript.push('\n');
        driver.step(Step::parse(line), pieces);
        transcript.push_str(&driver.said());
    }
    transcript
}

/// Only the messages, with those that follow each other without a pause in one piece.
fn play_in_one_piece(version: (&str, &str), script: &str) -> String {
    let mut driver = Driver::new(version);
    let mut waiting = Vec::new();
    for line in script.lines().filter(|line| !line.trim().is_empty()) {
        match Step::parse(line) {
            step @ (Step::Send { .. } | Step::Raw(_) | Step::Bytes(_)) => {
                waiting.extend(driver.bytes_of(&step))
            }
            Step::Comment => {}
            step => {
                driver.take(&std::mem::take(&mut waiting), Pieces::Whole);
                driver.step(step, Pieces::Whole);
            }
        }
    }
    driver.take(&waiting, Pieces::Whole);
    driver.said()
}

fn what_was_said(transcript: &str) -> String {
    transcript.lines().filter(|line| line.starts_with("  ")).map(|line| format!("{line}\n")).collect()
}

#[test]
fn conversations_match_their_transcripts() {
    let mut played = 0;
    for (name, script) in files("scripts") {
        for version in VERSIONS {
            if is_about_others(&script, version) {
                continue;
            }
            let transcript = play(Driver::new(version), &script, Pieces::Whole);
            let path = folder().join(version.0).join(format!("{name}.fix"));
            expect_test::expect_file![path].assert_eq(&transcript);
            assert_eq!(
                play(Driver::new(version), &script, Pieces::Bytes),
                transcript,
                "{name}, byte by byte"
            );
            let said = what_was_said(&transcript);
            assert_eq!(play_in_one_piece(version, &script), said, "{name}, in one piece");
            played += 1;
        }
    }
    assert!(played >= 3 * 10, "{played}");
}

#[test]
fn tasks_match_their_transcripts() {
    for (name, transcript) in files("tasks") {
        let script: Vec<&str> = transcript.lines().filter(|line| !line.starts_with(' ')).collect();
        let path = folder().join("tasks").join(format!("{name}.fix"));
        expect_test::expect_file![path].assert_eq(&tasks(&script.join("\n")));
    }
}

/// Plays a script of FIX 4.4 with the driver's tasks.
fn tasks(script: &str) -> String {
    play(Driver::of_tasks(), script, Pieces::Whole)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn conversations_do_not_depend_on_where_their_bytes_are_cut(
        cuts in prop::collection::vec(1_usize..200, 1..50), version in prop::sample::select(VERSIONS.to_vec())
    ) {
        for (name, script) in files("scripts").into_iter().filter(|(_, script)| !is_about_others(script, version)) {
            let whole = play(Driver::new(version), &script, Pieces::Whole);
            prop_assert_eq!(play(Driver::new(version), &script, Pieces::Cut(&cuts)), whole, "{}", name);
        }
    }
}
