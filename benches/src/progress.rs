//! Lines on standard error while a drill or a load run works: what is done, and the time that the rest takes at the pace
//! so far. Only a program shows them; a test that runs a drill does not.

use std::fmt::Display;
use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const LINE_EVERY: Duration = Duration::from_secs(5);

static SHOWN: Mutex<Option<Shown>> = Mutex::new(None);

struct Shown {
    name: String,
    began: Instant,
    done: u64,
    expected: u64,
}

fn shown() -> MutexGuard<'static, Option<Shown>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn show(name: &str) {
    *shown() = Some(Shown { name: name.to_owned(), began: Instant::now(), done: 0, expected: 0 });
}

pub fn expect(steps: u64) {
    if let Some(shown) = shown().as_mut() {
        shown.expected = shown.expected.saturating_add(steps);
    }
}

pub fn done(step: impl Display) {
    if let Some(shown) = shown().as_mut() {
        shown.done = shown.done.saturating_add(1);
        shown.expected = shown.expected.max(shown.done);
        let (done, left) = (shown.done, shown.expected.saturating_sub(shown.done));
        let left = shown.began.elapsed().as_secs().saturating_mul(left) / done;
        let line = format!("{}: {done} of {} done, {step}; {left} s left", shown.name, shown.expected);
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }
}

pub fn note(line: impl Display) {
    if let Some(shown) = shown().as_ref() {
        let _ = writeln!(std::io::stderr().lock(), "{}: {line}", shown.name);
    }
}

/// Waits as long as a phase lasts, and says every few seconds how much of it is left.
pub async fn phase(name: &str, time: Duration, more: impl Fn() -> String) {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        note(format!("{name}, {} s left{}", left.as_secs(), more()));
        tokio::time::sleep(left.min(LINE_EVERY)).await;
    }
}
