//! `cargo xtask dist`: what is released, of this commit.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::workspace;

/// What is in the server beside what is always in it, and in the sandbox.
const BUILDS: [(&str, &str); 2] =
    [("server", "archive,oidc,aws-kms,gcp-kms"), ("sandbox", "sandbox,archive,oidc,aws-kms,gcp-kms")];

/// Builds the binaries and packs them into a folder, which must be empty.
pub fn run(root: &Path, out: &Path) -> anyhow::Result<()> {
    ensure!(
        said(root, "git", &["status", "--porcelain"])?.is_empty(),
        "there are changes that are not committed"
    );
    let commit = said(root, "git", &["rev-parse", "--short=12", "HEAD"])?;
    let target = root.join("target");
    let out = std::path::absolute(out)?;
    let mut binaries = Vec::new();
    for (name, features) in BUILDS {
        let args = [
            "build",
            "--locked",
            "--target-dir",
            "target",
            "--profile",
            "dist",
            "-p",
            "dvp",
            "--no-default-features",
            "--features",
            features,
        ];
        // Paths of this machine would be in the binary, and differ elsewhere.
        let flags = format!(
            "--remap-path-prefix={}=/dvp --remap-path-prefix={}=/cargo",
            root.display(),
            cargo_home()?
        );
        let built = Command::new("cargo")
            .args(args)
            .current_dir(root)
            .env("DVP_COMMIT", &commit)
            .env("RUSTFLAGS", flags)
            .status()?;
        ensure!(built.success(), "the {name} was not built");
        let binary = target.join(format!("dvp-{name}"));
        std::fs::copy(target.join("dist/dvp"), &binary).with_context(|| binary.display().to_string())?;
        bill_of_materials(root, features, &binary.with_extension("cdx.json"))?;
        binaries.push(binary);
    }
    let packed = Command::new(root.join("deploy/dist/build")).args(&binaries).arg(out).status()?;
    ensure!(packed.success(), "the packages were not made");
    Ok(())
}

/// Writes what a build is made of, as CycloneDX: the same for the same commit, without this machine's paths.
fn bill_of_materials(root: &Path, features: &str, to: &Path) -> anyhow::Result<()> {
    const NAME: &str = "dvp-bill-of-materials";
    let args =
        ["cyclonedx", "--quiet", "--format", "json", "--spec-version", "1.5", "--override-filename", NAME];
    let features = ["--no-default-features", "--features", features];
    let made = Command::new("cargo").args(args).args(features).current_dir(root).status()?;
    ensure!(made.success(), "no bill of materials: cargo install --locked --version 0.5.7 cargo-cyclonedx");
    let file = format!("{NAME}.json");
    let text = std::fs::read_to_string(root.join(&file))?;
    // One is written beside each crate's manifest.
    for member in workspace::members(root)? {
        std::fs::remove_file(member.folder.join(&file))?;
    }
    let text = text.replace(&format!("file://{}", root.canonicalize()?.display()), "file:///dvp");
    let mut bill: serde_json::Value = serde_json::from_str(&text)?;
    let at = said(root, "git", &["log", "-1", "--format=%cI"])?;
    bill["metadata"]["timestamp"] = at.into();
    if let Some(bill) = bill.as_object_mut() {
        bill.remove("serialNumber");
    }
    std::fs::write(to, serde_json::to_vec_pretty(&bill)?)?;
    Ok(())
}

fn said(root: &Path, program: &str, args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(args).current_dir(root).output()?;
    ensure!(output.status.success(), "{program} {}", args.join(" "));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn cargo_home() -> anyhow::Result<String> {
    std::env::var("CARGO_HOME").or_else(|_| Ok(format!("{}/.cargo", std::env::var("HOME")?)))
}
