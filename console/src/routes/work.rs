//! Work that worker loops have set aside: what failed, why, and when it is tried again.

use dvp_store::database::changes::Subject;
use dvp_store::workers::set_aside::{self, SetAside};

use crate::blocks::{self, Block, Cell};
use crate::request::{Reply, Visit};
use crate::view;

/// Rows of the page.
const ROWS: i64 = 200;

pub(crate) async fn show(Visit { console, operator }: Visit) -> Reply {
    let mut conn = console.reading().await?;
    let found = set_aside::list(&mut conn, ROWS).await?;
    drop(conn);
    let headings =
        ["Loop", "Item", "About", "Error", "#Attempts", "#For", "Last failure (UTC)", "Next attempt (UTC)"];
    let empty = "Nothing has failed that is tried again later.";
    let table = Block::table("Set aside", &headings, empty, found.iter().map(row));
    blocks::render(operator.page("Set aside", "Home").live(&[Subject::Feed]), None, vec![table])
}

fn row(row: &SetAside) -> Vec<Cell> {
    vec![
        Cell::text(view::words(&row.worker)),
        Cell::id(row.item.clone()),
        Cell::found(row.about.clone()),
        Cell::text(row.error.clone()),
        Cell::count(row.attempts.into()),
        row.first_failed_at.map_or_else(Cell::default, |at| Cell::number(view::age(at))),
        Cell::maybe_time(row.last_failed_at),
        Cell::time(row.next_attempt_at),
    ]
}
