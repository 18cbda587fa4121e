//! Servers under measurement, each a process of its own.

use std::{
    ffi::OsStr,
    fmt::Write as _,
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::Context as _;

/// Clock ticks a second in `/proc`: 100 on every Linux that matters.
const TICK_NANOS: u64 = 10_000_000;

/// A started server.
pub(super) struct Server {
    child: Child,
    addr: SocketAddr,
    is_fix: bool,
    /// Holds the configuration while the server lives.
    _dir: Option<tempfile::TempDir>,
}

/// The client's CompID in a session.
pub(super) fn target(session: usize) -> String {
    format!("CLNT{session}")
}

impl Server {
    /// Our echo acceptor with a number of sessions.
    pub(super) fn ours(sessions: usize) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("echo.toml");
        let mut config = "listen = \"127.0.0.1:0\"\ncomp_id = \"DVP\"\nreset_on_logon = true\n".to_owned();
        for session in 0..sessions {
            write!(
                config,
                "[[session]]\nbegin_string = \"FIX.4.4\"\ntarget_comp_id = \"{}\"\n",
                target(session)
            )?;
        }
        std::fs::write(&path, config)?;
        let mut command = Command::new(acceptor()?);
        command.arg("--config").arg(&path);
        Self::start(command, true, Some(dir))
    }

    /// This program again, sending bytes back as they come.
    pub(super) fn bare_echo() -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("bare-echo");
        Self::start(command, false, None)
    }

    /// Another engine's acceptor. Its standard input ends when this process does.
    pub(super) fn peer(command: &str) -> anyhow::Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {command}")]);
        Self::start(shell, true, None)
    }

    fn start(mut command: Command, is_fix: bool, dir: Option<tempfile::TempDir>) -> anyhow::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("stdout is piped")?).read_line(&mut line)?;
        let addr = line.trim().strip_prefix("listening ").and_then(|addr| addr.parse().ok());
        let Some(addr) = addr else {
            child.kill()?;
            child.wait()?;
            anyhow::bail!("the server said {line:?}");
        };
        Ok(Self { child, addr, is_fix, _dir: dir })
    }

    pub(super) const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Does it speak FIX, or only send back?
    pub(super) const fn is_fix(&self) -> bool {
        self.is_fix
    }

    /// User CPU since its start.
    pub(super) fn user_nanos(&self) -> anyhow::Result<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // The name before may hold spaces, in brackets. The eleventh field after the state is utime.
        let after_name = stat.rsplit_once(')').context("a process has a name")?.1;
        let ticks: u64 = after_name.split_whitespace().nth(11).context("fields")?.parse()?;
        Ok(ticks.saturating_mul(TICK_NANOS))
    }

    /// The most memory it had so far.
    pub(super) fn peak_bytes(&self) -> anyhow::Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("a peak")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib.saturating_mul(1024))
    }

    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

/// The echo acceptor beside this program, built when it is not there.
fn acceptor() -> anyhow::Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let dir = exe.parent().unwrap_or(Path::new("."));
    let path = dir.join("examples/echo_acceptor");
    if !path.exists() {
        // A profile's output is in the directory of its name, except that of `dev`.
        let profile = match dir.file_name().and_then(OsStr::to_str) {
            None | Some("debug") => "dev",
            Some(profile) => profile,
        };
        let built = Command::new("cargo")
            .args(["build", "--profile", profile, "-p", "dvp-fix-gateway", "--example", "echo_acceptor"])
            .status()?;
        anyhow::ensure!(built.success() && path.exists(), "no echo acceptor at {}", path.display());
    }
    Ok(path)
}

/// Sends every connection's bytes back: the cost of TCP, tokio and the kernel alone.
pub async fn bare_echo() -> anyhow::Result<()> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    writeln!(std::io::stdout(), "listening {}", listener.local_addr()?)?;
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
                if stream.write_all(buffer.get(..bytes).unwrap_or_default()).await.is_err() {
                    return;
                }
            }
        });
    }
}
