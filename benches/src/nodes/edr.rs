//! Hardhat's EDR in anvil's place, out of a pinned npm package.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use dvp_sandbox::embedded::npm::{self, Package};
use dvp_sandbox::embedded::tools::Finder;

const SERVER: &str = include_str!("edr.mjs");
const VERSION: &str = "0.22.0";

fn package() -> anyhow::Result<(Package, &'static str)> {
    let (platform, integrity) = match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => (
            "linux-x64-gnu",
            "sha512-oYbYDXYIof+/ZKegmwxugGYhoGfnVFLrVqxmW0po9KETuUnNBg7hKn9SzlOLRAIQGoKUUUfiBjvZdp1gzHKMWQ==",
        ),
        ("linux", "aarch64") => (
            "linux-arm64-gnu",
            "sha512-xAzNojRkCJMdCpmJtdwqumMT7jExVlR2zBBAmL6Ibco63AZaTtxTtEI+LIMVbjJGgkmIgx1p/1KOPHaAMfNSVw==",
        ),
        (system, machine) => bail!("no EDR is known for {system} on {machine}"),
    };
    let name = format!("@nomicfoundation/edr-{platform}");
    Ok((Package { name, version: VERSION, integrity: Some(integrity) }, platform))
}

/// A program that starts it as anvil is started.
pub(super) fn prepare(dir: &Path) -> anyhow::Result<PathBuf> {
    let finder = Finder::machine();
    let npm = finder.npm.context("npm is needed for Hardhat's EDR")?;
    let (package, platform) = package()?;
    let library = npm::fetch(&npm, &finder.cache, &package)?.join(format!("edr.{platform}.node"));
    let server = dir.join("edr.mjs");
    fs::write(&server, SERVER)?;
    let program = dir.join("edr");
    let quoted = |path: &Path| format!("'{}'", path.display());
    let script = format!("#!/bin/sh\nexec node {} {} \"$@\"\n", quoted(&server), quoted(&library));
    fs::write(&program, script)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program)
}
