//! The messages that FIX measurements are made with: the same bytes for every engine. Seven fields are the header.

/// A NewOrderSingle: 203 bytes, 16 fields of body.
pub const NEW_ORDER_SINGLE: &str = "8=FIX.4.4|9=180|35=D|34=1201|49=CLNT|52=20261121-12:00:40.123|56=DVP|11=ORD1201|1=A|21=1|55=USDC/USD|54=2|60=20261121-12:00:40|38=250000.00|40=2|44=0.9991|15=USDC|59=0|18=1|110=0|461=FX|63=0|58=x|10=";

/// An ExecutionReport: 272 bytes, 22 fields of body.
pub const EXECUTION_REPORT: &str = "8=FIX.4.4|9=249|35=8|34=1201|49=DVP|52=20261121-12:00:40.123|56=CLNT|37=ord_0198|198=7f2|11=ORD1201|17=0198.4|150=F|39=2|1=A|55=USDC/USD|54=2|38=250000.00|40=2|44=0.9991|15=USDC|59=0|32=250000|31=0.9991|151=0|14=250000|6=0.9991|60=20261121-12:00:40|58=done|20101=4|10=";

/// As it goes over the wire: SOH for `|`, and the right checksum at the end.
pub fn wire(text: &str) -> Vec<u8> {
    let mut bytes = text.replace('|', "\x01").into_bytes();
    let counted = bytes.len().saturating_sub(3);
    let sum = bytes.iter().take(counted).fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    bytes.extend_from_slice(format!("{sum:03}\x01").as_bytes());
    bytes
}
