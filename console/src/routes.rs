//! The table of pages: what may be requested, by which roles, and with what else.
//!
//! What needs a step-up is verified before the handler runs.
//!
//! Kept by `console/tests/it/step_up.rs::each_route_needs_what_the_table_says_of_every_role` and
//! `console/tests/it/access.rs::each_role_may_request_the_routes_of_the_table_and_no_other`.

pub(crate) mod account;
pub(crate) mod act;
pub(crate) mod actions;
pub(crate) mod approvals;
pub(crate) mod audit;
pub(crate) mod bank_files;
pub(crate) mod chains;
pub(crate) mod home;
pub(crate) mod live;
pub(crate) mod logins;
pub(crate) mod messages;
#[cfg(feature = "oidc")]
pub(crate) mod oidc;
pub(crate) mod operator_sessions;
pub(crate) mod operators;
pub(crate) mod order;
pub(crate) mod orders;
pub(crate) mod partners;
pub(crate) mod password;
pub(crate) mod reconciliation;
pub(crate) mod reports;
pub(crate) mod saved_views;
pub(crate) mod search;
pub(crate) mod sessions;
pub(crate) mod sign_in;
pub(crate) mod statement;
pub(crate) mod treasury;
pub(crate) mod webhooks;
pub(crate) mod work;

use std::borrow::Cow;

use axum::http::Method;
use axum::routing::{MethodRouter, get, post};
use dvp_domain::operator::OperatorRole;
use dvp_ops::{ADMINISTRATION, TABLE};

use crate::access::LIVE;
use crate::navigation::{AUDIT, EVERYONE, Needs, PERSONAL};
use crate::offers;
use crate::state::Console;

/// A page or a form.
pub(crate) struct Route {
    pub method: Method,
    pub path: Cow<'static, str>,
    /// An operator needs one of them.
    pub roles: &'static [OperatorRole],
    pub needs: Needs,
    pub handler: MethodRouter<Console>,
}

/// Every route behind the sign-in.
pub(crate) fn all() -> Vec<Route> {
    let route = |method, path: &'static str, roles, needs, handler| Route {
        method,
        path: path.into(),
        roles,
        needs,
        handler,
    };
    let page = |path, roles, handler| route(Method::GET, path, roles, Needs::Registration, handler);
    let form = |path, roles, handler| route(Method::POST, path, roles, Needs::Registration, handler);
    let guarded = |path, roles, handler| route(Method::POST, path, roles, Needs::StepUp, handler);
    let own = |method, path, handler| route(method, path, EVERYONE, Needs::Session, handler);
    let mut all = vec![
        page("/", EVERYONE, get(home::show)),
        page("/orders", EVERYONE, get(orders::list)),
        page("/orders.csv", EVERYONE, get(orders::export)),
        form("/views/save", EVERYONE, post(saved_views::save)),
        form("/views/delete", EVERYONE, post(saved_views::delete)),
        page("/orders/{reference}", EVERYONE, get(order::show)),
        page("/orders/{reference}/documents", PERSONAL, get(order::documents)),
        page("/orders/{reference}/documents/{digest}", PERSONAL, get(order::bank_document)),
        page("/approvals", EVERYONE, get(approvals::list)),
        page("/approvals/{id}", EVERYONE, get(approvals::show)),
        page("/reconciliation", EVERYONE, get(reconciliation::show)),
        page("/reconciliation/{run}", EVERYONE, get(reconciliation::run)),
        page("/reconciliation/{run}/{ordinal}", EVERYONE, get(reconciliation::show_break)),
        page("/bank-files/{digest}", PERSONAL, get(bank_files::show)),
        page("/treasury", EVERYONE, get(treasury::show)),
        page("/treasury/statement", EVERYONE, get(statement::show)),
        page("/treasury/statement.csv", EVERYONE, get(statement::export)),
        page("/treasury/fees", EVERYONE, get(reports::fees)),
        page("/treasury/fees.csv", EVERYONE, get(reports::fees_csv)),
        page("/treasury/exposure", EVERYONE, get(reports::exposure)),
        page("/treasury/exposure.csv", EVERYONE, get(reports::exposure_csv)),
        page("/chains", EVERYONE, get(chains::show)),
        page("/fix", EVERYONE, get(sessions::list)),
        page("/fix/{session}", EVERYONE, get(sessions::show)),
        page("/fix/{session}/messages", EVERYONE, get(messages::show)),
        page("/webhooks", EVERYONE, get(webhooks::list)),
        page("/webhooks/{endpoint}", EVERYONE, get(webhooks::show)),
        page("/partners", EVERYONE, get(partners::list)),
        page("/partners/{name}", EVERYONE, get(partners::show)),
        page("/operators", EVERYONE, get(operators::list)),
        page("/operators/{name}", EVERYONE, get(operators::show)),
        form("/operators/{name}/sessions/end", ADMINISTRATION, post(operator_sessions::end)),
        form("/account/sessions/end", EVERYONE, post(operator_sessions::end_own)),
        page("/audit", AUDIT, get(audit::show)),
        page("/audit.jsonl", AUDIT, get(audit::export)),
        page(LIVE, EVERYONE, get(live::stream)),
        page("/work", EVERYONE, get(work::show)),
        page("/search", EVERYONE, get(search::show)),
        own(Method::GET, "/account", get(account::show)),
        own(Method::POST, "/account/passkeys/challenge", post(account::registration_challenge)),
        own(Method::POST, "/account/passkeys", post(account::register)),
        guarded("/account/passkeys/{id}/remove", EVERYONE, post(account::remove)),
        own(Method::POST, "/account/password", post(password::choose)),
        own(Method::POST, "/account/password/confirm", post(password::confirm)),
        guarded("/account/password/remove", EVERYONE, post(password::remove)),
        form("/account/challenge", EVERYONE, post(account::step_up_challenge)),
        page("/account/login", EVERYONE, get(logins::show)),
        guarded("/account/login", EVERYONE, post(logins::grant)),
        own(Method::POST, "/logout", post(sign_in::sign_out)),
    ];
    for spec in TABLE {
        let needs = if spec.step_up { Needs::StepUp } else { Needs::Registration };
        for (method, needs, handler) in
            [(Method::GET, Needs::Registration, get(act::show)), (Method::POST, needs, post(act::perform))]
        {
            all.push(Route { method, path: offers::path(spec).into(), roles: spec.roles, needs, handler });
        }
    }
    all
}

/// A route behind the sign-in as the table has it: the roles of which an operator needs one, and what else.
pub type Permission = (Method, Cow<'static, str>, &'static [OperatorRole], Needs);

/// Every route behind the sign-in.
pub fn permissions() -> Vec<Permission> {
    all().into_iter().map(|Route { method, path, roles, needs, .. }| (method, path, roles, needs)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::navigation::SECTIONS;

    #[test]
    fn sections_lead_to_routes_with_the_same_roles() {
        let routes = all();
        for section in SECTIONS {
            let route = routes.iter().find(|route| route.path == section.path && route.method == Method::GET);
            assert_eq!(route.map(|route| route.roles), Some(section.roles), "{}", section.path);
        }
    }

    #[test]
    fn no_two_routes_are_the_same_and_every_route_has_roles() {
        let routes = all();
        for (index, route) in routes.iter().enumerate() {
            assert!(!route.roles.is_empty(), "{}", route.path);
            let twice = routes[..index]
                .iter()
                .any(|other| (&other.method, &other.path) == (&route.method, &route.path));
            assert!(!twice, "{} {}", route.method, route.path);
        }
    }
}
