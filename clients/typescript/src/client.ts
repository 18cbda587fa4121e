import { setTimeout as sleep } from 'node:timers/promises'

import type { RpcUrls } from './chain.js'
import { DvpError } from './errors.js'
import { type EventQuery, type Followed, type FollowOptions, follow } from './events.js'
import { type PermitOptions, chainOf, signPermit } from './permit.js'
import { type Verification, type VerifyOptions, verifyReceipt } from './receipt.js'
import { type CallOptions, type Operation, Transport, type TransportOptions } from './transport.js'
import type * as t from './api.js'

export interface ClientOptions extends TransportOptions {
  /** Nodes by the name of their chain, for receipts. */
  rpcUrls?: RpcUrls
}

export interface ReferenceOptions {
  /** `clientReference` without it. */
  refType?: t.RefType
  signal?: AbortSignal
}

export interface WaitOptions extends ReferenceOptions {
  /** Wait for the anchor of a completed execution's receipt, too. */
  anchored?: boolean
  timeoutMs?: number
}

/** An intent by amounts or by bounds. */
export type Intent = t.AmountsIntentRequest | t.BoundsIntentRequest

/** A partner's client of the service. Amounts are texts of minor units. */
export class Client {
  readonly #transport: Transport
  readonly #rpcUrls: RpcUrls
  readonly #fetch: typeof fetch | undefined
  #sandboxAheadMs = 0

  constructor(options: ClientOptions) {
    this.#transport = new Transport(options)
    this.#rpcUrls = options.rpcUrls ?? {}
    this.#fetch = options.fetch
  }

  /** Any other route of the API, with the same retries: `request('GET', '/v1/webhook_endpoints')`. */
  request<T>(
    method: Operation['method'], path: string,
    { query = {}, ...options }: CallOptions & { body?: object; query?: Query; signed?: boolean } = {},
  ): Promise<T> {
    return this.#transport.send({ ...options, method, path: path + search(query) })
  }

  /** Candidates of an indicative quote, the best first; none means no liquidity now. */
  quote(request: t.QuoteRequest, options: CallOptions = {}): Promise<t.Quote> {
    return this.#post('/v1/quotes', request, { ...options, check: echo('requestId', request.requestId) })
  }

  /** A rate and fees that are locked until `validUntil`. */
  firmQuote(request: t.FirmQuoteRequest, options: CallOptions = {}): Promise<t.FirmQuote> {
    return this.#post('/v1/quotes/firm', request, { ...options, check: echo('requestId', request.requestId) })
  }

  /** Submits an intent once, however often it has to be sent. A rejected one is an outcome, no error. */
  submitIntent(intent: Intent, options: CallOptions = {}): Promise<t.AcceptedIntent | t.RejectedIntent> {
    const check: Operation['check'] = (answer) =>
      answer['intentId'] === intent.intentId &&
      (answer['status'] === 'rejected' ? typeof answer['reason'] === 'string' : answer['status'] === 'accepted')
    return this.#post('/v1/intents', intent, { ...options, signed: true, check })
  }

  /** Cancels an intent that is not being executed. */
  cancelIntent(intentId: string, options: CallOptions = {}): Promise<t.IntentStatus> {
    const path = `/v1/intents/${encodeURIComponent(intentId)}`
    return this.#transport.send({ ...options, method: 'DELETE', path, check: echo('intentId', intentId) })
  }

  intentStatus(intentId: string, signal?: AbortSignal): Promise<t.IntentStatus> {
    return this.#get(`/v1/intents/${encodeURIComponent(intentId)}/status`, {}, signal, echo('intentId', intentId))
  }

  /** The permit of an intent that pays with a token, signed by its wallet. */
  async signPermit(options: PermitOptions): Promise<t.Permit> {
    const chain = chainOf(options.asset, await this.chains())
    const nextNonce = async () => (await this.wallet(options.owner, chain.name)).nextNonce
    return signPermit(chain, options, this.#transport.now() + this.#sandboxAheadMs, nextNonce)
  }

  /** A wallet's next permit nonce, balances and allowances. */
  wallet(address: string, chain?: string, signal?: AbortSignal): Promise<t.Wallet> {
    return this.#get(`/v1/wallets/${encodeURIComponent(address)}`, { chain }, signal, echo('address', address))
  }

  /** The chains, their contracts, and the accounts whose anchors count. */
  async chains(signal?: AbortSignal): Promise<t.Chain[]> {
    const check: Operation['check'] = (answer) => Array.isArray(answer['chains'])
    return (await this.#get<{ chains: t.Chain[] }>('/v1/chains', {}, signal, check)).chains
  }

  /** The pairs that are dealt in, with the exponents of their assets. */
  async pairs(signal?: AbortSignal): Promise<t.Pair[]> {
    return (await this.#get<{ data: t.Pair[] }>('/v1/pairs', {}, signal)).data
  }

  execution(reference: string, { refType, signal }: ReferenceOptions = {}): Promise<t.Execution> {
    const check = echo(refType === 'executionId' ? 'reference' : 'clientReference', reference)
    return this.#get(`/v1/executions/${encodeURIComponent(reference)}`, { refType }, signal, check)
  }

  /** The execution at its end, completed or failed. */
  async waitForExecution(reference: string, options: WaitOptions = {}): Promise<t.Execution> {
    const end = performance.now() + (options.timeoutMs ?? 300_000)
    for (let pause = 500; ; pause = Math.min(1.5 * pause, 10_000)) {
      const execution = await this.execution(reference, options)
      const awaitsAnchor = options.anchored && execution.status === 'completed' && execution.finality === null
      if (execution.status !== 'in_progress' && !awaitsAnchor) return execution
      if (performance.now() + pause > end) throw new DvpError(`${reference} has not ended in time: ${execution.status}`)
      await sleep(pause, undefined, { signal: options.signal })
    }
  }

  receipt(reference: string, { refType, signal }: ReferenceOptions = {}): Promise<t.Receipt> {
    const check = refType === 'executionId' ? undefined : echo('clientReference', reference)
    return this.#get(`/v1/executions/${encodeURIComponent(reference)}/receipt`, { refType }, signal, check)
  }

  /** Verifies a receipt by its numbers and its anchor; with `chains` that you have kept, without the service. */
  async verifyReceipt(
    receipt: t.Receipt, options: Partial<VerifyOptions> = {},
  ): Promise<Verification> {
    const chains = options.chains ?? (await this.chains())
    return verifyReceipt(receipt, {
      rpcUrls: this.#rpcUrls, ...(this.#fetch && { fetch: this.#fetch }), ...options, chains,
    })
  }

  /** Follows the feed of events for ever, also through outages of the service. */
  events(options: FollowOptions = {}): AsyncGenerator<Followed, never> {
    return follow((query, signal) => this.#page(query, signal), options)
  }

  /** The pages of the report of a range of days, of one snapshot. */
  reconciliation(from: string, to: string, signal?: AbortSignal): AsyncGenerator<t.Reconciliation, void> {
    return this.#pages('/v1/reconciliation', { from, to }, signal)
  }

  /** The pages of the report of a day of UTC, as known at its end. */
  dailyReconciliation(date: string, signal?: AbortSignal): AsyncGenerator<t.DailyReconciliation, void> {
    return this.#pages('/v1/reports/reconciliation/daily', { date }, signal)
  }

  /** Registers the endpoint; its secret is in this answer only. */
  registerWebhook(endpoint: t.WebhookRegistration, options: CallOptions = {}): Promise<t.WebhookRegistered> {
    return this.#post('/v1/webhook_endpoints', endpoint, options)
  }

  /** The next secret. Deliveries have the signatures of both until the time of grace is over. */
  rotateWebhookSecret(options: CallOptions = {}): Promise<t.WebhookRotated> {
    return this.#post('/v1/webhook_endpoints/rotate', undefined, options)
  }

  /** Has a `test.ping` sent, or with a test key a made-up event of a type. */
  testWebhook(test: t.WebhookTest = {}, options: CallOptions = {}): Promise<t.WebhookQueued> {
    return this.#post('/v1/webhook_endpoints/test', test, options)
  }

  /** The time of a sandbox. */
  async sandboxClock(signal?: AbortSignal): Promise<t.SandboxClock> {
    return this.#atClock(await this.#get<t.SandboxClock>('/v1/sandbox/clock', {}, signal))
  }

  /** Advances a sandbox's clock to a time, or by seconds; what becomes due on the way is done. */
  async advanceSandboxClock(by: Date | number, options: CallOptions = {}): Promise<t.SandboxClock> {
    const from = typeof by === 'number' ? Date.parse((await this.sandboxClock(options.signal)).now) + by * 1_000 : by
    const body = { advanceTo: new Date(from).toISOString() }
    return this.#atClock(await this.#post<t.SandboxClock>('/v1/sandbox/clock', body, options))
  }

  /** Permits are signed by the sandbox's time from here on. */
  #atClock(clock: t.SandboxClock): t.SandboxClock {
    this.#sandboxAheadMs = clock.aheadSeconds * 1_000
    return clock
  }

  #post<T>(path: string, body: object | undefined, options: Partial<Operation>): Promise<T> {
    return this.#transport.send({ ...options, method: 'POST', path, ...(body && { body }) })
  }

  #get<T>(path: string, query: Query, signal?: AbortSignal, check?: Operation['check']): Promise<T> {
    return this.#transport.send({
      method: 'GET', path: path + search(query), ...(signal && { signal }), ...(check && { check }),
    })
  }

  #page(query: EventQuery, signal: AbortSignal | undefined): Promise<t.EventPage> {
    const check: Operation['check'] = ({ data, nextCursor }) =>
      Array.isArray(data) && typeof nextCursor === 'string' && (data.length === 0 || nextCursor !== query.since)
    const path = `/v1/events${search({ ...query })}`
    return this.#transport.send({ method: 'GET', path, check, forEver: true, ...(signal && { signal }) })
  }

  async *#pages<T extends { hasMore: boolean; nextCursor: string | null }>(
    path: string, query: Query, signal?: AbortSignal,
  ): AsyncGenerator<T, void> {
    let page: T | undefined
    do {
      page = await this.#get<T>(path, { ...query, cursor: page?.nextCursor ?? undefined }, signal)
      yield page
    } while (page.hasMore)
  }
}

type Query = Readonly<Record<string, string | number | readonly string[] | undefined>>

/** The query of a path. */
function search(query: Query): string {
  const parameters = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    for (const each of [value].flat()) if (each !== undefined) parameters.append(name, String(each))
  }
  const text = parameters.toString()
  return text === '' ? '' : `?${text}`
}

/** An answer is ours when it names what was asked for. */
const echo = (field: string, value: string): NonNullable<Operation['check']> => (answer) => answer[field] === value
