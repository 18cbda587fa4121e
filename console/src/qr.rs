//! QR codes as the path of an SVG image, whose unit is a square of the code.

use std::fmt::Write as _;

use qrcode::{Color, QrCode};

/// The margin that readers need around the code.
const QUIET: usize = 4;

/// A QR code: the image's width and height, and the path of its dark squares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QrImage {
    pub width: usize,
    pub path: String,
}

impl QrImage {
    /// The code of a text, `None` when it is too long for one.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let code = QrCode::new(text.as_bytes()).ok()?;
        let size = code.width();
        let mut path = String::new();
        for (index, color) in code.to_colors().into_iter().enumerate() {
            if color == Color::Dark {
                let (x, y) = (QUIET + index % size, QUIET + index / size);
                let _ = write!(path, "M{x} {y}h1v1h-1z");
            }
        }
        Some(Self { width: size + 2 * QUIET, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_its_finder_patterns_inside_the_margin() {
        let image = QrImage::of("otpauth://totp/dvp:kim?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ").unwrap();
        let is_dark = |x: usize, y: usize| image.path.contains(&format!("M{x} {y}h1v1h-1z"));
        let last = image.width - QUIET - 1;
        for (x, y) in [(QUIET, QUIET), (last, QUIET), (QUIET, last), (QUIET + 3, QUIET + 3)] {
            assert!(is_dark(x, y), "{x} {y}");
        }
        assert!(
            !is_dark(QUIET + 1, QUIET + 1) && !is_dark(QUIET + 7, QUIET),
            "the ring and the separator are light"
        );
        assert_eq!(QrImage::of(&"x".repeat(4000)), None);
    }
}
