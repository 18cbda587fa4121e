import { createHmac, timingSafeEqual } from 'node:crypto'

import { WebhookError } from './errors.js'
import { isObject } from './transport.js'
import type { Event, PingEvent } from './api.js'

const TOLERANCE_SECONDS = 300

export interface Delivery {
  /** The secret, or both while they are rotated. */
  secret: string | readonly string[]
  headers: Headers | Readonly<Record<string, string | string[] | undefined>>
  /** The body as it arrived, before any parser. */
  body: string | Uint8Array
  /** Unix milliseconds. */
  now?: number
}

/** The event of a genuine delivery; throws a WebhookError for any other. */
export function verifyWebhook({ secret, headers, body, now = Date.now() }: Delivery): Event | PingEvent {
  if (typeof body !== 'string' && !(body instanceof Uint8Array)) {
    throw new TypeError('the body has to be given as it arrived, not parsed')
  }
  const secrets = typeof secret === 'string' ? [secret] : secret
  if (secrets.length === 0 || secrets.includes('')) throw new TypeError('a secret is needed')
  const svc = header(headers, 'svc-signature')
  const { time, given, ours } = svc === undefined ? standard(secrets, headers, body) : svcForm(secrets, svc, body)

  // Each is compared with each, in a time that tells nothing.
  const pairs = ours.flatMap((one) => given.map((other) => same(one, other)))
  if (!pairs.includes(true)) throw new WebhookError('no signature is that of this body')
  if (Math.abs(now / 1_000 - Number(time)) > TOLERANCE_SECONDS) {
    throw new WebhookError('the delivery is more than 300 seconds away from the clock')
  }
  let event: unknown
  try {
    event = JSON.parse(typeof body === 'string' ? body : Buffer.from(body).toString('utf8'))
  } catch {
    throw new WebhookError('the body is not JSON')
  }
  if (!isObject(event) || event['object'] !== 'event' || typeof event['id'] !== 'string') {
    throw new WebhookError('the body is no event')
  }
  return event as unknown as Event | PingEvent
}

/** `t=<seconds>,v1=<hex>[,v1=<hex>]`, with the whole secret as key. */
function svcForm(secrets: readonly string[], value: string, body: string | Uint8Array) {
  const parts = value.split(',').map((part) => part.trim().split('=', 2))
  const times = parts.filter(([name]) => name === 't').map(([, text]) => text)
  const time = seconds(times.length === 1 ? times[0] : undefined)
  const given = parts.flatMap(([name, text]) => (name === 'v1' && text !== undefined ? [text] : []))
  const ours = secrets.map((secret) => createHmac('sha256', secret).update(`${time}.`).update(body).digest('hex'))
  return { time, given, ours }
}

/** The headers of Standard Webhooks, with the decoded part of the secret as key. */
function standard(secrets: readonly string[], headers: Delivery['headers'], body: string | Uint8Array) {
  const id = header(headers, 'webhook-id')
  const signatures = header(headers, 'webhook-signature')
  if (id === undefined || signatures === undefined) throw new WebhookError('the delivery is not signed')
  const time = seconds(header(headers, 'webhook-timestamp'))
  const given = signatures.split(' ').flatMap((part) => (part.startsWith('v1,') ? [part.slice(3)] : []))
  const ours = secrets.map((secret) => {
    const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64')
    return createHmac('sha256', key).update(`${id}.${time}.`).update(body).digest('base64')
  })
  return { time, given, ours }
}

function seconds(text: string | undefined): string {
  if (text === undefined || !/^[0-9]{1,12}$/.test(text)) throw new WebhookError('the delivery has no time')
  return text
}

function same(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)]
  return a.length === b.length && timingSafeEqual(a, b)
}

function header(headers: Delivery['headers'], name: string): string | undefined {
  if (headers instanceof Headers) return headers.get(name) ?? undefined
  const values = Object.entries(headers).flatMap(([key, value]) => (key.toLowerCase() === name ? (value ?? []) : []))
  return values.length === 0 ? undefined : values.join(',')
}
