//! The unique parts of the identifiers that the service issues: UUIDv7, with the cell of the database if it has one.

use dvp_domain::cell::CellId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{StoreError, database::deployment};

/// The unique part of a new identifier of this cell.
pub fn draw(cell: Option<CellId>) -> Uuid {
    let drawn = Uuid::now_v7();
    cell.map_or(drawn, |cell| Uuid::from_bytes(cell.mark(drawn.into_bytes())))
}

/// The same, of the database's own cell: for what is issued rarely.
pub async fn draw_here(conn: &mut PgConnection) -> Result<Uuid, StoreError> {
    Ok(draw(deployment::find_cell(conn).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_carries_its_cell_and_stays_ordered_by_time() {
        let cell: CellId = "00a".parse().unwrap();
        let mut before = draw(Some(cell));
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let drawn = draw(Some(cell));
            assert!(drawn > before, "{drawn} after {before}");
            assert_eq!((drawn.get_version_num(), drawn.get_variant()), (7, uuid::Variant::RFC4122));
            assert_eq!(CellId::of_id(&format!("exe_{}", drawn.simple())), Some(cell));
            assert_eq!(CellId::of_id(&format!("evt_{drawn}")), Some(cell));
            before = drawn;
        }
    }

    #[test]
    fn many_ids_of_one_moment_differ() {
        let cell = "fff".parse().ok();
        let drawn: std::collections::HashSet<Uuid> = (0..100_000).map(|_| draw(cell)).collect();
        assert_eq!(drawn.len(), 100_000);
    }
}
