"""Bodies and answers as openapi.json describes them, written by clients/python/generate: change nothing here."""
from __future__ import annotations

from typing import Any, Literal, TypedDict, Union


class _AcceptedIntentRequired(TypedDict):
    # The intent's id, as it was submitted.
    intentId: str
    # How it is filled.
    path: SolvedPath
    # `DVP-` and the first eight characters of `intentId`, in capitals.
    planId: str
    # The service's id of the execution, for `refType=executionId`.
    reference: str
    # The provider that fills it.
    solverId: str
    # Always `accepted`.
    status: Literal['accepted']


class AcceptedIntent(_AcceptedIntentRequired, total=False):
    """An accepted intent. Its settlement goes on by itself."""

    # Of an input in a chain's coin: the deposit that the order waits for.
    deposit: DepositDue
    # With a firm quote: the locked fees.
    fees: list[FeeItem]
    # Of an intent with an exact output: the computed input, in minor units.
    inputAmountMinor: str


ActorType = Literal['retail', 'institution']


AmountType = Literal['source', 'target']


class _AmountsIntentRequestRequired(TypedDict):
    # Until when the intent may be filled, in Unix milliseconds; at most 30 days ahead.
    deadline: int
    # What is paid, in minor units of the input asset.
    inputAmountMinor: str
    # What is paid.
    inputAsset: AssetDescriptor
    # Your own id of the intent, used once.
    intentId: str
    # The least that the recipient may get, in minor units of the output asset.
    minOutputAmountMinor: str
    # What the recipient gets.
    outputAsset: AssetDescriptor
    # Where the exchange may settle.
    settlementType: SettlementType
    # The owner of the intent. With an `erc20` input the address of the wallet that signed the permit, with a `native`
    # one that of the wallet that deposits.
    user: str


class AmountsIntentRequest(_AmountsIntentRequestRequired, total=False):
    """An intent whose input is fixed: what is paid, and the least that the recipient may get."""

    # Whom the order is for; `institution` when absent.
    actorType: ActorType | None
    # Who is paid; needed for an output in money and for a remittance.
    beneficiary: Beneficiary | None
    # Your own reference, echoed on status, events, receipt and reports; used once among accepted intents.
    clientReference: str | None
    # Your own data.
    metadata: IntentMetadata | None
    # Another recipient than `user`: a remittance, which needs a `beneficiary` when it is paid in money.
    outputRecipient: str | None
    # The wallet's permit; needed for an `erc20` input.
    permit: Permit | None
    # A firm quote to use.
    quoteId: str | None
    # `sell` when absent.
    side: Side | None


AnyObject = dict[str, Any]


class Asset(TypedDict):
    """An asset that is dealt in."""

    # The token's contract; null for a coin and for money.
    address: str | None
    # The chain's name; null for money.
    chain: str | None
    # The ISO 4217 code; null for tokens and coins.
    currency: str | None
    # Decimal places of the minor unit: 2 for cents, 6 for USDC.
    exponent: int
    # What can be bought with it.
    pairs: list[AssetPair]
    # Its name in `inputAsset.symbol` and `outputAsset.symbol`.
    symbol: str
    # `erc20`, `native` (the coin of a chain) or `fiat`.
    type: AssetType


class _AssetDescriptorRequired(TypedDict):
    # The ticker.
    symbol: str
    # The kind of asset.
    type: AssetType


class AssetDescriptor(_AssetDescriptorRequired, total=False):
    """An asset."""

    # The token's contract, of a token.
    address: str | None
    # The chain's name, of a token or a coin; without it the default chain of its ticker.
    chain: str | None
    # The ISO 4217 code, of money.
    currency: str | None


class AssetList(TypedDict):
    """Assets that are dealt in."""

    # All of them.
    data: list[Asset]


class AssetPair(TypedDict):
    """What an asset is exchanged for, and which amounts of it."""

    # The largest order, in minor units of the asset that is paid; null without a limit.
    maxAmountMinor: str | None
    # The smallest order, in minor units of the asset that is paid.
    minAmountMinor: str
    # The other asset's symbol.
    outputAsset: str


AssetType = Literal['erc20', 'fiat', 'native']


class Balance(TypedDict):
    """Your prefunded balance of an asset."""

    # The asset's symbol.
    asset: str
    # What new orders can use, in minor units.
    availableMinor: str
    # Decimal places of the minor unit: 2 for cents, 6 for USDC; null for an asset that is not dealt in any more.
    exponent: int | None
    # What open orders hold, in minor units.
    reservedMinor: str


class BalanceList(TypedDict):
    """Your prefunded balances."""

    # Those that are not zero.
    data: list[Balance]


class Beneficiary(TypedDict, total=False):
    """Who is paid. With a registered recipient (`bene_<id>:dest_<id>`) as `account` the other fields are not needed."""

    # The account's number or IBAN, or a registered recipient (`bene_<id>:dest_<id>`).
    account: str | None
    # The recipient's postal address; needed for `wire` and `swift`.
    address: BeneficiaryAddress | None
    # The bank's name.
    bank: str | None
    # The account's country, ISO 3166-1 alpha-2; needed with inline details.
    country: str | None
    # The recipient's name.
    name: str | None
    # The rail; needed with inline details unless `swiftCode` is there.
    payoutMethod: PayoutMethod | None
    # The bank's BIC (ISO 9362); alone it chooses the rail `swift`.
    swiftCode: str | None
    # Travel Rule data, kept and passed on as it is.
    travelRuleData: dict[str, Any] | None


class BeneficiaryAddress(TypedDict, total=False):
    """A postal address. All four fields are needed where the rail needs an address (`wire`, `swift`)."""

    # The town.
    city: str | None
    # Street and number.
    line1: str | None
    # The postal code.
    postalCode: str | None
    # The state or province.
    state: str | None


class _BoundsIntentRequestRequired(TypedDict):
    # Until when the intent may be filled, in Unix milliseconds; at most 30 days ahead.
    deadline: int
    # The bounds of what is paid.
    input: InputBounds
    # What is paid.
    inputAsset: AssetDescriptor
    # Your own id of the intent, used once.
    intentId: str
    # The bounds of what the recipient gets.
    output: OutputBounds
    # What the recipient gets.
    outputAsset: AssetDescriptor
    # Where the exchange may settle.
    settlementType: SettlementType
    # The owner of the intent. With an `erc20` input the address of the wallet that signed the permit, with a `native`
    # one that of the wallet that deposits.
    user: str


class BoundsIntentRequest(_BoundsIntentRequestRequired, total=False):
    """An intent by bounds: exact input, exact output, or a range that falls until the deadline."""

    # Whom the order is for; `institution` when absent.
    actorType: ActorType | None
    # Who is paid; needed for an output in money and for a remittance.
    beneficiary: Beneficiary | None
    # Your own reference, echoed on status, events, receipt and reports; used once among accepted intents.
    clientReference: str | None
    # Your own data.
    metadata: IntentMetadata | None
    # Another recipient than `user`: a remittance, which needs a `beneficiary` when it is paid in money.
    outputRecipient: str | None
    # The wallet's permit; needed for an `erc20` input.
    permit: Permit | None
    # A firm quote to use.
    quoteId: str | None
    # `sell` when absent.
    side: Side | None


BreakKind = Literal['lock_without_execution', 'execution_without_lock', 'amount_mismatch', 'terms_mismatch', 'paid_not_settled', 'settled_not_paid', 'anchor_missing', 'anchor_mismatch', 'timelock_expiring', 'refund_due', 'stuck', 'payout_without_execution', 'index_mismatch', 'escrow_short', 'decision_contradicted', 'payment_returned', 'converted_not_used', 'recall_unanswered', 'recall_not_returned', 'recall_contradicted', 'missing_in_ledger', 'missing_at_bank', 'amount_differs', 'balance_differs', 'duplicate_entry', 'unknown_entry', 'statement_gap']


CancelledIntent = Union['IntentStatus', 'LegacyIntentAnswer']


class Candidate(TypedDict):
    """One way to fill the request, at the prices of this moment."""

    # Assets in between; empty for a direct exchange.
    hops: list[Any]
    # The parts of the path.
    legs: list[Leg]
    # Figures behind the candidate.
    metadata: CandidateMetadata
    # The liquidity source's id.
    provider: str | None
    # The candidate's opaque id.
    routeId: str
    # Estimated slippage, in basis points.
    slippageBps: float | None
    # The total price of the route: what arrives of the target asset, as a decimal amount.
    totalCost: str
    # For how many seconds the candidate may be relied on; ask again after them.
    ttlSec: int


CandidateMetadata = dict[str, Any]


class _ChainRequired(TypedDict):
    # The accounts whose anchors of receipts count, in service or not any more.
    anchorSubmitters: list[str]
    # The chain's EIP-155 id.
    chainId: int
    # The contracts that take new orders.
    contracts: ChainContracts
    # The name that AssetDescriptors use.
    name: str
    # The domain that permits are signed for.
    permitDomain: PermitDomain


class Chain(_ChainRequired, total=False):
    """A chain with its contracts."""

    # Contracts that take no new orders and in which older orders end.
    earlierContracts: list[ChainContracts]


class _ChainContractsRequired(TypedDict):
    # The contract that emits the anchors of receipts.
    anchor: str
    # The escrow: the `spender` of permits.
    escrow: str


class ChainContracts(_ChainContractsRequired, total=False):
    """A set of the service's contracts on a chain."""

    # The contract that takes deposits of the chain's coin, where the coin is dealt in.
    coinGate: str


ChainState = Literal['Created', 'Filled', 'Settled', 'Cancelled', 'Refunded']


class Chains(TypedDict):
    """The chains that the service settles on."""

    # The chains.
    chains: list[Chain]


class CountAndAmount(TypedDict):
    """A number of executions and the sum of their amounts."""

    # The sum, in minor units.
    amountMinor: str
    # The number of executions.
    count: int


class DailyReconciliation(TypedDict):
    """The executions accepted on a day, as known at its end."""

    # The end of the day.
    cutoff: str
    # The day, UTC.
    date: str
    # Whether the report will not change any more.
    final: bool
    # Whether there are further items now.
    hasMore: bool
    # The next page's cursor, to be passed back as it is.
    nextCursor: str | None
    # When the books were last compared with the chain; null when they were not yet.
    reconciledAt: str | None
    # The executions of this page.
    rows: list[ReconciliationRow]
    # Totals of all pages.
    totals: list[ReconciliationTotal]


class Delivery(TypedDict):
    """The delivery of one event to the endpoint."""

    # The attempts, in their order.
    attempts: list[DeliveryAttempt]
    # When the delivery was queued.
    createdAt: str
    # The delivery's id, `dlv_…`.
    deliveryId: str
    # When it was delivered or given up; null before.
    endedAt: str | None
    # The event's id, `evt_…`.
    eventId: str
    # When it is tried next; null when it has ended.
    nextAttemptAt: str | None
    # Why it was made.
    origin: DeliveryOrigin
    # Where it stands.
    state: DeliveryState
    # The event's type.
    type: str


class DeliveryAttempt(TypedDict):
    """One attempt of a delivery."""

    # When it was tried.
    at: str
    # The beginning of what the endpoint answered; null without an answer.
    body: str | None
    # Why there was no answer; null with one.
    error: str | None
    # How long it took, in milliseconds.
    latencyMs: int
    # The attempt's number, from 1.
    number: int
    # The HTTP status that the endpoint answered; null without an answer.
    status: int | None


DeliveryOrigin = Literal['feed', 'resend', 'replay', 'test']


class DeliveryPage(TypedDict):
    """A page of deliveries, latest first."""

    # The deliveries.
    data: list[Delivery]
    # Whether there are further items now.
    hasMore: bool
    # The next page's cursor, to be passed back as it is.
    nextCursor: str | None


DeliveryState = Literal['pending', 'delivered', 'failed']


class DepositDue(TypedDict):
    """The deposit of the chain's coin that the order waits for."""

    # What to deposit, in the coin's minor units (wei).
    amountMinor: str
    # The chain's name.
    chain: str
    # The chain's EIP-155 id.
    chainId: int
    # The contract whose `deposit(bytes32 id)` takes the coin.
    contract: str
    # Until when the deposit has to be seen, in Unix milliseconds.
    depositBy: int
    # The order's id on the chain.
    id: str


class Error(TypedDict):
    """Every error."""

    # What is wrong.
    error: ErrorDetail
    # Always false.
    success: Literal[False]


ErrorCode = Literal['ALREADY_EXISTS', 'AMOUNT_OUT_OF_RANGE', 'API_KEY_DISABLED', 'CONSTRAINTS_NOT_MET', 'EXECUTION_NOT_FOUND', 'IDEMPOTENCY_CONFLICT', 'IDEMPOTENCY_KEY_CONFLICT', 'IDEMPOTENCY_KEY_INVALID', 'IDEMPOTENCY_KEY_PROCESSING', 'IDEMPOTENCY_KEY_REQUIRED', 'INSUFFICIENT_LIQUIDITY', 'INSUFFICIENT_SCOPE', 'INTENT_ALREADY_EXECUTING', 'INTENT_EXPIRED', 'INTENT_NOT_FOUND', 'INTERNAL_ERROR', 'INVALID_API_KEY', 'INVALID_CURSOR', 'INVALID_PAIR', 'INVALID_PARAMETER', 'INVALID_PERMIT', 'INVALID_REF_TYPE', 'INVALID_SIGNATURE', 'INVALID_STRATEGY', 'INVALID_TYPE', 'INVALID_URL', 'METHOD_NOT_ALLOWED', 'MISSING_API_KEY', 'NOT_FOUND', 'PAYLOAD_TOO_LARGE', 'RATE_LIMIT_EXCEEDED', 'SERVICE_UNAVAILABLE', 'UNSUPPORTED_MEDIA_TYPE', 'receipt_corrupt', 'receipt_not_found', 'receipt_not_issued']


class _ErrorDetailRequired(TypedDict):
    # What is wrong, for programs.
    code: ErrorCode
    # The page about the code, at this service.
    docUrl: str
    # What is wrong and what would be right, for people; it may change.
    message: str
    # The request's id, as in `X-Request-Id`; tell it when you ask for help.
    requestId: str


class ErrorDetail(_ErrorDetailRequired, total=False):
    """What is wrong."""

    # The field, query parameter or header at fault, when it is one: `beneficiary.country`.
    param: str


class Event(TypedDict):
    """An event, the same in the feed and in webhooks."""

    # The version of the payload that the endpoint is pinned to.
    apiVersion: str
    # Your own reference of the order; null when the intent has none.
    clientReference: str | None
    # The intent after the event.
    data: EventData
    # The event's id, `evt_…`, the same in every delivery: leave out what was seen before.
    id: str
    # The intent's id, as it was submitted.
    intentId: str
    # Whether no more events follow for this intent.
    isTerminal: bool
    # False for events of the test environment.
    livemode: bool
    # Always `event`.
    object: Literal['event']
    # When the service recorded it; never before `occurredAt`.
    observedAt: str
    # When it happened, by its source.
    occurredAt: str
    # The event's number within its intent: 1, 2, 3 …
    sequence: int
    # The event's type.
    type: EventType


class EventData(TypedDict):
    """What the event is about."""

    # The intent after the event.
    object: Intent


class EventEntry(TypedDict):
    """One step of an execution's history."""

    # Whether this state may formally become `reversed`.
    isReversible: bool
    # Whether the phase does not go on from this state.
    isTerminal: bool
    # When the service recorded it; never before `occurredAt`.
    observedAt: str
    # When it happened, by its source.
    occurredAt: str
    # The phase.
    phase: Phase
    # The state that the phase reached.
    state: PhaseState


class EventPage(TypedDict):
    """A page of events, oldest first."""

    # The events.
    data: list[Event]
    # Whether there are further items now.
    hasMore: bool
    # The next page's cursor, to be passed back as it is.
    nextCursor: str


EventType = Literal['intent.accepted', 'offramp.initiated', 'offramp.in_progress', 'offramp.completed', 'offramp.failed', 'payout.initiated', 'payout.in_progress', 'payout.completed', 'payout.failed', 'payout.reversed', 'intent.cancelled', 'intent.expired', 'intent.failed']


class Execution(TypedDict):
    """An execution with its history."""

    # Your own reference of the order; null when the intent has none.
    clientReference: str | None
    # The history, in its order.
    events: list[EventEntry]
    # Why it failed; null unless it did.
    failure: Failure | None
    # The anchor of the receipt; null until it is confirmed.
    finality: Finality | None
    # The current phase.
    phase: Phase
    # The payout rail's own reference; null until it is known.
    providerReference: str | None
    # The service's id of the execution, for `refType=executionId`.
    reference: str
    # Where it stands.
    status: ExecutionStatus


class ExecutionBatch(TypedDict):
    """Several executions."""

    # The executions that were found, in the order asked for.
    data: list[Execution]
    # The references that name none of yours.
    notFound: list[str]


ExecutionStatus = Literal['in_progress', 'completed', 'failed']


class _FailureRequired(TypedDict):
    # What failed, in lower snake case; docs/reasons.md lists the codes.
    code: FailureCode | str
    # The same in words, for people.
    message: str
    # Whether a new order may succeed without a change.
    retryable: bool
    # The phase that failed.
    stage: Phase


class Failure(_FailureRequired, total=False):
    """Why a settlement failed."""

    # The service's own code, where `code` says less: an intent that failed before its legs has one of the contract's
    # codes.
    detail: str


FailureCode = Literal['cancelled', 'expired', 'no_liquidity', 'below_minimum_output', 'above_maximum_input', 'screening_refused', 'price_lapsed', 'insufficient_funds', 'permit_expired', 'permit_nonce_used', 'permit_refused', 'lock_rejected', 'swap_rejected', 'conversion_failed', 'conversion_given_up', 'lock_refunded', 'lock_lost', 'fill_deadline_near', 'timelock_near', 'fill_rejected', 'transfer_rejected', 'payout_not_served', 'currency_not_served_by_rail', 'payment_type_not_accepted', 'amount_over_rail_limit', 'amount_not_accepted', 'amount_unwritable', 'reference_unwritable', 'payer_address_missing', 'beneficiary_unknown', 'beneficiary_not_verified', 'beneficiary_disabled', 'beneficiary_currency_mismatch', 'beneficiary_details_missing', 'beneficiary_details_rejected', 'beneficiary_name_unwritable', 'beneficiary_address_missing', 'beneficiary_address_unwritable', 'beneficiary_account_invalid', 'beneficiary_account_closed', 'beneficiary_account_blocked', 'beneficiary_bank_missing', 'beneficiary_bank_invalid', 'payee_not_matched', 'regulatory_details_missing', 'rail_funds_insufficient', 'rail_closed', 'order_rejected_by_bank', 'payment_rejected_by_bank', 'payment_recalled']


FeeCollection = Literal['deducted', 'absorbed']


class FeeItem(TypedDict):
    """One fee. Sum only fees of one currency."""

    # The amount, in minor units of its asset.
    amountMinor: str
    # Whether it is taken from the amount.
    collection: FeeCollection
    # The asset: an ISO 4217 code, or a token's ticker.
    currency: str
    # Decimal places of the minor unit: 2 for cents, 6 for USDC.
    exponent: int
    # What the fee is for.
    type: FeeType


FeeType = Literal['protocol_fee', 'payout_fee', 'network_fee']


class Finality(TypedDict):
    """The transaction that anchored the receipt."""

    # The chain's EIP-155 id.
    chainId: int
    # The anchor contract.
    contractAddress: str
    # The transaction's hash.
    txHash: str


class FirmQuote(TypedDict):
    """A locked price, for one intent."""

    # Units of the output asset for one of the input asset, spread included.
    allInRate: str
    # The locked fees.
    fees: list[FeeItem]
    # What is to be paid.
    input: Money
    # What the recipient gets.
    output: Money
    # The pair, input first.
    pair: str
    # The quote's id, for the `quoteId` of one intent.
    quoteId: str
    # Your own id of the request.
    requestId: str
    # Until when an intent may use the quote.
    validUntil: str


class _FirmQuoteRequestRequired(TypedDict):
    # Whom the request is for, in your own terms.
    actorId: str
    # The amount, in minor units of the asset that `amountType` chooses.
    amountMinor: str
    # Which side the amount is of.
    amountType: AmountType
    # What is paid.
    inputAsset: AssetDescriptor
    # What the recipient gets.
    outputAsset: AssetDescriptor
    # Your own id of the request.
    requestId: str


class FirmQuoteRequest(_FirmQuoteRequestRequired, total=False):
    """A request for a locked price."""

    # Whom the order is for; `institution` when absent.
    actorType: ActorType | None
    # `sell` when absent. The amount is of the asset that is paid in either case.
    side: Side | None


FundsLocation = Literal['none_moved', 'locked', 'released']


class _FundsStateRequired(TypedDict):
    # Where the input is.
    location: FundsLocation


class FundsState(_FundsStateRequired, total=False):
    """Where the input is."""

    # The transaction that locked it, while it is locked.
    lockTxHash: str
    # From this time on anyone may refund the lock to its wallet.
    timelockExpiresAt: str


class Health(TypedDict):
    """The process can answer."""

    # Always `ok`.
    status: Literal['ok']


class _InputBoundsRequired(TypedDict):
    # The most that is paid, in minor units of the input asset.
    limitAmountMinor: str


class InputBounds(_InputBoundsRequired, total=False):
    """The bounds of the input. A target equal to the limit fixes it."""

    # Equal to the limit, to fix the input; absent otherwise.
    targetAmountMinor: str | None


class Intent(TypedDict):
    """The intent after an event."""

    # The beneficiary, masked.
    beneficiary: MaskedBeneficiary
    # Why it failed; null unless it did.
    failure: Failure | None
    # Where the input is.
    fundsState: FundsState
    # The intent's id.
    id: str
    # What is paid.
    input: IntentInput
    # The lock of the input; null before there is one.
    lock: IntentLock | None
    # The conversion; null before it starts.
    offramp: IntentOfframp | None
    # What the recipient gets.
    output: IntentOutput
    # The delivery; null before it starts.
    payout: IntentPayout | None
    # The type of the latest event.
    status: EventType


class IntentInput(TypedDict):
    """What is paid."""

    # What is paid, in minor units.
    amountMinor: str
    # The asset's symbol.
    asset: str
    # The chain's name; null for money.
    chain: str | None
    # Decimal places of the minor unit: 2 for cents, 6 for USDC.
    exponent: int


class IntentLock(TypedDict):
    """The lock of the input in the escrow."""

    # From this time on anyone may refund the lock to its wallet.
    timelockExpiresAt: str
    # The transaction that locked the input.
    txHash: str


IntentMetadata = dict[str, Any]


class IntentOfframp(TypedDict):
    """The conversion."""

    # What is converted, in minor units: the input less the fees deducted from it.
    fromAmountMinor: str
    # The asset that is converted.
    fromAsset: str
    # The rate, spread included; null until it is known.
    fxRate: str | None
    # The conversion's id; null until it is completed.
    offrampId: str | None
    # Where the conversion stands.
    status: LegStatus
    # What it is converted to, in minor units; null until it is known.
    toAmountMinor: str | None
    # The asset that it is converted to.
    toCurrency: str


class IntentOutput(TypedDict):
    """What the recipient gets."""

    # What the recipient gets, in minor units.
    amountMinor: str
    # The asset's symbol.
    currency: str
    # Decimal places of the minor unit: 2 for cents, 6 for USDC.
    exponent: int


class IntentPayout(TypedDict):
    """The delivery to the recipient."""

    # When the rail confirmed the delivery; null before.
    confirmedAt: str | None
    # The payout's provider.
    provider: str
    # The rail's own reference; null until it is known.
    providerReference: str | None
    # The anchored hash of the receipt; null until the anchor is confirmed.
    receipt: str | None
    # Where the delivery stands.
    status: PhaseState


IntentRequest = Union['AmountsIntentRequest', 'BoundsIntentRequest', 'LegacyIntentRequest']


class IntentStatus(TypedDict):
    """Where an accepted intent is, without its history."""

    # Your own reference of the order; null when the intent has none.
    clientReference: str | None
    # Why it failed; null unless it did.
    failure: Failure | None
    # The intent's id, as it was submitted.
    intentId: str
    # The current phase.
    phase: Phase
    # `DVP-` and the first eight characters of `intentId`, in capitals.
    planId: str
    # Where it stands.
    status: ExecutionStatus
    # When it last changed.
    updatedAt: str


Leg = TypedDict('Leg', {'capacity': 'str | None', 'feeBps': 'float | None', 'from': 'str', 'price': 'str | None', 'to': 'str', 'venue': 'str | None'})


LegStatus = Literal['initiated', 'in_progress', 'completed', 'failed']


class LegacyConstraints(TypedDict):
    """The constraints that apply, defaults included."""

    # The most that the protocol fee may be, in basis points.
    maxFeeBps: int
    # The most that the estimated slippage may be, in basis points.
    maxSlippageBps: int
    # Where the exchange may settle.
    settlementPref: LegacySettlementPref
    # How long the order may wait, in milliseconds.
    ttlMs: int


class LegacyConstraintsRequest(TypedDict, total=False):
    """Bounds of an order of the older surface."""

    # The most that the protocol fee may be, in basis points; 30 when absent, a fraction is cut off.
    maxFeeBps: float | None
    # The most that the estimated slippage may be, in basis points; 50 when absent, a fraction is cut off.
    maxSlippageBps: float | None
    # Where the order may settle; `auto` when absent.
    settlementPref: LegacySettlementPref | None
    # How long the order may wait, in milliseconds; 30000 when absent.
    ttlMs: int | None


class LegacyIntent(TypedDict):
    """An order of the older surface."""

    # What is exchanged, as a decimal amount of the source asset.
    amount: str
    # Your own reference; null when there is none.
    clientRef: str | None
    # The constraints that apply.
    constraints: LegacyConstraints
    # When it was made.
    createdAt: str
    # What has been exchanged: `0` until the order is settled, then all of it.
    filledAmount: str
    # The intent's id, as it was submitted.
    intentId: str
    # The pair, input first.
    pair: LegacyPair
    # The execution's id while there is one.
    reference: str | None
    # What stood against the order; null unless it was rejected.
    rejection: LegacyRejection | None
    # Always `sell`.
    side: LegacySide
    # Where it stands.
    status: LegacyStatus
    # How the order is filled.
    strategy: Strategy
    # When it last changed.
    updatedAt: str


class LegacyIntentAnswer(TypedDict):
    """An order of the older surface, in its envelope."""

    # The order.
    data: LegacyIntent
    # `true`.
    success: Literal[True]


class LegacyIntentPage(TypedDict):
    """A page of orders of the older surface, newest first."""

    # The orders.
    data: list[LegacyIntent]
    # Items of a page.
    limit: int
    # The page's number, from 1.
    page: int
    # `true`.
    success: Literal[True]
    # Orders on all pages.
    total: int


class _LegacyIntentRequestRequired(TypedDict):
    # What is exchanged, as a decimal amount of the source asset.
    amount: str
    # The pair, input first.
    pair: LegacyPairRequest
    # Always `sell`.
    side: LegacySide
    # How the order is filled.
    strategy: Strategy


class LegacyIntentRequest(_LegacyIntentRequestRequired, total=False):
    """An order by strategy, of the older surface."""

    # Your own reference of the order.
    clientRef: str | None
    # Bounds; their defaults when absent.
    constraints: LegacyConstraintsRequest | None


class LegacyPair(TypedDict):
    """What is exchanged for what."""

    # The asset that is given.
    source: str
    # The asset that is got.
    target: str


class LegacyPairRequest(TypedDict):
    """What is exchanged for what."""

    # The asset that is given.
    source: str
    # The asset that is got.
    target: str


LegacyRejection = Literal['CONSTRAINTS_NOT_MET', 'INSUFFICIENT_LIQUIDITY']


LegacySettlementPref = Literal['onchain', 'offchain', 'auto']


LegacySide = Literal['sell']


LegacyStatus = Literal['pending', 'solving', 'queued', 'executing', 'settled', 'expired', 'rejected', 'cancelled']


class LoggedRequest(TypedDict):
    """A request of yours that was answered."""

    # When it was answered.
    at: str
    # How long the answer took, in milliseconds.
    durationMs: int
    # Why it was refused; null when it was not.
    error: RequestError | None
    # The API key's id.
    keyId: str
    # The HTTP method.
    method: str
    # The path, without its query.
    path: str
    # As in the header X-Request-Id of the answer.
    requestId: str
    # The HTTP status of the answer.
    status: int


class _MaskedBeneficiaryRequired(TypedDict):
    # A keyed hash of the account, the same for each order to it.
    accountHash: str | None
    # The last four characters of the account.
    accountLast4: str | None
    # The name, masked.
    nameMasked: str | None


class MaskedBeneficiary(_MaskedBeneficiaryRequired, total=False):
    """The beneficiary, masked."""

    # The bank's name.
    bank: str


class Money(TypedDict):
    """An amount of an asset."""

    # The amount, in minor units of its asset.
    amountMinor: str
    # The asset: an ISO 4217 code, or a token's ticker.
    currency: str
    # Decimal places of the minor unit: 2 for cents, 6 for USDC.
    exponent: int


class OrderLimit(TypedDict):
    """A limit that your orders meet."""

    # The asset whose amounts are counted.
    asset: str
    # The limit, in minor units.
    limitMinor: str
    # `order`: one order; `day`: the orders of a day of UTC; `open`: the orders that have not ended.
    period: Literal['order', 'day', 'open']
    # What it counts.
    scope: Literal['everything', 'partner', 'pair', 'provider', 'rail', 'chain']
    # The partner, pair, provider, rail or chain; null for everything.
    target: str | None
    # What your orders have used of it, in minor units; null for one order.
    usedMinor: str | None


class OrderLimitList(TypedDict):
    """Limits of your orders."""

    # Your own, and those of one order.
    data: list[OrderLimit]


class _OutputBoundsRequired(TypedDict):
    # The least that the recipient may get, in minor units of the output asset.
    limitAmountMinor: str


class OutputBounds(_OutputBoundsRequired, total=False):
    """The bounds of the output. A target equal to the limit fixes it; a target above the limit falls to it until the deadline."""

    # Equal to the limit, to fix the output; above it, to start a range; absent otherwise.
    targetAmountMinor: str | None


class Pair(TypedDict):
    """A pair that is dealt in."""

    # The input asset.
    base: str
    # Decimal places of the input asset.
    baseExponent: int
    # `<base>/<target>`.
    pair: str
    # The strategies that the older surface offers for it.
    strategies: list[Strategy]
    # The output asset.
    target: str
    # Decimal places of the output asset.
    targetExponent: int


class PairsAnswer(TypedDict):
    """The pairs, in the envelope of the older surface."""

    # The pairs.
    data: list[Pair]
    # `true`.
    success: Literal[True]


class _PathStepRequired(TypedDict):
    # The step's amount, in minor units of its asset.
    amountMinor: str
    # The step's asset.
    asset: str
    # How the step provides the output.
    type: StepType


class PathStep(_PathStepRequired, total=False):
    """A step of the chosen plan. A step `fiat_gateway` has `provider`, `currency` and `beneficiaryAccount`; a step `reserve` has `chain` and `source`."""

    # Of `fiat_gateway`: the account that is paid.
    beneficiaryAccount: str
    # The chain's name, of a step on a chain.
    chain: str
    # Of `fiat_gateway`: the currency that is paid.
    currency: str
    # Of `fiat_gateway`: the payout's provider.
    provider: str
    # Of `reserve`: where the output comes from.
    source: str


PayoutMethod = Literal['wire', 'swift', 'ach', 'sepa', 'sepa_instant']


class Permit(TypedDict):
    """The wallet's EIP-712 signature that lets the escrow take the input once."""

    # The most that may be taken, in minor units of the token; `amount` of what is signed.
    amountMinor: str
    # Until when the permit is good, in Unix seconds; some hours ahead.
    deadline: int
    # The wallet's next nonce: `nonces(wallet)` of the permit contract, plus its accepted intents that wait for their
    # lock.
    nonce: str
    # Hex. Of an account 65 bytes: `r`, `s` and `v`. Of a `user` that is a contract what it confirms by ERC-1271, at
    # most 2048 bytes.
    signature: str
    # The escrow of the token's chain, `contracts.escrow` of `GET /v1/chains`.
    spender: str
    # The token's contract; equal to `inputAsset.address`.
    token: str


class PermitDomain(TypedDict):
    """The EIP-712 domain that permits of the chain's tokens are signed for."""

    # `chainId` of the domain.
    chainId: int
    # `name` of the domain.
    name: str
    # The permit contract, which wallets approve once for a token.
    verifyingContract: str
    # `version` of the domain.
    version: str


Phase = Literal['intent', 'offramp', 'payout']


PhaseState = Literal['initiated', 'in_progress', 'completed', 'failed', 'reversed']


class Ping(TypedDict):
    """The content of a test event."""

    # Always true.
    ping: Literal[True]


class PingData(TypedDict):
    """What a test event carries."""

    # The content of a test event.
    object: Ping


class PingEvent(TypedDict):
    """A test event."""

    # The version of the payload that the endpoint is pinned to.
    apiVersion: str
    # Null: a test event has no intent.
    clientReference: None
    # The content of a test event.
    data: PingData
    # The event's id, `evt_…`, the same in every delivery: leave out what was seen before.
    id: str
    # Null: a test event has no intent.
    intentId: None
    # Always true.
    isTerminal: bool
    # False for events of the test environment.
    livemode: bool
    # Always `event`.
    object: Literal['event']
    # When the service recorded it; never before `occurredAt`.
    observedAt: str
    # When it happened, by its source.
    occurredAt: str
    # Always 0.
    sequence: Literal[0]
    # Always `test.ping`.
    type: Literal['test.ping']


class Quote(TypedDict):
    """Indicative prices."""

    # The candidates, best first; empty when there is no liquidity right now.
    candidates: list[Candidate]
    # Your own id of the request.
    requestId: str
    # When the prices were read, in Unix milliseconds.
    timestamp: int


class _QuoteRequestRequired(TypedDict):
    # Whom the request is for, in your own terms.
    actorId: str
    # What is given, as a decimal amount of the source asset.
    amount: str
    # Your own id of the request.
    requestId: str
    # The amount is of the source asset in either case.
    side: Side
    # The asset that is given.
    source: str
    # The asset that is got.
    target: str


class QuoteRequest(_QuoteRequestRequired, total=False):
    """A request for indicative prices."""

    # Whom the order is for; `institution` when absent.
    actorType: ActorType | None
    # Candidates above it name it in `constraintViolations`; in basis points, of which a fraction is cut off.
    maxSlippageBps: float | None
    # The kind of quote; `B_institution` when absent.
    quoteType: QuoteType | None
    # Where the exchange may settle; `hybrid` when absent.
    settlementPref: SettlementType | None


QuoteType = Literal['A_retail', 'B_institution']


class Rate(TypedDict):
    """The rate of a pair."""

    # The rate that an order of a thousand units would get, fees apart.
    appliedRate: str
    # The input asset.
    base: str
    # The reference price: units of `target` for one of `base`.
    rate: str
    # The difference between the two rates, in basis points.
    spreadBps: int
    # The output asset.
    target: str
    # When the rate was read.
    timestamp: str
    # For how long the rate may be relied on, in milliseconds.
    ttlMs: int


class RateAnswer(TypedDict):
    """A rate, in the envelope of the older surface."""

    # The rate.
    data: Rate
    # `true`.
    success: Literal[True]


class _ReceiptRequired(TypedDict):
    # The version of the receipt's fields; branch on it.
    _schemaVersion: ReceiptVersion
    # Your own reference of the order; null when the intent has none.
    clientReference: str | None
    # What was charged; empty when nothing was. The order is part of the hash.
    fees: list[FeeItem]
    # When the receipt was issued.
    issuedAt: str
    # The conversion; null when there was none.
    offramp: ReceiptOfframp | None
    # The delivery.
    payout: ReceiptPayout
    # The payout's provider.
    provider: str


class Receipt(_ReceiptRequired, total=False):
    """The receipt of a completed execution. The hash of its canonical JSON without `txHash` and `finality` is anchored on the chain."""

    # Of an erased receipt: what was erased.
    erased: ReceiptErasure
    # The anchor; absent until it is confirmed.
    finality: Finality
    # The transaction that anchored the receipt; absent until it is confirmed.
    txHash: str


class ReceiptErasure(TypedDict):
    """What was erased from the receipt, and the hash of the whole one."""

    # The anchored hash of the whole receipt.
    contentHash: str
    # The names of the fields that were erased.
    fields: list[str]


class ReceiptOfframp(TypedDict):
    """The conversion that happened."""

    # What was converted, in minor units.
    fromAmountMinor: str
    # The asset that was converted.
    fromAsset: str
    # The rate at which it was converted, spread included.
    fxRate: str
    # When it happened, by its source.
    occurredAt: str
    # Always `floor`.
    roundingRule: Literal['floor']
    # What it was converted to, in minor units.
    toAmountMinor: str
    # The asset that it was converted to.
    toAsset: str


class ReceiptPayout(TypedDict):
    """The delivery that happened."""

    # What the recipient got, in minor units.
    amountMinor: str
    # The bank's own reference; null when there is none.
    bankRef: str | None
    # The asset: an ISO 4217 code, or a token's ticker.
    currency: str
    # Decimal places of the minor unit: 2 for cents, 6 for USDC.
    exponent: int
    # When it happened, by its source.
    occurredAt: str


ReceiptVersion = Literal['svc-receipt-1', 'svc-receipt-1-erased']


class _RecipientRequired(TypedDict):
    # The name to give as `beneficiary.account` of an intent.
    account: str
    # The keyed hash of the account, the same in every event that pays it.
    accountHash: str | None
    # The last four characters of the account.
    accountLast4: str | None
    # The account's country, ISO 3166-1 alpha-2.
    country: str | None
    # The ISO 4217 code of the account.
    currency: str
    # The first letter of each word of the name.
    nameMasked: str | None
    # The rail.
    payoutMethod: PayoutMethod | None
    # Only a `verified` one is paid.
    status: Literal['unverified', 'verified', 'disabled']


class Recipient(_RecipientRequired, total=False):
    """A registered recipient."""

    # The bank, as it was registered.
    bank: str


class _RecipientDetailsRequired(TypedDict):
    # The account's number or IBAN.
    account: str
    # The account's country, ISO 3166-1 alpha-2.
    country: str
    # The recipient's name.
    name: str
    # The rail.
    payoutMethod: PayoutMethod


class RecipientDetails(_RecipientDetailsRequired, total=False):
    """Whom and where it is paid, as in the beneficiary of an intent."""

    # The recipient's postal address; needed for `wire` and `swift`.
    address: BeneficiaryAddress | None
    # The bank's name.
    bank: str | None
    # The bank's BIC (ISO 9362); alone it chooses the rail `swift`.
    swiftCode: str | None


class RecipientList(TypedDict):
    """The registered recipients."""

    # All of them, the oldest first.
    data: list[Recipient]


class RecipientRequest(TypedDict):
    """A recipient to be registered: an account in one currency."""

    # The recipient.
    beneficiary: RecipientDetails
    # ISO 4217: the currency that the account takes.
    currency: str


class Reconciliation(TypedDict):
    """Executions accepted within a range of days."""

    # Whether there are further items now.
    hasMore: bool
    # The next page's cursor, to be passed back as it is.
    nextCursor: str | None
    # When the books were last compared with the chain; null when they were not yet.
    reconciledAt: str | None
    # The executions of this page.
    rows: list[ReconciliationRow]
    # Totals of all pages.
    totals: list[ReconciliationTotal]


class ReconciliationRow(TypedDict):
    """One execution."""

    # When the intent was accepted.
    acceptedAt: str
    # The transaction that anchored the receipt; null until it is confirmed.
    anchorTxHash: str | None
    # What the last comparison of the books found about it.
    breaks: list[BreakKind]
    # Its state in the settlement contract; null when it is not known there.
    chainState: ChainState | None
    # Your own reference of the order; null when the intent has none.
    clientReference: str | None
    # What was charged; empty until its payout was carried out.
    fees: list[FeeItem]
    # What was paid.
    input: Money
    # The intent's id, as it was submitted.
    intentId: str
    # The transaction that locked the input; null without a lock.
    lockTxHash: str | None
    # What the recipient gets or got.
    output: Money
    # The hash of the receipt; null without one.
    receiptHash: str | None
    # The service's id of the execution, for `refType=executionId`.
    reference: str
    # The transaction that released the input; null until it is confirmed.
    settleTxHash: str | None
    # Where it stands.
    status: ExecutionStatus
    # When the execution ended; null while it goes on.
    terminalAt: str | None


class ReconciliationTotal(TypedDict):
    """Totals of one currency and status, over all pages."""

    # The asset: an ISO 4217 code, or a token's ticker.
    currency: str
    # Decimal places of the minor unit: 2 for cents, 6 for USDC.
    exponent: int
    # Fees that the service paid, in minor units of the currency.
    feesAbsorbedMinor: str
    # Fees that were deducted, in minor units of the currency.
    feesDeductedMinor: str
    # What was paid in this currency.
    inputs: CountAndAmount
    # What was paid out in this currency.
    outputs: CountAndAmount
    # The status that these executions have.
    status: ExecutionStatus


RefType = Literal['clientReference', 'executionId']


class _RejectedIntentRequired(TypedDict):
    # What would be right, in words, for people.
    detail: str
    # The intent's id, as it was submitted.
    intentId: str
    # The first reason that applies.
    reason: RejectionReason
    # Always `rejected`.
    status: Literal['rejected']


class RejectedIntent(_RejectedIntentRequired, total=False):
    """A rejected intent. It is decided; a changed order is a new intent."""

    # The field that the reason is about, when it is one.
    param: str


RejectionReason = Literal['beneficiary_required_for_remittance', 'permit_required', 'quote_not_found', 'quote_expired', 'quote_already_used', 'quote_mismatch', 'no_liquidity', 'below_minimum_output', 'above_maximum_input', 'beneficiary_account_required_for_fiat_output', 'beneficiary_incomplete_for_jit_payout', 'beneficiary_address_required_for_rail', 'chain_halted', 'order_limit_exceeded', 'day_limit_exceeded', 'open_limit_exceeded', 'partner_order_limit_exceeded', 'partner_day_limit_exceeded', 'partner_open_limit_exceeded', 'pair_order_limit_exceeded', 'pair_day_limit_exceeded', 'pair_open_limit_exceeded', 'provider_order_limit_exceeded', 'provider_day_limit_exceeded', 'provider_open_limit_exceeded', 'rail_order_limit_exceeded', 'rail_day_limit_exceeded', 'rail_open_limit_exceeded', 'chain_order_limit_exceeded', 'chain_day_limit_exceeded', 'chain_open_limit_exceeded']


class RequestError(TypedDict):
    """Why a request was refused."""

    # What is wrong, for programs.
    code: ErrorCode
    # What would be right.
    message: str


class RequestPage(TypedDict):
    """Requests, latest first."""

    # The requests.
    data: list[LoggedRequest]
    # Whether older ones follow.
    hasMore: bool
    # Leads to older requests; null at the end.
    nextCursor: str | None


class RestingOrder(TypedDict):
    """A maker's order that takers fill."""

    # What is offered in all, in minor units of the output asset.
    amountMinor: str
    # When it was cancelled; null unless it was.
    cancelledAt: str | None
    # Your own id of the order.
    clientOrderId: str | None
    # What takers pay.
    inputAsset: str
    # The service's id of the order, `rst_…`.
    orderId: str
    # What takers get.
    outputAsset: str
    # When it was placed.
    placedAt: str
    # Units of the output asset for one of the input asset.
    rate: str
    # What is left, in minor units of the output asset.
    remainingMinor: str
    # Where it stands.
    status: RestingOrderStatus


class RestingOrderPage(TypedDict):
    """A page of resting orders, the newest first."""

    # The orders.
    data: list[RestingOrder]
    # Whether there are further items now.
    hasMore: bool


class RestingOrderRequest(TypedDict):
    """A maker's order."""

    # What is offered in all, in minor units of the output asset.
    amountMinor: str
    # Your own id of the order: the same again is the same order.
    clientOrderId: str
    # What takers pay.
    inputAsset: str
    # What takers get.
    outputAsset: str
    # Units of the output asset for one of the input asset.
    rate: str


RestingOrderStatus = Literal['open', 'filled', 'cancelled']


class SandboxClock(TypedDict):
    """The time of a sandbox."""

    # How far it is ahead of the machine's, in whole seconds.
    aheadSeconds: int
    # UTC, to the millisecond.
    now: str


class SandboxClockRequest(TypedDict):
    """Until when the clock is advanced."""

    # RFC 3339; two months ahead of the clock at most.
    advanceTo: str


SettlementType = Literal['onchain', 'offchain', 'hybrid']


Side = Literal['buy', 'sell']


class SolvedPath(TypedDict):
    """The chosen plan."""

    # Expected seconds until the recipient has the output.
    estimatedFillTime: int
    # Until when the plan may be locked, in Unix milliseconds.
    expiresAt: int
    # The intent's id, as it was submitted.
    intentId: str
    # What the recipient gets, in minor units of the output asset.
    outputAmountMinor: str
    # The plan's score; lower is better.
    score: float
    # The provider that fills it.
    solverId: str
    # The steps.
    steps: list[PathStep]
    # Exact input: output less the least output. Exact output: the input's limit less the computed input. In minor
    # units.
    surplusAmountMinor: str


class Statement(TypedDict):
    """A page of the statement of your balance of an asset."""

    # The asset's symbol.
    asset: str
    # The balance after the last day, in minor units.
    closingMinor: str
    # The entries of this page, the oldest first.
    data: list[StatementEntry]
    # Decimal places of the minor unit: 2 for cents, 6 for USDC.
    exponent: int
    # Whether more entries follow.
    hasMore: bool
    # The `cursor` of the next page; null on the last one.
    nextCursor: str | None
    # The balance before the first day, in minor units.
    openingMinor: str
    # `available` or `reserved`.
    part: Literal['available', 'reserved']


class StatementEntry(TypedDict):
    """A posting to your balance."""

    # The change, in minor units; negative when the balance falls.
    amountMinor: str
    # The balance after it, in minor units.
    balanceMinor: str
    # Why: `deposit`, `reserve`, `settle` and others (docs/ledger.md).
    reason: str
    # When it was posted.
    recordedAt: str
    # The order, deposit or withdrawal that it belongs to.
    reference: str


StepType = Literal['reserve', 'dex_swap', 'cex_otc', 'bridge', 'cow_match', 'fiat_gateway']


Strategy = Literal['instant', 'optimized', 'scheduled']


SubscribedType = Literal['intent.accepted', 'offramp.initiated', 'offramp.in_progress', 'offramp.completed', 'offramp.failed', 'payout.initiated', 'payout.in_progress', 'payout.completed', 'payout.failed', 'payout.reversed', 'intent.cancelled', 'intent.expired', 'intent.failed', 'test.ping']


class Wallet(TypedDict):
    """A wallet that signs permits."""

    # The wallet, as you named it.
    address: str
    # The chain's name.
    chain: str
    # The chain's EIP-155 id.
    chainId: int
    # The `nonce` of the next permit, in units: the chain's own, or the one after those that open orders hold.
    nextNonce: str
    # The chain's tokens that are dealt in, at most five seconds old.
    tokens: list[WalletToken]


class WalletToken(TypedDict):
    """A token of a wallet."""

    # The token's contract.
    address: str
    # What the wallet allows the permit contract to take, in minor units.
    allowanceMinor: str
    # The asset's symbol.
    asset: str
    # The wallet's balance, in minor units.
    balanceMinor: str
    # What your own open orders will take of it, in minor units.
    heldMinor: str


class WebhookEndpoint(TypedDict):
    """The endpoint that events are sent to."""

    # The version of the payload that the endpoint is pinned to.
    apiVersion: str
    # The endpoint's id, `ep_…`.
    endpointId: str
    # Whether events are sent. They are recorded in any case.
    isActive: bool
    # When the secret was last rotated; null when it was not.
    rotatedAt: str | None
    # The types of event that are sent.
    subscribedTypes: list[SubscribedType]
    # Where events are sent: a public HTTPS URL with a standard port, without credentials.
    url: str


class WebhookQueued(TypedDict):
    """An event is queued."""

    # The event's id, `evt_…`.
    eventId: str


class WebhookRegistered(TypedDict):
    """The endpoint is registered."""

    # The endpoint's id, `ep_…`.
    endpointId: str
    # The secret that deliveries are signed with, shown here only.
    secret: str


class WebhookRegistration(TypedDict):
    """An endpoint to register."""

    # The types of event that are sent.
    subscribedTypes: list[SubscribedType]
    # Where events are sent: a public HTTPS URL with a standard port, without credentials.
    url: str


_WebhookReplayRequired = TypedDict('_WebhookReplayRequired', {'from': 'str', 'to': 'str'})


class WebhookReplay(_WebhookReplayRequired, total=False):
    """A range of time whose events are sent again."""

    # The types to send; those that the endpoint subscribes to when absent.
    types: list[SubscribedType] | None


class WebhookReplaying(TypedDict):
    """The replay is queued."""

    # The replay's id, `rpl_…`.
    replayId: str


class WebhookRotated(TypedDict):
    """The next secret."""

    # Until when deliveries carry both signatures.
    graceExpiresAt: str
    # The next secret, shown here only.
    nextSecret: str


class WebhookTest(TypedDict, total=False):
    """What to send as a test."""

    # With a test key: a made-up event of this type; a `test.ping` when absent.
    type: str | None


class WebhookUpdate(TypedDict, total=False):
    """Changes of the endpoint. Absent fields keep their values."""

    # Whether events are sent. They are recorded in any case.
    isActive: bool | None
    # The types of event that are sent.
    subscribedTypes: list[SubscribedType] | None
    # Where events are sent: a public HTTPS URL with a standard port, without credentials.
    url: str | None
