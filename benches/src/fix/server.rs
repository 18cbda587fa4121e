//! Servers under measurement, each a process of its own.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::Context as _;

pub(super) struct Server {
    child: Child,
    pub(super) pid: u32,
    pub(super) addr: SocketAddr,
    /// It speaks FIX, and does not only send back.
    pub(super) is_fix: bool,
    /// Holds the configuration while the server lives.
    _dir: Option<tempfile::TempDir>,
}

/// The client's CompID in a session.
pub(super) fn target(session: usize) -> String {
    format!("CLNT{session}")
}

impl Server {
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
        Ok(Self { pid: child.id(), child, addr, is_fix, _dir: dir })
    }

    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

/// The echo acceptor beside this program.
fn acceptor() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("examples").join("echo_acceptor");
    anyhow::ensure!(path.exists(), "build it: cargo build -p dvp-fix-gateway --example echo_acceptor");
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
