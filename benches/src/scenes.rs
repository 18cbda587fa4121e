//! Scenes that the drills and the end-to-end tests share: a sandbox, its partner at both interfaces, and what breaks
//! around it. A scene that cannot go on panics, as a test does.

#![expect(clippy::unwrap_used, reason = "a scene that cannot go on has failed; the seed is reported")]

pub mod alert_causes;
pub mod alert_faults;
pub mod alert_inject;
pub mod alert_pages;
pub mod alert_prometheus;
pub mod alert_remedy;
pub mod alert_scene;
pub mod alert_table;
pub mod chain_faults;
pub mod chain_isolation;
pub mod chain_verdict;
pub mod endpoint;
pub mod fix;
pub(crate) mod manners;
pub mod partner;
pub(crate) mod profile;
pub mod sandbox;
pub mod served;
pub mod wait;
