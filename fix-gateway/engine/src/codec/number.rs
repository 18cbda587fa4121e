//! Numbers as decimal text.

/// Digits of the longest `u64`.
const DIGITS_MAX: usize = 20;

/// Appends `value` in decimal.
pub(crate) fn push(out: &mut Vec<u8>, value: u64) {
    let mut text = [b'0'; DIGITS_MAX];
    let mut at = DIGITS_MAX - 1;
    let mut rest = value;
    while rest > 9 {
        text[at] = digit(rest % 10);
        rest /= 10;
        at -= 1;
    }
    text[at] = digit(rest);
    out.extend_from_slice(&text[at..]);
}

/// The digit of a value below 10.
pub(crate) const fn digit(value: u64) -> u8 {
    b'0' + (value % 10) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them() {
        for value in [0, 1, 9, 10, 99, 100, 12_345, u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            push(&mut out, value);
            assert_eq!(out, value.to_string().as_bytes());
        }
    }
}
