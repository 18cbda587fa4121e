//! A machine's watchdog: a pipe in place of the device, written as Patroni's driver for tests writes it.
//!
//! `Ctimeout=15\n` sets the time limit, `1` is a keepalive, `V` switches it off.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// What ends the reader; Patroni never writes it.
const END: u8 = b'X';

pub(super) struct Watchdog {
    state: Arc<Mutex<State>>,
    pipe: File,
}

#[derive(Default)]
struct State {
    /// Switched on, with the time of the last keepalive.
    last: Option<Instant>,
    timeout: Option<Duration>,
}

impl Watchdog {
    /// Reads the pipe that is at `path`.
    pub(super) fn on(path: &Path) -> anyhow::Result<Self> {
        // Open for writing too, so that the pipe never ends.
        let pipe = OpenOptions::new().read(true).write(true).open(path);
        let pipe = pipe.with_context(|| path.display().to_string())?;
        let state = Arc::new(Mutex::new(State::default()));
        let (mut reader, shared) = (pipe.try_clone()?, Arc::clone(&state));
        std::thread::spawn(move || {
            let (mut buffer, mut setting) = ([0; 64], None::<String>);
            while let Ok(read @ 1..) = reader.read(&mut buffer) {
                for byte in buffer.get(..read).unwrap_or_default() {
                    if *byte == END {
                        return;
                    }
                    State::take(
                        &mut shared.lock().unwrap_or_else(PoisonError::into_inner),
                        *byte,
                        &mut setting,
                    );
                }
            }
        });
        Ok(Self { state, pipe })
    }

    /// No keepalive has come for longer than its time limit.
    pub(super) fn has_fired(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last.zip(state.timeout).is_some_and(|(last, timeout)| last.elapsed() > timeout)
    }

    pub(super) fn switch_off(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).last = None;
    }

    /// The machine stood still, and its watchdog with it.
    pub(super) fn go_on(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last = state.last.map(|_| Instant::now());
    }
}

impl State {
    /// `setting`: what has been read of a line that sets something.
    fn take(&mut self, byte: u8, setting: &mut Option<String>) {
        match (byte, setting.as_mut()) {
            (b'\n', Some(line)) => {
                let seconds = line.strip_prefix("timeout=").and_then(|seconds| seconds.parse().ok());
                self.timeout = seconds.map(Duration::from_secs);
                *setting = None;
            }
            (byte, Some(line)) => line.push(char::from(byte)),
            (b'C', None) => *setting = Some(String::new()),
            (b'V', None) => self.last = None,
            _ => self.last = Some(Instant::now()),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let _ = self.pipe.write_all(&[END]);
    }
}
