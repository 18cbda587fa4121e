//! Values that no field should have.

use clap::ValueEnum;

use crate::dice::Dice;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ValueFault {
    Nul,
    /// A good value in a C buffer.
    Padded,
    Control,
    InvalidUtf8,
    Long,
    VeryLong,
    Random,
    Odd,
}

impl ValueFault {
    /// No stored text may look like this: the service has to refuse it and name the field.
    pub(super) const fn is_never_text(self) -> bool {
        !matches!(self, Self::Random | Self::Odd)
    }

    /// A value of the kind, made from one that the field could have. It has no SOH: that would begin another field.
    pub(super) fn value(self, good: &[u8], dice: &mut Dice) -> Vec<u8> {
        let with = |bytes: &[u8]| [good, bytes].concat();
        match self {
            Self::Nul => dice.pick::<&[u8]>(&[b"\0", b"a\0b", b"\0\0\0\0", b"1\0"]).to_vec(),
            Self::Padded => with(&[0; 16]),
            Self::Control => {
                with(dice.pick::<&[u8]>(&[b"\n", b"\r\n", b"\x02", b"\x1b[2J", b"\x7f", b"\xc2\x85"]))
            }
            Self::InvalidUtf8 => with(dice.pick::<&[u8]>(&[
                b"\xff\xfe",
                b"\xc3",
                b"\xc0\x80",
                b"\xed\xa0\x80",
                b"\xf5\x80\x80\x80",
            ])),
            Self::Long => vec![b'A'; 6_000],
            Self::VeryLong => vec![b'A'; 60_000],
            Self::Random => {
                let length = 1 + dice.roll(40);
                (0..length).map(|_| random_byte(dice)).collect()
            }
            Self::Odd => {
                let odd: [&[u8]; 9] = [
                    b"",
                    b"=",
                    b" ",
                    b"-1",
                    b"999999999999999999999999",
                    b"1e400",
                    b"NaN",
                    "\u{202e}x".as_bytes(),
                    b"' or 1=1",
                ];
                dice.pick(&odd).to_vec()
            }
        }
    }
}

/// Any byte but SOH.
pub(super) fn random_byte(dice: &mut Dice) -> u8 {
    let byte = u8::try_from(dice.roll(255)).unwrap_or(0);
    if byte == 1 { 255 } else { byte }
}
