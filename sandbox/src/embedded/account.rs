//! The account of a started program. PostgreSQL refuses root, so when we are root its programs run as `postgres`, or
//! else as `nobody`; anyone else runs them as themselves.

use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::EmbeddedError;

/// A user of this machine to run a program as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
}

/// The account that may run PostgreSQL: `None` when we ourselves may, that is when we are not root.
///
/// # Errors
/// [`EmbeddedError::Missing`] when we are root and the machine has neither `postgres` nor `nobody`.
pub fn unprivileged() -> Result<Option<Account>, EmbeddedError> {
    if numeric_id(&["-u"]) != Some(0) {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let (Some(uid), Some(gid)) = (numeric_id(&["-u", name]), numeric_id(&["-g", name])) {
            return Ok(Some(Account { uid, gid }));
        }
    }
    Err(EmbeddedError::Missing {
        program: "an unprivileged user",
        looked: "PostgreSQL does not run as root, and there is neither `postgres` nor `nobody`".to_owned(),
        advice: "add a system user `postgres`, or do not run as root".to_owned(),
    })
}

impl Account {
    /// The owner of a file, unless that is root.
    pub(super) fn owner_of(path: &Path) -> Result<Option<Self>, EmbeddedError> {
        let metadata = path.metadata().map_err(EmbeddedError::file("read", path))?;
        Ok((metadata.uid() != 0).then(|| Self { uid: metadata.uid(), gid: metadata.gid() }))
    }

    /// Hands a file or directory over to this account.
    pub fn give(&self, path: &Path) -> Result<(), EmbeddedError> {
        chown(path, Some(self.uid), Some(self.gid)).map_err(EmbeddedError::file("change the owner of", path))
    }

    /// Whether this account can enter a directory: every directory above has to let it pass. Determined by
    /// trying, because modes alone do not decide it (access lists, mounts).
    pub(super) fn can_enter(&self, dir: &Path) -> bool {
        let mut probe = Command::new("/bin/sh");
        probe.args(["-c", "cd -- \"$1\"", "sh"]).arg(dir).current_dir("/");
        probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.drop_to(&mut probe);
        probe.status().is_ok_and(|status| status.success())
    }

    /// Makes a command run as this account, without our supplementary groups.
    pub fn drop_to(&self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }
}

/// `id` answers from every user database that the machine has, not only from `/etc/passwd`.
fn numeric_id(args: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(args).stderr(Stdio::null()).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
