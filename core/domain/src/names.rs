//! Stable names: of the variants of enums ([`names!`]), and those that somebody mistyped ([`nearest`]).

/// An enum whose variants have stable names, the same in rows, JSON, log lines and metrics: with `ALL`, `as_str`, `parse`
/// and serde's traits.
#[macro_export]
macro_rules! names {
    ($(#[$of_enum:meta])* $vis:vis enum $name:ident {
        $( $(#[$of_variant:meta])* $variant:ident = $text:literal ),+ $(,)?
    }) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ::serde::Serialize, ::serde::Deserialize)]
        $(#[$of_enum])*
        $vis enum $name { $( $(#[$of_variant])* #[serde(rename = $text)] $variant ),+ }

        impl $name {
            $vis const ALL: [Self; [$( $text ),+].len()] = [$( Self::$variant ),+];

            #[must_use]
            $vis const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $text ),+ }
            }

            $vis fn parse(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.as_str() == text)
            }
        }
    };
}

pub use names;

/// The candidate that a mistyped name most likely means. `None`: none of them is near.
pub fn nearest<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A letter in three may be wrong.
    let given = given.trim().to_lowercase();
    let most = (given.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&given, &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `, did you mean NAME?`, or what there is, or nothing.
pub fn suggestion<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(near) = nearest(given, candidates.clone()) {
        return format!(", did you mean {near}?");
    }
    let all: Vec<&str> = candidates.into_iter().take(LISTED_MAX + 1).collect();
    match all.len() {
        1..=LISTED_MAX => format!("; there is {}", all.join(", ")),
        _ => String::new(),
    }
}

/// More names than these are not listed.
const LISTED_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    names! {
        enum Sign {
            Minus = "minus",
            PlusMinus = "plus/minus",
        }
    }

    #[test]
    fn a_variant_is_read_as_it_is_written() {
        assert_eq!(Sign::ALL, [Sign::Minus, Sign::PlusMinus]);
        for sign in Sign::ALL {
            assert_eq!(Sign::parse(sign.as_str()), Some(sign));
            assert_eq!(serde_json::to_value(sign).unwrap(), sign.as_str());
            assert_eq!(serde_json::from_value::<Sign>(sign.as_str().into()).unwrap(), sign);
        }
        assert_eq!(Sign::parse("Minus"), None);
    }

    #[test]
    fn a_name_with_few_wrong_letters_is_recognised() {
        let names = ["quoteId", "intentId", "northwind", "anvil", "USDC/USD", "USD/USDC"];
        for (given, meant) in [
            ("quoteid", Some("quoteId")),
            ("qouteId", Some("quoteId")),
            ("nortwind", Some("northwind")),
            ("anvill", Some("anvil")),
            (" usdc/usd", Some("USDC/USD")),
            ("id", None),
            ("southwind", Some("northwind")),
            ("payout", None),
        ] {
            assert_eq!(nearest(given, names), meant, "{given}");
        }
        assert_eq!(suggestion("anvill", names), ", did you mean anvil?");
        assert_eq!(suggestion("x", ["offramp", "payout"]), "; there is offramp, payout");
        assert_eq!(suggestion("x", []), "");
    }
}
