//! A full disk, one that is read-only, one that breaks and one that is gone, below the folder that is shared with the
//! bank and below any other file of the service.

use std::fs;
use std::path::Path;

use dvp_core::writer::Outcome;
use dvp_domain::decision::Reason;
use dvp_rails::iso20022::folder::{Folder, drop_into};
use dvp_rails::{Rail as _, RailError};
use dvp_sandbox::bank::Bank;
use dvp_store::durable::{self, Readers};
use dvp_store::orders::bank_folder;
use dvp_testing::disk::{Fault, SmallDisk};
use dvp_testing::wait::wait_for;
use tokio::sync::watch;

use crate::bank_files::{BankScene, inline, request};

/// The names in a folder, but for those that are not complete.
fn names(folder: &Path) -> Vec<String> {
    let entries =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.filter(|name| !name.starts_with('.')).collect();
    names.sort();
    names
}

/// Why the folder cannot be used, once a process has said so.
async fn outage(scene: &BankScene) -> String {
    wait_for("an outage", || async {
        let mut conn = scene.harness.pool().acquire().await.unwrap();
        bank_folder::list_outages(&mut conn).await.unwrap().pop().map(|one| one.cause)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn no_fault_of_the_disk_gives_the_bank_or_takes_from_it_anything_but_whole_files_once() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount(dir.path(), 1024);
    let (scene, shared) = (BankScene::at(dir).await, disk.other_side());
    let bank = Bank::open(&shared).await.unwrap();
    scene.start_workers();
    let outbox = shared.join("outbox");
    for (n, fault) in (1..).zip(Fault::ALL) {
        // The bank has a payment, its answers wait, and one of its files cannot be read. Another payment is about to go out.
        scene.files.submit(&request(&format!("{n}"), false)).await.unwrap();
        bank.turn().await.unwrap();
        drop_into(&shared.join("inbox"), &format!("garbage-{n}"), b"<Doc").await.unwrap();
        let reference = scene.harness.accept(inline("6789")).await.reference;
        scene.harness.play_until(&reference, |kind| kind == "create").await;
        scene.harness.command(&reference, "fill").await;
        let (inbox, given) = (names(&shared.join("inbox")), names(&shared.join("given")));

        disk.strike(fault);
        if fault == Fault::Gone {
            // A careless hand makes the folders below the mount point.
            Folder::create_parts(scene.dir.path()).unwrap();
        }
        let stop = watch::Sender::new(false);
        let importing = tokio::spawn(scene.files.clone().run(stop.subscribe()));
        scene.harness.play(&reference, "fill").await;
        for _ in 0..2 {
            let answer = scene.files.submit(&request(&format!("{}", n + 4), false)).await;
            let Err(RailError::Down(why)) = answer else { panic!("{fault:?}: {answer:?}") };
            assert!(why.contains(fault.cause().unwrap_or("carries no id")), "{fault:?}: {why}");
        }
        let said = outage(&scene).await;
        assert!(said.contains(fault.cause().unwrap_or("its share is not mounted")), "{fault:?}: {said}");
        let refused = scene.harness.submit(inline("6789")).await;
        assert!(matches!(refused, Outcome::Rejected { reason: Reason::NoLiquidity, .. }), "{refused:?}");
        assert_eq!([names(&outbox), names(&shared.join("staging"))], [[""; 0]; 2], "{fault:?}");
        assert_eq!(names(&shared.join("given")), given, "{fault:?}");
        let kept = [names(&shared.join("inbox")), names(&shared.join("taking"))].concat();
        assert_eq!(kept, inbox, "{fault:?}: nothing is taken that cannot be put away");
        if fault == Fault::Gone {
            for part in names(scene.dir.path()) {
                assert_eq!(names(&scene.dir.path().join(part)), [""; 0], "nothing is written elsewhere");
            }
        }

        disk.mend(fault);
        scene.harness.wait_for_count("select count(*) from bank_outage", 0).await;
        scene.files.submit(&request(&format!("{}", n + 4), false)).await.unwrap();
        wait_for("the payment", || async { (names(&outbox).len() == 2).then_some(()) }).await;
        for name in names(&outbox) {
            let order = fs::read_to_string(outbox.join(&name)).unwrap();
            assert!(order.trim_end().ends_with("</Document>"), "{fault:?}: {name}: {order}");
        }
        let banking = tokio::spawn(bank.clone().run(stop.subscribe()));
        wait_for("the answers", || async {
            let left = [names(&shared.join("inbox")), names(&shared.join("taking"))].concat();
            left.is_empty().then_some(())
        })
        .await;
        scene.harness.play_until(&reference, |kind| kind == "settle").await;
        scene.harness.wait_for_state(&reference, "completed").await;
        let sent = names(&shared.join("given")).len();
        assert_eq!((bank.count_received().await.unwrap(), sent), (3 * n, 3 * n), "{fault:?}: each once");
        assert_eq!(names(&shared.join("quarantine")).len(), n, "{fault:?}");
        stop.send_replace(true);
        banking.await.unwrap();
        importing.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_the_folder_on_a_disk_of_its_own_is_an_outage_because_nothing_can_be_moved_there() {
    let scene = BankScene::new().await;
    for part in ["outbox", "archive"] {
        let disk = SmallDisk::mount(&scene.dir.path().join(part), 1024);
        let why = scene.files.folder().probe(false).await.unwrap_err().to_string();
        assert!(why.contains(part) && why.contains("another file system"), "{why}");
        drop(disk);
        scene.files.folder().probe(false).await.unwrap();
    }
}

/// Files that commands and the sandbox write: deployments, moves of partners, keys, certificates, a chain's state.
#[test]
fn no_fault_of_the_disk_leaves_anything_but_the_whole_file_that_was_or_the_one_that_follows() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount(dir.path(), 1024);
    let (place, seen) = (dir.path().join("place"), disk.other_side().join("place"));
    durable::create_folder(&place).unwrap();
    let content = |n: usize| vec![b'0' + u8::try_from(n).unwrap(); 20_000];
    durable::write(&place.join("file"), &content(0), Readers::Owner).unwrap();
    for (n, fault) in (1..).zip(Fault::ALL) {
        disk.strike(fault);
        for _ in 0..2 {
            let error =
                durable::write(&place.join("file"), &content(n), Readers::Owner).unwrap_err().to_string();
            assert!(
                error.contains(fault.cause().unwrap_or("No such file")) && error.contains("file"),
                "{error}"
            );
        }
        assert_eq!(
            (fs::read(seen.join("file")).unwrap(), fs::read_dir(&seen).unwrap().count()),
            (content(n - 1), 1)
        );
        disk.mend(fault);
        durable::write(&place.join("file"), &content(n), Readers::Owner).unwrap();
        assert_eq!(
            (fs::read(seen.join("file")).unwrap(), fs::read_dir(&seen).unwrap().count()),
            (content(n), 1)
        );
    }
}
