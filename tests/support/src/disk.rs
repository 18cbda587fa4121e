//! A disk of its own for one folder, to which anything happens that happens to disks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What happens to a disk until it is mended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Full,
    /// Mounted read-only, as seen from here.
    ReadOnly,
    /// What is written never arrives: the block device answers with errors (EIO).
    Broken,
    /// Not mounted: its empty mount point is there.
    Gone,
}

impl Fault {
    pub const ALL: [Self; 4] = [Self::Full, Self::ReadOnly, Self::Broken, Self::Gone];

    /// The words of the system for it, of one that a write finds.
    pub const fn cause(self) -> Option<&'static str> {
        match self {
            Self::Full => Some("No space left on device"),
            Self::ReadOnly => Some("Read-only file system"),
            Self::Broken => Some("Input/output error"),
            Self::Gone => None,
        }
    }
}

/// A file system on a loop device, whose image is in memory. It is unmounted when this is dropped.
#[derive(Debug)]
pub struct SmallDisk {
    path: PathBuf,
    device: String,
    /// Has the image, and where the file system is mounted for its other users.
    backing: tempfile::TempDir,
}

/// Too small for the image's first group: whatever is written later is beyond the device's end.
const TORN_OFF_BYTES: u64 = 4096;

impl SmallDisk {
    /// Mounts it over an existing folder.
    pub fn mount(path: &Path, kibibytes: u64) -> Self {
        let backing = tempfile::tempdir().unwrap();
        run("mount", &["-t", "tmpfs", "-o", "size=64m", "tmpfs", &text(backing.path())]);
        let image = backing.path().join("image");
        fs::File::create(&image).unwrap().set_len(kibibytes * 1024).unwrap();
        let options =
            ["-q", "-m", "0", "-b", "1024", "-N", "512", "-O", "^has_journal", "-E", "lazy_itable_init=0"];
        run("mkfs.ext4", &[options.as_slice(), &[&text(&image)]].concat());
        let device = run("losetup", &["--find", "--show", &text(&image)]);
        let disk = Self { path: path.to_owned(), device: device.trim().to_owned(), backing };
        fs::create_dir(disk.other_side()).unwrap();
        run("mount", &["-t", "ext4", "-o", "errors=continue", &disk.device, &text(&disk.other_side())]);
        fs::remove_dir(disk.other_side().join("lost+found")).unwrap();
        disk.appear();
        disk
    }

    /// The same files as others see them: they can write while it is read-only or gone here.
    pub fn other_side(&self) -> PathBuf {
        self.backing.path().join("mounted")
    }

    /// From now on, until [`Self::mend`].
    pub fn strike(&self, fault: Fault) {
        match fault {
            Fault::Full => {
                let mut file = fs::File::create(self.filler()).unwrap();
                for block in [vec![0; 4096], vec![0]] {
                    while std::io::Write::write_all(&mut file, &block).is_ok() {}
                }
            }
            Fault::ReadOnly => drop(run("mount", &["-o", "remount,bind,ro", &text(&self.path)])),
            Fault::Broken => {
                run("sync", &["-f", &text(&self.path)]);
                fs::copy(self.image(), self.saved()).unwrap();
                fs::OpenOptions::new()
                    .write(true)
                    .open(self.image())
                    .unwrap()
                    .set_len(TORN_OFF_BYTES)
                    .unwrap();
                run("losetup", &["--set-capacity", &self.device]);
            }
            Fault::Gone => drop(run("umount", &["--lazy", &text(&self.path)])),
        }
    }

    pub fn mend(&self, fault: Fault) {
        match fault {
            Fault::Full => fs::remove_file(self.filler()).unwrap(),
            Fault::ReadOnly => drop(run("mount", &["-o", "remount,bind,rw", &text(&self.path)])),
            Fault::Broken => {
                let image = format!("of={}", text(&self.image()));
                run("dd", &[&format!("if={}", text(&self.saved())), &image, "conv=notrunc", "status=none"]);
                run("losetup", &["--set-capacity", &self.device]);
                // The system reports errors of the past once more.
                for _ in 0..2 {
                    let _ = Command::new("sync").arg("-f").arg(&self.path).output();
                }
            }
            Fault::Gone => self.appear(),
        }
    }

    fn appear(&self) {
        run("mount", &["--bind", &text(&self.other_side()), &text(&self.path)]);
    }

    fn filler(&self) -> PathBuf {
        self.other_side().join(".filler")
    }

    fn image(&self) -> PathBuf {
        self.backing.path().join("image")
    }

    fn saved(&self) -> PathBuf {
        self.backing.path().join("saved")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // One that is gone is not mounted.
        for mounted in [&self.path, &self.other_side()] {
            let _ = Command::new("umount").arg("--lazy").arg(mounted).output();
        }
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).output();
        let _ = Command::new("umount").arg("--lazy").arg(self.backing.path()).output();
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output =
        output.unwrap_or_else(|error| panic!("{program}: {error} (apt-get install mount e2fsprogs)"));
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}: disks and mounts need root and loop devices: run the tests as root, in a \
         container with --privileged",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).unwrap()
}
