//! What partners read keeps up with the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use dvp_api::Code;

#[test]
fn every_code_has_a_page_with_its_status_and_every_page_a_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/errors");
    let pages: BTreeSet<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let codes: BTreeSet<String> = Code::ALL.iter().map(|code| format!("{}.md", code.as_str())).collect();
    assert_eq!(pages, codes);
    for code in Code::ALL {
        let page = fs::read_to_string(folder.join(format!("{}.md", code.as_str()))).unwrap();
        let head = format!("# {}\n\nHTTP {}\n", code.as_str(), code.status().as_u16());
        assert!(page.starts_with(&head), "{}", code.as_str());
    }
}
