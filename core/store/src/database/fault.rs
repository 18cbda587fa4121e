//! Classifies database errors by their meaning for the failed work. Pure: by SQLSTATE and kind of error.

use dvp_domain::names::names;

use crate::StoreError;

names! {
    /// The retry policy of the failed work.
    pub enum Fault {
        /// The rows cannot be written or read. A retry fails in the same way.
        Data = "data",
        /// A concurrent transaction conflicted. An immediate retry may succeed.
        Conflict = "conflict",
        /// A lock or a statement timed out. The database works.
        Slow = "slow",
        /// The database cannot be reached, refuses work, or lost the connection.
        Unavailable = "unavailable",
    }
}

impl Fault {
    /// By the class or code of an SQLSTATE (PostgreSQL manual, appendix A).
    pub fn of_sqlstate(code: &str) -> Self {
        match code {
            // query_canceled (statement_timeout) and lock_not_available (lock_timeout).
            "57014" | "55P03" => Self::Slow,
            // The outcome of the statement is unknown.
            "40003" => Self::Unavailable,
            // A standby, or a transaction that the server ended because its client was silent.
            "25006" | "25P03" | "25P04" => Self::Unavailable,
            // A prepared statement that a migration or a proxy made invalid: a new connection prepares it again.
            "0A000" | "26000" => Self::Unavailable,
            _ => match code.get(..2) {
                // Transaction rollback: serialization failure and deadlock among them.
                Some("40") => Self::Conflict,
                // Connection, authorization, unknown database, resources, operator intervention, system error.
                Some("08" | "28" | "3D" | "53" | "57" | "58") => Self::Unavailable,
                // Data exceptions, constraints, program limits, and all other refusals of a statement.
                _ => Self::Data,
            },
        }
    }

    fn of_sqlx(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => {
                error.code().map_or(Self::Data, |code| Self::of_sqlstate(code.as_ref()))
            }
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::BeginFailed
            | sqlx::Error::Configuration(_) => Self::Unavailable,
            // Values that cannot be encoded, and rows that cannot be decoded.
            _ => Self::Data,
        }
    }
}

impl StoreError {
    /// The error's meaning for the failed work.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Database(error) => Fault::of_sqlx(error),
            Self::Corrupt { .. } | Self::Migrate(_) => Fault::Data,
            Self::Stale { .. } => Fault::Conflict,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstates_are_classified_by_the_retry_policy() {
        let check = |fault, codes: &[&str]| {
            for code in codes {
                assert_eq!(Fault::of_sqlstate(code), fault, "{code}");
            }
        };
        // NUL byte, bad JSON text, bad text, not null, check, key, too long an index row, raised, undefined table.
        check(
            Fault::Data,
            &["22021", "22P05", "22P02", "23502", "23514", "23505", "54000", "P0001", "42P01"],
        );
        check(Fault::Data, &["", "2", "XX000"]);
        check(Fault::Conflict, &["40001", "40P01"]);
        check(Fault::Slow, &["57014", "55P03"]);
        check(Fault::Unavailable, &["08000", "08006", "57P01", "57P02", "57P03", "53100", "53200", "53300"]);
        check(Fault::Unavailable, &["58030", "25006", "25P03", "40003", "28P01", "3D000", "0A000"]);
    }

    #[test]
    fn errors_without_an_sqlstate_are_classified_by_their_origin() {
        let check = |fault, error: StoreError| assert_eq!(error.fault(), fault, "{error}");
        check(Fault::Unavailable, sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into()).into());
        check(Fault::Unavailable, sqlx::Error::PoolTimedOut.into());
        check(Fault::Unavailable, sqlx::Error::PoolClosed.into());
        check(Fault::Data, sqlx::Error::Encode("too long".into()).into());
        check(Fault::Data, sqlx::Error::RowNotFound.into());
        check(Fault::Data, StoreError::corrupt("execution", "no amount"));
        check(Fault::Conflict, StoreError::Stale { what: "fix session" });
    }
}
