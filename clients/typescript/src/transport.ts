import { createHmac, randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

import { ApiError, type DvpError, NoAnswerError, UnexpectedAnswerError } from './errors.js'
import type { ErrorCode } from './api.js'

export interface TransportOptions {
  /** The service's address, without `/v1`. */
  baseUrl: string
  apiKey: string
  /** Needed for intents alone. */
  signingSecret?: string
  /** The time for an operation with all its retries, in milliseconds. */
  retryForMs?: number
  /** The time for one attempt. The service gives up after 12 seconds. */
  timeoutMs?: number
  fetch?: typeof fetch
  /** Told of retries and of a wrong clock. */
  log?: (message: string) => void
}

export interface CallOptions {
  /** The UUID of the operation; keep one of your own if the operation has to outlive this process. */
  idempotencyKey?: string
  signal?: AbortSignal
}

export interface Operation extends CallOptions {
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  /** With `/v1` and the query. */
  path: string
  body?: object
  signed?: boolean
  /** Whether an answer is one to this request. */
  check?: (answer: Record<string, unknown>) => boolean
  forEver?: boolean
}

interface Answer {
  status: number
  headers: Headers
  text: string
}

type Verdict =
  | { kind: 'done'; value: Record<string, unknown> }
  | { kind: 'again'; error: DvpError; after?: number | undefined }
  | { kind: 'sign anew'; error: ApiError }
  | { kind: 'failed'; error: DvpError }

const PAUSE_MS_MAX = 30_000

/** The `X-Signature` of a request. `path` is as the service gets it, `body` the very text that is sent. */
export function signRequest(
  secret: string, method: string, path: string, timestamp: string, nonce: string, body: string,
): string {
  return createHmac('sha256', secret).update(method + path + timestamp + nonce + body).digest('hex')
}

/** Sends an operation until it is answered: the same key and bytes in each attempt, and a fresh signature. */
export class Transport {
  readonly #options: TransportOptions
  readonly #base: string
  #clockOffsetMs = 0

  constructor(options: TransportOptions) {
    // Otherwise every attempt would fail, as if there were no service.
    if (!/^https?:\/\//.test(options.baseUrl) || !URL.canParse(options.baseUrl)) throw new TypeError('baseUrl is no address')
    if (!/^[\x21-\x7e]+$/.test(options.apiKey)) throw new TypeError('apiKey has to be visible ASCII characters')
    this.#base = options.baseUrl.replace(/\/+$/, '')
    this.#options = options
  }

  /** Milliseconds by the service's clock, as far as it is known. */
  now(): number {
    return Date.now() + this.#clockOffsetMs
  }

  async send<T>(operation: Operation): Promise<T> {
    const writes = operation.method === 'POST' || operation.method === 'PATCH'
    const key = writes ? (operation.idempotencyKey ?? randomUUID()) : undefined
    const body = operation.body === undefined ? '' : JSON.stringify(operation.body)
    const end = operation.forEver ? Infinity : performance.now() + (this.#options.retryForMs ?? 60_000)
    let signedAnew = false
    for (let pause = 1_000; ; pause = Math.min(2 * pause, PAUSE_MS_MAX)) {
      const verdict = await this.#attempt(operation, key, body)
      if (verdict.kind === 'done') return verdict.value as T
      if (verdict.kind === 'failed' || (verdict.kind === 'sign anew' && signedAnew)) throw verdict.error
      if (verdict.kind === 'sign anew') {
        signedAnew = true
        continue
      }
      const wait = Math.max((verdict.after ?? 0) * 1_000, pause) * (1 + Math.random() / 4)
      if (performance.now() + wait > end) throw verdict.error
      this.#log(`${verdict.error.message}; sent again in ${(wait / 1_000).toFixed(1)} s`)
      await sleep(wait, undefined, { signal: operation.signal })
    }
  }

  async #attempt(operation: Operation, key: string | undefined, body: string): Promise<Verdict> {
    const { method, path, signal } = operation
    const headers = this.#headers(operation, key, body)
    const timeout = AbortSignal.timeout(this.#options.timeoutMs ?? 15_000)
    let answer: Answer
    try {
      const response = await (this.#options.fetch ?? fetch)(this.#base + path, {
        method,
        headers,
        // Credentials go to the service alone, wherever an answer points.
        redirect: 'manual',
        signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]),
        ...(body === '' ? {} : { body }),
      })
      answer = { status: response.status, headers: response.headers, text: await response.text() }
    } catch (error) {
      signal?.throwIfAborted()
      return { kind: 'again', error: new NoAnswerError(`${method} ${path}`, reason(error), key) }
    }
    const verdict = judge(operation, key, answer, this.#base)
    if (verdict.kind === 'sign anew' && verdict.error.param === 'X-Timestamp') this.#correctClock(answer)
    return verdict
  }

  #headers({ method, path, body, signed }: Operation, key: string | undefined, text: string): Record<string, string> {
    const headers: Record<string, string> = { 'X-API-Key': this.#options.apiKey, Accept: 'application/json' }
    if (body !== undefined) headers['Content-Type'] = 'application/json'
    // The routes of webhooks have a header of their own for the same.
    if (key !== undefined) headers[/^\/v1\/(webhook|events)/.test(path) ? 'Idempotency-Key' : 'X-Idempotency-Key'] = key
    if (!signed) return headers
    if (this.#options.signingSecret === undefined) throw new TypeError('an intent needs the signingSecret')
    const timestamp = String(Math.floor(this.now() / 1_000))
    const nonce = randomUUID().replaceAll('-', '')
    const signature = signRequest(this.#options.signingSecret, method, path, timestamp, nonce, text)
    return { ...headers, 'X-Timestamp': timestamp, 'X-Nonce': nonce, 'X-Signature': signature }
  }

  #correctClock(answer: Answer): void {
    const date = Date.parse(answer.headers.get('date') ?? '')
    if (Number.isNaN(date)) return
    this.#clockOffsetMs = date - Date.now()
    const seconds = Math.round(this.#clockOffsetMs / 1_000)
    this.#log(`this machine's clock is ${-seconds} s ahead of the service's, whose time is used from now on`)
  }

  #log(message: string): void {
    const { log = console.warn } = this.#options
    log(`dvp: ${message}`)
  }
}

/** What becomes of an operation after this answer: the table in docs/api.md. */
function judge(operation: Operation, key: string | undefined, answer: Answer, base: string): Verdict {
  const { status, headers } = answer
  const isSuccess = status >= 200 && status < 300
  const seconds = /^[0-9]{1,9}$/.exec(headers.get('retry-after') ?? '')
  const after = seconds === null ? undefined : Number(seconds[0])
  const unexpected = (why: string) =>
    new UnexpectedAnswerError(`${operation.method} ${operation.path}`, status, why, key)

  const value = parse(answer)
  if (typeof value === 'string') {
    // The request may have arrived all the same: like no answer at all.
    const again = isSuccess || status >= 500 || status === 429
    return again ? { kind: 'again', error: unexpected(value), after } : { kind: 'failed', error: unexpected(value) }
  }
  if (isSuccess || (status === 422 && value['status'] === 'rejected')) {
    const isOurs = value['success'] !== false && (operation.check?.(value) ?? true)
    return isOurs ? { kind: 'done', value } : { kind: 'failed', error: unexpected('it is not about this request') }
  }
  const error = apiError(status, value, after, base)
  const isBusy = status >= 500 || status === 429
  if (error === undefined) return { kind: isBusy ? 'again' : 'failed', error: unexpected('no error body'), after }
  if (isBusy || error.code === 'IDEMPOTENCY_KEY_PROCESSING') return { kind: 'again', error, after }
  return error.code === 'INVALID_SIGNATURE' ? { kind: 'sign anew', error } : { kind: 'failed', error }
}

/** The object of the answer, or what is wrong with it. */
function parse({ headers, text }: Answer): Record<string, unknown> | string {
  if (!/^application\/json\s*(;|$)/i.test(headers.get('content-type') ?? '')) return 'it is not JSON'
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) ? value : 'it is no object'
  } catch {
    return 'its JSON is broken'
  }
}

function apiError(
  status: number, body: Record<string, unknown>, after: number | undefined, base: string,
): ApiError | undefined {
  const { error } = body
  if (!isObject(error)) return undefined
  const { code, message, param, docUrl, requestId } = error
  if (typeof code !== 'string' || typeof message !== 'string') return undefined
  const page = String(docUrl ?? '')
  return new ApiError(
    status, code as ErrorCode, message, typeof param === 'string' ? param : undefined,
    page.startsWith('/') ? base + page : page, String(requestId ?? ''), after,
  )
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Why fetch failed, without its objects: those may hold more than should be logged. */
export function reason(error: unknown): string {
  if (!(error instanceof Error)) return 'unknown'
  const code = (error.cause as { code?: unknown } | undefined)?.code
  return typeof code === 'string' ? code : error.name
}
