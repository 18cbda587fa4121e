//! The priority of commands, and the share of the chain's blocks that each kind may use. Pure.

use dvp_domain::chain::CommandKind;
use dvp_store::chain::Load;

/// The number of one account's transactions that nodes reliably keep.
const WINDOW: u64 = 16;
/// The gas limit of one transaction (EIP-7825), less a margin.
const TX_GAS_MAX: u64 = 16_000_000;

#[derive(Debug, Clone, Copy)]
pub(super) struct CommandLimits {
    pub(super) items: usize,
    /// The gas limit of each command in a batch.
    pub(super) item_gas: u64,
    /// The typical gas of each in a batch; only a first estimate of how many fit.
    typical_gas: u64,
    /// The kind adds a transaction only while fewer of one account wait for a block.
    window: u64,
    /// Likewise of all accounts, in percent of a block's gas.
    block_percent: u64,
    /// Likewise of this kind alone.
    own_percent: u64,
}

/// By deadline. A lock that is not released in time is refunded although its beneficiary was paid; one that is not
/// filled in time is cancelled; operators' signatures are valid for minutes; payouts and locks have hours; only its
/// owner waits for the return of a lock, and can also return it; anchors have no deadline.
pub(super) const ORDER: [CommandKind; 9] = [
    CommandKind::Settle,
    CommandKind::Fill,
    CommandKind::ReturnFilled,
    CommandKind::Transfer,
    CommandKind::Create,
    CommandKind::Swap,
    CommandKind::Cancel,
    CommandKind::Refund,
    CommandKind::Anchor,
];

/// Whether commands of a kind wait while the chain is halted: those that lock, commit or pay. The others release or return
/// what is locked already, and have deadlines.
pub(super) const fn waits_while_halted(kind: CommandKind) -> bool {
    match kind {
        CommandKind::Fill | CommandKind::Transfer | CommandKind::Create | CommandKind::Swap => true,
        CommandKind::Settle
        | CommandKind::ReturnFilled
        | CommandKind::Cancel
        | CommandKind::Refund
        | CommandKind::Anchor => false,
    }
}

/// Items: limited by a block's gas beside other transactions, and by the 128 KiB that nodes accept as one transaction.
/// Later kinds in [`ORDER`] leave room for earlier ones.
pub(super) const fn limits(kind: CommandKind) -> CommandLimits {
    use CommandKind as K;
    let (items, item_gas, typical_gas, window, block_percent, own_percent) = match kind {
        K::Settle => (250, 500_000, 30_000, WINDOW, 200, 100),
        K::Fill => (250, 200_000, 20_000, WINDOW - 1, 175, 100),
        K::ReturnFilled => (1, 0, 100_000, WINDOW - 2, 160, 100),
        K::Transfer => (200, 400_000, 48_000, WINDOW - 2, 150, 100),
        K::Create => (180, 500_000, 76_000, WINDOW - 3, 125, 100),
        K::Swap => (140, 800_000, 96_000, WINDOW - 3, 125, 100),
        K::Cancel | K::Refund => (1, 0, 75_000, WINDOW - 5, 100, 50),
        K::Anchor => (1_500, 0, 3_500, WINDOW - 6, 90, 40),
    };
    CommandLimits { items, item_gas, typical_gas, window, block_percent, own_percent }
}

/// The room for one more transaction of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) gas: u64,
    /// The number of commands that may fit.
    pub(super) items: usize,
    /// The transaction must contain at least this many commands.
    pub(super) at_least: usize,
}

/// The highest gas limit of one transaction, whatever the room.
pub(super) fn ceiling(block_gas: u64) -> u64 {
    (block_gas / 100 * 60).min(TX_GAS_MAX)
}

/// The remaining room; `None` when there is none.
pub(super) fn room(kind: CommandKind, load: &[Load], block_gas: u64) -> Option<Room> {
    let limits = limits(kind);
    let of_kind = || load.iter().filter(|load| load.kind == Some(kind));
    let own: u64 = load.iter().map(|load| load.own).sum();
    let gas: u64 = load.iter().map(|load| load.gas).sum();
    let gas_of_kind: u64 = of_kind().map(|load| load.gas).sum();
    if own >= limits.window {
        return None;
    }
    let percent = |share: u64| block_gas / 100 * share;
    let left = (percent(limits.block_percent).saturating_sub(gas))
        .min(percent(limits.own_percent).saturating_sub(gas_of_kind))
        .min(ceiling(block_gas));
    // The remainder of a nearly full block does not justify a transaction.
    if left < percent(1).max(limits.typical_gas) {
        return None;
    }
    let items = usize::try_from(left / limits.typical_gas).unwrap_or(limits.items).clamp(1, limits.items);
    Some(Room { gas: left, items, at_least: at_least(of_kind().map(|load| load.own).sum()) })
}

/// The first two transactions go with any number of commands; further ones for the same block need a minimum.
const fn at_least(under_way: u64) -> usize {
    match under_way {
        0 | 1 => 1,
        2 => 4,
        3 => 16,
        _ => 64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 30_000_000;

    fn load(kind: CommandKind, own: u64, gas: u64) -> Load {
        Load { kind: Some(kind), own, gas }
    }

    #[test]
    fn every_kind_has_a_place_in_the_order() {
        for kind in CommandKind::ALL {
            assert!(ORDER.contains(&kind), "{kind:?}");
        }
    }

    #[test]
    fn later_kinds_leave_room_for_earlier_ones() {
        for pair in ORDER.windows(2) {
            let (earlier, later) = (limits(pair[0]), limits(pair[1]));
            assert!(earlier.window >= later.window && earlier.block_percent >= later.block_percent);
        }
    }

    #[test]
    fn anchors_take_less_than_half_of_a_block_and_leave_nonces() {
        let full = [load(CommandKind::Anchor, 3, 12_000_000)];
        assert_eq!(room(CommandKind::Anchor, &full, BLOCK), None);
        assert!(room(CommandKind::Create, &full, BLOCK).is_some_and(|room| room.gas >= 15_000_000));
        let many = [load(CommandKind::Anchor, 10, 1_000_000)];
        assert_eq!(room(CommandKind::Anchor, &many, BLOCK), None);
        assert!(room(CommandKind::Settle, &many, BLOCK).is_some());
        let busy = [load(CommandKind::Create, 2, 27_000_000)];
        assert_eq!(room(CommandKind::Anchor, &busy, BLOCK), None);
    }

    #[test]
    fn a_block_of_any_gas_has_room_for_a_lock() {
        let counted = crate::config::FeePolicy::default().block_gas;
        for named in [8_000_000, 30_000_000, 1_700_000_000, 1 << 32, 1 << 50, u64::MAX] {
            let room = room(CommandKind::Create, &[], counted.min(named));
            assert!(room.is_some_and(|room| room.gas >= 4_000_000 && room.items > 40), "{named}: {room:?}");
        }
    }

    #[test]
    fn the_first_transaction_goes_at_once_and_the_fifth_must_be_a_batch() {
        let after = |own| {
            room(CommandKind::Create, &[load(CommandKind::Create, own, 100_000)], BLOCK)
                .map(|room| room.at_least)
        };
        assert_eq!([0, 1, 2, 3, 4].map(after), [1, 1, 4, 16, 64].map(Some));
        assert_eq!(after(13), None);
    }
}
