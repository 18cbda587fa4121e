import type { ErrorCode } from './api.js'

/** Every error of this package. None of them holds a key, a secret, a header or a body. */
export class DvpError extends Error {
  override name = this.constructor.name
}

/** The service refused: `code` says why, and keeps its meaning. */
export class ApiError extends DvpError {
  constructor(
    readonly status: number,
    readonly code: ErrorCode,
    message: string,
    /** The field, query parameter or header at fault. */
    readonly param: string | undefined,
    /** The page of the code. */
    readonly docUrl: string,
    readonly requestId: string,
    /** Seconds after which the same request may be sent again. */
    readonly retryAfter: number | undefined,
  ) {
    super(`${code}: ${message}${param === undefined ? '' : ` (${param})`}, request ${requestId}`)
  }
}

/**
 * There was no answer within the time for retries, so that the outcome of a write is not known.
 * The same operation with the same `idempotencyKey` and body gets the answer that was lost.
 */
export class NoAnswerError extends DvpError {
  constructor(operation: string, why: string, readonly idempotencyKey: string | undefined) {
    super(`${operation}: no answer (${why})`)
  }
}

/** The answer cannot be the service's: a proxy's page, a redirect, a cut body, or another order's. */
export class UnexpectedAnswerError extends DvpError {
  constructor(operation: string, readonly status: number, why: string, readonly idempotencyKey: string | undefined) {
    super(`${operation}: unexpected answer ${status} (${why})`)
  }
}

/** A node of a chain does not answer, or is of another chain. */
export class ChainError extends DvpError {}

/** A delivery that is not genuine: answer it with 401. */
export class WebhookError extends DvpError {}
