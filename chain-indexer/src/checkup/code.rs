//! Whether deployed code is what this build's contracts deploy: pure.
//!
//! The code that a creation ends with is part of the creation's own code. It differs in its immutable values alone: in
//! the creation's code each is 32 zero bytes behind a `PUSH32`.

const PUSH1: u8 = 0x60;
const PUSH32: u8 = 0x7f;

/// Whether `deployed` is the code that `creation` deploys, whatever its immutable values.
pub(super) fn is_deployed_by(deployed: &[u8], creation: &[u8]) -> bool {
    if deployed.is_empty() {
        return false;
    }
    creation.windows(deployed.len()).any(|template| fits(deployed, template))
}

/// Equal but for the values behind `PUSH32` that are zero in the template.
fn fits(deployed: &[u8], template: &[u8]) -> bool {
    let mut at = 0;
    while let Some(&operation) = template.get(at) {
        if deployed.get(at) != Some(&operation) {
            return false;
        }
        let pushed = match operation {
            PUSH1..=PUSH32 => usize::from(operation - PUSH1) + 1,
            _ => 0,
        };
        let value = at + 1..(at + 1 + pushed).min(template.len());
        let (ours, theirs) = (&template[value.clone()], deployed.get(value).unwrap_or_default());
        let is_immutable = operation == PUSH32 && ours.len() == 32 && ours.iter().all(|byte| *byte == 0);
        if !is_immutable && ours != theirs {
            return false;
        }
        at += 1 + pushed;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A constructor, then code with an immutable value and a constant.
    fn creation(immutable: u8, constant: u8) -> (Vec<u8>, Vec<u8>) {
        let code = |value: u8| {
            let mut code = vec![0x5f, PUSH32];
            code.extend([value; 32]);
            code.extend([PUSH32]);
            code.extend([constant; 32]);
            code.extend([PUSH1, 0x00, 0xfd]);
            code
        };
        ([&[0x60, 0x80, 0x52, 0xf3, 0xfe][..], &code(0)].concat(), code(immutable))
    }

    #[test]
    fn only_immutable_values_may_differ() {
        let (creation, deployed) = creation(7, 9);
        assert!(is_deployed_by(&deployed, &creation));
        assert!(is_deployed_by(&creation[5..], &creation), "an immutable value of zero");
        for at in 0..deployed.len() {
            let mut other = deployed.clone();
            other[at] ^= 0x55;
            let is_value = (2..34).contains(&at);
            assert_eq!(is_deployed_by(&other, &creation), is_value, "byte {at}");
        }
        assert!(!is_deployed_by(&[], &creation));
        assert!(!is_deployed_by(&[&deployed[..], &[0]].concat(), &creation));
    }
}
