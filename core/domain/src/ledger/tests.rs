use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::event::EventType;
use crate::plan::{OrderKind, Slice};
use crate::settlement::{
    Effect, Position, Remedy, State, Step, accept, accept_and_begin, tests as settlement_tests,
    tests::terms_of,
};

const E18: i128 = 1_000_000_000_000_000_000;

/// Balances by account and asset, in 10^-18 minor units.
#[derive(Default, Clone)]
pub(crate) struct Books(BTreeMap<(String, String), i128>);

impl Books {
    fn post(&mut self, posting: &Posting) {
        for one in &posting.moves {
            let amount = i128::try_from(one.amount.minor.get()).unwrap() * E18 + i128::from(one.amount.e18);
            for (account, amount) in [(&one.from, -amount), (&one.to, amount)] {
                let (kind, owner, part) = account.columns();
                let name = format!("{kind}:{owner}:{part}");
                *self.0.entry((name, one.asset.clone())).or_default() += amount;
            }
        }
    }

    fn e18(&self, account: &str, asset: &str) -> i128 {
        self.0.get(&(account.to_owned(), asset.to_owned())).copied().unwrap_or_default()
    }

    pub(crate) fn minor(&self, account: &str, asset: &str) -> i128 {
        let e18 = self.e18(account, asset);
        assert_eq!(e18 % E18, 0, "{account} holds a fraction");
        e18 / E18
    }

    fn check(&self) {
        let mut sums: BTreeMap<&str, i128> = BTreeMap::new();
        for ((account, asset), amount) in &self.0 {
            *sums.entry(asset).or_default() += amount;
            if account.ends_with(":available")
                || account.ends_with(":reserved")
                || account.starts_with("escrow")
            {
                assert!(*amount >= 0, "{account} is overdrawn: {amount}");
            }
        }
        assert!(sums.values().all(|sum| *sum == 0), "{sums:?}");
    }

    /// Posts, and checks the trial balance.
    pub(crate) fn take(&mut self, posting: &Posting) {
        self.post(posting);
        self.check();
    }

    pub(crate) fn carry_out(&mut self, step: &Step) {
        for effect in &step.effects {
            if let Effect::Post(posting) = effect {
                self.take(posting);
            }
        }
    }
}

/// Terms whose fill is shared by as many providers as there are cuts, plus one.
pub(crate) fn shared(kind: OrderKind, cuts: &[u8]) -> Terms {
    let mut terms = terms_of(kind);
    let whole = terms.plan.slices.remove(0);
    let (mut input, mut output) = (whole.input.get(), whole.output.get());
    for (n, cut) in cuts.iter().enumerate() {
        let part = |of: u128| of * u128::from(*cut) / 256;
        let slice = Slice {
            provider_id: format!("lp{n}"),
            input: Minor::new(part(input)),
            output: Minor::new(part(output)),
            residual_e18: u64::from(*cut).into(),
            ..whole.clone()
        };
        input -= slice.input.get();
        output -= slice.output.get();
        terms.plan.slices.push(slice);
    }
    terms.plan.slices.push(Slice { input: Minor::new(input), output: Minor::new(output), ..whole });
    terms
}

pub(crate) fn opening(terms: &Terms) -> Books {
    let mut books = Books::default();
    for slice in &terms.plan.slices {
        let owner = Owner::Provider(slice.provider_id.clone());
        books.post(&deposited(owner, &terms.output.asset, slice.output));
    }
    if let Some(owner) = funder(terms) {
        books.post(&deposited(owner, &terms.input.asset, terms.plan.priced.input));
    }
    books
}

fn kinds() -> impl Strategy<Value = OrderKind> {
    prop_oneof![
        Just(OrderKind::TokenToFiat),
        Just(OrderKind::TokenToToken),
        Just(OrderKind::FiatToFiat),
        Just(OrderKind::FiatToToken)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn books_balance_through_any_history_and_nothing_remains_reserved(
        kind in kinds(),
        is_across in any::<bool>(),
        cuts in prop::collection::vec(any::<u8>(), 0..4),
        at_once in any::<bool>(),
        history in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut terms = shared(kind, &cuts);
        if is_across && kind == OrderKind::TokenToToken {
            (terms.input.chain, terms.output.chain) = (Some("home".into()), Some("away".into()));
        }
        let mut books = opening(&terms);
        let begins = at_once && !terms.locks();
        let begun = if begins { accept_and_begin(&terms).unwrap() } else { accept(&terms) };
        books.carry_out(&begun);
        let mut reported: Vec<EventType> = begun.events.iter().map(|event| event.kind).collect();
        let mut state = begun.next;
        for choice in history {
            let before = state.clone();
            state = match state.step(&terms, settlement_tests::any_event(choice)) {
                Ok(step) => {
                    books.carry_out(&step);
                    reported.extend(step.events.iter().map(|event| event.kind));
                    step.next
                }
                Err(_) => before,
            };
        }
        let ends = reported.iter().filter(|kind| kind.is_terminal()).count();
        let came_back = matches!(state, State::Completed { reversal: Some(_), .. });
        // Its payout failed, and may have been found paid since.
        let failed = reported.contains(&EventType::PayoutFailed);
        let was_found_paid = failed && matches!(state, State::Completed { .. });
        let expected = [state.is_terminal() || failed, was_found_paid, came_back];
        prop_assert_eq!(ends, expected.into_iter().map(usize::from).sum::<usize>());
        if state.is_terminal() {
            check_ended(&terms, &state, &books);
        }
    }
}

#[test]
fn a_payment_made_by_the_house_that_comes_back_is_not_owed_to_the_user() {
    let terms = shared(OrderKind::TokenToFiat, &[7]);
    let mut books = opening(&terms);
    let accepted = accept(&terms);
    books.carry_out(&accepted);
    let mut state = accepted.next;
    // Filled, refunded by the escrow, and paid all the same.
    let history = ["lock_due", "locked", "offramp done", "filled", "refunded", "payout done"];
    let returned = settlement_tests::returned(None);
    for one in history.map(settlement_tests::event).into_iter().chain([returned]) {
        let step = state.clone().step(&terms, one).unwrap_or_else(|error| panic!("{error:?}"));
        books.carry_out(&step);
        state = step.next;
    }
    assert!(state.was_paid_by_house() && state.name() == "reversed", "{state:?}");
    check_ended(&terms, &state, &books);
    let again = state.clone().step(&terms, settlement_tests::event("paid again"));
    assert!(again.is_err(), "the user has the input");
    let step = state.step(&terms, settlement_tests::event("given back")).unwrap();
    books.carry_out(&step);
    check_ended(&terms, &step.next, &books);
    let borne: u128 = (terms.plan.priced.fees.iter())
        .filter(|fee| fee.collection == Collection::Absorbed && fee.currency == terms.input.asset)
        .map(|fee| fee.amount_minor.get())
        .sum();
    assert_eq!(books.minor("house::total", &terms.input.asset), -i128::try_from(borne).unwrap());
}

/// Checks that nothing is reserved or in clearing, and that each owner has what the order's end requires.
pub(crate) fn check_ended(terms: &Terms, state: &State, books: &Books) {
    let (input, output) = (terms.input.asset.as_str(), terms.output.asset.as_str());
    let priced = &terms.plan.priced;
    let units = |amount: Minor| i128::try_from(amount.get()).unwrap();
    assert_eq!(books.minor("clearing::total", output), 0);
    // How often the conversion is in the account of unused ones.
    let unused = match state.open_position() {
        Some(Position::Kept) => 1,
        Some(Position::Short) => -1,
        Some(Position::None | Position::TakenOver) | None => 0,
    };
    let position = format!("position:{}:total", terms.reference);
    assert_eq!(books.minor(&position, output), unused * units(priced.gross_output));
    assert_eq!(books.minor(&position, input), -unused * units(priced.net_input()));
    let partner = format!("partner:{}:test", terms.partner_id);
    assert_eq!(books.minor(&format!("{partner}:reserved"), input), 0);
    let prefunded = if funder(terms).is_some() { units(priced.input) } else { 0 };
    let completed = matches!(state, State::Completed { .. });
    let debt_returned = matches!(state, State::PayoutFailed { debt_returned: Some(_), .. });
    // The returned payment, and how it was resolved.
    let reversal = match state {
        State::Completed { reversal: Some(reversal), .. } => {
            Some(reversal.resolved.as_ref().map(|one| one.remedy))
        }
        _ => None,
    };
    let owes = if reversal == Some(None) { units(priced.output) } else { 0 };
    assert_eq!(books.minor(&format!("debt:{}:total", terms.reference), output), owes);
    // What the bank has deducted from a return that was not taken back is outside.
    let deducted = match state {
        State::Completed { reversal: Some(open), .. }
            if open.resolved.as_ref().is_none_or(|one| one.remedy != Remedy::Stands) =>
        {
            open.came.map_or(0, |came| units(priced.output) - units(came))
        }
        _ => 0,
    };
    let given_back = reversal == Some(Some(Remedy::GivenBack));
    for slice in &terms.plan.slices {
        let account = |part| format!("provider:{}:{part}", slice.provider_id);
        assert_eq!(books.minor(&account("reserved"), output), 0);
        let gives = if completed && !given_back { units(slice.output) } else { 0 };
        // A provider that has received the input owes what was returned to the user.
        let gets = if completed || debt_returned { units(slice.input) } else { 0 };
        let owed = if debt_returned || given_back { -units(slice.input) } else { 0 };
        assert_eq!(books.minor(&account("owed"), input), owed);
        // What is taken back from it is owed, and so is the residual of what it gave.
        let cut_off = i128::from(slice.residual_e18.split().unwrap().1);
        let residual = if completed { cut_off } else { 0 };
        let has = books.e18(&account("available"), output) + books.e18(&account("owed"), output);
        assert_eq!(has + residual, (units(slice.output) - gives) * E18);
        assert_eq!(books.minor(&account("available"), input), gets);
    }
    check_claims(terms, state, books);
    let recipient = format!("external:{}:total", terms.reference);
    let locked_still = match state {
        State::ConversionFailed { lock: Some(lock), .. }
        | State::PayoutFailed { lock: Some(lock), debt_returned: None, .. }
            if lock.holds() =>
        {
            units(priced.input)
        }
        _ => 0,
    };
    assert_eq!(books.minor("escrow::total", input), locked_still);
    let has_input_back =
        given_back || debt_returned || state.lock().is_none_or(|lock| lock.refunded || lock.lost);
    if terms.locks() && input != output {
        let user = format!("external:{}:total", terms.request.user.to_lowercase());
        let given = if completed && !has_input_back { units(priced.input) } else { locked_still };
        assert_eq!(books.minor(&user, input), -given, "what the user gave");
    }
    if completed {
        let kept = |amount| if given_back { 0 } else { units(amount) };
        let stays = matches!(reversal, None | Some(Some(Remedy::PaidAgain | Remedy::Stands)));
        let paid = if stays { units(priced.output) } else { 0 } + deducted;
        assert_eq!(books.minor(&recipient, output), paid);
        assert_eq!(books.minor("fees::total", input), kept(priced.protocol_fee));
        assert_eq!(books.minor("fees::total", output), kept(priced.payout_fee));
        let back = if given_back { prefunded } else { 0 };
        assert_eq!(books.minor(&format!("{partner}:available"), input), back);
    } else {
        assert_eq!(books.minor(&recipient, output), 0);
        assert_eq!(books.minor("fees::total", input) + books.minor("fees::total", output), 0);
        assert_eq!(books.minor(&format!("{partner}:available"), input), prefunded);
    }
}

/// Checks that each wallet holds its provider's balances less the provider's claim: the solver's wallet received and
/// paid all.
fn check_claims(terms: &Terms, state: &State, books: &Books) {
    let (input, output) = (terms.input.asset.as_str(), terms.output.asset.as_str());
    let units = |amount: Minor| i128::try_from(amount.get()).unwrap();
    let (lock, settle_tx) = match state {
        State::Completed { lock, settle_tx, .. } => (lock.is_some(), settle_tx.is_some()),
        _ => (false, false),
    };
    let is_completed = matches!(state, State::Completed { .. });
    let priced = &terms.plan.priced;
    let mut claims = BTreeMap::from([(input, 0), (output, 0)]);
    for slice in &terms.plan.slices {
        let account = |part| format!("provider:{}:{part}", slice.provider_id);
        let wallet =
            |asset| books.minor(&account("available"), asset) - books.minor(&account("claim"), asset);
        let is_solver = slice.provider_id == terms.plan.solver_id;
        if is_completed && lock && input != output {
            let received = if is_solver && settle_tx { units(priced.input) } else { 0 };
            assert_eq!(wallet(input), received, "{}", slice.provider_id);
        }
        if is_completed && (terms.pays_on_chain() || terms.swaps()) && input != output {
            let paid = if is_solver { units(priced.output) } else { 0 };
            assert_eq!(wallet(output), units(slice.output) - paid, "{}", slice.provider_id);
        }
        for (asset, sum) in &mut claims {
            *sum += books.minor(&account("claim"), asset);
        }
    }
    for (asset, sum) in claims {
        let house = books.minor("house::claim", asset);
        assert_eq!(sum + house, 0, "claims of {asset} sum to zero");
    }
}

#[test]
fn a_rounding_fraction_is_owed_by_its_provider_and_posted_as_residual() {
    let terms = shared(OrderKind::TokenToFiat, &[7]);
    let mut books = Books::default();
    books.post(&paid(&terms));
    let of = |account: &str| books.0.get(&(account.to_owned(), terms.output.asset.clone())).copied();
    let total: i128 =
        terms.plan.slices.iter().map(|slice| i128::from(slice.residual_e18.split().unwrap().1)).sum();
    assert_eq!(of("residual::total"), Some(total));
    assert_eq!(of("provider:lp0:owed"), Some(-7));
}

#[test]
fn a_residual_of_more_than_a_minor_unit_is_posted_in_full() {
    let mut terms = terms_of(OrderKind::TokenToFiat);
    terms.plan.slices[0].residual_e18 = 1_500_000_000_000_000_000.into();
    let posting = paid(&terms);
    let residual = posting.moves.iter().find(|one| one.to == Account::Residual).unwrap();
    assert_eq!(residual.amount.to_numeric(), "1.500000000000000000");
}

#[test]
fn what_the_fees_rounding_cuts_off_is_owed_by_the_solver_and_posted_in_the_input() {
    let mut terms = terms_of(OrderKind::TokenToFiat);
    terms.plan.priced.fee_residual_e18 = 500_000_000_000_000_000.into();
    for posting in [settled(&terms), settled_by_house(&terms)] {
        let residual = posting.moves.iter().find(|one| one.to == Account::Residual).unwrap();
        assert_eq!(residual.from, Account::Owed(terms.plan.solver_id.clone()));
        assert_eq!(
            (&residual.asset, residual.amount.to_numeric()),
            (&terms.input.asset, "0.500000000000000000".into())
        );
    }
}

#[test]
fn every_fee_of_the_receipt_is_in_the_books() {
    let terms = terms_of(OrderKind::TokenToFiat);
    let mut books = Books::default();
    for posting in [locked(&terms), reserved(&terms), converted(&terms), paid(&terms), settled(&terms)] {
        books.post(&posting);
    }
    for item in &terms.plan.priced.fees {
        let earned = i128::try_from(item.amount_minor.get()).unwrap();
        match item.collection {
            Collection::Deducted => assert_eq!(books.minor("fees::total", &item.currency), earned),
            Collection::Absorbed => assert_eq!(books.minor("house::total", &item.currency), -earned),
        }
    }
}
